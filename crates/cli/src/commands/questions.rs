//! What a sandbox in the foreground asks: told in its terminal, and answered elsewhere (`belljar approve`). What the program inside
//! reads from that terminal is never an answer.

use super::steer::approve;
use belljar_engine::Sandbox;
use belljar_spec::egress::{LiveNotice, Mode, QuestionReport};
use std::io::Write;

/// Tells of questions for as long as the event loop runs. A program may have the whole screen: there the window's title says it.
pub(super) fn tell(sandbox: &Sandbox, has_terminal: bool) {
    // In every mode but `none` a program can ask (`belljar ask`).
    let asks = sandbox.policy().is_some_and(|policy| policy.mode != Mode::None.as_str());
    let Some(mut notices) = sandbox.notices().filter(|_| asks) else { return };
    let id = sandbox.id().to_string();
    tokio::spawn(async move {
        while let Some(notice) = notices.next().await {
            match notice {
                LiveNotice::Opened { question } => announce(&id, &question, has_terminal),
                LiveNotice::Answered { .. } if has_terminal => {
                    drop(std::io::stderr().write_all(RESTORE_TITLE))
                }
                LiveNotice::Answered { .. } | LiveNotice::Changed { .. } | LiveNotice::Missed { .. } => {}
            }
        }
    });
}

fn announce(id: &str, question: &QuestionReport, has_terminal: bool) {
    let QuestionReport { name, port, why, .. } = question;
    let number = approve::name_of(id, question);
    match has_terminal {
        // One write, so that it stands in no sequence of ours; the title is the previous one afterwards.
        true => {
            let title =
                format!("\x1b[22;2t\x1b]2;may {name}:{port} be reached? belljar approve {number}\x07\x07");
            let _ = std::io::stderr().write_all(title.as_bytes());
        }
        false => {
            let why = why.as_ref().map(|why| format!(" The program says: \"{why}\".")).unwrap_or_default();
            eprintln!(
                "belljar: may {name}:{port} be reached?{why} It waits for a minute: `belljar approve {number}`"
            );
        }
    }
}

const RESTORE_TITLE: &[u8] = b"\x1b[23;2t";

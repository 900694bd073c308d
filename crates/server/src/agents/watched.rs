//! A run as the daemon sees it: a shim, a log that grows, and a client that listens.

use super::story;
use crate::link::{Started, run_failed};
use crate::shim::protocol::Answer;
use belljar_agent::read::{self, Found, Reader};
use belljar_api::{RunEvent, RunInfo};
use belljar_spec::{SandboxError, SandboxId};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::error;

/// What happens in a run whose shim answered, from its first line to its result. The run ends when the client stops receiving them;
/// nothing in it waits for the client.
pub(crate) fn events(
    answer: &Answer,
    shim: Started,
    agent: String,
) -> Result<Receiver<RunEvent>, SandboxError> {
    let id = if let Answer::Run(id) = answer { SandboxId::parse(id) } else { None };
    let id = id.ok_or_else(|| run_failed("read the answer of the shim", &"it named no run"))?;
    let path = read::directory(&belljar_state::state_directory()?, id).join(belljar_agent::log::FILE);
    let (tell, receiver) = channel(AHEAD);
    // Files are read and a process is waited for: a thread, for as long as the run takes.
    std::thread::spawn(move || {
        let started = RunEvent::Started { run: RunInfo { id: id.to_string(), agent } };
        if tell.blocking_send(started).is_ok()
            && let Err(error) = pass(&path, &tell)
        {
            error!("the log of run {id} cannot be followed: {error}");
        }
        shim.end_blocking();
    });
    Ok(receiver)
}

/// Every line, until the result, or until the shim no longer writes or the client no longer listens.
fn pass(path: &Path, tell: &Sender<RunEvent>) -> Result<(), read::ReadError> {
    let mut reader = Reader::open(path)?;
    loop {
        // Asked before the last lines are looked for, which may be written in between.
        let is_live = reader.is_live();
        while let Some(found) = reader.next_line()? {
            let Found::Line { line, text } = found else { continue };
            for event in story::events_of(&line, &text) {
                let is_last = matches!(event, RunEvent::Final { .. });
                if tell.blocking_send(event).is_err() || is_last {
                    return Ok(());
                }
            }
        }
        if !is_live {
            let _ = tell.blocking_send(story::broken_off());
            return Ok(());
        }
        if tell.is_closed() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Events that wait for a slow reader. The rest waits in the log.
const AHEAD: usize = 64;
/// How long a line waits at most before it is told.
const PAUSE: Duration = Duration::from_millis(40);

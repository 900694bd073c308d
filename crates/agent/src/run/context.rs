//! What an agent is told of the place it is in. It goes into the file in its home that it reads whatever the folder; the
//! folder's own AGENTS.md stays the folder's, and is read from where it lies.

use belljar_spec::SandboxSpec;
use belljar_spec::egress::Mode;
use belljar_spec::workspace::WorkspaceMode;
use std::fmt::Write;

/// The text.
pub(super) fn context(spec: &SandboxSpec, cwd: &str, more: &[(String, String)]) -> String {
    let mut text = String::from("# Where you are\n\n");
    let _ = writeln!(
        text,
        "- You run in a sandbox. Your work is in `{cwd}`; home and /tmp are gone when you are done."
    );
    let _ = writeln!(text, "- {}", network(spec));
    let _ = writeln!(text, "- {}", changes(spec));
    text.push_str(
        "- Keys in your environment are placeholders. They work where they belong, and nowhere else.\n",
    );
    text.push_str("- `.git/hooks`, `.git/config` and other protected files cannot be changed: that is no error of yours.\n");
    for (name, content) in more {
        let _ = write!(text, "\n<!-- {} -->\n{}\n", name.replace("--", "- -"), content.trim_end());
    }
    text
}

fn network(spec: &SandboxSpec) -> String {
    let policy = spec.egress.clone().unwrap_or_default();
    let names: Vec<String> = policy.allow.iter().map(|rule| format!("`{}`", rule.host)).take(NAMES).collect();
    match policy.mode {
        Mode::None => "There is no network but the model you talk to.".into(),
        Mode::Ask => {
            "A person is asked before a host is reached for the first time: such a connection waits for up to a minute. If it \
             is refused, that person decided so, or was away: say in your answer which host you needed and why. Do not look \
             for other ways."
                .into()
        }
        Mode::Open => "Public hosts can be reached by name; private networks cannot.".into(),
        Mode::Strict if names.is_empty() => "There is no network but the model you talk to.".into(),
        Mode::Strict => {
            let more = policy.allow.len().saturating_sub(NAMES);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "Of the network only these names can be reached: {}{rest}. Do not look for other ways.",
                names.join(", ")
            )
        }
    }
}

fn changes(spec: &SandboxSpec) -> &'static str {
    match spec.mode {
        WorkspaceMode::Bind => "What you change there is changed for the person who started you.",
        WorkspaceMode::Own(_) => "What you change there is kept with the sandbox.",
        WorkspaceMode::Overlay { .. } => {
            "What you change there is kept beside the folder until a person has looked at it. `git push host` brings \
             commits to the repository it came from."
        }
        WorkspaceMode::ManagedClone { .. } => {
            "You work on a branch of your own. Commit, and `git push` brings commits to the repository it came from."
        }
        WorkspaceMode::Clone(_) => {
            "You work in a fresh clone. Only what you commit is kept; a person pushes it."
        }
    }
}

/// As many as an agent needs to get the idea.
const NAMES: usize = 40;

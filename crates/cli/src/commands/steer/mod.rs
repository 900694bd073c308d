//! Sandboxes that live: what they may reach is changed, and what they ask is answered. Each takes orders from its owner over a socket
//! of its own, with or without a daemon.

pub(super) mod approve;
mod ask;
mod change;
mod why;

use crate::args::SteerCommand;
use belljar_engine::{Steered, steered};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::state_directory;
use belljar_sys::rustix::process::getuid;
use serde::Serialize;
use std::path::{Path, PathBuf};

pub(crate) fn steer(command: SteerCommand) -> Result<u8, SandboxError> {
    match command {
        SteerCommand::Allow(options) => change::allow(options),
        SteerCommand::Deny(options) => change::deny(options),
        SteerCommand::Approve(options) => approve::approve(options),
        SteerCommand::Ask(options) => ask::ask(&options),
        SteerCommand::Why(options) => why::why(options),
    }
}

/// Where sandboxes that live are found.
pub(super) fn state() -> Result<PathBuf, SandboxError> {
    state_directory().map_err(|error| {
        let hint = error.hint();
        ErrorCode::StateFailed.error(error.to_string()).hint(hint).caused_by(error)
    })
}

/// Who gives an order, for the audit log.
pub(super) fn who() -> String {
    format!("the owner, uid {}", getuid().as_raw())
}

/// The sandbox that a word means.
pub(super) fn chosen(state: &Path, word: &str) -> Result<Steered, SandboxError> {
    choose(word, steered(state))
}

fn choose(word: &str, all: Vec<Steered>) -> Result<Steered, SandboxError> {
    let is_exact = |one: &&Steered| {
        one.id == word || one.name.as_deref() == Some(word) || one.key.as_deref() == Some(word)
    };
    if let Some(one) = all.iter().find(is_exact) {
        return Ok(one.clone());
    }
    let folder = Path::new(word).canonicalize().ok().filter(|path| path.is_dir());
    let begins = |one: &&Steered| {
        let name = one
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with(word) || name.trim_start_matches("bj-").starts_with(word));
        let in_folder =
            folder.as_deref().is_some_and(|folder| one.folder.as_deref().map(Path::new) == Some(folder));
        in_folder || (!word.is_empty() && (name || one.id.starts_with(word)))
    };
    let meant: Vec<&Steered> = all.iter().filter(begins).collect();
    match meant.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(ErrorCode::SandboxNotFound
            .error(format!("no sandbox `{word}` lives that takes orders"))
            .hint("one without egress (`--egress none`) takes none; `belljar approve` and `belljar list` show what there is")),
        several => {
            let ids: Vec<&str> = several.iter().map(|one| one.id.as_str()).collect();
            let message = format!("`{word}` could be several sandboxes");
            Err(ErrorCode::RequestValue.error(message).hint(format!("name one of {}", ids.join(", "))))
        }
    }
}

/// The sandboxes that work on this folder.
pub(super) fn of_folder(state: &Path, folder: &Path) -> Vec<Steered> {
    let mut all = steered(state);
    all.retain(|one| one.folder.as_deref().map(Path::new) == Some(folder));
    all
}

/// What people call a sandbox.
pub(super) fn called(one: &Steered) -> &str {
    one.name.as_deref().unwrap_or(&one.id)
}

/// Prints data for a program.
fn print_json(value: &impl Serialize) -> Result<u8, SandboxError> {
    let text = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    super::print(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: &str, name: Option<&str>, folder: Option<&str>) -> Steered {
        Steered {
            id: id.into(),
            name: name.map(String::from),
            key: name.map(|name| format!("key of {name}")),
            folder: folder.map(String::from),
            backend: "native".into(),
            asks: false,
            started_ms: 0,
            pid: 1,
        }
    }

    #[test]
    fn a_word_means_one_sandbox_or_none() {
        let all = || {
            vec![
                one("3f2a000000000001", None, Some("/")),
                one("3f2a000000000002", Some("bj-web-1a"), None),
                one("77aa000000000003", Some("bj-web-2b"), None),
            ]
        };
        let chosen = |word: &str| choose(word, all()).map(|one| one.id).map_err(|error| error.code);
        for (word, expected) in [
            ("77", Ok("77aa000000000003")),
            ("3f2a000000000002", Ok("3f2a000000000002")),
            ("bj-web-2b", Ok("77aa000000000003")),
            ("web-1", Ok("3f2a000000000002")),
            ("key of bj-web-1a", Ok("3f2a000000000002")),
            ("/", Ok("3f2a000000000001")),
            ("3f2a", Err(ErrorCode::RequestValue)),
            ("web", Err(ErrorCode::RequestValue)),
            ("", Err(ErrorCode::SandboxNotFound)),
            ("nothing", Err(ErrorCode::SandboxNotFound)),
        ] {
            assert_eq!(chosen(word), expected.map(String::from), "{word}");
        }
    }
}

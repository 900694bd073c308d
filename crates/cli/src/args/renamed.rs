//! Older spellings of commands. Each still works exactly as the newer one does, and is shown nowhere.

use std::ffi::OsString;

/// The arguments with today's spelling of their command, also behind `help`.
pub(super) fn current_spelling(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let at = usize::from(arguments.first().is_some_and(|first| first == "help"));
    let renamed = RENAMED.iter().find(|(old, _)| {
        let given = arguments.iter().skip(at).take(old.len());
        old.len() + at <= arguments.len() && given.zip(*old).all(|(given, old)| given == old)
    });
    if let Some((old, new)) = renamed {
        arguments.splice(at..at + old.len(), new.iter().map(OsString::from));
    }
    arguments
}

/// What a command was called, and what it is called.
const RENAMED: &[(&[&str], &[&str])] = &[
    (&["init"], &["sandbox", "init"]),
    (&["ps"], &["sandbox", "ps"]),
    (&["attach"], &["sandbox", "attach"]),
    (&["pause"], &["sandbox", "pause"]),
    (&["resume"], &["sandbox", "resume"]),
    (&["admin"], &["sandbox", "admin"]),
    (&["show-run"], &["sandbox", "plan"]),
    (&["volumes"], &["volume", "list"]),
    (&["shared-volumes"], &["volume", "shared"]),
    (&["layers"], &["changes", "list"]),
    (&["discard"], &["changes", "discard"]),
    (&["publish"], &["changes", "publish"]),
    (&["codex-init-config"], &["agent", "config", "codex"]),
    (&["claude-init-config"], &["agent", "config", "claude"]),
    (&["golden"], &["images", "golden"]),
    (&["build-base"], &["images", "build-base"]),
    (&["build"], &["images", "build"]),
    (&["llm", "spend"], &["audit", "spend"]),
    (&["trust"], &["config", "trust"]),
    (&["profiles"], &["config", "profiles"]),
    (&["service"], &["daemon", "service"]),
    (&["grants"], &["daemon", "grants"]),
    (&["sweep"], &["daemon", "sweep"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    fn current(words: &str) -> String {
        let arguments = current_spelling(words.split(' ').map(OsString::from).collect());
        arguments.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn an_old_spelling_becomes_the_new_one() {
        for (old, new) in [
            ("layers --json", "changes list --json"),
            ("help layers", "help changes list"),
            ("grants create ci", "daemon grants create ci"),
            ("llm spend 3f2a", "audit spend 3f2a"),
            ("run -- layers", "run -- layers"),
            ("secrets list", "secrets list"),
            ("help", "help"),
        ] {
            assert_eq!(current(old), new);
        }
    }

    #[test]
    fn every_new_spelling_is_a_command_and_no_old_one_is() {
        for (old, new) in RENAMED {
            let root = command();
            let reached = old.iter().try_fold(&root, |command, word| command.find_subcommand(word));
            assert!(reached.is_none(), "{old:?} would never be reached");
            let found = new.iter().try_fold(&root, |command, word| command.find_subcommand(word));
            assert!(found.is_some(), "{new:?}");
        }
    }
}

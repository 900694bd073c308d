//! The help of `belljar` itself: its commands in groups, the everyday ones first.

use clap::Command;
use std::fmt::Write;

/// `belljar` with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let text = listing(&command, width());
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\nOptions:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// The names of all of them.
pub(super) fn names() -> Vec<&'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect()
}

fn listing(command: &Command, width: usize) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let known: Vec<&Command> = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        // A string can always be written to.
        let _ = writeln!(text, "{title}:");
        for one in known {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = write!(text, "  {:<NAME_WIDTH$}", one.get_name());
            text.push_str(&wrapped(&about, NAME_WIDTH + 2, width));
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// Words in lines of this width, each line but the first behind an indent.
fn wrapped(words: &str, indent: usize, width: usize) -> String {
    let (mut text, mut column) = (String::new(), indent);
    for word in words.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

/// As wide as the terminal, as for every other help.
fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || crate::foreground::terminal_size().map(|size| usize::from(size.cols));
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(MAX_WIDTH).min(MAX_WIDTH)
}

/// Title, and commands in the order of a first day. At most [`EVERYDAY`] of them stand before the last group, whose commands have
/// commands of their own.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["run", "shell", "exec", "agent"]),
    ("Sandboxes", &["start", "stop", "list", "logs", "rm"]),
    ("Changes", &["diff", "apply"]),
    ("Access", &["forward", "allow", "secrets", "policy"]),
    ("This machine", &["images", "audit", "doctor", "config", "serve"]),
    ("More", MORE),
];
const MORE: &[&str] = &[
    "ask",
    "sandbox",
    "changes",
    "snapshot",
    "snapshots",
    "fork",
    "restore",
    "undo",
    "deny",
    "approve",
    "why",
    "verify",
    "ui",
    "volume",
    "llm",
    "mcp",
    "integrate",
    "daemon",
    "e2b",
    "du",
    "prune",
    "uninstall",
    "completions",
    "man",
    "help",
];

/// Room for the longest name.
const NAME_WIDTH: usize = 13;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    /// How many commands a new user has to look at.
    const EVERYDAY: usize = 20;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        for one in command().get_subcommands().filter(|one| !one.is_hide_set()) {
            let times = listed.iter().filter(|name| **name == one.get_name()).count();
            assert_eq!(times, 1, "{}", one.get_name());
        }
        let everyday = listed.len() - MORE.len();
        assert!(everyday <= EVERYDAY, "{everyday} commands at the top");
    }

    #[test]
    fn words_are_wrapped_behind_their_indent() {
        assert_eq!(wrapped("one two three", 2, 9), "one two\n  three\n");
        assert_eq!(wrapped("incomprehensibilities", 2, 9), "incomprehensibilities\n");
    }
}

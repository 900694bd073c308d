//! What is refused, and what an agent is told. Pure.

use super::arguments::{Line, Value, Word, line, split, words};
use super::{grammar, printable};
use std::fmt;

/// Why a line is not passed on.
pub(super) struct Refusal {
    /// As it was written.
    spelled: String,
    reason: Reason,
}

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Hooks would not run.
    SkipsHooks,
    /// Commits of the remote would be lost.
    Overwrites,
    /// Branches or tags of the remote would be lost.
    Deletes,
}

/// Judges a line of git, without the word `git`. `variable` gives the environment.
pub(super) fn judge(words: &[Vec<u8>], variable: &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<Refusal> {
    judge_nested(words, variable, MOST_ALIASES)
}

fn judge_nested(
    all: &[Vec<u8>],
    variable: &dyn Fn(&str) -> Option<Vec<u8>>,
    aliases: usize,
) -> Option<Refusal> {
    let line = line(all)?;
    let command = printable(line.command);
    let refusal = |spelled: &str, reason| Some(Refusal { spelled: format!("{command} {spelled}"), reason });
    if !WITHOUT_OUR_HOOKS.contains(&command.as_str())
        && let Some(spelled) = hooks_elsewhere(&line, variable)
    {
        return Some(Refusal { spelled, reason: Reason::SkipsHooks });
    }
    let Some(grammar) = grammar::of(line.command) else {
        return match command.as_str() {
            "config" if sets_hooks_path(line.rest) => refusal("core.hooksPath", Reason::SkipsHooks),
            _ => judge_alias(&line, variable, aliases.checked_sub(1)?),
        };
    };
    if variable("HUSKY").as_deref() == Some(b"0") {
        return Some(Refusal { spelled: format!("HUSKY=0 git {command}"), reason: Reason::SkipsHooks });
    }
    let is_push = command == "push";
    let mut refused: Vec<(&str, &[u8], Reason)> = Vec::new();
    let mut plain = 0;
    for word in words(grammar, line.rest) {
        match word {
            Word::Option(name, written) => {
                let opposite = name.strip_prefix("no-").map_or_else(|| format!("no-{name}"), str::to_string);
                refused.retain(|(name, ..)| *name != opposite);
                let known = REFUSED.iter().find(|(refused, ..)| *refused == name);
                if let Some((name, reason)) = known.filter(|(name, _)| is_push || *name == "no-verify") {
                    refused.push((name, written, *reason));
                }
            }
            Word::Plain(word) if is_push => {
                // The first one is the remote.
                plain += 1;
                match word {
                    [b'+', ..] if plain > 1 => refused.push(("+", word, Reason::Overwrites)),
                    [b':', _, ..] if plain > 1 => refused.push((":", word, Reason::Deletes)),
                    _ => {}
                }
            }
            Word::Plain(_) => {}
        }
    }
    let (_, written, reason) = refused.first()?;
    refusal(&printable(written), *reason)
}

/// What a line with an alias of its own means: one that lies in a file is git's to know.
fn judge_alias(
    line: &Line<'_>,
    variable: &dyn Fn(&str) -> Option<Vec<u8>>,
    aliases: usize,
) -> Option<Refusal> {
    let name = [b"alias.", line.command].concat();
    let value =
        line.settings.iter().rfind(|(key, _)| key.eq_ignore_ascii_case(&name)).map(|(_, value)| *value)?;
    let text = match value {
        Value::Here(text) => text.to_vec(),
        Value::InVariable(name) => variable(&String::from_utf8_lossy(name))?,
    };
    let meaning = match text.strip_prefix(b"!") {
        // A shell's line; one that begins with git can be read.
        Some(shell) => split(shell).strip_prefix(&[b"git".to_vec()])?.to_vec(),
        None => split(&text),
    };
    let words = [line.options, &meaning, line.rest].concat();
    judge_nested(&words, variable, aliases)
}

/// How a line, or its environment, leads hooks elsewhere.
fn hooks_elsewhere(line: &Line<'_>, variable: &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<String> {
    let leads = |key: &[u8]| key.eq_ignore_ascii_case(HOOKS_PATH);
    if line.settings.iter().any(|(key, _)| leads(key)) {
        return Some("-c core.hooksPath".to_string());
    }
    let count =
        variable("GIT_CONFIG_COUNT").and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    // An empty one is what Gemini gives to every command of its: no word of the model's would let it commit.
    let is_said = |index: &usize| {
        let value = variable(&format!("GIT_CONFIG_VALUE_{index}"));
        variable(&format!("GIT_CONFIG_KEY_{index}")).is_some_and(|key| leads(&key))
            && value.is_none_or(|value| !value.is_empty())
    };
    if let Some(index) = (0..count.unwrap_or(0).min(MOST_SETTINGS)).find(is_said) {
        return Some(format!("GIT_CONFIG_KEY_{index}=core.hooksPath"));
    }
    // What git itself passes on to its own commands: 'name'='value' 'name'='value'.
    let parameters = variable("GIT_CONFIG_PARAMETERS")?.to_ascii_lowercase();
    let found = parameters.windows(HOOKS_PATH.len()).any(|part| part == HOOKS_PATH);
    found.then(|| "GIT_CONFIG_PARAMETERS with core.hooksPath".to_string())
}

/// Whether `git config` is asked to set it, and not to say it or to take it away.
fn sets_hooks_path(rest: &[Vec<u8>]) -> bool {
    let asks = rest.iter().any(|word| {
        word.starts_with(b"--get") || word.starts_with(b"--unset") || matches!(&word[..], b"get" | b"unset")
    });
    let at = rest.iter().position(|word| word.eq_ignore_ascii_case(HOOKS_PATH));
    !asks && at.is_some_and(|at| rest.len() > at + 1)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, instead) = match self.reason {
            Reason::SkipsHooks => (
                "it would skip the hooks of this project",
                "let the hooks run and mend what they report; if a hook itself is wrong, ask the user",
            ),
            Reason::Overwrites => (
                "it would overwrite commits that others may have",
                "push without force, after `git pull --rebase` or to a new branch; if history has to change, ask the user",
            ),
            Reason::Deletes => (
                "it would delete branches or tags of the remote",
                "leave them where they are; if they have to go, ask the user",
            ),
        };
        writeln!(f, "git: `{}` is refused in this sandbox: {why}\n  instead: {instead}", self.spelled)
    }
}

/// Options that are refused; all but the first only for a push.
const REFUSED: [(&str, Reason); 7] = [
    ("no-verify", Reason::SkipsHooks),
    ("force", Reason::Overwrites),
    ("force-with-lease", Reason::Overwrites),
    ("force-if-includes", Reason::Overwrites),
    ("mirror", Reason::Deletes),
    ("delete", Reason::Deletes),
    ("prune", Reason::Deletes),
];
/// Commands that tools give another `core.hooksPath` for good reasons: they look, or fetch, and skip no hook of this project.
const WITHOUT_OUR_HOOKS: [&str; 9] =
    ["clone", "config", "fetch", "init", "ls-files", "ls-remote", "rev-parse", "status", "submodule"];
const HOOKS_PATH: &[u8] = b"core.hookspath";
/// An alias may name another.
const MOST_ALIASES: usize = 4;
const MOST_SETTINGS: usize = 64;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! Which argument the cursor is at, and what it can be. Nothing is refused here: what does not fit is completed as far as it goes.

use super::sources;
use clap::{Arg, Command};

/// What a shell offers.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) candidates: Vec<Candidate>,
    /// Paths of this machine as well.
    pub(super) paths: Option<Paths>,
}

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) word: String,
    pub(super) about: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paths {
    Files,
    Folders,
}

/// What the last word can become.
pub(super) fn offer(root: &Command, words: &[String]) -> Offer {
    let Some((last, before)) = words.split_last() else { return Offer::default() };
    let at = Position::behind(root, before);
    let offer = match (at.pending, last.split_once('=')) {
        (Some(argument), _) => values(argument, ""),
        (None, Some((flag, _))) if flag.starts_with("--") && !at.is_positional => {
            let argument = at.command.get_arguments().find(|one| one.get_long() == flag.strip_prefix("--"));
            argument.map(|argument| values(argument, &format!("{flag}="))).unwrap_or_default()
        }
        (None, _) if last.starts_with('-') && !at.is_positional => flags(at.command),
        (None, _) => at.words(),
    };
    let candidates = offer
        .candidates
        .into_iter()
        .filter(|one| one.word.starts_with(last.as_str()) && is_plain(&one.word))
        .collect();
    Offer { candidates, ..offer }
}

/// Whether a shell takes a word as it is. A name may be an agent's, and not every shell quotes what it completes.
fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./@:=+,%".contains(&byte))
}

/// Where a word stands.
struct Position<'a> {
    command: &'a Command,
    /// The flag whose value comes next.
    pending: Option<&'a Arg>,
    /// How many words without a flag came before.
    positionals: usize,
    /// No flag is meant any more: `--` came, or the command to run.
    is_positional: bool,
}

impl<'a> Position<'a> {
    fn behind(root: &'a Command, words: &[String]) -> Position<'a> {
        let mut at = Position { command: root, pending: None, positionals: 0, is_positional: false };
        for word in words {
            at.pass(word);
        }
        at
    }

    fn pass(&mut self, word: &str) {
        if self.pending.take().is_some() {
            return;
        }
        if self.is_positional {
            self.positionals += 1;
        } else if word == "--" {
            self.is_positional = true;
        } else if let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) {
            let named = |one: &&Arg| match flag.strip_prefix('-') {
                Some(long) => one.get_long() == Some(long),
                None => one.get_short().is_some_and(|short| flag.ends_with(short)),
            };
            let argument = self.command.get_arguments().find(named);
            self.pending =
                argument.filter(|one| one.get_action().takes_values() && !one.is_require_equals_set());
        } else if let Some(below) = self.command.find_subcommand(word).filter(|_| self.positionals == 0) {
            self.command = below;
        } else {
            self.positionals += 1;
            self.is_positional = self.positional().is_some_and(Arg::is_trailing_var_arg_set);
        }
    }

    /// The argument that a word without a flag is, here or at the last one.
    fn positional(&self) -> Option<&'a Arg> {
        let all: Vec<&Arg> = self.command.get_positionals().collect();
        all.get(self.positionals).or(all.last()).copied()
    }

    fn words(&self) -> Offer {
        let below = self.command.get_subcommands().filter(|one| !one.is_hide_set() && self.positionals == 0);
        let about = |one: &Command| one.get_about().map(ToString::to_string).unwrap_or_default();
        let commands = below.map(|one| Candidate { word: one.get_name().into(), about: about(one) });
        let mut offer = self.positional().map(|argument| values(argument, "")).unwrap_or_default();
        if self.is_positional {
            offer.paths = Some(Paths::Files);
        }
        offer.candidates.splice(0..0, commands);
        offer
    }
}

fn flags(command: &Command) -> Offer {
    let shown = command.get_arguments().filter(|one| !one.is_hide_set());
    let first_line = |one: &Arg| {
        one.get_help().map(ToString::to_string).and_then(|help| help.lines().next().map(String::from))
    };
    let one = |one: &Arg| {
        let word = format!("--{}", one.get_long()?);
        Some(Candidate { word, about: first_line(one).unwrap_or_default() })
    };
    let help = Candidate { word: "--help".into(), about: "Print help".into() };
    Offer { candidates: shown.filter_map(one).chain([help]).collect(), paths: None }
}

/// What an argument can be. `before` is what stands before each value.
fn values(argument: &Arg, before: &str) -> Offer {
    let known = argument.get_possible_values();
    let fixed = known.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_string());
    let name =
        argument.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()).unwrap_or_default();
    let found = sources::values(argument.get_id().as_str(), name);
    let word = |value: String| Candidate { word: format!("{before}{value}"), about: String::new() };
    Offer { candidates: fixed.chain(found).map(word).collect(), paths: sources::paths(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    fn offered(words: &str) -> (Vec<String>, Option<Paths>) {
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        let offer = offer(&command(), &words);
        (offer.candidates.into_iter().map(|one| one.word).collect(), offer.paths)
    }

    #[test]
    fn a_word_is_completed_where_it_stands() {
        for (words, expected) in [
            ("doc", "doctor"),
            ("images pu", "pull"),
            ("image build --no-c", "--no-cache"),
            ("run --backend bw", "bwrap"),
            ("run --backend=bw", "--backend=bwrap"),
            ("run --group reg", "registries"),
            ("run --tty al", "always"),
            ("run -q --runtime runs", "runsc"),
            ("start --profile nat", "native"),
            ("agent run gem", "gemini"),
            ("agent config co", "codex"),
            ("help top", "topics"),
        ] {
            assert_eq!(offered(words).0, [expected], "{words}");
        }
    }

    #[test]
    fn paths_are_offered_where_a_path_stands() {
        for (words, expected) in [
            ("run --ro ", Some(Paths::Files)),
            ("start --workspace ", Some(Paths::Folders)),
            ("run -- ca", Some(Paths::Files)),
            ("run cat --", Some(Paths::Files)),
            ("run --memory ", None),
            ("doctor ", None),
        ] {
            assert_eq!(offered(words).1, expected, "{words}");
        }
    }
}

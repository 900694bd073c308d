//! Completions in a shell. `belljar completions SHELL` prints a small script, and the script asks the hidden `belljar complete` for every
//! word, so that it knows the commands of the belljar that is installed, and the sandboxes, secrets and images that are there.
//!
//! ```text
//!   shell --words--> walk: which argument is completed --> sources: what it can be --> shell
//! ```

mod sources;
mod walk;

use super::print;
use crate::args::{CompleteArgs, Shell, command};
use belljar_spec::SandboxError;
use walk::{Offer, Paths};

pub(crate) fn completions(shell: Shell) -> Result<u8, SandboxError> {
    let script = match shell {
        Shell::Bash => include_str!("belljar.bash"),
        Shell::Zsh => include_str!("belljar.zsh"),
        Shell::Fish => include_str!("belljar.fish"),
    };
    print(script.as_bytes())
}

/// The words behind `belljar` up to the cursor; the last one is completed.
pub(crate) fn complete(options: &CompleteArgs) -> Result<u8, SandboxError> {
    let words: Vec<String> = options.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (words, apart) = match options.shell {
        Shell::Bash => joined(&words),
        Shell::Zsh | Shell::Fish => (words, 0),
    };
    let offer = walk::offer(&command(), &words);
    print(text(&offer, apart).as_bytes())
}

/// A line for each candidate, with what it is behind a tab; and one that has the shell offer files.
fn text(offer: &Offer, apart: usize) -> String {
    let mut lines: Vec<String> = offer
        .candidates
        .iter()
        .filter_map(|one| Some(format!("{}\t{}\n", one.word.get(apart..)?, one.about)))
        .collect();
    lines.extend(offer.paths.map(|paths| match paths {
        Paths::Files => ":files\t\n".to_string(),
        Paths::Folders => ":folders\t\n".to_string(),
    }));
    lines.concat()
}

/// bash takes a word apart at `=` and `:`, and expects only the last part back: whole words, and how much of the last one it has.
fn joined(words: &[String]) -> (Vec<String>, usize) {
    let mut whole: Vec<String> = Vec::new();
    let (mut apart, mut is_open) = (0, false);
    for word in words {
        let is_break = word == "=" || word == ":";
        match whole.last_mut().filter(|_| is_break || is_open) {
            Some(last) => {
                apart = if is_break { last.len() + 1 } else { last.len() };
                last.push_str(word);
            }
            None => {
                apart = 0;
                whole.push(word.clone());
            }
        }
        is_open = is_break;
    }
    (whole, apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_bash_took_apart_are_whole_again() {
        for (given, whole, apart) in [
            ("run --backend = na", "run --backend=na", 10),
            ("run --backend =", "run --backend=", 10),
            ("run --image alpine : 3", "run --image alpine:3", 7),
            ("run --ro", "run --ro", 0),
        ] {
            let given: Vec<String> = given.split(' ').map(String::from).collect();
            let (words, at) = joined(&given);
            assert_eq!((words.join(" ").as_str(), at), (whole, apart));
        }
    }
}

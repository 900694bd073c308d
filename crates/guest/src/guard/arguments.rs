//! Git's lines, read as git reads them: its own options, then a command (git.c), then the command's (parse-options.c).
//! Pure.

use super::grammar::Grammar;

/// A line with a command.
pub(super) struct Line<'w> {
    /// Git's own options.
    pub(super) options: &'w [Vec<u8>],
    /// Config that comes with it: `-c NAME=VALUE`. Names as they are written.
    pub(super) settings: Vec<(&'w [u8], Value<'w>)>,
    pub(super) command: &'w [u8],
    /// What follows the command.
    pub(super) rest: &'w [Vec<u8>],
}

/// The value of a setting.
#[derive(Clone, Copy)]
pub(super) enum Value<'w> {
    Here(&'w [u8]),
    /// In the variable of this name.
    InVariable(&'w [u8]),
}

/// A word of a command, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'w> {
    /// An option by its whole name, as it is with or without `no-`, and how it was written.
    Option(String, &'w [u8]),
    /// Anything else: a path, a remote, a refspec.
    Plain(&'w [u8]),
}

/// Reads git's own options. `None` where there is no command.
pub(super) fn line(words: &[Vec<u8>]) -> Option<Line<'_>> {
    let mut settings = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with(b"-")) {
        at += 1;
        let (name, attached) = split_at_equals(word);
        match name {
            b"-c" if attached.is_none() => {
                let (name, value) = split_at_equals(words.get(at)?);
                settings.push((name, Value::Here(value.unwrap_or(b"true"))));
                at += 1;
            }
            b"--config-env" => {
                let setting = match attached {
                    Some(setting) => setting,
                    None => {
                        at += 1;
                        words.get(at - 1)?
                    }
                };
                // The name may have `=` in it, the variable has none.
                let end = setting.iter().rposition(|byte| *byte == b'=')?;
                settings.push((&setting[..end], Value::InVariable(&setting[end + 1..])));
            }
            b"-C" | b"--git-dir" | b"--work-tree" | b"--namespace" | b"--super-prefix" | b"--attr-source"
            | b"--shallow-file"
                if attached.is_none() =>
            {
                at += 1;
            }
            // These do something else than the command says.
            b"-h" | b"--help" | b"-v" | b"--version" => return None,
            _ => {}
        }
    }
    Some(Line { options: &words[..at], settings, command: words.get(at)?, rest: &words[at + 1..] })
}

/// Reads a command's words.
pub(super) fn words<'w>(grammar: &Grammar, rest: &'w [Vec<u8>]) -> Vec<Word<'w>> {
    let mut found = Vec::new();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        if word == b"--" {
            found.extend(rest.by_ref().map(|word| Word::Plain(word)));
        } else if let Some(long) = word.strip_prefix(b"--") {
            let (name, attached) = split_at_equals(long);
            if let Some((name, takes_next)) = resolve(grammar, name) {
                found.push(Word::Option(name, word));
                if takes_next && attached.is_none() {
                    rest.next();
                }
            }
        } else if word.len() > 1 && word.starts_with(b"-") {
            if bundle(grammar, word, &mut found) {
                rest.next();
            }
        } else {
            found.push(Word::Plain(word));
        }
    }
    found
}

/// Reads short options in one word. Says whether the last one takes the next word.
fn bundle<'w>(grammar: &Grammar, word: &'w [u8], found: &mut Vec<Word<'w>>) -> bool {
    for (at, byte) in word.iter().enumerate().skip(1) {
        let letter = char::from(*byte);
        if grammar.with_argument.contains(letter) {
            return at + 1 == word.len();
        }
        if grammar.with_rest.contains(letter) {
            return false;
        }
        if let Some((_, name)) = grammar.meanings.iter().find(|(short, _)| *short == letter) {
            found.push(Word::Option((*name).to_string(), word));
        }
    }
    false
}

/// What a long option means, and whether it takes the next word. An abbreviation that could mean several is none, and git
/// complains; unless one of them begins all the others, as `force` does: whoever wrote `--forc` meant one of its kind.
fn resolve(grammar: &Grammar, name: &[u8]) -> Option<(String, bool)> {
    let mut meant: Vec<(String, bool)> = Vec::new();
    for option in grammar.long.split_ascii_whitespace() {
        let (option, takes_next) = option.strip_suffix('=').map_or((option, false), |option| (option, true));
        let opposite = option.strip_prefix("no-").map_or_else(|| format!("no-{option}"), str::to_string);
        for (whole, takes_next) in [(option.to_string(), takes_next), (opposite, false)] {
            if whole.as_bytes() == name {
                return Some((whole, takes_next));
            }
            if whole.as_bytes().starts_with(name) {
                meant.push((whole, takes_next));
            }
        }
    }
    let shortest = meant.iter().min_by_key(|(whole, _)| whole.len())?.clone();
    meant.iter().all(|(whole, _)| whole.starts_with(&shortest.0)).then_some(shortest)
}

fn split_at_equals(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    match word.iter().position(|byte| *byte == b'=') {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    }
}

/// The words of an alias, as git splits them (alias.c): quotes and backslashes as in a shell, and nothing else.
pub(super) fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (quote, *byte) {
            (None, byte) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, byte @ (b'"' | b'\'')) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (Some(open), byte) if byte == open => quote = None,
            (open, b'\\') if open != Some(b'\'') => {
                word.get_or_insert_default().extend(bytes.next());
            }
            (_, byte) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

//! `.dockerignore`: what of a folder an image is not made from. The rules are Docker's: a pattern counts from the top of the
//! folder, what it matches is left out with all below it, `!` takes something back in, and the last pattern that says
//! something about a path counts.
//!
//! Pure, and quick for any pattern: the file may have been written by anybody, so a match never takes longer than the pattern
//! times the path.

/// What is left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Ignored {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    takes_back: bool,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// This byte.
    Byte(u8),
    /// `?`: one byte of a name.
    One,
    /// `*`: any bytes of a name.
    Star,
    /// `**/`: any number of folders, or none; and at the end `**`: anything.
    Folders,
    Anything,
    /// `[a-z]`.
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

impl Ignored {
    /// As these lines say. A line that makes no sense matches nothing.
    pub(super) fn parse(text: &str) -> Ignored {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ignored { patterns: lines.filter_map(Pattern::parse).collect() }
    }

    /// The same, after these patterns.
    pub(super) fn after(mut self, first: &[&str]) -> Ignored {
        let first = first.iter().filter_map(|line| Pattern::parse(line));
        self.patterns.splice(0..0, first);
        self
    }

    /// Whether this path is left out, by itself or with a folder that it is in.
    pub(super) fn leaves_out(&self, path: &[u8]) -> bool {
        let mut out = false;
        for pattern in &self.patterns {
            if pattern.takes_back == out && pattern.matches_or_above(path) {
                out = !pattern.takes_back;
            }
        }
        out
    }

    /// Whether something below a folder that is left out may have been taken back in.
    pub(super) fn may_take_back_below(&self, folder: &[u8]) -> bool {
        let below = [folder, b"/"].concat();
        self.patterns.iter().filter(|pattern| pattern.takes_back).any(|pattern| {
            let plain = pattern.plain_beginning();
            plain.starts_with(&below) || (plain.len() < pattern.tokens.len() && below.starts_with(&plain))
        })
    }
}

impl Pattern {
    fn parse(line: &str) -> Option<Pattern> {
        let line = line.trim();
        let (takes_back, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest.trim()),
            None => (false, line),
        };
        let clean = clean(line)?;
        Some(Pattern { takes_back, tokens: tokens(clean.as_bytes())? })
    }

    fn matches_or_above(&self, path: &[u8]) -> bool {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        self.matches(path) || above.into_iter().any(|folder| self.matches(folder))
    }

    /// One row of answers for each token: whether the path can be at this byte after it.
    fn matches(&self, path: &[u8]) -> bool {
        let mut row = vec![false; path.len() + 1];
        row[0] = true;
        for token in &self.tokens {
            let mut next = vec![false; path.len() + 1];
            let mut been = false;
            for at in 0..=path.len() {
                let before = at.checked_sub(1);
                let byte = before.map(|before| path[before]);
                next[at] = match token {
                    Token::Star => row[at] || before.is_some_and(|it| next[it] && path[it] != b'/'),
                    Token::Anything => row[at] || before.is_some_and(|it| next[it]),
                    Token::Folders => row[at] || (byte == Some(b'/') && been),
                    Token::Byte(wanted) => byte == Some(*wanted) && before.is_some_and(|it| row[it]),
                    Token::One => byte.is_some_and(|it| it != b'/') && before.is_some_and(|it| row[it]),
                    Token::Class { negated, ranges } => {
                        let fits = |byte: u8| {
                            byte != b'/'
                                && ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte)) != *negated
                        };
                        byte.is_some_and(fits) && before.is_some_and(|it| row[it])
                    }
                };
                been |= row[at];
            }
            row = next;
        }
        row[path.len()]
    }

    fn plain_beginning(&self) -> Vec<u8> {
        let plain = |token: &Token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        };
        self.tokens.iter().map_while(plain).collect()
    }
}

/// The path without `.`, `..` and needless slashes; `None` if nothing is left of it.
fn clean(line: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in line.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn tokens(mut rest: &[u8]) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        tokens.push(match first {
            b'*' if rest.first() == Some(&b'*') => {
                // Any more of them say nothing more.
                while rest.first() == Some(&b'*') {
                    rest = &rest[1..];
                }
                match rest.split_first() {
                    Some((b'/', after)) => {
                        rest = after;
                        Token::Folders
                    }
                    _ => Token::Anything,
                }
            }
            b'*' => Token::Star,
            b'?' => Token::One,
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                Token::Byte(*escaped)
            }
            b'[' => {
                let (class, after) = class(rest)?;
                rest = after;
                class
            }
            byte => Token::Byte(*byte),
        });
    }
    Some(tokens)
}

/// What stands behind `[`, and what comes after its `]`.
fn class(mut rest: &[u8]) -> Option<(Token, &[u8])> {
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    loop {
        let (low, after) = letter(rest, ranges.is_empty())?;
        let Some(low) = low else { return Some((Token::Class { negated, ranges }, after)) };
        rest = after;
        let mut high = low;
        if rest.first() == Some(&b'-') && rest.get(1) != Some(&b']') {
            let (last, after) = letter(&rest[1..], true)?;
            (high, rest) = (last?, after);
        }
        ranges.push((low, high));
    }
}

/// The next byte of a class; none at its end, which a class does not begin with.
fn letter(rest: &[u8], is_first: bool) -> Option<(Option<u8>, &[u8])> {
    match rest.split_first()? {
        (b']', after) if !is_first => Some((None, after)),
        (b'\\', after) => after.split_first().map(|(byte, after)| (Some(*byte), after)),
        (byte, after) => Some((Some(*byte), after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_docker() {
        for (lines, out, kept) in [
            (
                "node_modules",
                &["node_modules", "node_modules/a/b"][..],
                &["web/node_modules", "node_modules2"][..],
            ),
            (
                "**/node_modules",
                &["node_modules", "web/node_modules/a", "a/b/node_modules"],
                &["a/xnode_modules"],
            ),
            ("*.log", &["a.log"], &["a/b.log", "a.logs"]),
            ("**/*.log", &["a.log", "a/b/c.log"], &["a.logs"]),
            ("/target/", &["target/debug"], &["a/target"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "ab"]),
            ("a/**/z", &["a/z", "a/b/z", "a/b/c/z/more"], &["a/b", "z"]),
            ("a?c", &["abc"], &["a/c", "ac"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "a-x"]),
            ("[^a-c]x", &["dx"], &["ax", "/x"]),
            ("\\*", &["*"], &["a"]),
            ("*\n!README.md", &["src/x", "a"], &["README.md"]),
            ("docs\n!docs/keep\ndocs/keep/not", &["docs/a", "docs/keep/not"], &["docs/keep/a"]),
            ("# no\n\n  ./a/../b  \n", &["b"], &["a", "# no"]),
            ("../../etc", &["etc"], &["a"]),
            ("[a", &[], &["[a", "a"]),
            ("a\\", &[], &["a"]),
        ] {
            let ignored = Ignored::parse(lines);
            for path in out {
                assert!(ignored.leaves_out(path.as_bytes()), "{lines:?} leaves out {path}");
            }
            for path in kept {
                assert!(!ignored.leaves_out(path.as_bytes()), "{lines:?} keeps {path}");
            }
        }
    }

    #[test]
    fn a_folder_is_looked_into_only_if_something_of_it_may_come_back() {
        let ignored = Ignored::parse("*\n!docs/keep\n!src/**/x");
        assert!(ignored.may_take_back_below(b"docs"));
        assert!(ignored.may_take_back_below(b"src"));
        assert!(ignored.may_take_back_below(b"src/deep/er"));
        assert!(!ignored.may_take_back_below(b"node_modules"));
        assert!(!ignored.may_take_back_below(b"doc"));
        assert!(Ignored::parse("!**/x").may_take_back_below(b"anything"));
    }

    #[test]
    fn git_stays_out_until_somebody_takes_it_in() {
        assert!(Ignored::parse("").after(&[".git"]).leaves_out(b".git/config"));
        assert!(!Ignored::parse("!.git").after(&[".git"]).leaves_out(b".git/config"));
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let ignored = Ignored::parse(&format!("{}b", "**/*a".repeat(200)));
        assert!(!ignored.leaves_out(&b"a".repeat(4000)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_ignore_file(text in ".*", path in "[a-c/.*]{0,40}") {
            let ignored = Ignored::parse(&text);
            ignored.leaves_out(path.as_bytes());
            ignored.may_take_back_below(path.as_bytes());
        }
    }
}

//! `.dockerignore`: what of a folder an image is not made from. The rules are Docker's: a pattern counts from the top of the
//! folder, what it matches is left out with all below it, `!` takes something back in, and the last pattern that says
//! something about a path counts.
//!
//! Pure, and quick for any pattern: the file may come from any source. Names are looked at from the top down, each once,
//! whatever is below it, and how much work that was is counted, so that the caller's walk can stop.

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
    /// `[a-z]`: whether it stands for each byte.
    Class(Box<[bool; 256]>),
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

    /// The folder itself.
    pub(super) fn top(&self) -> PatternState {
        let within = |pattern: &Pattern| Course::Within(Steps::at_the_beginning(&pattern.tokens));
        PatternState { is_top: true, courses: self.patterns.iter().map(within).collect() }
    }

    /// Something in a folder. Adds to `work` what it took.
    pub(super) fn below(&self, folder: &PatternState, name: &[u8], work: &mut u64) -> PatternState {
        let slash: &[u8] = if folder.is_top { b"" } else { b"/" };
        let go = |(pattern, course): (&Pattern, &Course)| course.on(&pattern.tokens, &[slash, name], work);
        PatternState { is_top: false, courses: self.patterns.iter().zip(&folder.courses).map(go).collect() }
    }

    /// Whether what is there is left out, by itself or with a folder that it is in.
    pub(super) fn leaves_out(&self, place: &PatternState) -> bool {
        let mut out = false;
        for (pattern, course) in self.patterns.iter().zip(&place.courses) {
            if pattern.takes_back == out && matches!(course, Course::Matched) {
                out = !pattern.takes_back;
            }
        }
        out
    }

    /// Whether something below a folder that is left out may have been taken back in.
    pub(super) fn may_take_back_below(&self, folder: &PatternState, work: &mut u64) -> bool {
        self.patterns.iter().zip(&folder.courses).any(|(pattern, course)| {
            pattern.takes_back
                && matches!(course, Course::Within(_))
                && !matches!(course.on(&pattern.tokens, &[b"/"], work), Course::Over)
        })
    }
}

/// A file or a folder, as the patterns see it.
#[derive(Debug, Clone)]
pub(super) struct PatternState {
    is_top: bool,
    /// Of each pattern.
    courses: Vec<Course>,
}

/// How far a pattern has come on the way to a place.
#[derive(Debug, Clone)]
enum Course {
    /// It is of this place, or of a folder that this is in; and so of all below.
    Matched,
    /// It may match something below.
    Within(Steps),
    /// It matches nothing below.
    Over,
}

impl Course {
    /// After these bytes.
    fn on(&self, tokens: &[Token], bytes: &[&[u8]], work: &mut u64) -> Course {
        *work = work.saturating_add(1);
        let Course::Within(steps) = self else { return self.clone() };
        let mut steps = steps.clone();
        for byte in bytes.iter().copied().flatten() {
            *work = work.saturating_add(1 + steps.0.len() as u64);
            steps.take(tokens, *byte);
            if steps.0.is_empty() {
                return Course::Over;
            }
        }
        if steps.are_all(tokens) { Course::Matched } else { Course::Within(steps) }
    }
}

/// For each number of tokens, up to the last that says something, what is known of them after the bytes so far.
#[derive(Debug, Clone)]
struct Steps(Vec<Step>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Step {
    /// So many tokens can stand for all of the bytes.
    now: bool,
    /// They could for fewer of them, and what follows is `**/`.
    before: bool,
}

impl Steps {
    fn at_the_beginning(tokens: &[Token]) -> Steps {
        let nothing = |token: &&Token| matches!(token, Token::Star | Token::Anything | Token::Folders);
        let count = 1 + tokens.iter().take_while(nothing).count();
        Steps(vec![Step { now: true, before: false }; count])
    }

    /// With one more byte.
    fn take(&mut self, tokens: &[Token], byte: u8) {
        let (mut was, mut is) = (Step::default(), Step::default());
        for count in 0..=tokens.len() {
            let old = self.0.get(count).copied().unwrap_or_default();
            let now = match count.checked_sub(1).map(|last| &tokens[last]) {
                None => false,
                Some(Token::Star) => is.now || (old.now && byte != b'/'),
                Some(Token::Anything) => is.now || old.now,
                Some(Token::Folders) => is.now || (is.before && byte == b'/'),
                Some(token) => was.now && token.stands_for(byte),
            };
            let before = (old.now || old.before) && matches!(tokens.get(count), Some(Token::Folders));
            (was, is) = (old, Step { now, before });
            match self.0.get_mut(count) {
                Some(step) => *step = is,
                None if now => self.0.push(is),
                // Nothing leads further.
                None => break,
            }
        }
        while self.0.last() == Some(&Step::default()) {
            self.0.pop();
        }
    }

    fn are_all(&self, tokens: &[Token]) -> bool {
        self.0.get(tokens.len()).is_some_and(|step| step.now)
    }
}

impl Token {
    /// Of those that are one byte.
    fn stands_for(&self, byte: u8) -> bool {
        match self {
            Token::Byte(literal) => byte == *literal,
            Token::One => byte != b'/',
            Token::Class(fits) => fits[usize::from(byte)],
            Token::Star | Token::Folders | Token::Anything => false,
        }
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
    let mut fits = Box::new([negated; 256]);
    let mut is_first = true;
    loop {
        let (low, after) = letter(rest, is_first)?;
        is_first = false;
        let Some(low) = low else {
            // It is of a name, and ends no folder's.
            fits[usize::from(b'/')] = false;
            return Some((Token::Class(fits), after));
        };
        rest = after;
        let mut high = low;
        if rest.first() == Some(&b'-') && rest.get(1) != Some(&b']') {
            let (last, after) = letter(&rest[1..], true)?;
            (high, rest) = (last?, after);
        }
        (low..=high).for_each(|byte| fits[usize::from(byte)] = !negated);
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

    /// A path in the folder, by way of all above it.
    fn place(ignored: &Ignored, path: &[u8]) -> PatternState {
        let go = |place: PatternState, name: &[u8]| ignored.below(&place, name, &mut 0);
        path.split(|byte| *byte == b'/').fold(ignored.top(), go)
    }

    fn leaves_out(ignored: &Ignored, path: &[u8]) -> bool {
        ignored.leaves_out(&place(ignored, path))
    }

    fn may_take_back_below(ignored: &Ignored, path: &[u8]) -> bool {
        ignored.may_take_back_below(&place(ignored, path), &mut 0)
    }

    /// The whole path against the whole pattern, as slowly as it is plain: one row of answers for each token, whether the path can
    /// be at this byte after it.
    fn matches(pattern: &Pattern, path: &[u8]) -> bool {
        let mut row = vec![false; path.len() + 1];
        row[0] = true;
        for token in &pattern.tokens {
            let mut next = vec![false; path.len() + 1];
            let mut been = false;
            for at in 0..=path.len() {
                let before = at.checked_sub(1);
                next[at] = match token {
                    Token::Star => row[at] || before.is_some_and(|it| next[it] && path[it] != b'/'),
                    Token::Anything => row[at] || before.is_some_and(|it| next[it]),
                    Token::Folders => row[at] || before.is_some_and(|it| path[it] == b'/' && been),
                    token => before.is_some_and(|it| row[it] && token.stands_for(path[it])),
                };
                been |= row[at];
            }
            row = next;
        }
        row[path.len()]
    }

    /// What `.dockerignore` means, of a path and all above it, each by itself.
    fn should_leave_out(ignored: &Ignored, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let ways: Vec<&[u8]> = ends.chain([path.len()]).map(|end| &path[..end]).collect();
        let last = ignored.patterns.iter().rfind(|pattern| ways.iter().any(|way| matches(pattern, way)));
        last.is_some_and(|pattern| !pattern.takes_back)
    }

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
                assert!(leaves_out(&ignored, path.as_bytes()), "{lines:?} leaves out {path}");
            }
            for path in kept {
                assert!(!leaves_out(&ignored, path.as_bytes()), "{lines:?} keeps {path}");
            }
        }
    }

    #[test]
    fn a_folder_is_looked_into_only_if_something_of_it_may_come_back() {
        let ignored = Ignored::parse("*\n!docs/keep\n!src/**/x");
        for (folder, may) in
            [("docs", true), ("src", true), ("src/deep/er", true), ("node_modules", false), ("doc", false)]
        {
            assert_eq!(may_take_back_below(&ignored, folder.as_bytes()), may, "{folder}");
        }
        assert!(may_take_back_below(&Ignored::parse("!docs/**"), b"docs"));
        assert!(may_take_back_below(&Ignored::parse("!**/x"), b"anything"));
    }

    #[test]
    fn git_stays_out_until_a_pattern_takes_it_in() {
        assert!(leaves_out(&Ignored::parse("").after(&[".git"]), b".git/config"));
        assert!(!leaves_out(&Ignored::parse("!.git").after(&[".git"]), b".git/config"));
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let ignored = Ignored::parse(&format!("{}b", "**/*a".repeat(200)));
        assert!(!leaves_out(&ignored, &b"a".repeat(4000)));
    }

    #[test]
    fn what_is_above_a_name_is_not_looked_at_again() {
        let ignored = Ignored::parse("**/*a/**/b\nfolder/folder/*\n!*.rs");
        let work_at = |depth: usize| {
            let folder = (0..depth).fold(ignored.top(), |place, _| ignored.below(&place, b"folder", &mut 0));
            let mut work = 0;
            ignored.below(&folder, b"name", &mut work);
            work
        };
        assert_eq!(work_at(1000), work_at(10));
        // A pattern that is over costs one look.
        let over = Ignored::parse(&"x".repeat(1000));
        let mut work = 0;
        over.below(&place(&over, b"folder"), &b"x".repeat(200), &mut work);
        assert_eq!(work, 1);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_ignore_file(text in ".*", path in "[a-c/.*]{0,40}") {
            let ignored = Ignored::parse(&text);
            let place = place(&ignored, path.as_bytes());
            ignored.leaves_out(&place);
            ignored.may_take_back_below(&place, &mut 0);
        }

        #[test]
        fn a_way_down_says_what_the_whole_path_says(
            lines in proptest::collection::vec("!?([ab?]|[*]{1,2}|/|[*]{2}/|\\[a-b\\]|\\[\\^a\\]){0,8}", 0..4),
            path in "[abc]{1,2}(/[abc]{1,2}){0,4}",
        ) {
            let ignored = Ignored::parse(&lines.join("\n"));
            let path = path.as_bytes();
            proptest::prop_assert_eq!(leaves_out(&ignored, path), should_leave_out(&ignored, path));
            // What is below a folder that nothing may come back to is out as the folder is.
            if leaves_out(&ignored, path) && !may_take_back_below(&ignored, path) {
                proptest::prop_assert!(leaves_out(&ignored, &[path, b"/b"].concat()));
                proptest::prop_assert!(leaves_out(&ignored, &[path, b"/a/bb"].concat()));
            }
        }
    }
}

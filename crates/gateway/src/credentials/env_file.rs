//! Files of variables, such as `.env`, with a placeholder in the place of each value. Read strictly: nothing of a file is shown whose
//! meaning is not certain, since what one program takes for a name is part of a value for another. Names, spaces between them, line
//! breaks and quotes stay; a comment is shown without its text, which may be an old value. The size stays, or git would take a tracked
//! file for changed. Pure.

use super::placeholder::{self, Draw};
use std::ops::Range;

/// Why a file is not shown. Says nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {fault}")]
pub struct EnvFileError {
    pub line: usize,
    pub fault: EnvFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvFault {
    #[error("is not valid UTF-8")]
    NotText,
    #[error("has a control character")]
    Control,
    #[error("is not `NAME=value`")]
    NotAssignment,
    #[error("begins a value whose quote is never closed")]
    NotClosed,
    #[error("has text after the closing quote")]
    AfterQuote,
    #[error("has a quote in a value without quotes")]
    QuoteInside,
    #[error("has a backslash before a quote or a line break, which programs read in different ways")]
    Backslash,
    #[error("has a value that begins with `=`")]
    DoubleSign,
}

/// The same file, with `stand_in` of a name and a value in the place of each value that is not empty: a credential's placeholder, or
/// `None` for one that stands for nothing.
pub(super) fn rendered(
    text: &[u8],
    stand_in: &mut dyn FnMut(&str, &[u8]) -> Option<String>,
    draw: Draw<'_>,
) -> Result<Vec<u8>, EnvFileError> {
    check_letters(text)?;
    let mut made = Vec::with_capacity(text.len());
    let mark: &[u8] = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK } else { b"" };
    made.extend_from_slice(mark);
    let mut reader = Reader { text, at: mark.len() };
    while reader.at < text.len() {
        reader.line(&mut made, stand_in, draw)?;
    }
    Ok(made)
}

/// Text without control characters but tabs and line breaks.
fn check_letters(text: &[u8]) -> Result<(), EnvFileError> {
    let fault_at = |at: usize, fault| EnvFileError { line: line_of(text, at), fault };
    std::str::from_utf8(text).map_err(|error| fault_at(error.valid_up_to(), EnvFault::NotText))?;
    for (at, byte) in text.iter().enumerate() {
        let is_break = *byte == b'\r' && text.get(at + 1) == Some(&b'\n');
        if byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n') && !is_break {
            return Err(fault_at(at, EnvFault::Control));
        }
    }
    Ok(())
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    /// A line, or several if a value in quotes goes over them.
    fn line(
        &mut self,
        made: &mut Vec<u8>,
        stand_in: &mut dyn FnMut(&str, &[u8]) -> Option<String>,
        draw: Draw<'_>,
    ) -> Result<(), EnvFileError> {
        self.keep(is_blank, made);
        match self.next() {
            None => return Ok(()),
            Some(b'\r' | b'\n') => {
                self.end(made);
                return Ok(());
            }
            Some(b'#') => {
                self.comment(made);
                return Ok(());
            }
            Some(_) => {}
        }
        let mut name = self.name();
        if name == b"export" && self.next().is_some_and(is_blank) {
            made.extend_from_slice(name);
            self.keep(is_blank, made);
            name = self.name();
        }
        let is_name = name.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_');
        if !is_name || name.len() > MAX_NAME_BYTES {
            return Err(self.fault(EnvFault::NotAssignment));
        }
        made.extend_from_slice(name);
        self.keep(is_blank, made);
        if self.next() != Some(b'=') {
            return Err(self.fault(EnvFault::NotAssignment));
        }
        self.at += 1;
        made.push(b'=');
        self.keep(is_blank, made);
        let (value, quote) = match self.next() {
            Some(quote @ (b'"' | b'\'' | b'`')) => (self.quoted(quote)?, Some(quote)),
            _ => (self.plain()?, None),
        };
        if !value.is_empty() {
            let name = std::str::from_utf8(name).unwrap_or_default();
            write_value(&self.text[value], quote, name, made, stand_in, draw);
        } else {
            made.extend(quote.into_iter().chain(quote));
        }
        let before = self.at;
        self.keep(is_blank, made);
        match self.next() {
            None => {}
            Some(b'\r' | b'\n') => self.end(made),
            Some(b'#') if quote.is_none() || self.at > before => self.comment(made),
            Some(_) => return Err(self.fault(EnvFault::AfterQuote)),
        }
        Ok(())
    }

    fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, fault: EnvFault) -> EnvFileError {
        EnvFileError { line: line_of(self.text, self.at), fault }
    }

    fn take(&mut self, is_part: impl Fn(u8) -> bool) -> &'t [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn keep(&mut self, is_part: impl Fn(u8) -> bool, made: &mut Vec<u8>) {
        made.extend_from_slice(self.take(is_part));
    }

    fn name(&mut self) -> &'t [u8] {
        self.take(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    }

    fn comment(&mut self, made: &mut Vec<u8>) {
        let text = self.take(|byte| !matches!(byte, b'\r' | b'\n'));
        made.extend(text.iter().map(|_| b'#'));
        self.end(made);
    }

    fn end(&mut self, made: &mut Vec<u8>) {
        made.extend_from_slice(self.take(|byte| byte == b'\r'));
        if self.next() == Some(b'\n') {
            self.at += 1;
            made.push(b'\n');
        }
    }

    /// What is between quotes of this kind.
    fn quoted(&mut self, quote: u8) -> Result<Range<usize>, EnvFileError> {
        let begin = self.at + 1;
        let mut at = begin;
        while let Some(byte) = self.text.get(at) {
            let next = self.text.get(at + 1);
            match byte {
                b'\\' if quote == b'"' && next.is_some_and(|byte| !matches!(byte, b'\r' | b'\n')) => at += 1,
                // A shell ends the value there, other programs do not; at the end of a line it is the other way round.
                b'\\' if quote == b'"' || next == Some(&quote) => return Err(self.fault(EnvFault::Backslash)),
                byte if *byte == quote => {
                    self.at = at + 1;
                    return Ok(begin..at);
                }
                _ => {}
            }
            at += 1;
        }
        Err(self.fault(EnvFault::NotClosed))
    }

    /// What ends with the line or at a comment.
    fn plain(&mut self) -> Result<Range<usize>, EnvFileError> {
        let begin = self.at;
        let line = self.take(|byte| !matches!(byte, b'\r' | b'\n'));
        let is_comment = |at: &usize| line[*at] == b'#' && (*at == 0 || is_blank(line[*at - 1]));
        let end = (0..line.len()).find(is_comment).unwrap_or(line.len());
        let value = line[..end].trim_ascii_end();
        self.at = begin + value.len();
        if value.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'`')) {
            return Err(self.fault(EnvFault::QuoteInside));
        }
        if value.ends_with(b"\\") {
            return Err(self.fault(EnvFault::Backslash));
        }
        // The end of a value in base64 that was broken into lines looks like a name.
        if value.starts_with(b"=") {
            return Err(self.fault(EnvFault::DoubleSign));
        }
        Ok(begin..self.at)
    }
}

fn write_value(
    value: &[u8],
    quotes: Option<u8>,
    name: &str,
    made: &mut Vec<u8>,
    stand_in: &mut dyn FnMut(&str, &[u8]) -> Option<String>,
    draw: Draw<'_>,
) {
    let (shown, quotes) = match stand_in(name, &meant(value, quotes == Some(b'"'))) {
        Some(placeholder) if placeholder.bytes().all(is_safe) => (placeholder.into_bytes(), quotes),
        Some(placeholder) if !placeholder.contains(['\'', '\\']) => (placeholder.into_bytes(), Some(b'\'')),
        Some(placeholder) => {
            let escape = |byte: u8| {
                let before = matches!(byte, b'"' | b'\\' | b'$' | b'`').then_some(b'\\');
                before.into_iter().chain([byte])
            };
            (placeholder.bytes().flat_map(escape).collect(), Some(b'"'))
        }
        None => (placeholder::of_no_use(value, quotes, draw), quotes),
    };
    made.extend(quotes);
    made.extend_from_slice(&shown);
    made.extend(quotes);
}

/// A value as programs read it.
fn meant(value: &[u8], escaped: bool) -> Vec<u8> {
    let mut read = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if escaped => read.extend(bytes.next().map(|next| match next {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                other => *other,
            })),
            other => read.push(*other),
        }
    }
    read
}

/// Means itself in every kind of quotes and without.
fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:/@+,%=~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const MAX_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// With a letter in the place of each letter and digit.
    fn shape(text: &str) -> Result<String, EnvFileError> {
        let mut number = 7u32;
        let mut draw = || {
            number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            number >> 8
        };
        let made = rendered(text.as_bytes(), &mut |_, _| None, &mut draw)?;
        Ok(String::from_utf8(made).unwrap())
    }

    /// The names and what is between them and their values.
    fn frame(text: &str) -> String {
        let mut made = String::new();
        for line in shape(text).unwrap().split_inclusive('\n') {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            made += name;
            made.extend(line.contains('=').then_some('='));
            made.extend(
                value.chars().map(|letter| if letter.is_ascii_alphanumeric() { 'x' } else { letter }),
            );
        }
        made
    }

    #[test]
    fn names_quotes_and_lines_stay_and_values_and_comments_go() {
        for (text, expected) in [
            ("A=one\n", "A=xxx\n"),
            ("\n  A = one two  # why\r\nB='x'\r\n", "\n  A = xxx xxx  #####\r\nB='x'\r\n"),
            ("export A=\"a\\\"b\\nc\" #x\n", "export A=\"x\\\"x\\xx\" ##\n"),
            ("A=\nB=''\nC= # none\n", "A=\nB=''\nC= ######\n"),
            ("# TOKEN old\nA.b-c=1", "###########\nA.b-c=x"),
            ("K='-----BEGIN KEY-----'\nL=2", "K='-----xxxxx xxx-----'\nL=x"),
            ("A=p@ss$word#1\n", "A=x@xxxxxxxxx\n"),
            ("A=\u{e9}\n", "A=xx\n"),
            ("A=`x y`\nexport=1\n", "A=`x x`\nexport=x\n"),
            ("\u{feff}A=1\n", "\u{feff}A=x\n"),
        ] {
            assert_eq!(
                (frame(text).as_str(), shape(text).unwrap().len()),
                (expected, text.len()),
                "{text:?}"
            );
        }
        let url = "U=postgres://user:secret@db.example.com:5432/app?x=1&y=2\n";
        assert_eq!(frame(url), "U=xxxxxxxx://xxxx:xxxxxx@xx.xxxxxxx.xxx:xxxx/xxx?x=x&x=x\n");
        assert!(shape(url).unwrap().starts_with("U=postgres://"));
        let lines = shape("K='Abc\nDef=\nGhi=='").unwrap();
        assert!(["Abc", "Def", "Ghi"].iter().all(|line| !lines.contains(line)), "{lines}");
        let key = shape("K=sk-ant-api03-AbCdEf0123456789\n").unwrap();
        assert!(key.starts_with("K=sk-ant-api03-"), "{key}");
    }

    #[test]
    fn what_programs_read_in_different_ways_is_refused() {
        use EnvFault::*;
        for (text, line, fault) in [
            ("A=1\nsecret\n", 2, NotAssignment),
            ("A: 1\n", 1, NotAssignment),
            ("=1\n", 1, NotAssignment),
            ("1A=1\n", 1, NotAssignment),
            ("export A\n", 1, NotAssignment),
            ("ключ=1\n", 1, NotAssignment),
            ("A=1\nB='x\ny\n", 2, NotClosed),
            ("A='x' y\n", 1, AfterQuote),
            ("A='x'y\n", 1, AfterQuote),
            ("A='x'#y\n", 1, AfterQuote),
            ("A=it's\n", 1, QuoteInside),
            ("A=x\"y\n", 1, QuoteInside),
            ("A='x\\'\nB=1'\n", 1, Backslash),
            ("A=x\\\nB=1\n", 1, Backslash),
            ("A=\"x\\\ny\"\n", 1, Backslash),
            ("A=abc\nAbCdEf==\n", 2, DoubleSign),
            ("A=\0\n", 1, Control),
            ("A=1\rB=2\n", 1, Control),
        ] {
            assert_eq!(shape(text), Err(EnvFileError { line, fault }), "{text:?}");
        }
        let wrong = rendered(b"A=1\nB=\xff\n", &mut |_, _| None, &mut || 0);
        assert_eq!(wrong, Err(EnvFileError { line: 2, fault: NotText }));
    }

    #[test]
    fn a_credentials_placeholder_is_read_as_it_is() {
        for (text, placeholder, expected) in [
            ("KEY=old", "sk-new", "KEY=sk-new"),
            ("KEY=\"old\"", "sk-new", "KEY=\"sk-new\""),
            ("KEY=old", "a#b$c", "KEY='a#b$c'"),
            ("KEY='old'", "a'b$\"", "KEY=\"a'b\\$\\\"\""),
        ] {
            let mut pairs = Vec::new();
            let mut stand_in = |name: &str, value: &[u8]| {
                pairs.push((name.to_string(), value.to_vec()));
                Some(placeholder.to_string())
            };
            let made = rendered(text.as_bytes(), &mut stand_in, &mut || 0).unwrap();
            assert_eq!((String::from_utf8(made).unwrap().as_str(), pairs.len()), (expected, 1));
            assert_eq!(pairs[0], ("KEY".to_string(), b"old".to_vec()));
        }
        let mut read = Vec::new();
        let mut stand_in = |_: &str, value: &[u8]| {
            read.extend_from_slice(value);
            None
        };
        rendered(b"K=\"a\\nb\\\"\\\\c\"", &mut stand_in, &mut || 9).unwrap();
        assert_eq!(read, b"a\nb\"\\c");
    }

    proptest! {
        /// Whatever a file says: nothing of eight letters of a value or a comment is left of it, or it is refused.
        #[test]
        fn no_value_is_left(
            values in proptest::collection::vec("[A-Za-z0-9 $\\\\\"'`#=\n@:/\u{e9}-]{1,40}", 1..6),
            quote in "[\"'`]?",
            seed in any::<u32>(),
        ) {
            // Otherwise a part of the value is a name to every program.
            let ends = if quote.is_empty() { "\n" } else { &*quote };
            let values: Vec<String> = values.iter().map(|value| value.replace(ends, "")).collect();
            let text: String = values.iter().map(|value| format!("NAME={quote}{value}{quote} #{}\n", value.replace('\n', ""))).collect();
            let mut number = seed;
            let mut draw = || { number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345); number >> 8 };
            if let Ok(made) = rendered(text.as_bytes(), &mut |_, _| None, &mut draw) {
                let made = String::from_utf8(made).unwrap();
                for value in &values {
                    for piece in value.as_bytes().windows(8).filter(|piece| piece.iter().all(u8::is_ascii_alphanumeric)) {
                        prop_assert!(!made.as_bytes().windows(8).any(|other| other == piece), "{text:?} {made:?}");
                    }
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = rendered(&text, &mut |_, _| None, &mut || 3);
        }
    }
}

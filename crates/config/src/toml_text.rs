//! Parses TOML text, with errors that name the line, the word, and the correction. For belljar's own settings, and for other files
//! that users write for belljar.

use crate::fault::{at, nearest, plain};
use crate::origin::Position;
use belljar_spec::{Hint, SandboxError};
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// A file's text.
#[derive(Debug, Clone, Copy)]
pub struct TomlText<'t> {
    /// The file, safe to show.
    pub name: &'t str,
    pub content: &'t str,
}

impl TomlText<'_> {
    /// Parses it, or names the faulty line. `correction` derives the right word from the parser's message.
    pub fn parse<T: DeserializeOwned, H: Into<Hint>>(
        &self,
        correction: impl Fn(&str) -> H,
    ) -> Result<T, SandboxError> {
        toml::from_str(self.content).map_err(|error| {
            let place = self.place(error.span().map_or(0, |span| span.start));
            match unknown_key(error.message()) {
                Some((key, known)) => {
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    let fault = at(&place, format!("there is no key `{}`", plain(&key)));
                    fault.hint(match nearest(&key, &known) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => format!("known here: {}", known.join(", ")),
                    })
                }
                None => {
                    let message = plain(error.message()).replace("\\n", ", ");
                    // The parser's words for what TOML calls an array and a table.
                    let message = message.replace("expected a sequence", "expected a list");
                    let message = match message.split_once("expected struct ") {
                        Some((before, _)) => format!("{before}expected a table"),
                        None => message.replace("expected a map", "expected a table"),
                    };
                    at(&place, message).hint(correction(error.message()))
                }
            }
        })
    }

    /// An error at a byte offset.
    pub fn fault(&self, byte: usize, what: impl Display) -> SandboxError {
        at(&self.place(byte), what)
    }

    /// The line of a byte.
    pub fn place(&self, byte: usize) -> Position {
        let before = &self.content.as_bytes()[..byte.min(self.content.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Position { file: self.name.into(), line }
    }
}

/// Serde's message is ``unknown field `x`, expected one of `a`, `b` ``; a test checks that. The key may have backticks of its own,
/// the known ones have none.
pub(crate) fn unknown_key(message: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, expected) = rest.rsplit_once("`, expected ")?;
    let known = expected.split('`').skip(1).step_by(2).map(str::to_string).collect();
    Some((key.to_string(), known))
}

//! The capabilities that both ends announce.

/// Words after the first line's NUL, such as `report-status side-band-64k agent=git/2.47` (gitprotocol-capabilities(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(Vec<String>);

impl Capabilities {
    /// Parses the bytes after the NUL. Words that are not UTF-8 are no known capability.
    pub fn parse(bytes: &[u8]) -> Capabilities {
        let text = String::from_utf8_lossy(bytes);
        Capabilities(text.split_ascii_whitespace().map(str::to_string).collect())
    }

    /// Does it contain this one? `agent` finds `agent=git/2.47` too.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word.split('=').next() == Some(name))
    }

    /// Its value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Adds one, if it is missing.
    pub fn add(&mut self, word: &str) {
        if !self.0.iter().any(|there| there == word) {
            self.0.push(word.to_string());
        }
    }

    /// As text for the wire.
    pub fn text(&self) -> String {
        self.0.join(" ")
    }
}

impl<W: Into<String>> FromIterator<W> for Capabilities {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Capabilities {
        Capabilities(words.into_iter().map(Into::into).collect())
    }
}

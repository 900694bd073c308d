//! What both ends say they can do.

/// Words behind the first line's NUL, as `report-status side-band-64k agent=git/2.47` (gitprotocol-capabilities(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(Vec<String>);

impl Capabilities {
    /// From the bytes behind the NUL. What is not text names nothing that anybody asks for.
    pub fn parse(bytes: &[u8]) -> Capabilities {
        let text = String::from_utf8_lossy(bytes);
        Capabilities(text.split_ascii_whitespace().map(str::to_string).collect())
    }

    /// Is this one among them? `agent` finds `agent=git/2.47` too.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word.split('=').next() == Some(name))
    }

    /// What is said of it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Another one, if it is not there yet.
    pub fn add(&mut self, word: &str) {
        if !self.0.iter().any(|there| there == word) {
            self.0.push(word.to_string());
        }
    }

    /// As it is written.
    pub fn text(&self) -> String {
        self.0.join(" ")
    }
}

impl<W: Into<String>> FromIterator<W> for Capabilities {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Capabilities {
        Capabilities(words.into_iter().map(Into::into).collect())
    }
}

//! What an agent writes, as what it says: bytes, lines, events, words.
//!
//! ```text
//! bytes ─> Lines ─> Parser ─> Heard ─> the log
//!                      └────> Claims ─> the result
//! ```

use crate::claims::Claims;
use crate::heard::Heard;
use crate::lines::{Lines, Piece};
use crate::parse::Parser;

/// The output of one run of one agent.
pub struct Stream {
    lines: Lines,
    parser: Box<dyn Parser>,
}

impl Stream {
    pub fn new(parser: Box<dyn Parser>) -> Stream {
        Stream { lines: Lines::new(parser.ends()), parser }
    }

    /// Takes what has come, and gives what it says.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Heard> {
        let mut heard = Vec::new();
        let parser = &mut self.parser;
        self.lines.feed(bytes, &mut |piece| heard.extend(said(parser.as_mut(), piece)));
        heard
    }

    /// The output is over. Called once.
    pub fn end(&mut self) -> (Vec<Heard>, Claims) {
        let mut heard = Vec::new();
        let parser = &mut self.parser;
        self.lines.end(&mut |piece| heard.extend(said(parser.as_mut(), piece)));
        let (last, claims) = parser.end();
        heard.extend(last);
        (heard, claims)
    }

    /// Whether it broke off within an event; known after the end.
    pub fn torn(&self) -> bool {
        self.lines.torn()
    }
}

fn said(parser: &mut dyn Parser, piece: Piece) -> Vec<Heard> {
    match piece {
        Piece::Event(event) => parser.event(&event),
        Piece::Text(line) => parser.text(&line),
        Piece::Dropped(bytes) => vec![Heard::Dropped(bytes)],
    }
}

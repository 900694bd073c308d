//! What an agent writes, as what it says: bytes, lines, events, words.
//!
//! ```text
//! bytes ─> Lines ─> Parser ─> Heard ─> the log
//!                      └────> Claims ─> the result
//! ```

use crate::claims::Claims;
use crate::event::AgentEvent;
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
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<AgentEvent> {
        let mut event = Vec::new();
        let parser = &mut self.parser;
        self.lines.feed(bytes, &mut |piece| event.extend(events_of(parser.as_mut(), piece)));
        event
    }

    /// The output is over. Called once.
    pub fn end(&mut self) -> (Vec<AgentEvent>, Claims) {
        let mut event = Vec::new();
        let parser = &mut self.parser;
        self.lines.end(&mut |piece| event.extend(events_of(parser.as_mut(), piece)));
        let (last, claims) = parser.end();
        event.extend(last);
        (event, claims)
    }

    /// Whether it broke off within an event; known after the end.
    pub fn torn(&self) -> bool {
        self.lines.torn()
    }
}

fn events_of(parser: &mut dyn Parser, piece: Piece) -> Vec<AgentEvent> {
    match piece {
        Piece::Event(event) => parser.event(&event),
        Piece::Text(line) => parser.text(&line),
        Piece::Dropped(bytes) => vec![AgentEvent::Dropped(bytes)],
    }
}

//! Many streams on one connection, for backends whose isolation lets no descriptor through.
//!
//! Either side opens streams, with a few bytes that say what for. Each direction of a stream has credits, which its reader
//! grants, so a slow reader stops its own stream and no other. A direction has an end ([`Mux::end`]), which comes after its
//! bytes; or it is cut ([`Mux::cut`]), which overtakes what has not been taken yet. A reader that wants no more bytes says
//! so ([`Mux::stop`]), and the other side cuts. When both directions are over, the stream is gone; its number never comes
//! again.
//!
//! ```text
//! a direction:  open --END--> over        the sender has said all
//!               open --CUT--> over        the sender has broken off, perhaps because it was told to STOP
//! ```
//!
//! This is the protocol without I/O: bytes in, events out, bytes to be sent in a buffer. The other side is hostile: it can have
//! so many streams and keep so much waiting and no more, and what makes no sense ends the whole connection.

mod frame;
mod state;
#[cfg(test)]
mod tests;

pub use frame::{DATA_AT_ONCE, MAX_HEADER_BYTES};
pub use state::{Event, MAX_STREAMS, Mux, Side, StreamId, Violation, WINDOW};

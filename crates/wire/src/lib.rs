//! What crosses the boundary between belljar and the guest, and nothing else.
//!
//! Every operation has a stream of its own. A stream carries [`frame`]s; a frame is either raw bytes (standard
//! streams, file contents) or one [`message`]. The bytes are pinned by golden tests: a guest that is older or
//! newer than its host is refused by [`message::VERSION`], never guessed at.
//!
//! Both sides treat what they read as hostile. Only [`pump`] does I/O: it moves the streams of a multiplexed connection.

pub mod frame;
pub mod message;
pub mod mux;
pub mod planted;
pub mod pump;
pub mod purpose;

pub use frame::{Frame, FrameReader, Tag};
pub use message::VERSION;
pub use serde;

//! The Connect protocol with JSON over HTTP/1.1: how messages are framed in a stream, and how errors are said. Pure functions over
//! bytes; `envd` moves them.
//!
//! ```text
//! unary:   one JSON object each way; an error is an HTTP status and {"code", "message"}
//! stream:  | flags | length, big endian | JSON | ...   the last one has the flag `END` and may hold an error
//! ```

mod error;
mod frame;

pub(crate) use error::{Code, RpcError, said};
pub use frame::{Frame, FrameError, FrameReader};
pub(crate) use frame::{end, message};

//! HTTP, in the clear or inside of TLS that the gateway ended: every request on a connection is read, judged and written
//! anew by a library that leaves no doubt where one ends and the next begins.
//!
//! ```text
//! connection inside ─> route ─> judge: host, length, path ─> decide::request ─> credentials ─> upstream ─> server
//!                        └─< answer: what was refused, and why        body: watched ─>  <─ redacted
//! ```
//!
//! Nothing is buffered but a push (`push`): a piece of a body is passed on when it arrives. A connection may become a web
//! socket; no other upgrade is passed on, since HTTP/2 or TLS would name a host without inspection.

mod answer;
mod body;
mod crew;
mod framed;
mod judge;
mod legible;
mod open;
mod override_headers;
mod push;
mod range;
mod room;
mod route;
mod serve;
mod upstream;
mod web_socket;

pub(crate) use answer::page;
pub(crate) use judge::has_one_length;
pub(crate) use legible::{Illegible, illegible};
pub(crate) use override_headers::override_in;
pub(crate) use route::Route;
pub(crate) use upstream::Start;

/// A request's head; more is an attack on memory.
const HEAD: usize = 64 * 1024;

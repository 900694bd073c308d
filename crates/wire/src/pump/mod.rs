//! One connection, many sockets: moves bytes between a connection that speaks [`crate::mux`] and a socket for each of its
//! streams, so that the user of a stream has an ordinary socket and knows nothing of this. The same on both sides.
//!
//! A thread does all of it, in one poll. Used by backends whose isolation lets no descriptor through, and by the guest
//! inside.

mod line;
mod pair;
mod run;

pub use pair::tcp_pair;
pub use run::{Hangup, Local, Pump, Receive};

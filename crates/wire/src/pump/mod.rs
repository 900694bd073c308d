//! One connection, many sockets: moves bytes between a connection that speaks [`crate::mux`] and a socket for each of
//! its streams, so that whoever uses a stream has an ordinary socket and knows nothing of this. The same on both sides of a wall.
//!
//! A thread does all of it, in one poll. Used by backends whose wall no descriptor passes, and by the guest behind it.

mod line;
mod pair;
mod run;

pub use pair::tcp_pair;
pub use run::{Hangup, Local, Pump, Receive};

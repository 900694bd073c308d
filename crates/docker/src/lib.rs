//! A Docker daemon, spoken to. A thin, blocking face over bollard, because walls are built by threads that wait, with
//! errors that say what to do. Knows nothing of sandboxes: the docker backend and the builder of images say what they want
//! in bollard's own words.
//!
//! Only daemons of this machine, at a unix socket: what a wall shows of the host has to be where the daemon is.

mod address;
mod daemon;
mod error;

pub use address::{socket, sockets};
pub use bollard;
pub use daemon::Daemon;
pub use error::{is_missing, refused};

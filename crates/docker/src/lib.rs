//! A client of the Docker daemon: a thin, blocking layer over bollard, because backends are built by blocking threads, with
//! errors that include a hint. Knows nothing of sandboxes: the docker backend and the image builder express their requests
//! in bollard's own types.
//!
//! Only daemons of this machine, at a unix socket: the host's paths that a backend mounts have to exist where the daemon is.

mod address;
mod daemon;
mod error;

pub use address::{socket, sockets};
pub use bollard;
pub use daemon::Daemon;
pub use error::{is_missing, refused};

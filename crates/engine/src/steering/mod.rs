//! Steering a sandbox that lives: its policy is changed, and its questions are answered, from outside. One way for all: a run in
//! the foreground, a run of an agent and a persistent sandbox.
//!
//! ```text
//! S/steering/ID        who it is (a `Steered` in JSON), locked while it lives
//! S/steering/ID.sock   a socket of the process that holds it: one order in a line, one reply in a line
//! ```
//!
//! A path of the host that no sandbox sees, in a directory of its user; and an order from a process of another process namespace is
//! not taken, so that a program inside could not even steer where a mistake showed it the socket. Which person may steer is the
//! caller's to judge: the command line is the owner's, and the daemon asks the grant. What no order can open is the gateway's to
//! keep closed. Called by [`crate::Engine`] for the sandboxes that it makes, and by the command line and the daemon.

mod client;
mod listener;
mod orders;
mod report;

pub use client::{Steered, WatchEnd, Watching, steered};
pub(crate) use listener::Steering;
pub use orders::{Order, Reply};
pub(crate) use report::live_report;
pub use report::{Notices, policy_report};

use belljar_state::Sweep;
use std::path::{Path, PathBuf};

/// What a killed process left.
pub(crate) const SWEEPS: [Sweep; 1] = [Sweep::of_state("sockets of sandboxes that ended", client::sweep)];

fn directory(state: &Path) -> PathBuf {
    state.join("steering")
}

fn socket_name(id: &str) -> String {
    format!("{id}.sock")
}

//! Everything that speaks HTTP: the daemon, in front of all sandboxes, and the shims, one for each sandbox.
//!
//! ```text
//!   client ----> daemon: who are you, may you, which sandbox        (front)
//!                  |       makes, finds, pauses, deletes            (belljar-fleet, by `link`)
//!                  |
//!                  +----> shim of the sandbox: commands, files, ports   (shim)
//!                           the request goes through as it is
//! ```
//! The daemon can be killed at any moment: sandboxes, commands, their output and their connections are the shims'. Runs end with it.

mod agents;
mod answer;
mod command_request;
pub mod front;
pub mod link;
mod metrics;
mod run_result;
pub mod shim;

pub use run_result::run_result;

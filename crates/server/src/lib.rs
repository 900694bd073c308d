//! Everything that speaks HTTP: the daemon, in front of all sandboxes, and the keepers, one for each living sandbox.
//!
//! ```text
//!   client ----> daemon: who are you, may you, which sandbox        (front)
//!                  |       makes, finds, pauses, deletes            (belljar-fleet, by `link`)
//!                  |
//!                  +----> keeper of the sandbox: commands, files, ports   (keeper)
//!                           the request goes through as it is
//! ```
//! The daemon can be killed at any moment: sandboxes, commands, their output and their connections are the keepers'.

pub mod agents;
mod answer;
mod command_request;
pub mod front;
mod job;
pub mod keeper;
pub mod link;
pub mod once;

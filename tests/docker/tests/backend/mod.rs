//! The Docker backend and the daemon under it, a subject a module.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod container;
mod frozen;
mod image;
mod inside;
mod killed;
mod neighbours;
mod persistent;
mod profiles;
mod slow;
mod socket;

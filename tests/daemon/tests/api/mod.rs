//! What clients may expect of a daemon that they share with others, a subject a module.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod agents;
mod fetch;
mod fuzz;
mod grants;
mod links;
mod metrics;
mod neighbours;
mod once;
mod policy;
mod race;
mod snapshots;
mod warm;
mod zygote;

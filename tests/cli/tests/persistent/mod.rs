//! Sandboxes that are kept, as a person sees them: the real binary, a real daemon of its own for each test.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod agent_config;
mod dashboard;
mod endings;
pub(crate) mod home;
mod life;
mod reach;
mod removal;
mod restart;
mod terminal;
mod volumes;
mod words;

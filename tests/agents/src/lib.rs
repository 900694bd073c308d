//! Real agents, as people install them, run by the real binary against a model that plays scripts. One file a subject under
//! `tests/`.
//!
//! A [`Job`] is a run to make: an agent, what its model does, a repository to work in. What came of it is a [`Done`], which
//! has been looked at already: the log is what was printed, the result says the same as the log, the key of the model stands
//! nowhere, and nothing of the run is left on this machine.
//!
//! The agents are in the folder that `BELLJAR_TEST_AGENTS` names; `./dev setup` puts them there. One that is missing is
//! skipped by name, and is a failure where `CI=true`.

#![allow(clippy::unwrap_used, reason = "tests stop where they cannot continue")]

mod agents;
mod done;
mod job;
mod outside;

pub use agents::{with, words};
pub use belljar_tests_cli::left::{eventually, of_run};
pub use done::Done;
pub use job::{Job, KEY, PLAN_TOKEN, Started};
pub use outside::{CONFIDENTIAL, Outside};

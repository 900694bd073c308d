//! What the conformance tests share: a place to test in, and eyes that look at it from outside.
//!
//! The suite is `tests/`, one file a subject. Every test is written once, takes a backend, and runs for each of them:
//! [`for_every_backend`] makes `native::a_timeout_kills_the_whole_tree` and its siblings out of one function. A
//! backend that does not work on this machine is skipped by name, and is a failure where `CI=true`.
//! `BELLJAR_BACKENDS=native,host` runs only those.
//!
//! A test judges from outside where it can (the host's files, the host's list of processes) and asserts no time; what
//! hangs fails by the runner's patience.

mod inspected;
mod model;
mod outside;
mod place;
mod runner;
mod secrets;
mod streamed;
mod world;

pub use inspected::about_requests;
pub use model::{KEY, Keys, RouteTo, model, routed};
pub use outside::{
    Marker, cgroup_can_be_ours, is_root, parent, process_user, processes_below, settles, wait_until,
};
pub use place::{Place, command, has_wall, sh, spec, text};
pub use runner::{again, run};
pub use secrets::{Drawer, credential, place};
pub use streamed::{drain, end, read_until};
pub use world::{Connection, LOOPBACK, World, python, web};

pub use belljar_spec::BackendName;

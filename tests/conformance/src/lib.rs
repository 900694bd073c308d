//! What the conformance tests share: a place to test in, and checks from outside.
//!
//! The suite is `tests/`, one file a subject. Every test is written once, takes a backend, and can run for each of them:
//! [`for_every_backend`] makes `native::a_timeout_kills_the_whole_tree` and its siblings out of one function, and ignores those
//! whose backend makes no difference. A backend that does not work on this machine is skipped by name, and is a failure where
//! `CI=true`. Docker's daemon is the one
//! of `DOCKER_HOST`, which `./dev test` starts; an ordinary user need not have one.
//! `BELLJAR_BACKENDS=native,host` runs only those.
//!
//! A test judges from outside where it can (the host's files, the host's list of processes) and asserts no time; a test that
//! hangs fails by the runner's time limit.

mod differences;
mod fixture;
mod inspected;
mod model;
mod outside;
mod root;
mod runner;
mod secrets;
mod service;
mod shared;
mod streamed;
mod world;

pub use differences::{
    answers_its_own_pings, call_costs, can_exchange, devices_of_its_own, guards_low_ports,
    guards_process_one, has_ipv6, has_netfilter, has_own_etc, has_own_network, has_terminal_keys,
    hides_late_sockets, is_recorded, isolates, knows_32_bit_calls, lists_every_mount, names_begin_with,
    options_without_meaning, outlives_its_limits, own_files, protects_paths, sees_host_changes,
    sees_short_lives, shares_folders, stops_the_restless, supervisor_leads_session, tells_all_of_a_process,
    tells_of_read_only, user_inside, waits_for_readers,
};
pub use fixture::{SandboxFixture, as_owner, command, is_isolated, refused_for, sh, spec, text};
pub use inspected::about_requests;
pub use model::{KEY, Keys, RouteTo, model, routed};
pub use outside::{
    Marker, cgroup_can_be_ours, is_root, parent, process_user, processes_below, settles, wait_until,
};
pub use root::{everything, has_roots, import, import_archives, packed, sha256, system};
pub use runner::{Check, DOCKER, RUNSC, again, run, run_in_one_sandbox};
pub use secrets::{Drawer, binding, credential};
pub use service::service;
pub use streamed::{drain, end, next, read_until};
pub use world::{Connection, LOOPBACK, World, python, web};

pub use belljar_spec::BackendName;
pub use belljar_tests_hosts::{is_inside, kernel_around, process_file};

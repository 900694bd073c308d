//! Imports between a host's repository and a git directory that real git inside works on, in one folder and with no sandbox.

mod apart;
mod aside;
mod follows;
mod hostile;
mod index;
mod killed;
mod left;
mod pair;

use belljar_sys::rustix::process::{Signal, getpid, kill_process};
use std::env;

/// Kills this process at the moment that it was told of: only a process of the tests in `killed` is told of one.
pub(super) fn step(name: &str) {
    if env::var_os("IMPORT_KILLED_AT").is_some_and(|chosen| chosen == name) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if env::var_os("IMPORT_GIT_KILLED_AT").is_some_and(|chosen| chosen == name) {
        killed::kill_git_once();
    }
}

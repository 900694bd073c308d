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
use std::cell::RefCell;
use std::env;

type Act = Box<dyn FnOnce()>;

thread_local! {
    /// An action for one point of an import in this thread, once.
    static MEANWHILE: RefCell<Option<(&'static str, Act)>> = const { RefCell::new(None) };
}

/// Sets an action for a point of the next import in this thread.
fn meanwhile(name: &'static str, act: impl FnOnce() + 'static) {
    MEANWHILE.set(Some((name, Box::new(act))));
}

/// Runs a test's action at this point; kills this process at the point that was set for it: only the processes of the tests in
/// `killed` have one.
pub(super) fn step(name: &str) {
    let is_now = MEANWHILE.with_borrow(|act| act.as_ref().is_some_and(|(chosen, _)| *chosen == name));
    if let Some((_, act)) = is_now.then(|| MEANWHILE.take()).flatten() {
        act();
    }
    if env::var_os("IMPORT_KILLED_AT").is_some_and(|chosen| chosen == name) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if env::var_os("IMPORT_GIT_KILLED_AT").is_some_and(|chosen| chosen == name) {
        killed::kill_git_once();
    }
}

//! The process above a guest that has no namespace and whose commands may still not outlive it: on a host where a guest is an ordinary
//! process, a command could kill the guest, and go on.
//!
//! ```text
//! belljar -> holder -> guest -> supervisors -> commands
//!            scope 0   scope 1  scope 2 ...............
//! ```
//!
//! Each scope is a Landlock domain that signals do not leave, inside of the one before: nothing inside can signal the holder. It waits
//! for the guest or the host to end, and then kills everything below it, at once where there are scopes: `kill(-1)` means the processes
//! of its own scope, and the kernel goes through them under a lock that keeps new ones from being made. On older kernels it looks for
//! its descendants, as often as it takes: it is a subreaper, so there are no others.

use crate::tree;
use belljar_sys::Inherited;
use belljar_sys::fork::{ForkedChild, fork_child};
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{
    DumpableBehavior, Signal, WaitOptions, getpid, getppid, set_child_subreaper, set_dumpable_behavior,
    test_kill_process, wait,
};
use belljar_sys::signal::signal_all;
use belljar_wire::message::LANDLOCK_WITH_SCOPES;
use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use std::io;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

/// The version of Landlock that may be used, if this program was started as a holder.
pub(crate) fn is_requested() -> Option<u32> {
    let mut words = std::env::args().skip(1);
    (words.next()? == HOLD).then(|| words.next()?.parse().ok())?
}

/// Returns in the guest, a child of this process, which itself never returns from here.
pub(crate) fn hold(landlock_abi: u32) -> io::Result<()> {
    let is_scoped = landlock_abi >= LANDLOCK_WITH_SCOPES;
    if is_scoped {
        scope().map_err(io::Error::other)?;
    }
    set_child_subreaper(Some(getpid()))?;
    let guest = match fork_child()? {
        ForkedChild::Child => return Ok(()),
        ForkedChild::Parent(guest) => guest,
    };
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // The guest's end of the control socket, which hangs up when the host does.
    let control_socket = Inherited::take().first(1);
    let mut ends = vec![PollFd::new(&guest, PollFlags::IN)];
    ends.extend(control_socket.iter().map(|socket| PollFd::new(socket, PollFlags::empty())));
    while let Err(Errno::INTR) = poll(&mut ends, None) {}
    if !(is_scoped && end_scope()) {
        tree::kill_below_us();
    }
    tree::reap();
    exit(0)
}

/// Kills all processes of our scope but this one, and takes them in; `false` if some are left, or where there is no scope after all.
fn end_scope() -> bool {
    // The parent is outside. Without a scope around us, all processes of the user would be meant.
    if getppid().is_some_and(|parent| test_kill_process(parent) != Err(Errno::PERM)) {
        return false;
    }
    let deadline = Instant::now() + KILL_TIMEOUT;
    let mut pause = SHORTEST_PAUSE;
    while Instant::now() < deadline {
        let _ = signal_all(Signal::KILL);
        // This process is a subreaper: whatever is left below it is its child, or will be.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(_) => return true,
                Ok(None) => break,
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    false
}

/// Signals, and connections to abstract sockets, stay inside.
fn scope() -> Result<(), RulesetError> {
    let root = PathFd::new("/");
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        // Every layer forbids to move files between directories, unless it says otherwise (landlock(7)).
        .handle_access(AccessFs::Refer)?
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?;
    match root {
        Ok(root) => ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer))?.restrict_self().map(drop),
        Err(_) => ruleset.restrict_self().map(drop),
    }
}

/// The argument; the version of Landlock is the next one.
const HOLD: &str = "hold";
/// What cannot be killed in this time hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Killed processes need a moment to end.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

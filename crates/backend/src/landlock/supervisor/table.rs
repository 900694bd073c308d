//! The sockets that programs inside got and that we hold too: only these can be connected and bound, and by their inode's number, which
//! no other socket can have while we hold them.
//!
//! One that is connected or listens is let go: what its program closes has to be closed. One that is never connected is let go by a
//! sweep, which looks at the descriptors of all processes.

use super::judge::NewSocket;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::fstat;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A socket that was given to a program, and is neither connected nor listening.
pub(super) struct Kept {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) kind: NewSocket,
    /// It has an address already.
    pub(super) is_bound: bool,
    /// A program has it: before, no look at descriptors finds it.
    has_arrived: bool,
}

impl Kept {
    pub(super) fn new(socket: OwnedFd, kind: NewSocket) -> Kept {
        Kept { socket: Arc::new(socket), kind, is_bound: false, has_arrived: false }
    }
}

pub(super) struct Table {
    state: Mutex<State>,
    most: usize,
}

#[derive(Default)]
struct State {
    kept: HashMap<u64, Kept>,
    /// Ports that programs inside listen at, with the inodes of their sockets.
    listening: HashMap<u16, u64>,
    sweeps: Sweeps,
}

/// When the descriptors of all processes are looked at, which takes long: where there are twice as many sockets as the last look left, and
/// where there is no room for more, at most once in a while.
#[derive(Default)]
pub(super) struct Sweeps {
    limit: usize,
    last: Option<Instant>,
}

impl Sweeps {
    /// Whether one is due, with so many sockets of so many that there may be.
    pub(super) fn is_due(&self, kept: usize, most: usize) -> bool {
        let is_recent = self.last.is_some_and(|last| last.elapsed() < BETWEEN_FULL_SWEEPS);
        kept >= self.limit.max(SPARE) || (kept >= most && !is_recent)
    }

    /// One was made, and left so many.
    pub(super) fn done(&mut self, left: usize) {
        *self = Sweeps { limit: 2 * left + SPARE, last: Some(Instant::now()) };
    }
}

/// The number that /proc shows a socket by.
pub(super) fn inode(socket: &OwnedFd) -> Result<u64, Errno> {
    Ok(fstat(socket)?.st_ino)
}

impl Table {
    /// An empty one, for as many sockets as this process may have files open for one sandbox.
    pub(super) fn new() -> Table {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let most = usize::try_from(files).unwrap_or(MAX_KEPT).clamp(SPARE, MAX_KEPT);
        Table { state: Mutex::default(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a socket. Too many are refused.
    pub(super) fn keep(&self, inode: u64, kept: Kept) -> Result<(), Errno> {
        let mut state = self.state();
        if state.sweeps.is_due(state.kept.len(), self.most) {
            sweep(&mut state.kept);
            let left = state.kept.len();
            state.sweeps.done(left);
        }
        if state.kept.len() >= self.most {
            return Err(Errno::NFILE);
        }
        state.kept.insert(inode, kept);
        Ok(())
    }

    /// A program has it from now on, if it does not have it behind it already.
    pub(super) fn arrived(&self, inode: u64) {
        if let Some(kept) = self.state().kept.get_mut(&inode) {
            kept.has_arrived = true;
        }
    }

    /// Takes a socket out: to connect it or have it listen, and to let it go then. `None`: it was, or is none that can be.
    pub(super) fn take(&self, inode: u64) -> Option<Kept> {
        self.state().kept.remove(&inode)
    }

    /// Puts it back: nothing came of it.
    pub(super) fn put_back(&self, inode: u64, kept: Kept) {
        self.state().kept.insert(inode, kept);
    }

    pub(super) fn listens(&self, port: u16, inode: u64) {
        self.state().listening.insert(port, inode);
    }

    /// Whether a socket listens already.
    pub(super) fn is_listening(&self, inode: u64) -> bool {
        self.state().listening.values().any(|listening| *listening == inode)
    }

    /// The socket that listens at a port, as far as we know.
    pub(super) fn listener(&self, port: u16) -> Option<u64> {
        self.state().listening.get(&port).copied()
    }

    pub(super) fn forget_listener(&self, port: u16) {
        self.state().listening.remove(&port);
    }
}

/// Lets go of sockets that no program has any more.
fn sweep(kept: &mut HashMap<u64, Kept>) {
    let held = held_by_programs();
    kept.retain(|inode, one| held.contains(inode) || !one.has_arrived);
}

/// The inodes of all sockets that processes have, as far as we may look, without our own.
pub(super) fn held_by_programs() -> HashSet<u64> {
    let us = std::process::id().to_string();
    let mut held = HashSet::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_other = |name: &str| name.parse::<u32>().is_ok() && name != us;
    for process in processes.filter(|entry| entry.file_name().to_str().is_some_and(is_other)) {
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        held.extend(links.filter_map(|link| {
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        }));
    }
    held
}

/// Of one kind.
const SPARE: usize = 256;
const BETWEEN_FULL_SWEEPS: Duration = Duration::from_secs(1);
/// More than this one program that connects everywhere has at once.
const MAX_KEPT: usize = 4096;
/// Of the files that this process may have open, one sandbox gets this part.
const SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_full_is_looked_through_again() {
        let most = 1000;
        let mut sweeps = Sweeps::default();
        assert!(!sweeps.is_due(SPARE - 1, most) && sweeps.is_due(SPARE, most));
        sweeps.done(900);
        assert!(!sweeps.is_due(999, most) && !sweeps.is_due(most, most), "it was just looked through");
        sweeps.last = Instant::now().checked_sub(BETWEEN_FULL_SWEEPS);
        assert!(!sweeps.is_due(999, most) && sweeps.is_due(most, most), "what was closed since makes room");
    }
}

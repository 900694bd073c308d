//! Limits on all processes of a sandbox together: one cgroup a sandbox, version 2 where it is ours to use,
//! version 1 where that is what the machine has.
//!
//! A cgroup is held by a lock on its directory. The kernel releases the lock when its holder dies, however it dies, so
//! [`sweep`] can tell which cgroups are no longer held without guessing from process ids.

mod directory;
mod foreign;
mod turns;
mod v1;
mod v2;

use belljar_spec::{CommandLine, Hint, Limits, Origin, SandboxError, SandboxId, hint};
use belljar_sys::before_exec::CgroupEntry;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd};
use directory::Directory;
pub(crate) use foreign::Foreign;
use std::fs::File;
use std::path::PathBuf;
pub(crate) use turns::Turns;

/// The cgroup of one sandbox. Its directories are removed with it; its processes are gone already by then, or will be in a moment.
pub(crate) struct Cgroup {
    directories: Vec<Directory>,
    version: Version,
    held: Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Processes are moved in, per controller.
    One,
    /// Processes are born in it.
    Two,
}

/// The limits that a cgroup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    pub memory: bool,
    pub pids: bool,
    pub cpus: bool,
}

/// The limits that a cgroup would hold here: tried with one that is removed at once.
pub fn held_by_cgroup(limits: &Limits) -> Held {
    let tried = belljar_state::new_id().and_then(|id| Cgroup::create(id, limits));
    tried.ok().flatten().map(|cgroup| cgroup.held()).unwrap_or_default()
}

/// What the kernel counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Processes killed because memory ran out.
    pub oom_kills: u64,
    /// Forks refused because there were enough processes.
    pub forks_refused: u64,
}

impl Cgroup {
    /// A cgroup with these limits; `None` where no cgroup is delegated to belljar.
    pub(crate) fn create(id: SandboxId, limits: &Limits) -> Result<Option<Cgroup>, SandboxError> {
        match v2::home() {
            Some(home) => v2::create(&home, id, limits),
            None => v1::create(id, limits),
        }
    }

    /// Which limits it holds.
    pub(crate) fn held(&self) -> Held {
        self.held
    }

    /// Where a process can be born in it.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        match self.version {
            Version::One => None,
            Version::Two => self.directories.first().map(|directory| directory.lock.as_fd()),
        }
    }

    /// What a process that cannot be born in it writes to, to move itself in.
    pub(crate) fn tasks_files(&self) -> Result<Vec<File>, SandboxError> {
        match self.version {
            Version::One => self.directories.iter().map(|directory| directory.open("tasks")).collect(),
            Version::Two => Ok(Vec::new()),
        }
    }

    /// How a program of the host that works for the sandbox enters it.
    pub(crate) fn entry(&self) -> Result<CgroupEntry, SandboxError> {
        let file = match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.procs",
        };
        let files = self.directories.iter().map(|directory| directory.open(file));
        Ok(CgroupEntry::new(files.collect::<Result<_, _>>()?))
    }

    pub(crate) fn counters(&self) -> Counters {
        let count = |file: &str, key: &str| {
            self.directories.iter().find_map(|directory| directory.read_count(file, key)).unwrap_or(0)
        };
        let oom = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        Counters { oom_kills: count(oom, "oom_kill"), forks_refused: count("pids.events", "max") }
    }
}

/// Removes every cgroup of ours that no process holds any more, and kills what is left in it. Returns how many.
pub(crate) fn sweep() -> usize {
    let homes: Vec<PathBuf> = match v2::home() {
        Some(home) => vec![home],
        None => v1::homes(),
    };
    homes.iter().map(|home| directory::sweep(home)).sum()
}

/// A value that was asked for must be settable; a default may fail.
fn set(directory: &Directory, file: &str, value: &str, origin: Origin) -> Result<bool, SandboxError> {
    match directory.write(file, value) {
        Ok(()) => Ok(true),
        Err(error) if origin == Origin::Requested => Err(error),
        Err(_) => Ok(false),
    }
}

/// What to do where no cgroup is delegated to us.
pub(crate) fn delegation_hint() -> Hint {
    match crate::container::around_us() {
        Some(_) => {
            "limit the container itself (`docker run --memory 2g --cpus 2`), and omit the limit".into()
        }
        None => hint!(
            "run as root, or let systemd delegate cgroups to you: `systemd-run --user --scope belljar run ...` ({})",
            CommandLine::Help.of("backends")
        ),
    }
}

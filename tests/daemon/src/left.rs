//! What a daemon and its sandboxes have of this machine, counted.

use crate::{Home, Started};
use belljar_tests_cli::left::numbers_of;
use std::fs;
use std::path::Path;

/// Counts. What all processes of this machine share counts as well: mounts and cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// All but the daemon itself.
    pub processes: usize,
    /// Of the daemon.
    pub open_files: usize,
    /// Of the daemon.
    pub threads: usize,
    pub mounts: usize,
    pub cgroups: usize,
    /// Sandboxes on disk.
    pub places: usize,
    /// Of the daemon, resident, in KiB.
    pub memory: u64,
}

impl Home {
    pub fn left(&self, daemon: &Started) -> Left {
        let pid = daemon.pid();
        let others = numbers_of(&self.mark(), None).into_iter().filter(|other| *other != pid);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Left {
            processes: others.count(),
            open_files: daemon.open_files(),
            threads: count(Path::new(&format!("/proc/{pid}/task"))),
            mounts: mounts.lines().count(),
            cgroups: cgroups(Path::new("/sys/fs/cgroup")),
            places: count(&self.places()),
            memory: daemon.memory(),
        }
    }
}

impl Left {
    /// Whether nothing is more than that, memory aside.
    pub fn is_at_most(&self, other: &Left) -> bool {
        self.beside(other).iter().all(|(what, ours, theirs)| *what == MEMORY || ours <= theirs)
    }

    /// Both, by name.
    pub fn beside(&self, other: &Left) -> Vec<(&'static str, u64, u64)> {
        let row = |name, of: fn(&Left) -> usize| (name, of(self) as u64, of(other) as u64);
        vec![
            row("processes", |left| left.processes),
            row("open files", |left| left.open_files),
            row("threads", |left| left.threads),
            row("mounts", |left| left.mounts),
            row("cgroups", |left| left.cgroups),
            row("places", |left| left.places),
            (MEMORY, self.memory, other.memory),
        ]
    }
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).into_iter().flatten().flatten().count()
}

/// With all below it.
fn cgroups(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| 1 + cgroups(&entry.path())).sum()
}

const MEMORY: &str = "memory, KiB";

//! What the host sees of a sandbox: its processes in /proc, and what becomes of files.

use belljar_sys::rustix::process::{geteuid, getpid};
use belljar_tests_hosts::{beside, process_file, processes_with};
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A word that no other process of this machine has among its arguments.
#[derive(Debug, Clone)]
pub struct Marker(String);

impl Marker {
    /// A new one.
    #[expect(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> Marker {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Marker(format!("marker-{}-{count}-", getpid().as_raw_nonzero()))
    }

    /// The processes that carry it, as the host numbers them, or as its eyes do where a process has no number on the host
    /// ([`is_inside`]). Zombies do not count.
    pub fn processes(&self) -> Vec<u32> {
        processes_with(&self.0)
    }

    /// Waits until at least so many processes carry it.
    pub fn wait_for(&self, count: usize) {
        wait_until(&format!("{count} processes to start"), || self.processes().len() >= count);
    }

    /// Ready when at least so many processes carry it, without blocking the tasks beside it.
    pub async fn appears(&self, count: usize) {
        let start = Instant::now();
        while self.processes().len() < count {
            assert!(start.elapsed() < TOO_LONG, "waited in vain for {count} processes to start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until no process carries it.
    pub fn wait_for_none(&self) {
        wait_until("every process to be gone", || self.processes().is_empty());
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A process's parent, as the host sees it.
pub fn parent(pid: u32) -> Option<u32> {
    beside(pid, status(pid, "PPid:")?.parse().ok()?)
}

/// The user that a process runs as (its effective id), as the host sees it.
pub fn process_user(pid: u32) -> Option<u32> {
    status(pid, "Uid:")?.split_whitespace().nth(1)?.parse().ok()
}

/// Every process below `ancestor`, as the host sees it.
pub fn processes_below(ancestor: u32) -> Vec<u32> {
    let below = |pid: &u32| {
        let mut above = parent(*pid);
        while let Some(pid) = above.filter(|pid| *pid > 1) {
            if pid == ancestor {
                return true;
            }
            above = parent(pid);
        }
        false
    };
    all_processes().filter(below).collect()
}

/// Whether we are root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether a cgroup with this controller could be made here, found out by making one.
pub fn cgroup_can_be_ours(controller: &str) -> bool {
    let name = format!("conformance-{}", Marker::new());
    let version_1 = format!("/sys/fs/cgroup/{controller}");
    let version_2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let home = if !version_2.trim().is_empty() { "/sys/fs/cgroup" } else { version_1.as_str() };
    let path = format!("{home}/{name}");
    fs::create_dir(&path).and_then(|()| fs::remove_dir(&path)).is_ok()
}

/// Waits until `happened`; fails when that takes longer than anything here can.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < TOO_LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a number stays the same for a while, and returns it. What moves is to move far more often than that.
pub fn settles(mut number: impl FnMut() -> u64) -> u64 {
    let mut last = number();
    let mut since = Instant::now();
    let start = Instant::now();
    while since.elapsed() < Duration::from_millis(600) {
        assert!(start.elapsed() < TOO_LONG, "it goes on and on: {last} by now");
        thread::sleep(Duration::from_millis(20));
        let now = number();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("there is a /proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn status(pid: u32, key: &str) -> Option<String> {
    let text = process_file(pid, "status").ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_string())
}

/// Nothing that is waited for here takes that long.
const TOO_LONG: Duration = Duration::from_secs(20);

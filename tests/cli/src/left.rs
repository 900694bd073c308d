//! What could be left of sandboxes on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Waits for something that the kernel is about to do. Not a measure of time: false after a long one.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    is_so()
}

/// The processes of a run: `mark` stands in the path of its workspace, which is mounted for every process inside; `id`, if it
/// is known, in the name of its cgroup. The dead that nobody has reaped do not count.
pub fn of_run(mark: &str, id: Option<&str>) -> Vec<String> {
    numbers_of(mark, id).into_iter().map(describe).collect()
}

/// The same, as the host numbers them.
pub fn numbers_of(mark: &str, id: Option<&str>) -> Vec<u32> {
    let holds = |pid: u32, file: &str, word: &str| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.windows(word.len()).any(|window| window == word.as_bytes())
    };
    let belongs = |pid: &u32| {
        holds(*pid, "mountinfo", mark)
            || holds(*pid, "cmdline", mark)
            || id.is_some_and(|id| holds(*pid, "cgroup", id))
    };
    processes().filter(belongs).collect()
}

/// The cgroups of a sandbox: below the root, or below one that is below it.
pub fn cgroups(id: &str) -> Vec<PathBuf> {
    let named = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().contains(id));
        ours.map(|entry| entry.path()).collect()
    };
    let root = Path::new("/sys/fs/cgroup");
    let mut found = named(root);
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        found.extend(named(&entry.path()));
    }
    found
}

/// Whether a process of this number lives.
pub fn is_alive(pid: u32) -> bool {
    // From /proc/PID/stat (proc_pid_stat(5)).
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn describe(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid}: {}", String::from_utf8_lossy(&words).replace('\0', " "))
}

/// All but us and the dead.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id() && is_alive(*pid))
}

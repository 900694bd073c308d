//! What could be left of sandboxes on this machine.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
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
/// is known, in the name of its cgroup. Zombies do not count.
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

/// The cgroups of a sandbox.
pub fn cgroups(id: &str) -> Vec<PathBuf> {
    belljar_tests_hosts::cgroups(|name| name.contains(id))
}

/// Cgroups of belljar without a process. Some are about to go: tests beside us start and end sandboxes.
pub fn empty_cgroups() -> HashSet<PathBuf> {
    let is_empty = |path: &PathBuf| {
        fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
    };
    belljar_tests_hosts::cgroups(|name| name.starts_with("belljar-")).into_iter().filter(is_empty).collect()
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

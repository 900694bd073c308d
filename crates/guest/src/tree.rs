//! Finding and killing everything that descends from a process, by the one thing that a process cannot shed:
//! its parent. (Supervisors are subreapers, so orphans stay in their tree.)

use belljar_sys::rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// Kills every descendant of `root`, not `root` itself, and returns when none is left alive.
pub(crate) fn kill_below(root: Pid) {
    let root = root.as_raw_nonzero().get();
    for round in 0.. {
        let victims = descendants(root);
        if victims.is_empty() {
            return;
        }
        for victim in &victims {
            kill(victim);
        }
        // Something forks faster than we look. Process 1 has a stronger word for its own namespace.
        if round >= PATIENCE {
            if getpid() == Pid::INIT {
                let _ = kill_process(Pid::from_raw(-1).unwrap_or(Pid::INIT), Signal::KILL);
            }
            thread::sleep(Duration::from_millis(1));
        }
        // The dead need a moment to become so.
        thread::yield_now();
    }
}

/// A process as it was when we looked.
struct Process {
    pid: i32,
    /// In clock ticks since boot: with the pid, never the same for two processes.
    started: u64,
}

fn descendants(root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some((parent, process)) = look(pid) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            found.push(process);
        }
    }
    found
}

/// A living process and its parent, from /proc/PID/stat (proc_pid_stat(5)).
fn look(pid: i32) -> Option<(i32, Process)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything, parentheses too.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let state = *fields.first()?;
    if state == "Z" || state == "X" {
        return None;
    }
    let parent = fields.get(1)?.parse().ok()?;
    let started = fields.get(19)?.parse().ok()?;
    Some((parent, Process { pid, started }))
}

/// SIGKILL, unless the number means another process by now.
fn kill(process: &Process) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if look(process.pid).is_some_and(|(_, now)| now.started == process.started) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

/// Rounds before the stronger word.
const PATIENCE: u32 = 100;

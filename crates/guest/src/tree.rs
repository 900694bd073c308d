//! Finding and killing everything that descends from a process, by the one thing that a process cannot shed: its parent.
//! (Supervisors are subreapers, so orphans stay in their tree, and a supervisor ends when nobody is left in it.) A kernel that
//! knows no subreapers makes orphans children of process 1; there every command gets a mark that it cannot shed either.

use belljar_sys::mark::{self, Mark};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use belljar_sys::signal::signal_all;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A mark for the next command; `None` where it needs none.
pub(crate) fn new_mark() -> Option<u64> {
    (!mark::orphans_stay()).then(|| NEXT_MARK.fetch_add(1, Ordering::Relaxed))
}

/// Kills every descendant of a supervisor, and all that bears the mark of its command, and returns when they have ended: then
/// nobody is left.
pub(crate) fn kill_tree(supervisor: Pid, mark: Option<u64>) {
    let root = supervisor.as_raw_nonzero().get();
    kill_until(|look| {
        // One that somebody inside has stopped would not see that its tree is gone.
        let _ = kill_process(supervisor, Signal::CONT);
        let mut left = look.below(root);
        if let Some(mark) = mark {
            left.extend(look.bearing(mark));
        }
        let end = match mark {
            _ if look.sees(root) => End::NotYet,
            // A supervisor with subreaping ends after the last one.
            None => End::Proven,
            Some(_) => End::Seen,
        };
        (left, end)
    });
}

/// Sends a signal to all of a supervisor's command that bears its mark.
pub(crate) fn signal_tree(supervisor: Pid, mark: u64, signal: Signal) {
    let Some(mut look) = Look::around() else { return };
    let below = look.below(supervisor.as_raw_nonzero().get()).into_iter();
    let all: HashSet<Process> = below.chain(look.bearing(mark)).map(|seen| seen.process).collect();
    all.into_iter().for_each(|process| self::signal(process, signal));
}

/// Kills every descendant of this process, and returns when none is left alive.
pub(crate) fn kill_below_us() {
    let us = getpid().as_raw_nonzero().get();
    kill_until(|look| (look.below(us), End::Seen));
}

/// Whether nobody is left when a look has found nobody.
#[derive(PartialEq, Eq)]
enum End {
    NotYet,
    /// As far as it saw.
    Seen,
    Proven,
}

/// Kills those that are left, until nobody is.
fn kill_until(mut left: impl FnMut(&mut Look) -> (Vec<Seen>, End)) {
    let start = Instant::now();
    let mut met = HashSet::new();
    let mut rounds_with_new = 0;
    let mut rounds_without = 0;
    let mut gone = HashSet::new();
    while start.elapsed() < PATIENCE {
        let Some(mut look) = Look::around() else {
            thread::sleep(PAUSE);
            continue;
        };
        let (left, end) = left(&mut look);
        rounds_without = if left.is_empty() { rounds_without + 1 } else { 0 };
        // Who was listed and has ended since may have left a child that was not listed. Where others come and go all the time,
        // that is true of every look: many that found nobody are enough.
        let is_sure = look.gone.is_subset(&gone) || rounds_without > ENOUGH;
        if left.is_empty() && (end == End::Proven || (end == End::Seen && is_sure)) {
            return;
        }
        gone = look.gone;
        let victims: Vec<Process> = left.into_iter().map(|seen| seen.process).collect();
        rounds_with_new += u32::from(victims.iter().any(|victim| !met.contains(victim)));
        for victim in victims {
            signal(victim, Signal::KILL);
            met.insert(victim);
        }
        // Something forks faster than we look. Process 1 has a stronger word for its own namespace.
        if rounds_with_new > MANY && getpid() == Pid::INIT {
            let _ = signal_all(Signal::KILL);
        }
        // The dead need a moment to become so.
        thread::sleep(PAUSE);
    }
}

/// A process as it was when we looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pid: i32,
    /// In clock ticks since boot: with the pid, never the same for two processes.
    started: u64,
}

/// A living process, and what it was doing.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) process: Process,
    parent: i32,
    /// The letter of proc_pid_stat(5), or [`UNTOLD`].
    state: char,
}

impl Seen {
    /// Whether a signal has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == 'T'
    }

    /// Whether it runs, or waits for something that a signal ends.
    pub(crate) fn is_going(&self) -> bool {
        matches!(self.state, 'R' | 'S')
    }
}

/// Every descendant of this process; parents come before their children.
pub(crate) fn below_us() -> Vec<Seen> {
    Look::around().map_or_else(Vec::new, |look| look.below(getpid().as_raw_nonzero().get()))
}

/// Every descendant of this process, its children first, then theirs.
pub(crate) fn generations_below_us() -> Vec<Vec<Process>> {
    let mut ages = HashMap::new();
    let mut generations: Vec<Vec<Process>> = Vec::new();
    for seen in below_us() {
        let age = ages.get(&seen.parent).map_or(0, |parent| parent + 1);
        ages.insert(seen.process.pid, age);
        // Parents come first, so it is the next one at most.
        match generations.get_mut(age) {
            Some(generation) => generation.push(seen.process),
            None => generations.push(vec![seen.process]),
        }
    }
    generations
}

/// Whether this process, and no later one with its number, runs or waits.
pub(crate) fn is_going(process: Process) -> bool {
    look(process.pid).is_some_and(|now| now.process == process && now.is_going())
}

/// One look at all processes of this namespace. It takes time, in which they start and end.
struct Look {
    seen: Vec<Seen>,
    /// Those that were listed, and had ended when it was their turn.
    gone: HashSet<i32>,
}

impl Look {
    /// `None` if nothing could be seen, not even ourselves.
    fn around() -> Option<Look> {
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let listed: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let mut look = Look { seen: Vec::new(), gone: HashSet::new() };
        for pid in listed {
            match self::look(pid) {
                Some(seen) => look.seen.push(seen),
                None => drop(look.gone.insert(pid)),
            }
        }
        look.sees(getpid().as_raw_nonzero().get()).then_some(look)
    }

    fn sees(&self, pid: i32) -> bool {
        self.seen.iter().any(|seen| seen.process.pid == pid)
    }

    /// Every descendant of a process; parents come before their children.
    fn below(&self, root: i32) -> Vec<Seen> {
        let mut children: HashMap<i32, Vec<Seen>> = HashMap::new();
        for seen in &self.seen {
            children.entry(seen.parent).or_default().push(*seen);
        }
        let mut found = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            for seen in children.remove(&parent).unwrap_or_default() {
                parents.push(seen.process.pid);
                found.push(seen);
            }
        }
        found
    }

    /// Those that bear a mark. Whoever has tampered with its own belongs to whomever is asked about. Who came from outside has no
    /// parent in here, and none of our marks.
    fn bearing(&mut self, wanted: u64) -> Vec<Seen> {
        let bears = |seen: &&Seen| match Pid::from_raw(seen.process.pid).map(mark::of) {
            Some(Ok(Mark::Of(mark))) => mark == wanted,
            Some(Ok(Mark::Tampered)) => seen.parent != 0,
            Some(Err(Errno::SRCH)) => {
                self.gone.insert(seen.process.pid);
                false
            }
            Some(Ok(Mark::Absent) | Err(_)) | None => false,
        };
        self.seen.iter().filter(bears).copied().collect()
    }
}

/// A living process and its parent, from /proc/PID/stat (proc_pid_stat(5)).
fn look(pid: i32) -> Option<Seen> {
    let stat = read(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything, parentheses too.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // A process whose first thread has ended looks dead, while others of its threads go on.
    let mut state = state(&stat)?;
    if has_ended(state) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let states: Vec<char> =
            threads.filter_map(|thread| self::state(&read(thread.path().join("stat"))?)).collect();
        let living = states.iter().find(|state| !has_ended(**state));
        // gVisor lists none of such a process, and still counts them.
        let is_counted = || fields.get(17)?.parse().is_ok_and(|threads: u32| threads > 1).then_some(UNTOLD);
        state = living.copied().or_else(|| if states.is_empty() { is_counted() } else { None })?;
    }
    let parent = fields.get(1)?.parse().ok()?;
    let started = fields.get(19)?.parse().ok()?;
    Some(Seen { process: Process { pid, started }, parent, state })
}

/// The text of a file. Names of processes are bytes of all kinds, and no reason to overlook one.
fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What a process or thread is doing, as a letter.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// Sends a signal, unless the number means another process by now.
pub(crate) fn signal(process: Process, signal: Signal) {
    if let Some(handle) = Handle::of(process) {
        handle.send(signal);
    }
}

/// What signals go to.
pub(crate) enum Handle {
    Of(OwnedFd),
    /// The kernel has no handles of processes. It gives numbers in turn, so one does not come again between two looks.
    Number(Pid),
}

impl Handle {
    /// `None` if the number means another process by now.
    pub(crate) fn of(process: Process) -> Option<Handle> {
        let pid = Pid::from_raw(process.pid)?;
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Handle::Of(handle),
            Err(Errno::NOSYS) => Handle::Number(pid),
            Err(_) => return None,
        };
        look(process.pid).is_some_and(|now| now.process == process).then_some(handle)
    }

    pub(crate) fn send(&self, signal: Signal) {
        let _ = match self {
            Handle::Of(handle) => pidfd_send_signal(handle, signal),
            Handle::Number(pid) => kill_process(*pid, signal),
        };
    }
}

/// Alive, and nobody tells whether it runs: neither going nor stopped.
const UNTOLD: char = '?';
/// The word by which a supervisor whose guest is gone becomes this program again, to end its tree.
pub(crate) const ORPHANED: &CStr = c"orphaned";
static NEXT_MARK: AtomicU64 = AtomicU64::new(mark::FIRST);
/// Rounds that found somebody new before the stronger word.
const MANY: u32 = 100;
/// Rounds that found nobody, where no single one can be believed.
const ENOUGH: u32 = 30;
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(100);
/// What cannot be killed in this time (it hangs in the kernel) will not be; the host has its own patience.
const PATIENCE: Duration = Duration::from_secs(30);

//! Finds and kills all descendants of a process, by the one thing that a process cannot shed: its parent. (Supervisors are
//! subreapers, so orphans stay in their tree, and a supervisor ends when no process is left in it.) A kernel without
//! subreapers makes orphans children of process 1; there every command gets a mark that it cannot shed either.

use belljar_sys::mark::{self, Mark};
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};
use belljar_sys::signal::signal_all;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

/// A mark for the next command; `None` where it needs none.
pub(crate) fn new_mark() -> Option<u64> {
    (!mark::orphans_stay()).then(|| NEXT_MARK.fetch_add(1, Ordering::Relaxed))
}

/// Kills every descendant of a supervisor, and every process with the mark of its command, and returns when all of them have ended.
pub(crate) fn kill_tree(supervisor: Pid, mark: Option<u64>) {
    let root = supervisor.as_raw_nonzero().get();
    kill_until(mark, |look| {
        // If a process inside has stopped the supervisor, it would not see that its tree is gone.
        let _ = kill_process(supervisor, Signal::CONT);
        let below = look.below(root).into_iter().map(|seen| seen.process);
        let end = match mark {
            _ if look.sees(root) => End::NotYet,
            // A supervisor with subreaping ends after the last one.
            None => End::Proven,
            Some(_) => End::Seen,
        };
        (below.chain(look.bearing.iter().copied()).collect(), end)
    });
}

/// Sends a signal to all of a supervisor's command that bears its mark.
pub(crate) fn signal_tree(supervisor: Pid, mark: u64, signal: Signal) {
    let Some(look) = Look::around(Some(mark)) else { return };
    let below = look.below(supervisor.as_raw_nonzero().get()).into_iter().map(|seen| seen.process);
    let all: HashSet<Process> = below.chain(look.bearing).collect();
    all.into_iter().for_each(|process| self::signal(process, signal));
}

/// Kills every descendant of this process, and returns when none is left alive.
pub(crate) fn kill_below_us() {
    let us = getpid().as_raw_nonzero().get();
    kill_until(None, |look| {
        if getpid() == Pid::INIT {
            let _ = signal_all(Signal::KILL);
        }
        (look.below(us).into_iter().map(|seen| seen.process).collect(), End::Seen)
    });
}

/// Takes in every child of this process that has ended: supervisors with nothing left to supervise, and orphans whose supervisor
/// was killed.
pub(crate) fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Whether a look that found no process proves that none is left.
#[derive(PartialEq, Eq)]
enum End {
    NotYet,
    /// As far as it saw.
    Seen,
    Proven,
}

/// Kills the processes that are left, until there are none.
fn kill_until(mark: Option<u64>, mut left: impl FnMut(&Look) -> (Vec<Process>, End)) {
    let start = Instant::now();
    let is_init = getpid() == Pid::INIT;
    let mut met = HashSet::new();
    let mut rounds_with_new = 0;
    let mut rounds_without = 0;
    let mut gone = HashSet::new();
    while start.elapsed() < KILL_TIMEOUT {
        if is_init {
            // Ended processes that only process 1 can reap would make each look longer.
            reap();
        }
        let Some(look) = Look::around(mark) else {
            thread::sleep(PAUSE);
            continue;
        };
        let (left, end) = left(&look);
        rounds_without = if left.is_empty() { rounds_without + 1 } else { 0 };
        // A process that was listed and has ended since may have left a child that was not listed. Where unrelated
        // processes come and go all the time, that is true of every look: then many looks that found none are enough.
        let is_sure = look.gone.is_subset(&gone) || rounds_without > ENOUGH;
        if left.is_empty() && (end == End::Proven || (end == End::Seen && is_sure)) {
            return;
        }
        gone = look.gone;
        rounds_with_new += u32::from(left.iter().any(|victim| !met.contains(victim)));
        for victim in left {
            signal(victim, Signal::KILL);
            met.insert(victim);
        }
        // A process forks faster than we look, or one of another command holds a dead one back. Process 1 has a stronger
        // signal for its own namespace.
        if is_init && (rounds_with_new > MANY || start.elapsed() > STUBBORN) {
            let _ = signal_all(Signal::KILL);
        }
        // Killed processes need a moment to end.
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

    /// Whether its state is unknown.
    fn is_untold(&self) -> bool {
        self.state == UNTOLD
    }

    /// Whether it runs, or waits for something that a signal ends.
    pub(crate) fn is_going(&self) -> bool {
        matches!(self.state, 'R' | 'S')
    }
}

/// Every descendant of this process; parents come before their children. `None` if not all processes could be read.
pub(crate) fn below_us() -> Option<Vec<Seen>> {
    Some(Look::around(None)?.below(getpid().as_raw_nonzero().get()))
}

/// How completely the processes below this one are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stillness {
    /// A process runs, or not all could be read.
    No,
    /// All with a known state are stopped; the state of some is unknown.
    AsReported,
    Yes,
}

/// By two looks. A look takes time: the process read last can have woken the one read first. Only the second look shows
/// that. And a process that was listed and has ended since may have left a child that was not: the second look lists that
/// child, or finds it ended.
pub(crate) fn stillness_below_us() -> Stillness {
    let us = getpid().as_raw_nonzero().get();
    let (Some(first), Some(second)) = (Look::around(None), Look::around(None)) else { return Stillness::No };
    let below = [first.below(us), second.below(us)].concat();
    if below.iter().any(Seen::is_going) || !second.gone.is_subset(&first.gone) {
        Stillness::No
    } else if below.iter().any(Seen::is_untold) {
        Stillness::AsReported
    } else {
        Stillness::Yes
    }
}

/// Every descendant of this process, its children first, then theirs; as far as they can be seen.
pub(crate) fn generations_below_us() -> Vec<Vec<Process>> {
    let mut ages = HashMap::new();
    let mut generations: Vec<Vec<Process>> = Vec::new();
    for seen in below_us().unwrap_or_default() {
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
    matches!(look(process.pid), Ok(Some(now)) if now.process == process && now.is_going())
}

/// One look at all processes of this namespace. It takes time, in which they start and end.
struct Look {
    seen: Vec<Seen>,
    /// Those of them that bear the mark which was looked for.
    bearing: Vec<Process>,
    /// Those that were listed, and had ended when it was their turn.
    gone: HashSet<i32>,
}

impl Look {
    /// `None` if not all processes could be read: one that cannot be read has not ended.
    fn around(mark: Option<u64>) -> Option<Look> {
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let mut listed: Vec<i32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The newest are the first to be gone again.
        listed.sort_unstable_by_key(|pid| Reverse(*pid));
        let mut look = Look { seen: Vec::new(), bearing: Vec::new(), gone: HashSet::new() };
        for pid in listed {
            let seen = match self::look(pid) {
                Ok(Some(seen)) => seen,
                Ok(None) => {
                    look.gone.insert(pid);
                    continue;
                }
                // Another user's, so the guest did not start it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                Err(_) => return None,
            };
            look.seen.push(seen);
            match mark.map(|mark| bears(&seen, mark)) {
                None | Some(Ok(false) | Err(Errno::PERM)) => {}
                Some(Ok(true)) => look.bearing.push(seen.process),
                Some(Err(Errno::SRCH)) => drop(look.gone.insert(pid)),
                Some(Err(_)) => return None,
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
}

/// Whether a process bears a mark. One that has tampered with its own counts as bearing every mark. One without a parent in
/// here is process 1, or came from outside.
fn bears(seen: &Seen, expected: u64) -> Result<bool, Errno> {
    let Some(pid) = Pid::from_raw(seen.process.pid).filter(|_| seen.parent != 0) else { return Ok(false) };
    Ok(match mark::of(pid)? {
        Mark::Of(mark) => mark == expected,
        Mark::Tampered => true,
        Mark::Absent => false,
    })
}

/// A living process and its parent, from /proc/PID/stat (proc_pid_stat(5)); `None` if it has ended.
fn look(pid: i32) -> io::Result<Option<Seen>> {
    let stat = read(format!("/proc/{pid}/stat"))?.filter(|stat| !stat.is_empty());
    let Some(stat) = stat else { return Ok(None) };
    // The name, in parentheses, may hold anything, parentheses too.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (Some(mut state), Some(parent), Some(threads), Some(started)) =
        (state(&stat), number(1), number(17), number(19))
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    // A process whose first thread has ended looks dead, while others of its threads continue.
    if has_ended(state) {
        let living = if threads > 1 { living_thread(pid)? } else { None };
        match living {
            Some(thread) => state = thread,
            // They come and go faster than we look; gVisor does not even list them.
            None if threads > 1 => state = UNTOLD,
            None => return Ok(None),
        }
    }
    let parent = i32::try_from(parent).map_err(io::Error::other)?;
    Ok(Some(Seen { process: Process { pid, started }, parent, state }))
}

/// What one of a process's threads does that has not ended.
fn living_thread(pid: i32) -> io::Result<Option<char>> {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Err(error) if is_over(&error) => return Ok(None),
        threads => threads?,
    };
    for thread in threads.flatten() {
        let stat = read(thread.path().join("stat"))?;
        if let Some(state) = stat.as_deref().and_then(state).filter(|state| !has_ended(*state)) {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

/// The text of a file of a process; `None` if that has ended. Names of processes are bytes of all kinds, and no reason to overlook
/// one.
fn read(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if is_over(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether that is what the kernel says of a process that is no more.
fn is_over(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
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
        matches!(look(process.pid), Ok(Some(now)) if now.process == process).then_some(handle)
    }

    pub(crate) fn send(&self, signal: Signal) {
        let _ = match self {
            Handle::Of(handle) => pidfd_send_signal(handle, signal),
            Handle::Number(pid) => kill_process(*pid, signal),
        };
    }
}

/// Alive, but its state is unknown: neither running nor stopped.
const UNTOLD: char = '?';
/// The argument with which a supervisor whose guest is gone becomes this program again, to end its tree.
pub(crate) const ORPHANED: &CStr = c"orphaned";
static NEXT_MARK: AtomicU64 = AtomicU64::new(mark::FIRST);
/// Rounds that found a new process before the stronger signal is sent.
const MANY: u32 = 100;
/// Rounds that found no process, where a single one proves nothing.
const ENOUGH: u32 = 30;
/// From then on all processes are signalled; the host's time limit is twice as long.
const STUBBORN: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(100);
/// What cannot be killed in this time (it hangs in the kernel) will not be; the host has its own time limit.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

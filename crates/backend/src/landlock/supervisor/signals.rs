//! Signals, where Landlock has no scope for them: only to processes of the sandbox.
//!
//! What is allowed is then carried out by the kernel: numbers are arguments of the call itself, and cannot change any more. A descriptor
//! can, so what goes through a handle is sent by us.

use super::Shared;
use super::caller::Caller;
use super::judge::SignalTo;
use belljar_sys::notify::Answer;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::fs;

pub(super) fn send(shared: &Shared, caller: &Caller<'_>, to: SignalTo) -> Result<Answer, Errno> {
    match to {
        // The group of the caller: no process outside is in it.
        SignalTo::Number(0) | SignalTo::Owner(0) => Ok(Answer::Continue),
        // All processes of the user.
        SignalTo::Number(-1) => Err(Errno::PERM),
        SignalTo::Number(number) | SignalTo::Owner(number) => {
            let processes = Processes::now();
            let is_ours = match number {
                1.. => processes.is_inside(number, shared.holder),
                _ => processes.is_group_inside(number.saturating_neg(), shared.holder),
            };
            if is_ours { Ok(Answer::Continue) } else { Err(Errno::PERM) }
        }
        SignalTo::Thread { process, thread } => {
            let processes = Processes::now();
            let is_ours = |number: i32| processes.is_inside(number, shared.holder);
            match is_ours(thread) && process.is_none_or(is_ours) {
                true => Ok(Answer::Continue),
                false => Err(Errno::PERM),
            }
        }
        SignalTo::Handle { descriptor, signal } => through_handle(shared, caller, descriptor, signal),
        SignalTo::OwnerInMemory => Err(Errno::PERM),
    }
}

fn through_handle(
    shared: &Shared,
    caller: &Caller<'_>,
    descriptor: i32,
    signal: i32,
) -> Result<Answer, Errno> {
    let told = fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", caller.thread()));
    let told = told.map_err(|_| Errno::BADF)?;
    caller.still_waits()?;
    let number = told.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim);
    let number: i32 = number.and_then(|number| number.parse().ok()).ok_or(Errno::BADF)?;
    let pid = Pid::from_raw(number).filter(|_| number > 0).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    if !Processes::now().is_inside(number, shared.holder) {
        return Err(Errno::PERM);
    }
    match Signal::from_named_raw(signal) {
        Some(signal) => pidfd_send_signal(&handle, signal).map(|()| Answer::Value(0)),
        None if signal == 0 => Ok(Answer::Value(0)),
        None => Err(Errno::INVAL),
    }
}

/// All processes, as far as we may look: each with its parent and its group.
struct Processes(HashMap<i32, (i32, i32)>);

impl Processes {
    fn now() -> Processes {
        let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        Processes(numbers.filter_map(|number| Some((number, look(number)?))).collect())
    }

    /// Whether a process, or the one that a thread belongs to, descends from the holder, and is not the guest, its only child.
    fn is_inside(&self, number: i32, holder: i32) -> bool {
        let Some(process) = process_of(number) else { return false };
        let mut parent = self.0.get(&process).map(|(parent, _)| *parent);
        if parent == Some(holder) {
            return false;
        }
        for _ in 0..MAX_DEPTH {
            match parent {
                Some(found) if found == holder => return true,
                Some(found) if found > 1 => parent = self.0.get(&found).map(|(parent, _)| *parent),
                _ => return false,
            }
        }
        false
    }

    fn is_group_inside(&self, group: i32, holder: i32) -> bool {
        let mut members = self.0.iter().filter(|(_, (_, of))| *of == group).peekable();
        members.peek().is_some() && members.all(|(number, _)| self.is_inside(*number, holder))
    }
}

/// The process of a thread.
fn process_of(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Parent and group, from proc_pid_stat(5).
fn look(number: i32) -> Option<(i32, i32)> {
    let stat = fs::read(format!("/proc/{number}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// More generations than there can be processes.
const MAX_DEPTH: usize = 65_536;

//! A copy of this process that runs on its own: what fork(2) makes, but a sibling. Its parent is our parent, which learns
//! of its end, and it continues to run when this process has ended.

use crate::clone3;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::{fs, io, ptr, slice};

/// Which of the two processes this is.
pub enum Forked {
    /// The one that called.
    Original(Sibling),
    /// The new one, with a copy of all memory and of all descriptors.
    Copy(Alone),
}

/// The new process, as the other one sees it.
pub struct Sibling {
    pub pid: u32,
    /// A handle that never means another process.
    pub pidfd: OwnedFd,
}

/// A process with a single thread, which is this one: no other thread reads process-wide state while it is changed. To be
/// used up before a thread is started.
pub struct Alone {
    _not_for_other_threads: PhantomData<*const ()>,
}

/// Makes a copy of this process, as a child of its parent. Refused with `BUSY` where this process has more than one thread: locks that
/// another thread holds would stay locked in the copy for ever.
pub fn fork_sibling() -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(Errno::BUSY.into());
    }
    let mut pidfd: libc::c_int = -1;
    let mut args = clone3::Args::new(0, &mut pidfd);
    args.be_sibling();
    if let Some(place) = thread_id_place() {
        args.store_thread_id(place);
    }
    match clone3::fork(args)? {
        0 => Ok(Forked::Copy(Alone { _not_for_other_threads: PhantomData })),
        // SAFETY: on success the kernel stored a new descriptor in `pidfd`.
        pid => Ok(Forked::Original(Sibling { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })),
    }
}

/// Which of parent and child this is.
pub enum ForkedChild {
    /// The one that called, and a handle of the other one.
    Parent(OwnedFd),
    /// The new one.
    Child,
}

/// Makes a copy of this process as its child: fork(2). Refused with `BUSY` where this process has more than one thread.
pub fn fork_child() -> io::Result<ForkedChild> {
    if threads()? != 1 {
        return Err(Errno::BUSY.into());
    }
    // SAFETY: there is no other thread whose locks could stay locked in the copy.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkedChild::Child),
        pid => {
            let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
            // It is our child and not reaped yet, so the number means no other process.
            Ok(ForkedChild::Parent(pidfd_open(pid, PidfdFlags::empty())?))
        }
    }
}

impl Alone {
    /// Sets a variable of this process, which its children inherit.
    pub fn set_variable(&self, name: &OsStr, value: &OsStr) {
        // SAFETY: no other thread reads the environment meanwhile, since there is none.
        unsafe { std::env::set_var(name, value) };
    }

    /// Shows these words as this process's command line, as far as there is room for them: over the words that the program was started
    /// with. Those cannot be asked for any more.
    pub fn show_words(&self, words: &[OsString]) -> io::Result<()> {
        let (start, end) = words_place()?;
        // SAFETY: the kernel put the words of this program there (proc_pid_stat(5), `arg_start` and `arg_end`), on the
        // stack of the first thread, where they can be written as long as the process lives. Nothing reads them meanwhile:
        // there is no other thread.
        let place =
            unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut::<u8>(start), end - start) };
        // The last byte stays as it is: a pointer into the words still finds a terminator.
        let Some((_, place)) = place.split_last_mut() else { return Ok(()) };
        let shown: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let length = shown.len().min(place.len());
        place[..length].copy_from_slice(&shown[..length]);
        place[length..].fill(0);
        Ok(())
    }
}

/// How many threads this process has.
fn threads() -> io::Result<u64> {
    // One link for each, and two as every directory has (`proc_task_getattr`, fs/proc/base.c).
    Ok(fs::metadata("/proc/self/task")?.nlink().saturating_sub(2))
}

/// Where the C library keeps the number of this thread, which is another one in a copy. glibc's own fork has the kernel store it there
/// (`arch_fork`), at the place that it told the kernel of when the thread began. musl tells of another place, and keeps the old number.
fn thread_id_place() -> Option<u64> {
    if !cfg!(target_env = "gnu") {
        return None;
    }
    let mut place: *mut libc::c_int = ptr::null_mut();
    // SAFETY: with this option the kernel writes one pointer to the address.
    let done =
        unsafe { libc::syscall(libc::SYS_prctl, PR_GET_TID_ADDRESS, &raw mut place, 0u64, 0u64, 0u64) };
    (done == 0 && !place.is_null()).then_some(place as u64)
}

/// Where the words of this program are.
fn words_place() -> io::Result<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything, the third field begins.
    let numbers = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let field = |number: usize| numbers.split(' ').nth(number - 3).and_then(|text| text.trim().parse().ok());
    match (field(ARG_START), field(ARG_END)) {
        (Some(start), Some(end)) if start != 0 && start < end => Ok((start, end)),
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// linux/prctl.h; not in the libc crate.
const PR_GET_TID_ADDRESS: libc::c_int = 40;
/// Fields of proc_pid_stat(5).
const ARG_START: usize = 48;
const ARG_END: usize = 49;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_other_threads_is_not_copied() {
        let (wait, waiting) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || waiting.recv());
        let refused = fork_sibling().err().map(|error| error.raw_os_error());
        assert_eq!(refused, Some(Some(Errno::BUSY.raw_os_error())));
        drop(wait);
        let _ = other.join();
    }

    #[test]
    fn the_words_of_a_program_are_where_the_kernel_says() {
        let (start, end) = words_place().expect("its own memory");
        let shown = fs::read("/proc/self/cmdline").expect("its own words");
        assert_eq!(end - start, shown.len());
    }
}

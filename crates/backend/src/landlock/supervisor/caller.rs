//! The thread that waits for an answer: its memory, its descriptors, its directories.
//!
//! Everything is found by the thread's number below /proc, and counts only if the call still waits after it was opened: a number may mean
//! another process by then. `/proc/TID/mem` works where process_vm_readv(2) is filtered, as in older containers.

use super::judge::{AT_FDCWD, Pointer};
use belljar_sys::notify::{self, Answer, Place};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use belljar_sys::rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// A call that waits.
pub(super) struct Caller<'l> {
    listener: &'l OwnedFd,
    id: u64,
    thread: u32,
}

impl<'l> Caller<'l> {
    pub(super) fn new(listener: &'l OwnedFd, id: u64, thread: u32) -> Caller<'l> {
        Caller { listener, id, thread }
    }

    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// What was read of the thread was that thread's; else an error that no process gets any more.
    pub(super) fn still_waits(&self) -> Result<(), Errno> {
        if self.is_waiting() { Ok(()) } else { Err(Errno::SRCH) }
    }

    pub(super) fn is_waiting(&self) -> bool {
        notify::is_waiting(self.listener, self.id)
    }

    pub(super) fn answer(&self, answer: Answer) {
        // The caller may be gone.
        let _ = notify::answer(self.listener, self.id, answer);
    }

    /// Gives it a descriptor, which is the answer.
    pub(super) fn answer_with(
        &self,
        descriptor: impl AsFd,
        place: Place,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        notify::answer_with(self.listener, self.id, descriptor, place, close_on_exec)
    }

    /// So many bytes of its memory.
    pub(super) fn read(&self, from: Pointer, bytes: usize) -> Result<Vec<u8>, Errno> {
        let memory = File::open(self.place("mem")).map_err(closed)?;
        let mut content = vec![0; bytes];
        memory.read_exact_at(&mut content, from.0).map_err(|_| Errno::FAULT)?;
        self.still_waits()?;
        Ok(content)
    }

    /// A text that ends with a zero.
    pub(super) fn string(&self, from: Pointer, most: usize) -> Result<Vec<u8>, Errno> {
        let memory = File::open(self.place("mem")).map_err(closed)?;
        let mut text = Vec::new();
        while text.len() < most {
            // The next page may be another mapping, or none.
            let at = from.plus(text.len() as u64);
            let in_page = PAGE - (at.0 % PAGE);
            let mut part = vec![0; usize::try_from(in_page).unwrap_or(most).min(most - text.len())];
            memory.read_exact_at(&mut part, at.0).map_err(|_| Errno::FAULT)?;
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&part[..end]);
                self.still_waits()?;
                return Ok(text);
            }
            text.append(&mut part);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Writes to its memory.
    pub(super) fn write(&self, to: Pointer, content: &[u8]) -> Result<(), Errno> {
        let memory = OpenOptions::new().write(true).open(self.place("mem")).map_err(closed)?;
        // What is open now is this thread's memory, and stays it.
        self.still_waits()?;
        memory.write_all_at(content, to.0).map_err(|_| Errno::FAULT)
    }

    /// What one of its descriptors is, as the kernel words it.
    pub(super) fn descriptor(&self, number: i32) -> Result<Vec<u8>, Errno> {
        let link = readlinkat(CWD, self.place(&format!("fd/{number}")), Vec::new());
        let link = link.map_err(|errno| match errno {
            Errno::NOENT => Errno::BADF,
            other => other,
        })?;
        self.still_waits()?;
        Ok(link.into_bytes())
    }

    /// The inode of a socket, which is its name as long as we hold it too.
    pub(super) fn socket(&self, number: i32) -> Result<u64, Errno> {
        let link = self.descriptor(number)?;
        let inode = link.strip_prefix(b"socket:[").and_then(|rest| rest.strip_suffix(b"]"));
        let inode = inode.and_then(|inode| std::str::from_utf8(inode).ok()?.parse().ok());
        inode.ok_or(Errno::NOTSOCK)
    }

    /// A file of it, which can only be named by what is returned.
    pub(super) fn open_descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let opened = openat(CWD, self.place(&format!("fd/{number}")), NAME_ONLY, Mode::empty());
        let opened = opened.map_err(|errno| match errno {
            Errno::NOENT => Errno::BADF,
            other => other,
        })?;
        self.still_waits()?;
        Ok(opened)
    }

    /// What a path of it leads to, from one of its directories. The caller is in our root: it has no power to leave it.
    pub(super) fn open_path(&self, directory: i32, path: &[u8], follow: bool) -> Result<OwnedFd, Errno> {
        let last = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = NAME_ONLY | last;
        // Links of /proc lead each process elsewhere, and some to no path at all.
        let open = |start: &OwnedFd| {
            openat2(start, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
                .map_err(|errno| if errno == Errno::LOOP { Errno::ACCESS } else { errno })
        };
        let start = match (path.first(), directory) {
            (Some(b'/'), _) => openat(CWD, "/", NAME_ONLY | OFlags::DIRECTORY, Mode::empty())?,
            (_, AT_FDCWD) => openat(CWD, self.place("cwd"), NAME_ONLY, Mode::empty())?,
            (_, number) => self.open_descriptor(number)?,
        };
        let opened = open(&start)?;
        self.still_waits()?;
        Ok(opened)
    }

    /// The mask of its new files.
    pub(super) fn umask(&self) -> u32 {
        let status = std::fs::read_to_string(self.place("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
    }

    fn place(&self, what: &str) -> String {
        format!("/proc/{}/{what}", self.thread)
    }
}

/// Programs that are not readable (their file's mode) have no memory for us, and no connections.
fn closed(error: std::io::Error) -> Errno {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Errno::SRCH,
        _ => Errno::ACCESS,
    }
}

const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// No page is smaller.
const PAGE: u64 = 4096;

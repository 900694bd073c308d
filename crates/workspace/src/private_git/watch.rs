//! Notices, while a sandbox lives, that refs in its git directory or on the host moved, and that a `.git` of the host was replaced.
//!
//! An event only means that it is time to look: the import takes only what [`crate::foreign`] reads then. An agent that confuses
//! the watch only delays its own commits, until the sandbox ends.

use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use belljar_sys::rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A watch on some git directories.
pub struct RefWatch {
    kernel: OwnedFd,
    directories: Vec<PathBuf>,
    /// Folders whose `.git` must stay where it is.
    tops: Vec<PathBuf>,
    watched: BTreeSet<PathBuf>,
    /// The kernel's numbers for the tops.
    of_tops: BTreeSet<i32>,
}

impl RefWatch {
    /// Watches the refs of these git directories, and the name `.git` in these folders.
    pub fn on(mut directories: Vec<PathBuf>, tops: Vec<PathBuf>) -> io::Result<RefWatch> {
        directories.sort();
        directories.dedup();
        let kernel = new_watch()?;
        let (watched, of_tops) = (BTreeSet::new(), BTreeSet::new());
        let mut watch = RefWatch { kernel, directories, tops, watched, of_tops };
        watch.look_for_directories();
        Ok(watch)
    }

    /// Waits until a ref may have moved and no other follows at once, or until the time limit.
    pub fn wait(&mut self, stop: BorrowedFd<'_>, most: Option<Duration>) -> Noticed {
        loop {
            match self.ready(stop, most) {
                Noticed::Events => {}
                other => return other,
            }
            match self.read() {
                Seen::Nothing => {}
                // The sandbox must not write to the new `.git`: report at once.
                Seen::DotGit => break,
                Seen::Refs => {
                    // A rebase moves refs many times in a row: the last one counts.
                    let until = Instant::now() + MAX_BURST_TIME;
                    while Instant::now() < until && self.ready(stop, Some(QUIET)) == Noticed::Events {
                        if self.read() == Seen::DotGit {
                            break;
                        }
                    }
                    break;
                }
            }
        }
        self.look_for_directories();
        Noticed::Events
    }

    /// Waits for events.
    fn ready(&self, stop: BorrowedFd<'_>, most: Option<Duration>) -> Noticed {
        loop {
            let mut polled =
                [PollFd::from_borrowed_fd(stop, PollFlags::IN), PollFd::new(&self.kernel, PollFlags::IN)];
            let timeout = most.and_then(|most| Timespec::try_from(most).ok());
            match poll(&mut polled, timeout.as_ref()) {
                Ok(0) => return Noticed::Nothing,
                Ok(_) if polled[0].revents().is_empty() => return Noticed::Events,
                Ok(_) => return Noticed::Stop,
                Err(Errno::INTR) => {}
                Err(_) => return Noticed::Stop,
            }
        }
    }

    /// Drains the pending events.
    fn read(&mut self) -> Seen {
        let mut seen = Seen::Nothing;
        let mut is_gone = false;
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(&self.kernel, &mut buffer);
        while let Ok(event) = reader.next() {
            is_gone |= event.events().contains(ReadFlags::IGNORED);
            let is_of_top = self.of_tops.contains(&event.wd());
            let is_dot_git = event.file_name().is_some_and(|name| name == c".git");
            seen = match (is_of_top, is_dot_git) {
                (true, true) => Seen::DotGit,
                (true, false) => seen,
                (false, _) => seen.max(Seen::Refs),
            };
        }
        // A directory was removed; the next look finds the present ones. All watches are dropped: some directories may have been
        // moved elsewhere.
        if is_gone && let Ok(kernel) = new_watch() {
            self.kernel = kernel;
            self.watched.clear();
            self.of_tops.clear();
        }
        seen
    }

    fn look_for_directories(&mut self) {
        for top in self.tops.clone() {
            if let Some(number) = self.watch(&top) {
                self.of_tops.insert(number);
            }
        }
        let (mut waiting, mut looked) = (VecDeque::new(), 0);
        for directory in &self.directories.clone() {
            self.watch(directory);
            waiting.push_back(directory.join("refs"));
        }
        while let Some(directory) = waiting.pop_front() {
            if looked >= MAX_WATCHES {
                return;
            }
            // The agent may have put a link there, which leads anywhere.
            if !fs::symlink_metadata(&directory).is_ok_and(|found| found.is_dir()) {
                continue;
            }
            self.watch(&directory);
            looked += 1;
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            waiting.extend(folders.map(|entry| entry.path()).take(MAX_WATCHES));
        }
    }

    fn watch(&mut self, directory: &Path) -> Option<i32> {
        if self.watched.contains(directory) {
            return None;
        }
        // Files that are renamed into place, as git does, and new files, as libgit2 makes them.
        let events = WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        let number = inotify::add_watch(&self.kernel, directory, events).ok()?;
        self.watched.insert(directory.to_path_buf());
        Some(number)
    }
}

fn new_watch() -> Result<OwnedFd, Errno> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

/// Waits for a time, or until the descriptor is readable.
pub fn pause(stop: BorrowedFd<'_>, time: Duration) -> Noticed {
    let timeout = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::from_borrowed_fd(stop, PollFlags::IN)], timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => Noticed::Nothing,
        Ok(_) | Err(_) => Noticed::Stop,
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    Events,
    /// The time is over.
    Nothing,
    /// The stop descriptor is readable, or waiting failed.
    Stop,
}

/// What some events mean, the least urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    Refs,
    DotGit,
}

/// Git writes a ref, its log and the index within a few milliseconds.
const QUIET: Duration = Duration::from_millis(3);
const MAX_BURST_TIME: Duration = Duration::from_millis(100);
const MAX_WATCHES: usize = 512;

//! Another life of the same program: it takes away the stubs that a sandbox needed in its folder, when the sandbox has
//! ended, however it ended. It is started by the host, outside of every sandbox, before the first stub is made.
//!
//! ```text
//! 3             a pipe whose other end only the host's process holds
//! 4             the directory of notes
//! 5, 6, ...     for each note: the note itself, locked for several; the folder that it is about
//! last          the sandbox's first process, if there is one
//! ```
//!
//! A stub may go only when nobody is behind it any more: to the kernel, a mount on something that was removed is removed
//! too. So this waits for the host's process to end or to let go, then for the sandbox to be dead, and then for nothing:
//! where somebody else still holds a note, that one will take everything away. What is not as it was made stays: it is
//! somebody's.

use belljar_sys::launch::inherited;
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, openat, openat2, unlinkat,
};
use belljar_sys::rustix::io::{Errno, pread, read};
use belljar_sys::rustix::process::chdir;
use belljar_wire::message::{Stub, StubKind};
use belljar_wire::planted::{self, Planted};
use std::process::ExitCode;

/// Whether this life was asked for.
pub(crate) fn is_wanted() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == REAP)
}

/// Waits, and takes away.
pub(crate) fn run() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let Some((whom, notes)) = words.split_first() else { return ExitCode::FAILURE };
    match reap(whom == SANDBOX, notes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// `notes` are the names of the notes in their directory.
fn reap(has_sandbox: bool, notes: &[String]) -> Result<(), Errno> {
    let mut given = inherited(2 + 2 * notes.len() + usize::from(has_sandbox)).into_iter();
    let (Some(host), Some(directory)) = (given.next(), given.next()) else { return Err(Errno::BADF) };
    let pairs: Vec<(OwnedFd, OwnedFd)> =
        notes.iter().map_while(|_| Some((given.next()?, given.next()?))).collect();
    // No folder is kept busy by us.
    chdir("/")?;
    while matches!(read(&host, &mut [0; 1]), Ok(1) | Err(Errno::INTR)) {}
    if let Some(sandbox) = given.next() {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&sandbox, PollFlags::IN)], None) {}
    }
    for (name, (note, folder)) in notes.iter().zip(&pairs) {
        if flock(note, FlockOperation::NonBlockingLockExclusive).is_ok() {
            take_away(note, folder)?;
            unlinkat(&directory, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Everything that a note says of this folder.
fn take_away(note: &OwnedFd, folder: &OwnedFd) -> Result<(), Errno> {
    let found = fstat(folder)?;
    let is_here = |planted: &Planted| (planted.device, planted.inode) == (found.st_dev, found.st_ino);
    let all = planted::decode(&contents(note.as_fd())?);
    for stub in
        all.iter().filter(|planted| is_here(planted)).rev().flat_map(|planted| planted.stubs.iter().rev())
    {
        // One that is gone, or not ours any more.
        let _ = remove(folder, stub);
    }
    Ok(())
}

fn remove(folder: &OwnedFd, stub: &Stub) -> Result<(), Errno> {
    let (parent, name) = stub.path.rsplit_once('/').unwrap_or((".", &stub.path));
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(folder, parent, flags, Mode::empty(), resolve)?;
    match &stub.kind {
        // Only an empty one goes.
        StubKind::Directory => unlinkat(&parent, name, AtFlags::REMOVEDIR),
        StubKind::File(content) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&parent, name, flags, Mode::empty())?;
            let found = fstat(&file)?;
            let is_file =
                FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink == 1;
            if !is_file || found.st_size != content.0.len() as i64 || contents(file.as_fd())? != content.0 {
                return Err(Errno::NOTEMPTY);
            }
            unlinkat(&parent, name, AtFlags::empty())
        }
    }
}

fn contents(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match pread(file, &mut buffer, bytes.len() as u64) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        if bytes.len() > LONGEST {
            return Err(Errno::FBIG);
        }
    }
}

/// The words: this life, and whether it is for a sandbox. The names of notes follow.
const REAP: &str = "reap";
const SANDBOX: &str = "sandbox";
/// A note of very many sandboxes.
const LONGEST: usize = 16 * 1024 * 1024;

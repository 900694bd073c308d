//! Unix sockets: connected and bound by us, by descriptor, so that what was judged is what is used.
//!
//! A program reaches the servers of its own sandbox alone: a socket counts as theirs if we bound it. A daemon of the host that listens in
//! a folder which is shared with the sandbox stays out of reach, and so do D-Bus, X11 and Docker's. Abstract names are refused: they
//! belong to the whole machine.

use super::Shared;
use super::caller::Caller;
use super::judge::{AT_FDCWD, Address};
use super::table::Kept;
use super::tcp::Outcome;
use belljar_sys::notify::Answer;
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxFlags, Timespec, chmodat, fcntl_getfl, fstat, openat,
    statx,
};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{SocketAddrUnix, bind, connect, listen};
use belljar_sys::rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// connect(2) of a unix socket.
pub(super) fn connect_to(
    shared: &Arc<Shared>,
    caller: &Caller<'_>,
    number: u64,
    kept: Kept,
    address: &Address,
) -> Outcome {
    let found = match address {
        Address::Path(path) => find(shared, caller, path),
        Address::Abstract => Err(Errno::CONNREFUSED),
        Address::Inet(_) | Address::Unnamed | Address::Nothing => Err(Errno::INVAL),
    };
    let found = match found {
        Ok(found) => found,
        Err(errno) => {
            shared.table.put_back(number, kept);
            return Outcome::Now(Answer::Error(errno));
        }
    };
    let blocks = fcntl_getfl(&*kept.socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    let theirs = Arc::clone(shared);
    let work = move || {
        let place = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd()));
        match place.and_then(|place| connect(&*kept.socket, &place)) {
            Ok(()) => Answer::Value(0),
            Err(errno) => {
                theirs.table.put_back(number, kept);
                Answer::Error(errno)
            }
        }
    };
    // A server that accepts nothing lets its callers wait.
    if blocks { Outcome::Later(Box::new(work)) } else { Outcome::Now(work()) }
}

/// The socket at a path, if it is one of the sandbox's own.
fn find(shared: &Shared, caller: &Caller<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let found = caller.open_path(AT_FDCWD, path, true)?;
    let kind = fstat(&found)?;
    if FileType::from_raw_mode(kind.st_mode) != FileType::Socket {
        return Err(Errno::CONNREFUSED);
    }
    if shared.own_sockets.has(&kind) && shared.is_writable(&found)? { Ok(found) } else { Err(Errno::ACCESS) }
}

/// Unix sockets that were bound for programs inside. Each is held, so that no other file gets its number.
#[derive(Default)]
pub(super) struct OwnSockets(Mutex<HashMap<(u64, u64), OwnedFd>>);

impl OwnSockets {
    fn has(&self, found: &Stat) -> bool {
        let sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.contains_key(&(found.st_dev, found.st_ino))
    }

    /// Whether there is room for one more, when those that have no name any more are gone.
    fn has_room(&self) -> bool {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sockets.len() >= MAX_SOCKETS {
            sockets.retain(|_, socket| fstat(socket).is_ok_and(|found| found.st_nlink > 0));
        }
        sockets.len() < MAX_SOCKETS
    }

    fn hold(&self, found: &Stat, socket: OwnedFd) {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.insert((found.st_dev, found.st_ino), socket);
    }
}

/// bind(2) of a unix socket: in a directory that the sandbox may write.
pub(super) fn bind_to(
    shared: &Shared,
    caller: &Caller<'_>,
    kept: &mut Kept,
    address: &Address,
) -> Result<(), Errno> {
    let Address::Path(path) = address else { return Err(Errno::ACCESS) };
    if kept.is_bound || path.is_empty() {
        return Err(Errno::INVAL);
    }
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], &path[..]),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::ADDRINUSE);
    }
    let parent = caller.open_path(AT_FDCWD, parent, true)?;
    if !shared.is_writable(&parent)? {
        return Err(Errno::ACCESS);
    }
    // As the kernel would for the program itself: we may be able to write where it may not.
    shared.must_own(&fstat(&parent)?)?;
    if !shared.own_sockets.has_room() {
        return Err(Errno::NFILE);
    }
    let place = [format!("/proc/self/fd/{}/", parent.as_raw_fd()).as_bytes(), name].concat();
    // What filesystems take for the time of a birth.
    let before = clock_gettime(ClockId::RealtimeCoarse);
    bind(&*kept.socket, &SocketAddrUnix::new(place)?)?;
    kept.is_bound = true;
    // By that name, unless a program inside was quicker to put something else there: a socket of the host that was moved. That one is older.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&parent, name, flags, Mode::empty())?;
    let found = fstat(&made)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !is_socket || found.st_uid != shared.user || !is_born_after(&made, before) {
        return Ok(());
    }
    // Our mask is not the program's.
    let mode = Mode::from_raw_mode(0o777 & !caller.umask());
    chmodat(CWD, format!("/proc/self/fd/{}", made.as_raw_fd()), mode, AtFlags::empty())?;
    shared.own_sockets.hold(&found, made);
    Ok(())
}

/// Whether a file was made after a moment. Where the filesystem does not know, it was not.
fn is_born_after(file: &OwnedFd, moment: Timespec) -> bool {
    let Ok(found) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME) else { return false };
    let born = (found.stx_btime.tv_sec, i64::from(found.stx_btime.tv_nsec));
    StatxFlags::from_bits_truncate(found.stx_mask).contains(StatxFlags::BTIME)
        && born >= (moment.tv_sec, moment.tv_nsec)
}

/// listen(2) of a unix socket.
pub(super) fn listen_at(kept: &Kept, backlog: i32) -> Result<(), Errno> {
    listen(&*kept.socket, backlog)
}

/// More servers than one sandbox has.
const MAX_SOCKETS: usize = 512;

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
use belljar_sys::rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, fcntl_getfl, fstat, statat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{SocketAddrUnix, bind, connect, listen};
use std::sync::{Arc, PoisonError};

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
    let own = shared.own_sockets.lock().unwrap_or_else(PoisonError::into_inner);
    if own.contains(&(kind.st_dev, kind.st_ino)) && shared.is_writable(&found)? {
        Ok(found)
    } else {
        Err(Errno::ACCESS)
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
    let place = [format!("/proc/self/fd/{}/", parent.as_raw_fd()).as_bytes(), name].concat();
    bind(&*kept.socket, &SocketAddrUnix::new(place)?)?;
    kept.is_bound = true;
    let made = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(made.st_mode) == FileType::Socket {
        shared.own_sockets.lock().unwrap_or_else(PoisonError::into_inner).insert((made.st_dev, made.st_ino));
        // Our mask is not the program's.
        let mode = Mode::from_raw_mode(0o777 & !caller.umask());
        let opened = caller_free_open(&parent, name)?;
        let by_descriptor = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let same = fstat(&opened)?;
        if (same.st_dev, same.st_ino) == (made.st_dev, made.st_ino) {
            chmodat(belljar_sys::rustix::fs::CWD, by_descriptor, mode, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn caller_free_open(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    belljar_sys::rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// listen(2) of a unix socket.
pub(super) fn listen_at(kept: &Kept, backlog: i32) -> Result<(), Errno> {
    listen(&*kept.socket, backlog)
}

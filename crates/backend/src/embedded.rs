//! The guest's program, as it was embedded at build time: an anonymous, sealed file, made once a process. No path that
//! somebody could replace, and one copy in memory for all sandboxes.
//!
//! Filling it takes most of a millisecond, so a thread does that while the first sandbox's namespaces are made: the
//! file can be handed out while it is [`begin`]ning, and executed when it is [`finish`]ed.

use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use belljar_sys::rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Begins, for who will need it soon; an error shows when it is needed.
pub fn warm_up() {
    let _ = begin();
}

/// The program's file, perhaps not whole yet.
pub(crate) fn begin() -> Result<BorrowedFd<'static>, SandboxError> {
    match FILE.get_or_init(create) {
        Ok(file) => Ok(file.as_fd()),
        Err(errno) => Err(failed(*errno)),
    }
}

/// Waits until it is whole.
pub(crate) fn finish() -> Result<(), SandboxError> {
    let filling = FILLING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(filling) = filling {
        let _ = FILLED.set(filling.join().unwrap_or(Err(Errno::IO)));
    }
    // Somebody else may be waiting for the thread just now.
    match FILLED.wait() {
        Ok(()) => Ok(()),
        Err(errno) => Err(failed(*errno)),
    }
}

fn create() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Hosts may forbid executable anonymous files unless they are asked for by name; older ones don't know the
    // flag. memfd_create(2)
    let file = match memfd_create("belljar-guest", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("belljar-guest", flags)?,
        other => other?,
    };
    let copy = fcntl_dupfd_cloexec(&file, 0)?;
    match thread::Builder::new().stack_size(64 * 1024).spawn(move || fill(copy)) {
        Ok(filling) => *FILLING.lock().unwrap_or_else(PoisonError::into_inner) = Some(filling),
        Err(_) => return Err(Errno::AGAIN),
    }
    Ok(file)
}

fn fill(file: OwnedFd) -> Result<(), Errno> {
    let mut file = File::from(file);
    file.write_all(GUEST).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

fn failed(errno: Errno) -> SandboxError {
    SandboxError::runtime("guest_program", format!("cannot hold the guest's program in memory: {errno}"))
}

static FILE: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
static FILLING: Mutex<Option<JoinHandle<Result<(), Errno>>>> = Mutex::new(None);
static FILLED: OnceLock<Result<(), Errno>> = OnceLock::new();
static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

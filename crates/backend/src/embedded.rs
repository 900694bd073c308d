//! The guest's program, which was embedded at build time.
//!
//! It is executed from an anonymous, sealed file in memory: no process can change that, and none but ours can supply it. A
//! file with a name would save the copy (about 0.2 ms once a process), but lies where this user can write. A sandbox that
//! found a gap could write there too, and what it puts there is then executed on the host, outside of everything. What
//! needs the program as a file inside of a sandbox gets it from the guest, which copies itself (`Source::OwnProgram`).

use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::launch::{Program, SEALED};
use belljar_sys::rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, fchmod, fcntl_add_seals, fcntl_get_seals, memfd_create, openat,
};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

/// The program, open for executing.
pub(crate) fn program() -> Result<BorrowedFd<'static>, SandboxError> {
    match PROGRAM.get_or_init(|| in_memory().or_else(without_name)) {
        Ok(program) => Ok(program.as_fd()),
        Err(errno) => {
            let message = format!("cannot hold the guest's program in memory: {errno}");
            Err(ErrorCode::Internal.error(message)
                .hint("the kernel may forbid it: `sysctl vm.memfd_noexec` must not be 2, unless /tmp or /dev/shm allows execution"))
        }
    }
}

/// The program for a process that starts now: as a file that is there already, or as one that the new process fills itself.
pub(crate) fn starting() -> Result<Starting, SandboxError> {
    if PROGRAM.get().is_none()
        && let Ok(blank) = blank()
    {
        return Ok(Starting::Blank(blank));
    }
    program().map(Starting::Ready)
}

/// A program that is about to be executed.
pub(crate) enum Starting {
    Ready(BorrowedFd<'static>),
    Blank(OwnedFd),
}

impl Starting {
    /// As what it is started.
    pub(crate) fn program(&self) -> Program<'_> {
        match self {
            Starting::Ready(program) => Program::Open(*program),
            Starting::Blank(file) => Program::Blank { file: file.as_fd(), content: GUEST },
        }
    }

    /// To be called when it was executed: later processes find it as it is. One that is not sealed was not filled to its end.
    pub(crate) fn keep(self) {
        if let Starting::Blank(file) = self
            && fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALED))
        {
            let _ = PROGRAM.set(Ok(file));
        }
    }
}

/// Makes the program ready to be executed, for this process and for copies of it. Where that fails, the first start says why.
pub fn hold_guest_program() {
    let _ = program();
}

/// What a copy of it takes of a filesystem, in bytes.
pub(crate) fn size() -> u64 {
    GUEST.len() as u64
}

static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();

fn in_memory() -> Result<OwnedFd, Errno> {
    let mut file = File::from(blank()?);
    file.write_all(GUEST).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fcntl_add_seals(&file, SEALED)?;
    Ok(file.into())
}

/// An empty file in memory that can be executed.
fn blank() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Hosts may forbid executable anonymous files unless they are asked for by name; older ones don't know the
    // flag. memfd_create(2)
    match memfd_create("belljar-guest", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("belljar-guest", flags),
        other => other,
    }
}

/// Where the kernel executes nothing from memory (`vm.memfd_noexec` is 2): a file that has no name and can get none, so that
/// no path leads to it.
fn without_name(refused: Errno) -> Result<OwnedFd, Errno> {
    PLACES.iter().find_map(|place| written_to(Path::new(place)).ok()).ok_or(refused)
}

fn written_to(directory: &Path) -> Result<OwnedFd, Errno> {
    // With O_EXCL it can never be linked: open(2).
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, directory, flags, Mode::RUSR)?);
    file.write_all(GUEST).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // Any process with the descriptor may execute it: bubblewrap, started by root, runs as another user by then.
    fchmod(&file, Mode::from_raw_mode(0o555))?;
    // The kernel executes nothing that is open for writing.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));
const PLACES: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::rustix::fs::fstat;
    use std::io::Read;

    fn content(program: impl AsFd) -> Vec<u8> {
        let name = format!("/proc/self/fd/{}", program.as_fd().as_raw_fd());
        let mut content = Vec::new();
        File::open(name).unwrap().read_to_end(&mut content).unwrap();
        content
    }

    #[test]
    fn what_is_executed_is_what_was_embedded_and_can_never_change() {
        let program = program().unwrap();
        assert!(content(program) == GUEST);
        let seals = fcntl_get_seals(program).unwrap();
        assert!(seals.contains(SEALED));
    }

    #[test]
    fn a_program_that_was_not_filled_is_not_kept() {
        Starting::Blank(blank().unwrap()).keep();
        assert!(content(program().unwrap()) == GUEST);
    }

    #[test]
    fn where_memory_is_not_executed_the_program_still_has_no_name() {
        let place = tempfile::tempdir().unwrap();
        let program = written_to(place.path()).unwrap();
        assert!(content(&program) == GUEST);
        let found = fstat(&program).unwrap();
        assert_eq!((found.st_nlink, found.st_mode & 0o777), (0, 0o555));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

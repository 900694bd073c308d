//! The guest's program, as it was embedded at build time: an anonymous, sealed file, made once a process. No path that
//! somebody could replace, and one copy in memory for all sandboxes.

use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

/// The program, open for executing.
pub(crate) fn program() -> Result<BorrowedFd<'static>, SandboxError> {
    static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    match PROGRAM.get_or_init(create) {
        Ok(program) => Ok(program.as_fd()),
        Err(errno) => {
            let message = format!("cannot hold the guest's program in memory: {errno}");
            Err(SandboxError::runtime("guest_program", message))
        }
    }
}

fn create() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Hosts may forbid executable anonymous files unless they are asked for by name; older ones don't know the
    // flag. memfd_create(2)
    let program = match memfd_create("belljar-guest", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("belljar-guest", flags)?,
        other => other?,
    };
    let mut file = File::from(program);
    file.write_all(GUEST).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

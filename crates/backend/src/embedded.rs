//! The guest's program, as it was embedded at build time.
//!
//! It is executed from an anonymous, sealed file in memory; or, to save the copy at every start, from one that an
//! earlier start kept in a directory of belljar's own. That directory and file must be ours alone, the same rule as for
//! every program that we start ourselves, and no sandbox can be given the directory.

use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, RenameFlags, SealFlags, Stat, fchmod, fcntl_add_seals,
    fstat, fsync, memfd_create, mkdirat, openat, renameat, renameat_with, unlinkat,
};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{geteuid, getpid};
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The program, open for executing. `kept` is the directory where an earlier start may have left it.
pub(crate) fn program(kept: Option<&Path>) -> Result<BorrowedFd<'static>, SandboxError> {
    let open = || match kept.map(open_kept) {
        Some(Ok(program)) => Ok(program),
        Some(Err(_)) | None => in_memory(),
    };
    match PROGRAM.get_or_init(open) {
        Ok(program) => Ok(program.as_fd()),
        Err(errno) => {
            let message = format!("cannot hold the guest's program in memory: {errno}");
            Err(SandboxError::runtime("guest_program", message))
        }
    }
}

/// Keeps the program for the next start, if it is not kept already. Nothing depends on it.
pub fn keep_program(directory: &Path) {
    if open_kept(directory).is_err() {
        let _ = keep(directory);
    }
}

/// The file in which the program is kept, and is kept now if it was not: what runs inside under another name needs one, as
/// an anonymous file cannot be mounted.
pub(crate) fn kept_file(directory: &Path) -> Option<PathBuf> {
    if open_kept(directory).is_err() {
        keep(directory).ok()?;
    }
    Some(directory.join(NAME))
}

static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();

fn in_memory() -> Result<OwnedFd, Errno> {
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

fn open_kept(directory: &Path) -> Result<OwnedFd, Errno> {
    open_kept_in(&open_ours(directory)?)
}

fn open_kept_in(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let program = openat(directory, NAME, flags, Mode::empty())?;
    let found = fstat(&program)?;
    let whole = found.st_size == GUEST.len() as i64 && found.st_nlink == 1;
    let ours = is_ours(&found, FileType::RegularFile, PROGRAM_MODE);
    if whole && ours { Ok(program) } else { Err(Errno::PERM) }
}

fn keep(directory: &Path) -> Result<(), Errno> {
    match mkdirat(CWD, directory, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        // The very first start: nothing of ours is there yet.
        Err(Errno::NOENT) => DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE.bits())
            .create(directory)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
        Err(errno) => return Err(errno),
    }
    let directory = open_ours(directory)?;
    // Written under another name: it is there whole or not at all.
    let unfinished = format!("{NAME}.{}", getpid().as_raw_nonzero());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&directory, &unfinished, flags, PROGRAM_MODE)?);
    let written = file
        .write_all(GUEST)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        // Whatever the mask of new files says.
        .and_then(|()| fchmod(&file, PROGRAM_MODE))
        .and_then(|()| fsync(&file))
        .and_then(|()| name(&directory, &unfinished));
    if written.is_err() {
        let _ = unlinkat(&directory, &unfinished, AtFlags::empty());
    }
    written
}

/// Gives it its name. Where another start was faster its program is as good, and stays: the kernel mounts nothing that was
/// removed, and somebody may be mounting it just now.
fn name(directory: &OwnedFd, unfinished: &str) -> Result<(), Errno> {
    match renameat_with(directory, unfinished, directory, NAME, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) if open_kept_in(directory).is_ok() => {
            unlinkat(directory, unfinished, AtFlags::empty())
        }
        // What is there is not ours, or the filesystem does not know the flag.
        Err(Errno::EXIST | Errno::INVAL) => renameat(directory, unfinished, directory, NAME),
        other => other,
    }
}

fn open_ours(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty())?;
    if is_ours(&fstat(&opened)?, FileType::Directory, DIRECTORY_MODE) { Ok(opened) } else { Err(Errno::PERM) }
}

fn is_ours(found: &Stat, kind: FileType, mode: Mode) -> bool {
    found.st_uid == geteuid().as_raw()
        && FileType::from_raw_mode(found.st_mode) == kind
        && Mode::from_raw_mode(found.st_mode) == mode
}

static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));
/// Every build of the guest has a name of its own.
const NAME: &str = env!("BELLJAR_GUEST");
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// Nobody writes to it, and whoever has the descriptor executes it: bubblewrap, started by root, is somebody else by then.
const PROGRAM_MODE: Mode = Mode::from_bits_retain(0o555);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_program_that_is_kept_stays_the_same_file() {
        let place = tempfile::tempdir().expect("a folder");
        let directory = place.path().join("guest");
        let inode = || directory.join(NAME).metadata().expect("it is kept").ino();
        keep(&directory).expect("kept");
        let first = inode();
        keep(&directory).expect("kept by another, who saw none");
        let names: Vec<_> = std::fs::read_dir(&directory).expect("ours").flatten().collect();
        assert_eq!((inode(), names.len()), (first, 1));
    }

    #[test]
    fn a_kept_program_is_used_only_if_nobody_else_could_have_made_it() {
        let place = tempfile::tempdir().expect("a folder");
        let directory = place.path().join("guest");
        assert!(open_kept(&directory).is_err(), "nothing is kept yet");
        keep_program(&directory);
        assert!(open_kept(&directory).is_ok());

        let program = directory.join(NAME);
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
        };
        set(&program, 0o755);
        assert!(open_kept(&directory).is_err(), "we may write to it: not made by us");
        set(&program, 0o555);
        set(&directory, 0o777);
        assert!(open_kept(&directory).is_err(), "others may write to the folder");
        set(&directory, 0o700);
        std::fs::hard_link(&program, directory.join("second")).expect("a link");
        assert!(open_kept(&directory).is_err(), "somebody has another name for it");
        std::fs::remove_file(directory.join("second")).expect("gone");
        std::fs::write(directory.join("short"), &GUEST[..1000]).expect("a file");
        set(&directory.join("short"), 0o555);
        std::fs::rename(directory.join("short"), &program).expect("renamed");
        assert!(open_kept(&directory).is_err(), "half a program");
        std::fs::remove_file(&program).expect("gone");
        std::os::unix::fs::symlink("/bin/true", &program).expect("a link");
        assert!(open_kept(&directory).is_err(), "a link");
    }
}

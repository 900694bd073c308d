//! The guest's program, as it was embedded at build time.
//!
//! It is executed from an anonymous, sealed file in memory; or, to save the copy at every start, from one that an
//! earlier start kept in a directory of belljar's own. That directory and file must be ours alone, the same rule as for
//! every program that we start ourselves, and no sandbox can be given the directory.
//!
//! ```text
//! BUILD          the program of a build, whole
//! BUILD.PID.N    one that is being written; locked by its writer for as long as that lives
//! ```

use belljar_spec::SandboxError;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, MemfdFlags, Mode, OFlags, RenameFlags, SealFlags, Stat,
    fchmod, fcntl_add_seals, flock, fstat, fsync, memfd_create, mkdirat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{geteuid, getpid};
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Takes away what nobody needs: programs that their writers did not finish, and those of builds that nobody has used for long.
/// A name is all that goes: what runs or is mounted stays, and a build that is used again keeps its program anew.
pub fn sweep_programs(directory: &Path) {
    let Ok(directory) = open_ours(directory) else { return };
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        if name == NAME {
            continue;
        }
        // Held until it is gone: whoever writes to it would take it for theirs otherwise.
        if let Some(_hold) = abandoned(&directory, &name) {
            let _ = unlinkat(&directory, &*name, AtFlags::empty());
        }
    }
}

/// What keeps others from a file that nobody needs.
enum Hold {
    Lock { _file: OwnedFd },
    Age,
}

fn abandoned(directory: &OwnedFd, name: &str) -> Option<Hold> {
    let (build, is_whole) = match name.split_once('.') {
        Some((build, _writer)) => (build, false),
        None => (name, true),
    };
    let is_program = build.len() == NAME.len() && build.bytes().all(|byte| byte.is_ascii_hexdigit());
    let by_age = |age| is_older_than(directory, name, age).then_some(Hold::Age);
    match (is_program, is_whole) {
        (false, _) => None,
        (true, true) => by_age(UNUSED),
        // Whoever writes this build's holds a lock; of other builds that is not known.
        (true, false) if build == NAME => match lock(directory, name) {
            Ok(file) => Some(Hold::Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => None,
            // Where nothing can be locked.
            Err(_) => by_age(UNFINISHED),
        },
        (true, false) => by_age(UNFINISHED),
    }
}

fn lock(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, name, flags, Mode::empty())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Neither written nor, as far as the filesystem remembers that, executed for so long.
fn is_older_than(directory: &OwnedFd, name: &str, age: Duration) -> bool {
    let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let seconds = u64::try_from(found.st_mtime.max(found.st_atime)).unwrap_or(0);
    let used = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
    SystemTime::now().duration_since(used).is_ok_and(|passed| passed > age)
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
    let (mut file, unfinished) = begin(&directory)?;
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

/// A file to write to, locked: nobody takes it away as long as we live.
fn begin(directory: &OwnedFd) -> Result<(File, String), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for attempt in 0..ATTEMPTS {
        let unfinished = format!("{NAME}.{}.{attempt}", getpid().as_raw_nonzero());
        let file = match openat(directory, &unfinished, flags, PROGRAM_MODE) {
            // Of one that was killed and had our number, or has it still, in another namespace.
            Err(Errno::EXIST) => continue,
            other => File::from(other?),
        };
        // A sweep may have come in between, and takes it away. Where nothing can be locked, a sweep goes by age.
        let is_taken = flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
        if !is_taken && fstat(&file)?.st_nlink == 1 {
            return Ok((file, unfinished));
        }
    }
    Err(Errno::EXIST)
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
/// Longer than anybody who has two builds goes without one of them; it is written again in a millisecond.
const UNUSED: Duration = Duration::from_secs(30 * 86_400);
/// Longer than any disk takes for a program.
const UNFINISHED: Duration = Duration::from_secs(3600);
/// Few: each is one that was killed in the middle of a millisecond, and that no start has swept since.
const ATTEMPTS: u32 = 20;
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

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("ours").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_writer_left_is_in_nobodys_way_and_swept() {
        let place = tempfile::tempdir().expect("a folder");
        let directory = place.path().join("guest");
        keep_program(&directory);
        std::fs::remove_file(directory.join(NAME)).expect("gone");
        // Of another that had our number.
        let (dead, left) = begin(&open_ours(&directory).expect("ours")).expect("begun");
        drop(dead);
        let (alive, writing) = begin(&open_ours(&directory).expect("ours")).expect("begun");
        keep(&directory).expect("kept beside them");
        assert_eq!(names(&directory), [NAME, &*left, &*writing]);
        sweep_programs(&directory);
        assert_eq!(names(&directory), [NAME, &*writing], "whoever writes still is left alone");
        drop(alive);
        sweep_programs(&directory);
        assert_eq!(names(&directory), [NAME]);
    }

    #[test]
    fn programs_of_other_builds_go_when_nobody_has_used_them_for_long() {
        let place = tempfile::tempdir().expect("a folder");
        let directory = place.path().join("guest");
        keep_program(&directory);
        let aged = |name: &str, days: u64| {
            let file = File::create(directory.join(name)).expect("ours");
            let then = SystemTime::now() - Duration::from_secs(days * 86_400);
            let times = std::fs::FileTimes::new().set_accessed(then).set_modified(then);
            file.set_times(times).expect("ours");
        };
        let (old, new) = ("00000000000000a1", "00000000000000a2");
        aged(old, 31);
        aged(new, 29);
        aged(&format!("{old}.77"), 1);
        aged(&format!("{new}.77.0"), 0);
        aged("notes", 300);
        let own = File::open(directory.join(NAME)).expect("kept");
        let long_ago = std::fs::FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH);
        own.set_times(long_ago).expect("ours");
        sweep_programs(&directory);
        let mut stay = [NAME.to_string(), new.into(), format!("{new}.77.0"), "notes".into()];
        stay.sort();
        assert_eq!(names(&directory), stay);
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

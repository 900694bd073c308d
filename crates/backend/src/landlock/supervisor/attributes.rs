//! Modes, owners, times and attributes of files, which Landlock does not know: changed by us, of what lies below the places that the
//! sandbox may write, and belongs to its user.
//!
//! The file is opened by what the program named, judged by its descriptor and changed by its descriptor.

use super::Shared;
use super::caller::Caller;
use super::judge::{Change, Pointer, Target, TimesFormat, may_own, own_descriptor};
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags, chmodat,
    chownat, fstat, readlinkat, removexattr, setxattr, utimensat,
};
use belljar_sys::rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Carries out a change.
pub(super) fn change(shared: &Shared, caller: &Caller<'_>, of: Target, to: Change) -> Result<(), Errno> {
    let file = open(caller, of)?;
    if !shared.is_writable(&file)? {
        return Err(Errno::PERM);
    }
    let found = fstat(&file)?;
    shared.must_own(&found)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    match to {
        // A link has no mode of its own.
        Change::Mode(_) if kind == FileType::Symlink => Err(Errno::OPNOTSUPP),
        // The filter has refused set-id bits, and there may be a wrong jump in it.
        Change::Mode(mode) if mode & 0o6000 != 0 => Err(Errno::PERM),
        Change::Mode(mode) => chmodat(CWD, place, Mode::from_raw_mode(mode & 0o1777), AtFlags::empty()),
        Change::Owner { user, group } => {
            let now = (found.st_uid, found.st_gid);
            if !may_own(now, (user, group), shared.group) {
                return Err(Errno::PERM);
            }
            let id = |id: u32| (id != u32::MAX).then_some(id);
            chownat(&file, "", id(user).map(Uid::from_raw), id(group).map(Gid::from_raw), AtFlags::EMPTY_PATH)
        }
        Change::Times(at, format) => {
            let times = times(caller, at, format)?;
            match kind {
                // By name, since the kernel follows links of /proc to the end: a link is found again in its directory.
                FileType::Symlink => times_of_link(shared, &file, &found, &times),
                _ => utimensat(CWD, place, &times, AtFlags::empty()),
            }
        }
        Change::SetAttribute { .. } | Change::RemoveAttribute { .. } if kind == FileType::Symlink => {
            Err(Errno::PERM)
        }
        Change::SetAttribute { name, value, size, flags } => {
            let name = attribute_name(caller, name)?;
            let size = usize::try_from(size).ok().filter(|size| *size <= MAX_VALUE).ok_or(Errno::TOOBIG)?;
            let value = if size == 0 { Vec::new() } else { caller.read(value, size)? };
            let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
            setxattr(place, name.as_slice(), &value, flags)
        }
        Change::RemoveAttribute { name } => removexattr(place, attribute_name(caller, name)?.as_slice()),
    }
}

fn open(caller: &Caller<'_>, of: Target) -> Result<OwnedFd, Errno> {
    match of {
        Target::Descriptor(number) => caller.open_descriptor(number),
        Target::Path { directory, path, follow, may_be_empty } => {
            let path = caller.string(path, MAX_PATH)?;
            match own_descriptor(&path) {
                _ if path.is_empty() && may_be_empty => caller.open_descriptor(directory),
                Some(number) if follow => caller.open_descriptor(number),
                _ => caller.open_path(directory, &path, follow),
            }
        }
    }
}

/// Two times.
fn times(caller: &Caller<'_>, at: Pointer, format: TimesFormat) -> Result<Timestamps, Errno> {
    if at.is_null() {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let bytes = match format {
        TimesFormat::Seconds => 16,
        TimesFormat::Microseconds | TimesFormat::Nanoseconds => 32,
    };
    let read = caller.read(at, bytes)?;
    let number = |index: usize| {
        read.get(index * 8..).and_then(|rest| rest.first_chunk()).map_or(0, |word| i64::from_ne_bytes(*word))
    };
    let time = |seconds: i64, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let micro = |micros: i64| match micros {
        0..1_000_000 => Ok(micros * 1000),
        _ => Err(Errno::INVAL),
    };
    let (last_access, last_modification) = match format {
        TimesFormat::Seconds => (time(number(0), 0), time(number(1), 0)),
        TimesFormat::Microseconds => (time(number(0), micro(number(1))?), time(number(2), micro(number(3))?)),
        TimesFormat::Nanoseconds => (time(number(0), number(1)), time(number(2), number(3))),
    };
    Ok(Timestamps { last_access, last_modification })
}

/// The times of a link itself: the kernel changes them by name only. If the name means another file by then, nothing was judged of that
/// file but that it lies in the same directory, which the sandbox may write; so it has to be the sandbox's own too.
fn times_of_link(shared: &Shared, link: &OwnedFd, found: &Stat, times: &Timestamps) -> Result<(), Errno> {
    let place = readlinkat(CWD, format!("/proc/self/fd/{}", link.as_raw_fd()), Vec::new())?;
    let place = Path::new(std::ffi::OsStr::from_bytes(place.as_bytes())).to_path_buf();
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Err(Errno::PERM) };
    let flags = belljar_sys::rustix::fs::OFlags::PATH | belljar_sys::rustix::fs::OFlags::CLOEXEC;
    let parent = belljar_sys::rustix::fs::open(parent, flags, Mode::empty())?;
    if !shared.is_writable(&parent)? {
        return Err(Errno::PERM);
    }
    let again = belljar_sys::rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (again.st_dev, again.st_ino) != (found.st_dev, found.st_ino) {
        return Err(Errno::NOENT);
    }
    utimensat(&parent, name, times, AtFlags::SYMLINK_NOFOLLOW)
}

/// Attributes that users may write (xattr(7)). Of all others programs are told what a filesystem without them says.
fn attribute_name(caller: &Caller<'_>, name: Pointer) -> Result<Vec<u8>, Errno> {
    let name = caller.string(name, MAX_NAME)?;
    if name.starts_with(b"user.") { Ok(name) } else { Err(Errno::OPNOTSUPP) }
}

const MAX_PATH: usize = 4096;
/// XATTR_NAME_MAX and XATTR_SIZE_MAX of the kernel.
const MAX_NAME: usize = 256;
const MAX_VALUE: usize = 65_536;

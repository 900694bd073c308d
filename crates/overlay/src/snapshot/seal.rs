//! Making a layer of what a sandbox changed, without copying: see [`super`] for why no step loses anything.

use super::chain::Chain;
use super::error::SnapshotError;
use super::files::{Part, SandboxFiles};
use super::store::fresh;
use belljar_state::{Survives, create_private};
use belljar_sys::rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, chmodat, chownat, mkdirat, renameat, statat,
    utimensat,
};
use belljar_sys::rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

/// Something that is on the disk: a kill behind it, and before the next, loses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The new layer is there, empty.
    Made,
    /// The chain names it.
    Chained,
    /// The changes of a part have moved into it.
    Moved(Part),
    /// An empty directory takes the part's changes from now on.
    Replaced(Part),
    /// The snapshot is there.
    Noted,
    /// The chain is that of the snapshot to go back to.
    Restored,
}

/// Makes a layer of the parts of a place, and gives the new chain. Where nothing changed since the last layer, that is the last chain.
pub(super) fn seal(
    layers: &Path,
    files: &SandboxFiles,
    parts: &[Part],
    chain: Chain,
    done: &mut dyn FnMut(Step),
) -> Result<Chain, SnapshotError> {
    // One that cannot be read may hold anything: an agent can close its own directory.
    let has_changes = |part: &Part| match fs::read_dir(files.upper(*part)) {
        Ok(mut found) => found.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if !chain.layers.is_empty() && !parts.iter().any(has_changes) {
        return Ok(chain);
    }
    let id = fresh()?;
    let layer = layers.join(id.to_string());
    create_private(&layer).map_err(SnapshotError::store("make", &layer))?;
    done(Step::Made);
    let chain = Chain { layers: [id].into_iter().chain(chain.layers).collect(), ..chain };
    // The renames below are on the disk after this.
    chain.write(files, Survives::InOrder)?;
    done(Step::Chained);
    for part in parts {
        let upper = files.upper(*part);
        // A part that was never made is empty.
        match move_into(&upper, &layer.join(part.as_str())) {
            Ok(true) => done(Step::Moved(*part)),
            Ok(false) => continue,
            Err(errno) => return Err(SnapshotError::store("seal", upper)(errno.into())),
        }
        replace(&layer.join(part.as_str()), &upper)
            .map_err(|errno| SnapshotError::store("make", upper)(errno.into()))?;
        done(Step::Replaced(*part));
    }
    Ok(chain)
}

/// An empty directory like the one that was moved away: it decides what the top of the part is like.
pub(super) fn replace(like: &Path, upper: &Path) -> Result<(), Errno> {
    let found = statat(CWD, like, AtFlags::SYMLINK_NOFOLLOW)?;
    match mkdirat(CWD, upper, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let made = statat(CWD, upper, AtFlags::SYMLINK_NOFOLLOW)?;
    if (made.st_uid, made.st_gid) != (found.st_uid, found.st_gid) {
        let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        chownat(CWD, upper, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    chmodat(CWD, upper, Mode::from_raw_mode(found.st_mode), AtFlags::empty())?;
    let time =
        |seconds: i64, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.cast_signed() };
    let times = Timestamps {
        last_access: time(found.st_atime, found.st_atime_nsec),
        last_modification: time(found.st_mtime, found.st_mtime_nsec),
    };
    utimensat(CWD, upper, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// Renames a directory, if it is there. One that its owner may not write to cannot be moved to another parent (rename(2)): an agent
/// may have made it so.
fn move_into(from: &Path, to: &Path) -> Result<bool, Errno> {
    match renameat(CWD, from, CWD, to) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
            chmodat(CWD, from, Mode::RWXU, AtFlags::empty())?;
            renameat(CWD, from, CWD, to)?;
            chmodat(CWD, to, mode, AtFlags::empty()).map(|()| true)
        }
        Err(errno) => Err(errno),
    }
}

//! Removes applied changes from a layer, so that only the rest remains.

use super::choose::Chosen;
use super::journal::Later;
use super::plan::JournalPath;
use crate::beneath::{self, Beneath, stat_at};
use crate::change::Changes;
use crate::error::LayerError;
use crate::path::RelPath;
use crate::stat::Kind;
use crate::walk;
use crate::xattrs::{self, Mark};
use belljar_sys::rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use belljar_sys::rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

/// Entries that the layer need not hold once this is applied.
pub(super) fn later(chosen: &Chosen, changes: &Changes) -> Later {
    if chosen.whole {
        return Later::default();
    }
    let applied: HashSet<&RelPath> = chosen.list.iter().map(|change| &change.path).collect();
    let is_copy_that_stays = |change: &&crate::change::Change| {
        change.copied && change.old.is_none() && !applied.contains(&change.path)
    };
    Later {
        drop: chosen.list.iter().map(|change| JournalPath(change.path.clone())).collect(),
        // Its original may be among the applied changes.
        unmark: changes
            .list
            .iter()
            .filter(is_copy_that_stays)
            .map(|change| JournalPath(change.path.clone()))
            .collect(),
    }
}

/// Removes them. An entry that cannot be removed equals the folder's, and so is no change.
pub(super) fn prune(later: &Later, upper: &Beneath) {
    for JournalPath(path) in later.drop.iter().rev() {
        // For the reason above.
        let _ = drop_one(path, upper);
    }
    for JournalPath(path) in &later.unmark {
        if let Ok(file) = upper.file(path) {
            let _ = xattrs::unmark(file, Mark::Origin);
        }
    }
}

fn drop_one(path: &RelPath, upper: &Beneath) -> io::Result<()> {
    let parent = upper.anchor(path.parent())?;
    let flags = match stat_at(&parent, path.name())? {
        None => return Ok(()),
        Some(stat) if stat.kind == Kind::Directory => AtFlags::REMOVEDIR,
        Some(_) => AtFlags::empty(),
    };
    Ok(fs::unlinkat(parent, path.name(), flags)?)
}

/// Replaces opaque marks by whiteouts, so that a part of such a directory can be removed: an opaque directory would hide the files
/// that were just applied. The layer's meaning stays the same at every moment.
pub(super) fn unfold(upper: &Beneath, host: &Beneath) -> Result<(), LayerError> {
    let mut todo: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let failed = |source| LayerError::read(&path, source);
        let directory = match upper.directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            directory => directory.map_err(failed)?,
        };
        if xattrs::mark(&directory, Mark::Opaque).map_err(failed)?.as_deref() == Some(b"y") {
            unfold_one(&directory, host, &path).map_err(failed)?;
        }
        for name in beneath::names(&directory).map_err(failed)? {
            let child = RelPath::child(&path, &name);
            let is_directory =
                stat_at(&directory, &name).map_err(failed)?.is_some_and(|stat| stat.is_directory());
            // Deeper entries are left out anyway.
            if is_directory && child.parts().count() <= walk::DEEPEST {
                todo.push(child.as_bytes().to_vec());
            }
        }
    }
    Ok(())
}

fn unfold_one(directory: impl AsFd, host: &Beneath, path: &[u8]) -> io::Result<()> {
    let directory = directory.as_fd();
    let below = match host.directory(path) {
        Ok(below) => below,
        Err(error) if beneath::is_absent(&error) || is_link(&error) => {
            return xattrs::unmark(directory, Mark::Opaque);
        }
        Err(error) => return Err(error),
    };
    let mut marked = false;
    for name in beneath::names(&below)? {
        match stat_at(directory, &name)? {
            None => marked |= whiteout(directory, &name)?,
            Some(stat) if stat.is_directory() => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = fs::openat(directory, name.as_slice(), flags, Mode::empty())?;
                xattrs::set_mark(child, Mark::Opaque, b"y")?;
            }
            Some(_) => {}
        }
    }
    // `x`: it hides nothing, and some whiteouts in it are files with an xattr.
    if marked {
        xattrs::set_mark(directory, Mark::Opaque, b"x")
    } else {
        xattrs::unmark(directory, Mark::Opaque)
    }
}

/// Returns whether the whiteout is a file with an xattr, as it must be where device nodes may not be made.
fn whiteout(directory: impl AsFd, name: &[u8]) -> io::Result<bool> {
    let directory = directory.as_fd();
    match fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) => Ok(false),
        Err(Errno::PERM | Errno::OPNOTSUPP) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
            xattrs::set_mark(file, Mark::Whiteout, b"y")?;
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

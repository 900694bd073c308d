//! Merging layers, so that a sandbox with many checkpoints does not lie over more layers than the kernel takes.
//!
//! Two layers that lie over each other everywhere become one: what is in the upper one moves into the lower one, entry by entry. Who
//! sees both sees the same before and after each move, and a kill in between leaves two layers that show the same. Only then is the upper one,
//! which is empty, taken out of the chain and the snapshots that name it.
//!
//! The trees are an agent's work, and no process writes to them: a name that is a directory now is one a moment later.

use super::chain::Chain;
use super::error::SnapshotError;
use super::files::{Part, SandboxFiles};
use super::record::{LABEL, Snapshot};
use super::seal::replace;
use super::store::SnapshotStore;
use belljar_spec::SandboxId;
use belljar_state::{Survives, write_atomic};
use belljar_sys::remove_tree::remove;
use belljar_sys::rustix::fs::{XattrFlags, getxattr, setxattr};
use belljar_sys::rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};

use std::path::Path;

/// Merges what can be merged, the oldest first, and says how many layers the place has then. The caller holds the store's lock and the place.
pub(super) fn merge(
    store: &SnapshotStore,
    files: &SandboxFiles,
    most: usize,
) -> Result<usize, SnapshotError> {
    loop {
        let chain = Chain::of(files)?;
        let count = chain.layers.len();
        if count <= most {
            return Ok(count);
        }
        let others: Vec<Chain> = store
            .chains()?
            .into_iter()
            .filter(|(name, _)| files.directory().file_name().is_none_or(|own| own != name.as_str()))
            .map(|(_, chain)| chain)
            .collect();
        let snapshots = store.all()?;
        let mut pairs = chain.layers.windows(2).rev();
        let Some(pair) = pairs.find(|pair| may_merge(store, pair[0], pair[1], &others, &snapshots)) else {
            return Ok(count);
        };
        let (upper, lower) = (pair[0], pair[1]);
        for part in Part::ALL {
            if let Some(from) = store.part(upper, part) {
                let to = store.layers().join(lower.to_string()).join(part.as_str());
                if part_into(&from, &to).is_err() {
                    // Directories that an agent closed to their owner, paths that are too long: two layers stay two.
                    return Ok(count);
                }
            }
        }
        leave_out(store, files, &chain, upper, snapshots)?;
    }
}

/// Whether all that show the lower one show the upper one right above it, and no other sandbox has either: it could be running.
fn may_merge(
    store: &SnapshotStore,
    upper: SandboxId,
    lower: SandboxId,
    others: &[Chain],
    snapshots: &[Snapshot],
) -> bool {
    let is_shared = others.iter().any(|chain| chain.layers.contains(&upper) || chain.layers.contains(&lower));
    let is_empty = Part::ALL.into_iter().all(|part| store.part(upper, part).is_none());
    let is_below_it = |snapshot: &Snapshot| match snapshot.layers.iter().position(|layer| *layer == lower) {
        Some(at) => at > 0 && snapshot.layers[at - 1] == upper,
        None => true,
    };
    !is_shared && (is_empty || snapshots.iter().all(is_below_it))
}

/// Takes an empty layer out of all lists. Those that still have it after a kill show the same.
fn leave_out(
    store: &SnapshotStore,
    files: &SandboxFiles,
    chain: &Chain,
    gone: SandboxId,
    snapshots: Vec<Snapshot>,
) -> Result<(), SnapshotError> {
    for mut snapshot in snapshots.into_iter().filter(|snapshot| snapshot.layers.contains(&gone)) {
        snapshot.layers.retain(|layer| *layer != gone);
        let label = store.taken().join(snapshot.id.as_str()).join(LABEL);
        write_atomic(&label, &snapshot.to_json(), Survives::PowerCut)
            .map_err(SnapshotError::store("write", label))?;
    }
    let mut chain = chain.clone();
    chain.layers.retain(|layer| *layer != gone);
    chain.write(files, Survives::PowerCut)
}

/// Moves a part of one layer into the same part of the layer below.
fn part_into(from: &Path, to: &Path) -> io::Result<()> {
    if !to.is_dir() {
        return fs::rename(from, to);
    }
    directory_into(from, to)?;
    replace(from, to)?;
    fs::remove_dir(from)
}

/// Moves what is in a directory into the one that it lies over.
fn directory_into(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()? {
        let (upper, lower) = (entry.path(), to.join(entry.file_name()));
        let above = upper.symlink_metadata()?;
        let below = match lower.symlink_metadata() {
            Ok(below) => Some(below),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match below {
            Some(below) if above.is_dir() && below.is_dir() && !is_opaque(&upper)? => {
                directory_into(&upper, &lower)?;
                // What the directory itself is like is seen in the upper one until that is gone.
                replace(&upper, &lower)?;
                fs::remove_dir(&upper)?;
                continue;
            }
            // It hides what lies deeper, and so has what comes in its place.
            Some(below) if above.is_dir() && !below.is_dir() => make_opaque(&upper)?,
            Some(_) | None => {}
        }
        if below_is_directory(&lower) || above.is_dir() {
            // Not seen: what lies above is no directory, or hides it.
            remove(&lower)?;
        }
        fs::rename(&upper, &lower)?;
    }
    Ok(())
}

fn below_is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn is_opaque(directory: &Path) -> io::Result<bool> {
    let mut value = [0; 8];
    match getxattr(directory, OPAQUE, &mut value) {
        // `x` says that the directory holds whiteouts of another kind.
        Ok(length) => Ok(&value[..length] == b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn make_opaque(directory: &Path) -> io::Result<()> {
    Ok(setxattr(directory, OPAQUE, b"y", XattrFlags::empty())?)
}

/// overlayfs.rst, with the mount option `userxattr`.
const OPAQUE: &str = "user.overlay.opaque";

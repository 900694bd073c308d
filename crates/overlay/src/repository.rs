//! Keeps a layer from making a directory a repository without a `.git`, or from changing files that such a repository obeys.
//!
//! git takes every directory for a repository that has `HEAD`, `objects` and `refs`, or `HEAD` and a `commondir` that says where
//! the others are, and obeys its `config` and `hooks` as soon as it is the working directory of a git command, such as a shell
//! prompt that shows the branch. The folder's content after the apply counts; a part of it may have been there before.

use super::beneath::Beneath;
use super::change::{Change, Changes, LeftOut, LeftOutWhy};
use super::error::LayerError;
use super::path::RelPath;
use std::collections::{BTreeSet, HashSet};

/// Removes the files that such a repository obeys from the changes, and reports them.
pub(super) fn leave_out(changes: &mut Changes, host: &Beneath) -> Result<(), LayerError> {
    let mut directories: BTreeSet<Vec<u8>> = BTreeSet::new();
    // By names in lower case: some filesystems ignore case.
    let mut added: HashSet<Vec<u8>> = HashSet::new();
    for change in changes.list.iter().filter(|change| change.new.is_some()) {
        added.insert(change.path.as_bytes().to_ascii_lowercase());
        if is_part(change.path.name()) {
            directories.insert(change.path.parent().to_vec());
        }
        // A hook alone changes the behaviour of an existing repository.
        directories.extend(hooks_around(&change.path));
    }
    let had = |directory: &[u8], name: &[u8]| -> Result<bool, LayerError> {
        let path = RelPath::child(directory, name);
        let found = host.stat(&path).map_err(|source| LayerError::read(path.as_bytes(), source))?;
        Ok(found.is_some())
    };
    // Files that the layer deletes count as present: a part of the layer can be applied without the deletion.
    let has = |directory: &[u8], name: &[u8]| -> Result<bool, LayerError> {
        let path = RelPath::child(directory, name).as_bytes().to_ascii_lowercase();
        Ok(added.contains(&path) || had(directory, name)?)
    };
    let mut obeyed: BTreeSet<RelPath> = BTreeSet::new();
    for directory in &directories {
        let whole = has(directory, b"objects")? && has(directory, b"refs")?;
        if !has(directory, b"HEAD")? || !(whole || has(directory, b"commondir")?) {
            continue;
        }
        // If the folder already has a `HEAD`, leaving out the layer's does not keep it from being a repository.
        let completes =
            had(directory, b"HEAD")? && !(had(directory, b"objects")? && had(directory, b"refs")?);
        let names = changes.list.iter().filter(|change| change.new.is_some());
        let names = names.filter_map(|change| part_of(&change.path, directory));
        let stays_out = |name: &&[u8]| is_obeyed(name) || (completes && is_part(name));
        obeyed.extend(names.filter(stays_out).map(|name| RelPath::child(directory, name)));
    }
    if obeyed.is_empty() {
        return Ok(());
    }
    let is_obeyed =
        |path: &RelPath| obeyed.contains(path) || path.ancestors().any(|path| obeyed.contains(&path));
    let is_in = |change: &Change| change.new.is_none() || !is_obeyed(&change.path);
    changes.list.retain(is_in);
    let why = LeftOutWhy::Repository;
    changes.left_out.extend(obeyed.into_iter().map(|path| LeftOut { path, why }));
    Ok(())
}

/// The name in this directory that a path lies at or below.
fn part_of<'a>(path: &'a RelPath, directory: &[u8]) -> Option<&'a [u8]> {
    let below = match directory {
        [] => path.as_bytes(),
        directory => path.as_bytes().strip_prefix(directory)?.strip_prefix(b"/")?,
    };
    below.split(|byte| *byte == b'/').next()
}

/// Every directory whose `hooks` a path lies in.
fn hooks_around(path: &RelPath) -> impl Iterator<Item = Vec<u8>> {
    let is_hooks = |around: &RelPath| around.name().eq_ignore_ascii_case(b"hooks");
    path.ancestors().filter(is_hooks).map(|around| around.parent().to_vec())
}

/// Files that make a directory a repository, or that git obeys in one.
fn is_part(name: &[u8]) -> bool {
    is_obeyed(name) || [&b"objects"[..], b"refs"].iter().any(|part| name.eq_ignore_ascii_case(part))
}

fn is_obeyed(name: &[u8]) -> bool {
    let obeyed = [&b"HEAD"[..], b"config", b"config.worktree", b"commondir", b"hooks"];
    obeyed.iter().any(|part| name.eq_ignore_ascii_case(part))
}

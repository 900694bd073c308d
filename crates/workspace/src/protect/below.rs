//! Repositories further down in a folder: the user's git trusts them too, once it runs there. The search goes from the top down and
//! is short: a folder of repositories has them near its top, and a start must not take as long as a full walk.
//!
//! An agent may have made one, or changed files that no mount protects: a malformed one is protected as far as possible, and the
//! folder stays usable; except for one whose path is not UTF-8, which no mount could protect.

use super::hooks::{self, How, Reached};
use super::linked::first_line;
use super::memory::Memory;
use super::settings_table::settings_paths;
use super::shields::{Missing, Shields};
use super::{ALWAYS, git_dir, named};
use crate::settings::{HostFiles, path_of};
use belljar_spec::SandboxError;
use belljar_spec::workspace::View;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, fstatfs, open, statat};
use belljar_sys::rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Protects the repositories below a folder, as far as they are found. Those that were found earlier, which are in `memory`, come
/// first: an agent cannot push them out of the search by making others.
pub(super) fn hold(
    view: &mut View,
    host: &HostFiles,
    memory: Option<&Memory>,
    nested: Nested,
) -> Result<(), SandboxError> {
    let is_repository = view.git.is_some() || view.folder.join(".git").exists();
    let mut shields = Shields::with(&view.folder, std::mem::take(&mut view.shields));
    let mut found = memory.map(|memory| memory.recall(&view.folder)).unwrap_or_default();
    let known: HashSet<PathBuf> = found.iter().cloned().collect();
    let searched = search(&view.folder, if is_repository { FEW_LOOKS } else { MANY_LOOKS });
    found.extend(searched.into_iter().filter(|top| !known.contains(top)));
    if let Some(memory) = memory.filter(|_| found.len() > known.len()) {
        memory.remember(&view.folder, &found);
    }
    let has_text = |top: &&PathBuf| top.strip_prefix(&view.folder).is_ok_and(|path| path.to_str().is_some());
    let is_one = |top: &PathBuf| top.join(".git").is_file() || git_dir::is_one(&top.join(".git"));
    if let Some(top) = found.iter().find(|top| !has_text(top) && is_one(top)) {
        return Err(git_dir::no_text(top));
    }
    for (number, top) in found.iter().enumerate() {
        hold_git_directory(&mut shields, top, nested == Nested::Shared && number < MAX_APART);
        for (path, missing) in named_in(top, host) {
            try_to(&mut shields, &path, |shields, path| shields.protect(path, missing));
        }
        if number >= MAX_READ {
            continue;
        }
        for Reached { path, how } in hooks::reached(&top.join(".git/hooks"), top, host) {
            let missing = if how == How::Link { Missing::Directory } else { Missing::Nothing };
            if how == How::Named
                || !try_to(&mut shields, &path, |shields, path| shields.protect(path, missing))
            {
                try_to(&mut shields, &path, |shields, path| {
                    shields.watch(path);
                    Ok(())
                });
            }
        }
    }
    view.shields = shields.finish();
    Ok(())
}

/// What a sandbox may do in repositories further down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nested {
    /// Only read them.
    ReadOnly,
    /// Write to them, except to files that make the host's git run something.
    Shared,
}

/// Protects it as a whole: then the sandbox cannot commit there. In parts, if it is shared and that is possible; with its parent
/// folder, if neither is.
fn hold_git_directory(shields: &mut Shields, top: &Path, in_parts: bool) {
    let git = top.join(".git");
    let directory = if git.is_dir() { Some(git.clone()) } else { named_by(top) };
    let is_held = directory.as_ref().is_some_and(|directory| {
        in_parts && try_to(shields, directory, |shields, path| git_dir::protect(shields, path, None))
    });
    if !is_held || git.is_file() {
        let whole = |shields: &mut Shields, path: &str| shields.protect(path, Missing::Nothing);
        let _ = directory.filter(|_| !in_parts).is_some_and(|directory| try_to(shields, &directory, whole));
        let _ = try_to(shields, &git, whole) || try_to(shields, top, whole);
    }
}

/// The target of a `.git` file.
fn named_by(top: &Path) -> Option<PathBuf> {
    let line = first_line(&top.join(".git"))?;
    let own = top.join(path_of(line.strip_prefix(b"gitdir: ")?)).canonicalize().ok()?;
    let common = first_line(&own.join("commondir")).map(|line| own.join(path_of(&line)));
    let directory = common.map_or(Some(own), |common| common.canonicalize().ok())?;
    git_dir::is_one(&directory).then_some(directory)
}

/// Existing paths that its config names, and those that are protected in every folder.
fn named_in(top: &Path, host: &HostFiles) -> Vec<(PathBuf, Missing)> {
    let named = named::paths(host, top, &top.join(".git"), "", MAX_BYTES).unwrap_or_default();
    let below = named.into_iter().filter(|(path, _)| path.starts_with(top) && path != top);
    let always = ALWAYS.into_iter().chain(settings_paths().iter().map(|known| known.path));
    let always = always.map(|name| (top.join(name), Missing::Nothing));
    let always = always.filter(|(path, _)| path.symlink_metadata().is_ok());
    always.chain(below.take(MAX_NAMED)).collect()
}

/// Protects all or nothing, and returns whether it did; nothing for a place outside of the root, or a path that is not UTF-8.
fn try_to(
    shields: &mut Shields,
    place: &Path,
    hold: impl FnOnce(&mut Shields, &str) -> Result<(), SandboxError>,
) -> bool {
    let Some(path) = place.strip_prefix(shields.root()).ok().and_then(Path::to_str) else { return false };
    if path.is_empty() {
        return false;
    }
    let mut more = shields.clone();
    let is_held = hold(&mut more, path).is_ok();
    if is_held {
        *shields = more;
    }
    is_held
}

/// Folders with a `.git` that is no link, parents first.
fn search(top: &Path, looks: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(top.to_path_buf(), 1)]);
    let (mut entries, mut checked) = (0, 0);
    for _ in 0..looks {
        let Some((folder, depth)) = waiting.pop_front() else { break };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(opened) = open(&folder, flags, Mode::empty()) else { continue };
        // Kernel filesystems, such as a chroot's /proc: hidden inside, and their folders come and go with processes.
        if fstatfs(&opened).is_ok_and(|found| KERNELS.contains(&(found.f_type as u64))) {
            continue;
        }
        for entry in Dir::read_from(&opened).into_iter().flatten().flatten() {
            entries += 1;
            // All entries at the top are checked, up to that many: so an agent cannot hide the user's repositories there behind
            // some thousand folders.
            if entries > MAX_ENTRIES || (depth > 1 && checked >= MAX_CHECKED) {
                return found;
            }
            let name = entry.file_name();
            if [c".", c"..", c".git", c"node_modules"].contains(&name) || !is_folder(&opened, &entry) {
                continue;
            }
            checked += usize::from(depth > 1);
            // All are checked before any is searched.
            let name = Path::new(OsStr::from_bytes(name.to_bytes()));
            match statat(&opened, name.join(".git"), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(git) if FileType::from_raw_mode(git.st_mode) != FileType::Symlink => {
                    found.push(folder.join(name))
                }
                // It cannot be told from here.
                Err(Errno::ACCESS) => found.push(folder.join(name)),
                _ => {}
            }
            if depth < DEPTH {
                waiting.push_back((folder.join(name), depth + 1));
            }
        }
    }
    found
}

fn is_folder(parent: &OwnedFd, entry: &DirEntry) -> bool {
    match entry.file_type() {
        // Not every filesystem gives the type in directory listings.
        FileType::Unknown => statat(parent, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory),
        known => known == FileType::Directory,
    }
}

/// proc, sysfs and both cgroups (linux/magic.h): no user files are in them.
const KERNELS: [u64; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];
/// As many levels as the peers look.
const DEPTH: usize = 3;
/// Limit of searched folders, in one that is a repository itself, and in one that is not.
const FEW_LOOKS: usize = 32;
const MANY_LOOKS: usize = 128;
/// Limit of entries in them, altogether.
const MAX_ENTRIES: usize = 16 * 1024;
/// Limit of folders below the top that are checked for a `.git`: each costs as much as many entries.
const MAX_CHECKED: usize = 2048;
/// More repositories than this are protected as a whole: each costs some mounts.
const MAX_APART: usize = 16;
/// Repositories whose hooks are read.
const MAX_READ: usize = 64;
/// Bytes of config that an agent may have written, together with the user's own.
const MAX_BYTES: u64 = 128 * 1024;
/// Limit of paths that one repository's config names.
const MAX_NAMED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_looked_for_in_filesystems_of_the_kernel() {
        assert_eq!(search(Path::new("/proc"), MANY_LOOKS), Vec::<PathBuf>::new());
    }
}

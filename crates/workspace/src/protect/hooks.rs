//! Files that the hooks of a directory lead to: links and their targets, other names of a hook's file, and scripts that a hook
//! calls. The directory itself is protected as a whole; these files are not in it.

use super::survey::MADE;
use super::words::{self, Scene};
use crate::settings::{HostFiles, contents, plain};
use belljar_sys::rustix::fs::{Dir, FileType, Mode, OFlags, open};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a hook leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) path: PathBuf,
    pub(super) how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It is the hook itself: its target must not be created either.
    Link,
    /// The hook runs it, or it is another name of the hook.
    Run,
    /// The hook names it, or would run it if it existed.
    Named,
}

/// All files that the hooks in `directory`, which run at `top`, lead to. Not only those below the folder: the caller picks.
pub(super) fn reached(directory: &Path, top: &Path, host: &HostFiles) -> Vec<Reached> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::new();
    let mut several: HashSet<u64> = HashSet::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_HOOKS) {
        let (path, name) = (entry.path(), entry.file_name());
        if name.as_bytes().ends_with(b".sample") {
            continue;
        }
        let Ok(kind) = path.symlink_metadata() else { continue };
        if kind.is_symlink() {
            let target = fs::read_link(&path).map(|target| plain(&directory.join(target)));
            found.extend(target.map(|path| Reached { path, how: How::Link }));
            if let Ok(real) = path.canonicalize() {
                found.push(Reached { path: real.clone(), how: How::Link });
                waiting.push_back((real, 0));
            }
        } else if kind.is_file() {
            if kind.nlink() > 1 {
                several.insert(kind.ino());
            }
            waiting.push_back((path, 0));
        }
    }
    let mut read: HashSet<PathBuf> = HashSet::new();
    while let Some((script, depth)) = waiting.pop_front() {
        if read.len() >= MAX_READ || !read.insert(script.clone()) {
            continue;
        }
        let Some(text) = shell_script(&script) else { continue };
        let script_dir = script.parent().unwrap_or(directory);
        for word in words::of_script(&text, &Scene { host, top, script_dir }) {
            let kind = word.path.symlink_metadata();
            let is_made = word.path.components().any(|part| MADE.contains(&part.as_os_str().as_bytes()));
            let how = match &kind {
                // Tools rewrite these all the time, and the rest of such a folder runs as well: changes are only reported.
                Ok(kind) if is_made && !kind.is_dir() => How::Named,
                Ok(kind) if word.is_run && !kind.is_dir() => How::Run,
                Ok(kind) if word.is_run && word.path.join("__main__.py").exists() && kind.is_dir() => {
                    How::Run
                }
                Ok(kind) if kind.is_dir() => continue,
                Ok(_) => How::Named,
                Err(_) if word.is_run => How::Named,
                Err(_) => continue,
            };
            if how == How::Run && depth < DEEPEST {
                waiting.push_back((word.path.clone(), depth + 1));
            }
            let reached = Reached { path: word.path, how };
            if !found.contains(&reached) {
                found.push(reached);
            }
        }
        found.truncate(MAX_REACHED);
    }
    if !several.is_empty() {
        let same = |path: &PathBuf| !path.starts_with(directory);
        let names = other_names(top, &several).into_iter().filter(same);
        found.extend(names.map(|path| Reached { path, how: How::Run }));
    }
    found
}

/// The text of a shell script; a file without a `#!` line counts as one.
fn shell_script(file: &Path) -> Option<String> {
    let bytes = contents(file).filter(|bytes| bytes.len() <= LARGEST && !bytes.contains(&0))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let first = text.lines().next().unwrap_or_default();
    let is_shell = !first.starts_with("#!") || first.trim_end().ends_with("sh") || first.contains("sh ");
    is_shell.then_some(text)
}

/// Other names of these files, as far as a short walk from the top finds them.
fn other_names(top: &Path, inodes: &HashSet<u64>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([top.to_path_buf()]);
    let mut seen = 0;
    while let Some(folder) = waiting.pop_front() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = open(&folder, flags, Mode::empty()) else { continue };
        for entry in Dir::read_from(&opened).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_SEEN {
                return found;
            }
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            match entry.file_type() {
                FileType::Directory => waiting.push_back(path),
                FileType::RegularFile if inodes.contains(&entry.ino()) => found.push(path),
                _ => {}
            }
        }
    }
    found
}

const MAX_HOOKS: usize = 256;
/// Limit of scripts that are read, including those that they call.
const MAX_READ: usize = 64;
const DEEPEST: usize = 2;
/// Each protected file costs a mount.
const MAX_REACHED: usize = 256;
/// The size limit of a script, in bytes.
const LARGEST: usize = 256 * 1024;
const MAX_SEEN: usize = 20_000;

//! What a sandbox will be shown of the host, each opened once. A path that is judged is opened first, over no link; from then
//! on its descriptor is looked at and mounted, so that what is shown is what was judged. Without one nothing is mounted that
//! a caller named.

use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::opened::{FileIdentity, OpenedPath};
use belljar_sys::rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files and folders that are open, by their real paths.
#[derive(Debug, Default)]
pub(crate) struct OpenedPaths {
    opened: HashMap<PathBuf, OpenedPath>,
    /// Of what the host's root alone can change: directories and files that were found there.
    are_directories: HashMap<PathBuf, bool>,
}

impl OpenedPaths {
    /// Opens a path that leads over no link, unless it is open already.
    pub(super) fn open(&mut self, real: &Path) -> Result<&OpenedPath, Errno> {
        if !self.opened.contains_key(real) {
            self.opened.insert(real.to_path_buf(), OpenedPath::open(real)?);
        }
        self.opened.get(real).ok_or(Errno::NOENT)
    }

    /// The same, of what is going to be mounted.
    pub(super) fn open_source(&mut self, real: &Path) -> Result<&OpenedPath, SandboxError> {
        self.open(real).map_err(|errno| match errno {
            Errno::LOOP | Errno::STALE | Errno::NOENT | Errno::NOTDIR => moved(real),
            _ => {
                let message = format!("cannot open `{}`: {errno}", real.display());
                ErrorCode::StartFailed.error(message)
            }
        })
    }

    /// What was opened under this path; an error for one that was never judged.
    pub(crate) fn get(&self, real: &Path) -> Result<&OpenedPath, SandboxError> {
        self.opened.get(real).ok_or_else(|| {
            let message = format!("`{}` was not opened before it was to be mounted", real.display());
            ErrorCode::StartFailed.error(message)
        })
    }

    /// What the kernel knows the file at a path by: of one that is open, by its descriptor.
    pub(super) fn identity(&self, path: &Path) -> Option<FileIdentity> {
        self.opened.get(path).map_or_else(|| identity(path), |opened| Some(opened.identity()))
    }

    /// Remembers what parts of the system were found to be, so that nothing is asked twice.
    pub(super) fn know(&mut self, kinds: impl IntoIterator<Item = (PathBuf, bool)>) {
        self.are_directories.extend(kinds);
    }

    /// Whether it is a directory: of one that is open, by its descriptor.
    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        let known = || self.are_directories.get(path).copied().unwrap_or_else(|| path.is_dir());
        self.opened.get(path).map_or_else(known, OpenedPath::is_directory)
    }

    /// A path to look at something through, which leads to the open file whatever has its name by now.
    pub(super) fn look_through(&self, path: &Path) -> PathBuf {
        self.opened.get(path).map_or_else(|| path.to_path_buf(), OpenedPath::by_descriptor)
    }
}

/// What has another file at its path than the one that was judged.
pub(crate) fn moved(path: &Path) -> SandboxError {
    let message = format!("`{}` was replaced by something else while it was being opened", path.display());
    ErrorCode::PathMoved.error(message).hint(
        "a program that can write to a folder above it did that, perhaps another sandbox: end it, put back what was there, \
         and start again",
    )
}

/// What the kernel knows the file at a path by.
pub(super) fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|found| FileIdentity { device: found.dev(), inode: found.ino() })
}

/// Where a path really leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Walked {
    /// Without links, as far as anything is there.
    pub(super) real: PathBuf,
    /// The links on the way, each by its real path. A user who can change one of them decides where the path leads.
    pub(super) links: Vec<PathBuf>,
}

/// Follows a path part by part.
pub(super) fn walk(path: &Path) -> Walked {
    Walker::default().walk(path)
}

/// Follows several paths, most of which have their first parts in common: each part is asked once.
#[derive(Default)]
pub(super) struct Walker(HashMap<PathBuf, At>);

#[derive(Clone)]
enum At {
    Link(PathBuf),
    /// Nothing, and so nothing below it.
    Nothing,
    Other,
}

impl Walker {
    pub(super) fn walk(&mut self, path: &Path) -> Walked {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let (mut links, mut real) = (Vec::new(), PathBuf::from("/"));
        let mut left: Vec<PathBuf> =
            path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect();
        while let Some(part) = left.pop() {
            if part == Path::new("..") {
                real.pop();
                continue;
            }
            let here = real.join(&part);
            match self.at(&here) {
                At::Link(target) if links.len() < MAX_LINKS => {
                    links.push(here);
                    // An absolute one begins at the root by itself.
                    left.extend(target.components().rev().map(|part| PathBuf::from(part.as_os_str())));
                }
                _ => real = here,
            }
        }
        Walked { real, links }
    }

    fn at(&mut self, place: &Path) -> At {
        if let Some(known) = self.0.get(place) {
            return known.clone();
        }
        let above = place.parent().and_then(|parent| self.0.get(parent));
        let found = match (above, place.parent()) {
            (Some(At::Nothing), _) => At::Nothing,
            // The root.
            (_, None) => At::Other,
            _ => match fs::read_link(place) {
                Ok(target) => At::Link(target),
                Err(error) if error.kind() == io::ErrorKind::NotFound => At::Nothing,
                Err(_) => At::Other,
            },
        };
        self.0.insert(place.to_path_buf(), found.clone());
        found
    }
}

/// As many as the kernel follows (path_resolution(7)).
pub(super) const MAX_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_known() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        fs::create_dir_all(place.join("w/a")).unwrap();
        fs::create_dir_all(place.join("elsewhere/x")).unwrap();
        symlink("w/a/b", place.join("short")).unwrap();
        symlink(place.join("elsewhere"), place.join("w/a/b")).unwrap();
        let walked = walk(&place.join("short/x/../x"));
        assert_eq!(walked.real, place.join("elsewhere/x"));
        assert_eq!(walked.links, [place.join("short"), place.join("w/a/b")]);
        assert_eq!(walk(&place.join("w/a/none/x")).real, place.join("w/a/none/x"));
        symlink("loop", place.join("loop")).unwrap();
        assert_eq!(walk(&place.join("loop")).links.len(), MAX_LINKS);
    }

    #[test]
    fn nothing_is_mounted_that_was_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let mut opened = OpenedPaths::default();
        assert!(opened.get(&place).is_err());
        opened.open_source(&place).unwrap();
        assert_eq!(opened.get(&place).unwrap().path(), place);
        symlink("none", place.join("link")).unwrap();
        assert_eq!(opened.open_source(&place.join("link")).unwrap_err().code, ErrorCode::PathMoved);
    }
}

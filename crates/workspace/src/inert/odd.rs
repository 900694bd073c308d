//! Files on which git would hang in a git directory that a sandbox could write to: pipes, sockets and devices in the place of
//! regular files.
//!
//! git opens such files, and waits for the other end of a pipe for ever. So the names that git opens are checked first, by kind
//! alone; only directories are opened. A sandbox that still runs can put one there a moment later: so every call has a deadline and
//! dies with us.

use belljar_sys::rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, openat, statat};
use belljar_sys::rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The first such file that git would open, and what it is.
pub fn odd_file(directory: &Path) -> io::Result<Option<(PathBuf, &'static str)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = belljar_sys::rustix::fs::open(directory, flags, Mode::empty())?;
    let mut look = Look { left: MAX_ENTRIES };
    for (name, depth) in LOOKED_AT {
        if let Some(found) = look.at(&top, directory, name, depth)? {
            return Ok(Some(found));
        }
    }
    // Every file at the top: git opens dozens of them by name.
    look.below(&top, directory, 0)
}

struct Look {
    left: usize,
}

impl Look {
    fn at(
        &mut self,
        parent: &OwnedFd,
        above: &Path,
        name: &str,
        depth: usize,
    ) -> io::Result<Option<(PathBuf, &'static str)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags, Mode::empty()) {
            Ok(directory) => self.below(&directory, &above.join(name), depth),
            // Absent, or no directory: it is checked with its own parent.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn below(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        depth: usize,
    ) -> io::Result<Option<(PathBuf, &'static str)>> {
        let mut folders: Vec<CString> = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                return Ok(Some((path.to_path_buf(), "a folder with more entries than are looked at")));
            }
            let kind = match entry.file_type() {
                // git follows a link to any target.
                FileType::Symlink | FileType::Unknown => match statat(directory, name, AtFlags::empty()) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode as RawMode),
                    Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => continue,
                    Err(error) => return Err(error.into()),
                },
                kind => kind,
            };
            let what = match kind {
                FileType::Fifo => "a pipe",
                FileType::Socket => "a socket",
                FileType::CharacterDevice | FileType::BlockDevice => "a device",
                FileType::Directory if depth > 0 => {
                    folders.push(name.to_owned());
                    continue;
                }
                _ => continue,
            };
            return Ok(Some((path.join(name.to_string_lossy().as_ref()), what)));
        }
        for name in folders {
            let name = name.to_string_lossy();
            if let Some(found) = self.at(directory, path, &name, depth - 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Folders whose files git opens when it looks for refs and objects, and to which depth; git's own names are not deeper.
const LOOKED_AT: [(&str, usize); 6] =
    [("refs", 64), ("info", 1), ("objects/info", 1), ("objects/pack", 0), ("worktrees", 1), ("reftable", 0)];
/// Ten times the unpacked files of the largest repositories.
const MAX_ENTRIES: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_pipe_is_found_wherever_git_opens_files() {
        for name in [
            "HEAD",
            "packed-refs",
            "index",
            "config",
            "refs/heads/a/b",
            "info/exclude",
            "objects/info/alternates",
        ] {
            let place = tempfile::tempdir().unwrap();
            for folder in ["refs/heads/a", "info", "objects/info", "objects/pack", "hooks"] {
                fs::create_dir_all(place.path().join(folder)).unwrap();
            }
            assert_eq!(odd_file(place.path()).unwrap(), None);
            assert!(Command::new("mkfifo").arg(place.path().join(name)).status().unwrap().success());
            let found = odd_file(place.path()).unwrap();
            assert_eq!(found, Some((place.path().join(name), "a pipe")), "{name}");
        }
    }
}

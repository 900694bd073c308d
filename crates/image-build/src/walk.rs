//! Finds what is in a folder that an image is made from. No link is followed, and what `.dockerignore` leaves out is not looked
//! into unless something of it may come back.

use super::context::{Entry, IGNORE_FILE, Kind, MAX_ENTRIES, TooMuch};
use super::ignore::{Ignored, PatternState};
use belljar_sys::rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use belljar_sys::rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

pub(super) struct Walk<'w> {
    pub(super) ignored: &'w Ignored,
    /// What is taken in any case.
    pub(super) always: &'w [&'w str],
    /// What `.dockerignore` may cost.
    pub(super) most_work: u64,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) entries: Vec<Entry>,
    /// What it took to compare names with patterns.
    work: u64,
}

/// Where, and why.
type Failed = (Vec<u8>, io::Error);

impl Walk<'_> {
    /// All of a folder.
    pub(super) fn folder(
        &self,
        folder: impl AsFd,
        path: &[u8],
        place: &PatternState,
        found: &mut Found,
    ) -> Result<(), Failed> {
        let failed = |errno: Errno| (path.to_vec(), io::Error::from(errno));
        if path.iter().filter(|byte| **byte == b'/').count() >= DEEPEST {
            return Err((path.to_vec(), io::Error::other("it is too deep")));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        // The same folder makes the same stream.
        names.sort();
        for name in names {
            let below = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            self.entry(folder.as_fd(), &name, below, place, found)?;
            if found.entries.len() > MAX_ENTRIES {
                // Enough to know that it is too much.
                return Ok(());
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        folder: impl AsFd,
        name: &[u8],
        path: Vec<u8>,
        above: &PatternState,
        found: &mut Found,
    ) -> Result<(), Failed> {
        let stat = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err((path, errno.into())),
        };
        let place = self.ignored.below(above, name, &mut found.work);
        if found.work > self.most_work {
            return Err((IGNORE_FILE.into(), io::Error::other(TooMuch::Work)));
        }
        let is_out = self.ignored.leaves_out(&place) && !self.is_needed(&path);
        let mode = stat.st_mode;
        match FileType::from_raw_mode(mode) {
            FileType::Directory => {
                if is_out
                    && !self.leads_to_needed(&path)
                    && !self.ignored.may_take_back_below(&place, &mut found.work)
                {
                    return Ok(());
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = openat(&folder, name, flags, Mode::empty())
                    .map_err(|errno| (path.clone(), errno.into()))?;
                if !is_out {
                    found.entries.push(Entry { path: path.clone(), kind: Kind::Folder, mode });
                }
                self.folder(&below, &path, &place, found)
            }
            _ if is_out => Ok(()),
            FileType::RegularFile => {
                found.entries.push(Entry { path, kind: Kind::File { size: stat.st_size as u64 }, mode });
                Ok(())
            }
            FileType::Symlink => {
                let to =
                    readlinkat(&folder, name, Vec::new()).map_err(|errno| (path.clone(), errno.into()))?;
                found.entries.push(Entry { path, kind: Kind::Link { to: to.into_bytes() }, mode });
                Ok(())
            }
            // Sockets, pipes and devices are nothing to make an image from.
            _ => Ok(()),
        }
    }

    fn is_needed(&self, path: &[u8]) -> bool {
        self.always.iter().any(|needed| needed.as_bytes() == path)
    }

    fn leads_to_needed(&self, folder: &[u8]) -> bool {
        let below = [folder, b"/"].concat();
        self.always.iter().any(|needed| needed.as_bytes().starts_with(&below))
    }
}

/// One descriptor is open for each.
pub(super) const DEEPEST: usize = 200;

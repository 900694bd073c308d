//! Files below a directory that an agent may change at any moment.

use belljar_spec::egress::Printable;
use belljar_sys::rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, renameat, statat, unlinkat,
};
use belljar_sys::rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory, and the files below it, reached without following any link.
pub(super) struct Directory(OwnedFd);

/// The kind of a directory entry.
pub(super) enum Entry {
    File(File),
    Directory(Directory),
    /// A link, a pipe, a socket, a device, or gone by now.
    Other,
}

/// Why a file that an agent can write cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    #[error("`{path}` cannot be used: {why}")]
    Spoiled { path: Printable, why: &'static str },
    #[error("`{path}`: {source}")]
    Io { path: Printable, source: io::Error },
    #[error("it holds {what}, more than the limit of {most}")]
    TooMuch { what: &'static str, most: u64 },
}

impl ForeignError {
    pub(super) fn spoiled(path: &str, why: &'static str) -> ForeignError {
        ForeignError::Spoiled { path: path.into(), why }
    }

    pub(super) fn io(path: &str, source: impl Into<io::Error>) -> ForeignError {
        ForeignError::Io { path: path.into(), source: source.into() }
    }
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<Directory, ForeignError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = belljar_sys::rustix::fs::open(path, flags, Mode::empty());
        opened.map(Directory).map_err(|error| ForeignError::io(&path.to_string_lossy(), error))
    }

    /// A directory below, if it exists.
    pub(super) fn below(&self, path: &str) -> Result<Option<Directory>, ForeignError> {
        Ok(self.reach(path, OFlags::RDONLY | OFlags::DIRECTORY)?.map(Directory))
    }

    /// The names in it that are valid UTF-8, without `.` and `..`.
    pub(super) fn names(&self) -> Result<Vec<String>, ForeignError> {
        Ok(self.all_names()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// The names in it, without `.` and `..`.
    pub(super) fn all_names(&self) -> Result<Vec<OsString>, ForeignError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0).map_err(|error| ForeignError::io(".", error))? {
            let entry = entry.map_err(|error| ForeignError::io(".", error))?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
            }
            if names.len() > MAX_NAMES {
                return Err(ForeignError::TooMuch { what: "names in one directory", most: MAX_NAMES as u64 });
            }
        }
        Ok(names)
    }

    pub(super) fn has(&self, path: &str) -> bool {
        let found = match path.rsplit_once('/') {
            Some((parent, name)) => {
                self.below(parent).ok().flatten().map(|parent| parent.kind(name).is_some())
            }
            None => Some(self.kind(path).is_some()),
        };
        found.unwrap_or(false)
    }

    /// A file below, if it exists: only a regular one.
    pub(super) fn file(&self, path: &str) -> Result<Option<File>, ForeignError> {
        // Without NONBLOCK, opening a pipe would wait for its other end.
        let Some(opened) = self.reach(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)? else {
            return Ok(None);
        };
        let stat = fstat(&opened).map_err(|error| ForeignError::io(path, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(File::from(opened))),
            _ => Err(ForeignError::spoiled(path, "it is not a file")),
        }
    }

    /// An entry below, opened once: a regular file, a directory, or neither.
    pub(super) fn entry(&self, name: impl AsRef<OsStr>) -> Result<Entry, ForeignError> {
        let name = name.as_ref();
        let opened = match self.reach(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(Some(opened)) => opened,
            Ok(None) | Err(ForeignError::Spoiled { .. }) => return Ok(Entry::Other),
            Err(error) => return Err(error),
        };
        let stat = fstat(&opened).map_err(|error| ForeignError::io(&name.to_string_lossy(), error))?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Entry::File(File::from(opened)),
            FileType::Directory => Entry::Directory(Directory(opened)),
            _ => Entry::Other,
        })
    }

    pub(super) fn read(&self, path: &str, most: u64) -> Result<Option<Vec<u8>>, ForeignError> {
        let Some(file) = self.file(path)? else { return Ok(None) };
        // Most are refs.
        let mut bytes = Vec::with_capacity(512);
        file.take(most + 1).read_to_end(&mut bytes).map_err(|error| ForeignError::io(path, error))?;
        if bytes.len() as u64 > most {
            return Err(ForeignError::spoiled(path, "it is far too long"));
        }
        Ok(Some(bytes))
    }

    /// Writes under git's own lock of that file: a git that runs inside meanwhile waits or reports the lock.
    pub(super) fn write(&self, path: &str, content: &[u8]) -> Result<(), ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        parent.write_by(&format!("{name}.lock"), name, content, path)
    }

    /// Takes git's own lock of a file; `None` if another process has it.
    pub(super) fn lock(&self, path: &str) -> Result<Option<Locked>, ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        let lock = format!("{name}.lock");
        match parent.create(&lock, path) {
            Ok(file) => Ok(Some(Locked { file: File::from(file), parent, name: name.to_string(), lock })),
            Err(ForeignError::Spoiled { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For directories that no sandbox writes to: a leftover file of a killed belljar process is overwritten, not taken for a lock.
    pub(super) fn put(&self, path: &str, content: &[u8]) -> Result<(), ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        // git takes no file that starts with a dot for a ref.
        let unfinished = format!(".{name}.belljar");
        let _ = unlinkat(&parent.0, unfinished.as_str(), AtFlags::empty());
        parent.write_by(&unfinished, name, content, path)
    }

    /// Removes a file or a link itself; a missing one is no error.
    pub(super) fn remove_file(&self, path: &str) -> Result<(), ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        match unlinkat(&parent.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(ForeignError::io(path, error)),
        }
    }

    /// Removes a directory that holds only empty directories, a few levels deep; other entries stay.
    pub(super) fn remove_empty(&self, path: &str) -> Result<(), ForeignError> {
        self.remove_empty_levels(path, DEEPEST_EMPTY)
    }

    fn remove_empty_levels(&self, path: &str, levels: u32) -> Result<(), ForeignError> {
        let Ok(Some(directory)) = self.below(path) else { return Ok(()) };
        if let Some(levels) = levels.checked_sub(1) {
            directory.names()?.iter().try_for_each(|name| directory.remove_empty_levels(name, levels))?;
        }
        let (parent, name) = self.parent_of(path)?;
        let _ = unlinkat(&parent.0, name, AtFlags::REMOVEDIR);
        Ok(())
    }

    /// Removes a directory with everything in it.
    pub(super) fn remove_tree(&self, path: &str) -> Result<(), ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        belljar_sys::remove_tree::remove_at(&parent.0, name.as_bytes())
            .map_err(|error| ForeignError::io(path, error))
    }

    fn write_by(&self, unfinished: &str, name: &str, content: &[u8], path: &str) -> Result<(), ForeignError> {
        let mut file = File::from(self.create(unfinished, path)?);
        let moved = file
            .write_all(content)
            .and_then(|()| Ok(renameat(&self.0, unfinished, &self.0, name)?))
            .map_err(|error| ForeignError::io(path, error));
        if moved.is_err() {
            let _ = unlinkat(&self.0, unfinished, AtFlags::empty());
        }
        moved
    }

    pub(super) fn take_file(&self, from: &Path, path: &str) -> Result<(), ForeignError> {
        let (parent, name) = self.parent_of(path)?;
        if parent.kind(name).is_some() {
            return Ok(());
        }
        // git's own name for unfinished files, which `git gc` removes if we cannot.
        let unfinished = format!("tmp_{name}");
        let _ = unlinkat(&parent.0, unfinished.as_str(), AtFlags::empty());
        let mut copy = File::from(parent.create(&unfinished, path)?);
        let copied = File::open(from).and_then(|mut from| io::copy(&mut from, &mut copy));
        let moved = copied
            .and_then(|_| Ok(renameat(&parent.0, unfinished.as_str(), &parent.0, name)?))
            .map_err(|error| ForeignError::io(path, error));
        if moved.is_err() {
            let _ = unlinkat(&parent.0, unfinished.as_str(), AtFlags::empty());
        }
        moved
    }

    /// The parent directory of a path, made if it is missing, and the path's last part.
    fn parent_of<'a>(&self, path: &'a str) -> Result<(Directory, &'a str), ForeignError> {
        let (parents, name) = path.rsplit_once('/').unwrap_or((".", path));
        let mut reached = String::new();
        for part in parents.split('/') {
            reached.push_str(part);
            // Made one by one: each is checked again when it is opened.
            if self.below(&reached)?.is_none() {
                let within = match reached.rsplit_once('/') {
                    Some((within, _)) => self.below(within)?,
                    None => self.below(".")?,
                };
                let within = within.ok_or_else(|| ForeignError::spoiled(path, "its folder went away"))?;
                match mkdirat(&within.0, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(ForeignError::io(path, error)),
                }
            }
            reached.push('/');
        }
        let parent = self.below(parents)?;
        Ok((parent.ok_or_else(|| ForeignError::spoiled(path, "its folder went away"))?, name))
    }

    fn create(&self, name: &str, path: &str) -> Result<OwnedFd, ForeignError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(&self.0, name, flags, Mode::from_raw_mode(0o666), BENEATH_ONLY).map_err(|error| match error {
            Errno::EXIST => {
                ForeignError::spoiled(path, "another process is writing it, or died while doing so")
            }
            error => ForeignError::io(path, error),
        })
    }

    fn kind(&self, name: &str) -> Option<FileType> {
        let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    fn reach(&self, path: impl AsRef<OsStr>, flags: OFlags) -> Result<Option<OwnedFd>, ForeignError> {
        let (opened, path) = (path.as_ref(), path.as_ref().to_string_lossy());
        match openat2(&self.0, opened, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH_ONLY) {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => {
                Err(ForeignError::spoiled(&path, "a link is in the way, or another filesystem"))
            }
            // The error of opening a socket, or a device without a driver.
            Err(Errno::NXIO | Errno::NODEV) => Err(ForeignError::spoiled(&path, "it is not a file")),
            Err(error) => Err(ForeignError::io(&path, error)),
        }
    }
}

/// A directory below an open one, made if it is missing, following no link. `made` gets each new one.
pub(crate) fn make_folder(
    top: &OwnedFd,
    path: &str,
    made: impl Fn(&OwnedFd) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Another filesystem there is the user's: no agent mounts one on the host.
    let no_links = BENEATH_ONLY.difference(ResolveFlags::NO_XDEV);
    let mut folder = top.try_clone()?;
    for part in path.split('/') {
        let is_new = match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        folder = openat2(&folder, part, flags, Mode::empty(), no_links)?;
        if is_new {
            made(&folder)?;
        }
    }
    Ok(folder)
}

/// Git's lock of a file, while held: no git inside writes the file. If it is dropped, the file stays unchanged.
pub(crate) struct Locked {
    file: File,
    parent: Directory,
    name: String,
    lock: String,
}

impl Locked {
    /// Replaces the file with this content.
    pub(crate) fn commit(mut self, content: &[u8]) -> Result<(), ForeignError> {
        let written = self.file.write_all(content);
        let moved = written.and_then(|()| {
            Ok(renameat(&self.parent.0, self.lock.as_str(), &self.parent.0, self.name.as_str())?)
        });
        moved.map_err(|error| ForeignError::io(&self.name, error))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // After `commit` the lock file no longer exists.
        let _ = unlinkat(&self.parent.0, self.lock.as_str(), AtFlags::empty());
    }
}

pub(crate) const BENEATH_ONLY: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// Each level takes a descriptor and stack space, and branch names have fewer levels.
const DEEPEST_EMPTY: u32 = 64;
/// A directory has some thousands of loose objects before git packs them.
const MAX_NAMES: usize = 2_000_000;

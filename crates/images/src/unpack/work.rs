//! Entry by entry.

use super::account::Account;
use super::bounded::{Bounded, Hashed, hit};
use super::directories::Meta;
use super::error::{UnpackError, quoted};
use super::path::{LayerPath, Named};
use super::tree::{Tree, failed, file, kind_at, make_directory, times};
use super::{Skipped, Unpacked, attributes, whiteout};
use crate::tar::{Archive, Entry, Kind, TarError};
use belljar_sys::rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;

pub(super) struct Work<R> {
    tree: Tree,
    archive: Archive<BufReader<Bounded<Hashed<R>>>>,
    skipped: Skipped,
}

impl<R: Read> Work<R> {
    pub(super) fn new(tree: Tree, archive: BufReader<Bounded<Hashed<R>>>) -> Work<R> {
        Work { tree, archive: Archive::new(archive), skipped: Skipped::default() }
    }

    /// All of them.
    pub(super) fn entries(&mut self) -> Result<(), UnpackError> {
        while let Some(entry) = self.archive.next().map_err(unpack_error)? {
            self.tree.charge(entry.size)?;
            self.entry(&entry)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Unpacked, UnpackError> {
        let rest = self.archive.finish().map_err(unpack_error)?;
        let Account { entries, bytes, taken, .. } = self.tree.finish()?;
        let diff_id = rest.into_inner().into_inner().digest();
        Ok(Unpacked { diff_id, entries, bytes, taken, skipped: self.skipped })
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        let path = match LayerPath::parse(&entry.path)?.named()? {
            Named::Path(path) => path,
            Named::Whiteout(path) => return self.whiteout(&path),
            Named::Opaque(path) => {
                self.tree.parent(&path.child())?;
                return self.tree.make_opaque(path.as_bytes());
            }
            Named::Aufs => return Ok(()),
        };
        if path.is_root() {
            return match entry.kind {
                Kind::Directory => self.meant(path, entry),
                _ => Err(UnpackError::NoPath(quoted(&entry.path))),
            };
        }
        match entry.kind {
            Kind::File => self.file(&path, entry),
            Kind::Directory => self.directory(path, entry),
            Kind::Symlink => self.symlink(&path, entry),
            Kind::HardLink => self.hard_link(&path, entry),
            // No process inside could open them, and a device 0:0 would be a whiteout.
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => {
                self.skipped.nodes += 1;
                Ok(())
            }
        }
    }

    fn file(&mut self, path: &LayerPath, entry: &Entry) -> Result<(), UnpackError> {
        let parent = self.tree.parent(path)?;
        let name = path.split().1;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR);
        let made = match make() {
            Err(Errno::EXIST) => {
                self.tree.remove(&parent, name, path)?;
                make()
            }
            made => made,
        };
        let mut made = File::from(made.map_err(failed("make", path.as_bytes()))?);
        self.content(&mut made, path)?;
        if entry.mode & SET_ID != 0 {
            self.skipped.set_id += 1;
        }
        let done = self.tree.own(&parent, name, entry.uid, entry.gid).and_then(|()| {
            self.skipped.attributes += attributes::give(&made, &entry.attributes)?;
            fs::fchmod(&made, Mode::from_raw_mode(entry.mode & 0o777))?;
            fs::futimens(&made, &times(entry.mtime))
        });
        done.map_err(failed("finish", path.as_bytes()))
    }

    fn content(&mut self, made: &mut File, path: &LayerPath) -> Result<(), UnpackError> {
        let mut buffer = [0; 64 << 10];
        loop {
            let length = match self.archive.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(TarError::Truncated.into());
                }
                Err(error) => return Err(unpack_error(TarError::Io(error))),
            };
            self.tree.charge_content(length as u64)?;
            made.write_all(&buffer[..length]).map_err(|source| file("write", path.as_bytes(), source))?;
        }
    }

    fn directory(&mut self, path: LayerPath, entry: &Entry) -> Result<(), UnpackError> {
        let parent = self.tree.parent(&path)?;
        let name = path.split().1;
        match make_directory(&parent, name) {
            Err(Errno::EXIST) => self.directory_instead(&parent, name, &path)?,
            made => made.map_err(failed("make", path.as_bytes()))?,
        }
        self.meant(path, entry)
    }

    /// Something is there already. A directory stays, with what is in it; a whiteout still counts for what is below.
    fn directory_instead(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &LayerPath,
    ) -> Result<(), UnpackError> {
        let bytes = path.as_bytes();
        if kind_at(parent, name).map_err(failed("look at", bytes))? == Some(FileType::Directory) {
            return Ok(());
        }
        let was_hidden = whiteout::is_at(parent, name).map_err(failed("look at", bytes))?;
        self.tree.remove(parent, name, path)?;
        make_directory(parent, name).map_err(failed("make", bytes))?;
        if was_hidden { self.tree.make_opaque(bytes) } else { Ok(()) }
    }

    /// What a directory is to become. Set-group-id stays on it: it gives files a group, and no user a right.
    fn meant(&mut self, path: LayerPath, entry: &Entry) -> Result<(), UnpackError> {
        if !entry.attributes.is_empty() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let opened = self.tree.beneath(path.as_bytes(), flags);
            let given = opened.and_then(|directory| attributes::give(directory, &entry.attributes));
            self.skipped.attributes += given.map_err(failed("finish", path.as_bytes()))?;
        }
        let mode = entry.mode & !0o4000;
        let meta = Meta { mode, uid: entry.uid, gid: entry.gid, mtime: entry.mtime };
        self.tree.directories.meant(path, meta)
    }

    /// Where it leads is for those inside to find out; here it is never followed.
    fn symlink(&mut self, path: &LayerPath, entry: &Entry) -> Result<(), UnpackError> {
        if entry.link.is_empty() || entry.link.contains(&0) || entry.link.len() > 4095 {
            return Err(UnpackError::NoPath(quoted(&entry.link)));
        }
        let parent = self.tree.parent(path)?;
        let name = path.split().1;
        let make = || fs::symlinkat(entry.link.as_slice(), &parent, name);
        match make() {
            Err(Errno::EXIST) => {
                self.tree.remove(&parent, name, path)?;
                make()
            }
            made => made,
        }
        .and_then(|()| self.tree.own(&parent, name, entry.uid, entry.gid))
        .and_then(|()| fs::utimensat(&parent, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW))
        .map_err(failed("make", path.as_bytes()))
    }

    /// To a file or a link of this layer, which came before.
    fn hard_link(&mut self, path: &LayerPath, entry: &Entry) -> Result<(), UnpackError> {
        let no_target = || UnpackError::NoTarget { path: quoted(path.as_bytes()), to: quoted(&entry.link) };
        let target = LayerPath::parse(&entry.link)?;
        let (way, target_name) = target.split();
        let from = match self.tree.beneath(way, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(no_target()),
            found => found.map_err(failed("open", &entry.link))?,
        };
        let kind = kind_at(&from, target_name).map_err(failed("look at", &entry.link))?;
        if !matches!(kind, Some(FileType::RegularFile | FileType::Symlink)) || target.is_root() {
            return Err(no_target());
        }
        if whiteout::is_at(&from, target_name).map_err(failed("look at", &entry.link))? {
            return Err(no_target());
        }
        if target == *path {
            return Ok(());
        }
        let parent = self.tree.parent(path)?;
        let name = path.split().1;
        let make = || fs::linkat(&from, target_name, &parent, name, AtFlags::empty());
        match make() {
            Err(Errno::EXIST) => {
                self.tree.remove(&parent, name, path)?;
                make()
            }
            made => made,
        }
        .map_err(|errno| match errno {
            // It was in the directory that made way.
            Errno::NOENT => no_target(),
            errno => failed("link", path.as_bytes())(errno),
        })
    }

    /// A whiteout is about the layers below. What this layer has itself stays; a directory of it hides the one below.
    fn whiteout(&mut self, path: &LayerPath) -> Result<(), UnpackError> {
        let parent = self.tree.parent(path)?;
        let name = path.split().1;
        let bytes = path.as_bytes();
        match kind_at(&parent, name).map_err(failed("look at", bytes))? {
            None => {
                let root = self.tree.root().try_clone_to_owned();
                let root = root.map_err(|source| file("open", b".", source))?;
                self.tree.whiteouts.put(root, &parent, name).map_err(failed("hide", bytes))
            }
            Some(FileType::Directory) => self.tree.make_opaque(bytes),
            Some(_) => Ok(()),
        }
    }
}

/// A bound that was hit, if that is what an error of the archive is.
fn unpack_error(error: TarError) -> UnpackError {
    match &error {
        TarError::Io(source) => hit(source).unwrap_or(UnpackError::Archive(error)),
        _ => UnpackError::Archive(error),
    }
}

const SET_ID: u32 = 0o6000;

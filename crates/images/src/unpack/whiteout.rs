//! How a layer says that something below is not there: Documentation/filesystems/overlayfs.rst, "whiteouts and opaque
//! directories". Marks are in `user.overlay.*`, since sandboxes mount with `userxattr`.

use belljar_sys::rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, XattrFlags, makedev};
use belljar_sys::rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// How whiteouts are made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Form {
    /// A device 0:0, which every user can make since Linux 5.8.
    #[default]
    Device,
    /// An empty file with a mark, in a marked directory, since Linux 6.7: where devices are refused altogether, as in some
    /// containers.
    Marked,
}

impl Form {
    /// Puts a whiteout at a name where nothing is; `root` is the layer's directory.
    pub(super) fn put(&mut self, root: impl AsFd, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        if *self == Form::Device {
            match fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)) {
                Err(Errno::PERM | Errno::OPNOTSUPP) => *self = Form::Marked,
                done => return done,
            }
        }
        let directory = open(parent, b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        if is_opaque(&directory)? {
            // Nothing is seen from below anyway, and in such a directory a mark would not be looked for.
            return Ok(());
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
        fs::fsetxattr(&file, WHITEOUT, b"y", XattrFlags::empty())?;
        // The kernel looks for marks only where the directory says so, and in the layer only if its root does.
        fs::fsetxattr(&directory, OPAQUE, b"x", XattrFlags::empty())?;
        if !is_opaque(root.as_fd())? {
            fs::fsetxattr(root, OPAQUE, b"x", XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Hides everything that is below this directory.
    pub(super) fn make_opaque(&self, directory: &OwnedFd) -> Result<(), Errno> {
        fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())?;
        if *self == Form::Device {
            return Ok(());
        }
        // From now on marked files are files.
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") && is_at(directory, &name)? {
                fs::unlinkat(directory, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// Whether there is a whiteout, of either form. A layer has no other devices, and no marks of its own.
pub(super) fn is_at(parent: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    let found = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice => Ok(true),
        FileType::RegularFile if found.st_size == 0 && found.st_mode & 0o400 != 0 => {
            let file = open(parent, name, OFlags::RDONLY)?;
            Ok(value(&file, WHITEOUT)?.is_some())
        }
        _ => Ok(false),
    }
}

fn is_opaque(directory: impl AsFd) -> Result<bool, Errno> {
    Ok(value(directory, OPAQUE)? == Some(b'y'))
}

/// The first letter of a mark.
fn value(file: impl AsFd, name: &str) -> Result<Option<u8>, Errno> {
    let mut room = [0; 16];
    match fs::fgetxattr(file, name, &mut room[..]) {
        Ok(0) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Ok(_) | Err(Errno::RANGE) => Ok(Some(room[0])),
        Err(errno) => Err(errno),
    }
}

fn open(parent: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(parent, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

const WHITEOUT: &str = "user.overlay.whiteout";
const OPAQUE: &str = "user.overlay.opaque";

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn marked_files_are_whiteouts_to_the_kernel_too() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(8)) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for path in ["base/d", "top/d", "top/e", "base/e", "m"] {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["base/a", "base/b", "base/d/a", "base/d/b", "base/e/a"] {
            std::fs::write(folder.path().join(path), "x").unwrap();
        }
        let opened = |path: &str| OwnedFd::from(std::fs::File::open(folder.path().join(path)).unwrap());
        let (root, inner, opaque) = (opened("top"), opened("top/d"), opened("top/e"));
        let mut form = Form::Marked;
        form.put(&root, &root, b"a").unwrap();
        form.put(&root, &inner, b"a").unwrap();
        form.put(&root, &opaque, b"a").unwrap();
        form.make_opaque(&opaque).unwrap();
        form.put(&root, &opaque, b"c").unwrap();
        assert!(is_at(&root, b"a").unwrap() && is_at(&inner, b"a").unwrap());
        let script = "mount -t overlay o -o userxattr,lowerdir=top:base m && find m -type f | sort";
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "m/b\nm/d/b\n", "{output:?}");
    }
}

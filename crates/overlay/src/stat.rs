//! The metadata of a file that matters here.

use belljar_sys::rustix::fs::{FileType, RawMode, Statx, StatxFlags, StatxTimestamp};
use serde::{Deserialize, Serialize};

/// The metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Permissions, with set-id and sticky bits.
    pub mode: u32,
    pub size: u64,
    pub inode: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Moment,
    /// The ctime, which no program can set.
    pub changed: Moment,
    /// The creation time, if the filesystem records it.
    pub made: Option<Moment>,
    /// The device number, if it is a device.
    pub(super) device: (u32, u32),
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Link,
    Directory,
    Fifo,
    Socket,
    Device,
}

/// The identity of a directory, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    filesystem: (u32, u32),
    inode: u64,
    /// If the filesystem records it.
    made: Option<Moment>,
}

/// Seconds since 1970, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(pub i64, pub u32);

impl Stat {
    /// A whiteout: overlayfs puts it in the place of a deleted file (Documentation/filesystems/overlayfs.rst).
    pub(super) fn is_whiteout(&self) -> bool {
        self.kind == Kind::Device && self.device == (0, 0)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Only the permissions.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o777
    }
}

impl Identity {
    /// Whether it is the same directory. Btrfs, LVM and others number their devices anew at every start of the machine, so that
    /// number counts only where the filesystem does not record when a directory was made; no program can choose that time.
    pub fn is(&self, other: &Identity) -> bool {
        self.inode == other.inode
            && match (self.made, other.made) {
                (Some(one), Some(two)) => one == two,
                (None, None) => self.filesystem == other.filesystem,
                (Some(_), None) | (None, Some(_)) => false,
            }
    }
}

impl From<&Statx> for Identity {
    fn from(found: &Statx) -> Identity {
        Identity {
            filesystem: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            made: Stat::from(found).made,
        }
    }
}

impl Moment {
    /// Whether this is not before the other one. For a filesystem with a resolution of seconds, the whole second counts.
    pub(super) fn is_since(self, other: Moment) -> bool {
        if self.1 == 0 { self.0 >= other.0 } else { self >= other }
    }
}

impl From<&Statx> for Stat {
    fn from(found: &Statx) -> Stat {
        let moment = |time: &StatxTimestamp| Moment(time.tv_sec, time.tv_nsec);
        let mode = RawMode::from(found.stx_mode);
        Stat {
            kind: match FileType::from_raw_mode(mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => Kind::Link,
                FileType::Fifo => Kind::Fifo,
                FileType::Socket => Kind::Socket,
                FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Device,
            },
            mode: mode & 0o7777,
            size: found.stx_size,
            inode: found.stx_ino,
            links: found.stx_nlink,
            uid: found.stx_uid,
            gid: found.stx_gid,
            modified: moment(&found.stx_mtime),
            changed: moment(&found.stx_ctime),
            made: (found.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| moment(&found.stx_btime)),
            device: (found.stx_rdev_major, found.stx_rdev_minor),
        }
    }
}

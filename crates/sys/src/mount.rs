//! The new mount API: a mount is a descriptor first and gets its place last.

use crate::caps::{check, last_errno};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen,
};
use std::ffi::CStr;

pub use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
pub use rustix::process::pivot_root;

/// What [`set_attributes`] turns on: linux/mount.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Nothing can be written through this mount.
    pub const READ_ONLY: Attributes = Attributes(libc::MOUNT_ATTR_RDONLY);
    /// Set-user-id bits and file capabilities mean nothing.
    pub const NO_SUID: Attributes = Attributes(libc::MOUNT_ATTR_NOSUID);
    /// Device nodes cannot be opened.
    pub const NO_DEV: Attributes = Attributes(libc::MOUNT_ATTR_NODEV);

    /// Both.
    pub const fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }
}

/// A detached copy of the mount at `path`, with everything mounted below it.
pub fn clone_tree(dir: impl AsFd, path: &CStr) -> Result<OwnedFd, Errno> {
    open_tree(dir.as_fd(), path, libc::AT_RECURSIVE as u32)
}

/// A detached copy of the mount at `path`, with nothing that is mounted below it.
pub fn clone_one(dir: impl AsFd, path: &CStr) -> Result<OwnedFd, Errno> {
    open_tree(dir.as_fd(), path, 0)
}

/// An empty path is `dir` itself.
fn open_tree(dir: BorrowedFd<'_>, path: &CStr, flags: u32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let flags = if path.is_empty() { flags | libc::AT_EMPTY_PATH as u32 } else { flags };
    // SAFETY: the descriptor is open and the path is NUL-terminated.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) };
    check(fd)?;
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// An overlay of directories that are named from the present directory, as a mount without a place. What is written to
/// `upper` lasts; `lower` is one directory or several, topmost first.
pub fn overlay(lower: &CStr, upper: &CStr, work: &CStr) -> Result<OwnedFd, Errno> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("source", c"belljar"), ("lowerdir", lower), ("upperdir", upper), ("workdir", work)]
    {
        fsconfig_set_string(&context, key, value)?;
    }
    // Marks in `user.*`: those that it uses otherwise belong to the host's root.
    fsconfig_set_flag(&context, "userxattr")?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// Shows what is at `source`, with everything mounted below it, at `target` too: one call, for paths that no other process can change.
pub fn bind(source: impl rustix::path::Arg, target: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::mount::mount_bind_recursive(source, target)
}

/// Puts a detached mount onto what `target` refers to.
pub fn attach(tree: impl AsFd, target: impl AsFd) -> Result<(), Errno> {
    move_mount(tree.as_fd(), target.as_fd(), c"", libc::MOVE_MOUNT_T_EMPTY_PATH)
}

/// Puts a detached mount onto `path` below `directory`; a link at its end is not followed.
pub fn attach_at(tree: impl AsFd, directory: impl AsFd, path: &CStr) -> Result<(), Errno> {
    move_mount(tree.as_fd(), directory.as_fd(), path, 0)
}

fn move_mount(tree: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &CStr, flags: u32) -> Result<(), Errno> {
    // SAFETY: both descriptors are open, both paths are NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            directory.as_raw_fd(),
            path.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | flags,
        )
    })
}

/// Which mounts a change of attributes reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only this one.
    One,
    /// Also everything mounted below.
    Below,
}

/// Turns attributes on.
pub fn set_attributes(mount: impl AsFd, attributes: Attributes, reach: Reach) -> Result<(), Errno> {
    mount_setattr(mount.as_fd(), reach, libc::mount_attr { attr_set: attributes.0, ..NO_CHANGE })
}

/// Takes back [`Attributes::READ_ONLY`] from one mount, and from nothing mounted below it.
pub fn make_writable(mount: impl AsFd) -> Result<(), Errno> {
    let change = libc::mount_attr { attr_clr: libc::MOUNT_ATTR_RDONLY, ..NO_CHANGE };
    mount_setattr(mount.as_fd(), Reach::One, change)
}

/// Shows the files of a detached mount under other ids: those of `user_namespace`.
pub fn map_ids(mount: impl AsFd, user_namespace: impl AsFd) -> Result<(), Errno> {
    let userns_fd = user_namespace.as_fd().as_raw_fd() as u64;
    let change = libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, userns_fd, ..NO_CHANGE };
    mount_setattr(mount.as_fd(), Reach::Below, change)
}

/// Lets no mount event travel between this mount namespace and the one it was copied from.
pub fn make_private(mount: impl AsFd) -> Result<(), Errno> {
    let change = libc::mount_attr { propagation: libc::MS_PRIVATE, ..NO_CHANGE };
    mount_setattr(mount.as_fd(), Reach::Below, change)
}

fn mount_setattr(mount: BorrowedFd<'_>, reach: Reach, change: libc::mount_attr) -> Result<(), Errno> {
    let recursive = match reach {
        Reach::One => 0,
        Reach::Below => libc::AT_RECURSIVE as u32,
    };
    // SAFETY: the descriptor is open, the path an empty NUL-terminated string, and `change` is a live struct of
    // the size that is passed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH as u32 | recursive,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == -1 { Err(last_errno()) } else { Ok(()) }
}

const NO_CHANGE: libc::mount_attr =
    libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };

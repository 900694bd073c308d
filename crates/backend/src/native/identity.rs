//! Who the sandbox's users are outside.

use crate::layout::{Layered, ROOT_ID, USER_ID};
use belljar_spec::{Admin, SandboxError, SandboxId};
use belljar_sys::launch::{Dying, with_user_namespace};
use belljar_sys::mount;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{CWD, Mode, OFlags, open, stat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{getegid, geteuid};
use belljar_wire::message::Step;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

/// The sandbox's users, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// One user: us. All that an ordinary user can have.
    Own { uid: u32, gid: u32, inside: u32 },
    /// A range of ids that belong to nobody.
    Range { first: u32, inside: u32 },
}

impl Identity {
    /// A range derived from the sandbox's id when we are root and have it to give; otherwise ours. Root in a rootless
    /// container is an ordinary user under another name.
    pub(crate) fn choose(id: SandboxId, admin: Admin) -> Identity {
        let inside = user_inside(admin);
        let first = FIRST_RANGE + (id.as_u64() % RANGES) as u32 * RANGE;
        let has_range = |map: &str| fs::read_to_string(map).is_ok_and(|map| maps(&map, first, RANGE));
        if geteuid().is_root() && has_range("/proc/self/uid_map") && has_range("/proc/self/gid_map") {
            Identity::Range { first, inside }
        } else {
            Identity::Own { uid: geteuid().as_raw(), gid: getegid().as_raw(), inside }
        }
    }

    /// The sandbox's user, as the host knows it.
    pub(crate) fn user_on_host(self) -> (u32, u32) {
        match self {
            Identity::Own { uid, gid, .. } => (uid, gid),
            Identity::Range { first, inside } => (first + inside, first + inside),
        }
    }

    /// Who else there is in a range: its root, or where the user is that, its usual user.
    fn other_on_host(self) -> u32 {
        match self {
            Identity::Own { uid, .. } => uid,
            Identity::Range { first, inside: ROOT_ID } => first + USER_ID,
            Identity::Range { first, .. } => first + ROOT_ID,
        }
    }

    /// What a process has to do to be the sandbox's user in a namespace that has this identity's maps.
    pub(super) fn step(self) -> Option<Step> {
        match self {
            // The map has made it so; its groups an ordinary user cannot shed.
            Identity::Own { .. } => None,
            Identity::Range { inside, .. } => Some(Step::BecomeUser { uid: inside, gid: inside }),
        }
    }

    /// Writes the maps of a namespace that waits at its gate.
    pub(super) fn write_maps(self, pid: u32) -> Result<(), Errno> {
        let (uids, gids) = match self {
            Identity::Own { uid, gid, inside } => {
                // Without this an ordinary user could shed a group that denies it something: user_namespaces(7).
                write(pid, "setgroups", "deny")?;
                (format!("{inside} {uid} 1"), format!("{inside} {gid} 1"))
            }
            Identity::Range { first, .. } => (format!("0 {first} {RANGE}"), format!("0 {first} {RANGE}")),
        };
        write(pid, "uid_map", &uids)?;
        write(pid, "gid_map", &gids)
    }
}

/// The sandbox's user, as the sandbox knows it.
pub(crate) fn user_inside(admin: Admin) -> u32 {
    match admin {
        Admin::No | Admin::User => USER_ID,
        Admin::Root => ROOT_ID,
    }
}

/// A mount that is passed to the guest.
pub(crate) struct Passed {
    mount: OwnedFd,
    /// A process that named its mapping, and need not be waited for before the guest knows all.
    _dying: Option<Dying>,
}

impl From<OwnedFd> for Passed {
    fn from(mount: OwnedFd) -> Passed {
        Passed { mount, _dying: None }
    }
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// A detached mount of `path` in which its owner is `identity`'s user, and everybody else is nobody.
pub(crate) fn mapped_mount(path: &Path, identity: Identity) -> Result<Passed, SandboxError> {
    mount_mapped(path, path, Ours::Nobodys, identity)
}

/// A detached mount of a layer's directory, which is ours, with what lies in it the folder's owner's: changes are owned by
/// who owns the folder.
pub(super) fn layer_mount(
    layer: &Layered,
    folder: &Path,
    identity: Identity,
) -> Result<Passed, SandboxError> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot use the layer `{}`: {error}", layer.directory.display());
        SandboxError::runtime("overlay_unusable", message)
    };
    let owner = fs::metadata(folder).map_err(failed)?;
    for name in [&layer.upper, &layer.work] {
        let directory = layer.directory.join(name);
        let found = fs::symlink_metadata(&directory).map_err(failed)?;
        if (found.uid(), found.gid()) != (owner.uid(), owner.gid()) {
            lchown(&directory, Some(owner.uid()), Some(owner.gid())).map_err(failed)?;
        }
    }
    mount_mapped(&layer.directory, folder, Ours::Roots, identity)
}

/// Whose the host root's files are inside.
#[derive(Clone, Copy)]
enum Ours {
    Nobodys,
    Roots,
}

fn mount_mapped(
    path: &Path,
    owned_like: &Path,
    ours: Ours,
    identity: Identity,
) -> Result<Passed, SandboxError> {
    let failed = |doing: &str, errno: Errno| {
        let message = format!("cannot {doing} `{}`: {errno}", path.display());
        SandboxError::runtime("share_failed", message)
    };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("open", Errno::INVAL))?;
    let cloned = match ours {
        // What was named was looked at under its real path, and must still be what is there.
        Ours::Nobodys => mount::clone_tree_of_real(&name),
        Ours::Roots => mount::clone_tree(CWD, &name),
    };
    let tree = cloned.map_err(|errno| failed("mount", errno))?;
    let owner = stat(owned_like).map_err(|errno| failed("look at", errno))?;
    let (uid, gid) = identity.user_on_host();
    let root = identity.other_on_host();
    let map = |owner: u32, user: u32| match (ours, owner) {
        (Ours::Nobodys, _) | (Ours::Roots, 0) => format!("{owner} {user} 1"),
        // Root's own files are those of the sandbox's root.
        (Ours::Roots, _) => format!("{owner} {user} 1\n0 {root} 1"),
    };
    let (namespace, dying) = namespace_with_maps(&map(owner.st_uid, uid), &map(owner.st_gid, gid))
        .map_err(|errno| failed("map the owner of", errno))?;
    mount::map_ids(&tree, namespace).map_err(|errno| match errno {
        Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM => {
            let message = format!(
                "the filesystem of `{}` cannot show its files under another user ({errno}), and without that the \
                 sandbox would have to be root",
                path.display()
            );
            SandboxError::unavailable("idmap_unsupported", message)
                .hint("run belljar as the owner of the folder instead of root, or copy the folder to ext4, xfs, btrfs or tmpfs")
        }
        other => failed("map the owner of", other),
    })?;
    Ok(Passed { mount: tree, _dying: Some(dying) })
}

/// A user namespace that exists only to name a mapping.
fn namespace_with_maps(uids: &str, gids: &str) -> Result<(OwnedFd, Dying), Errno> {
    let (namespace, dying) = with_user_namespace(|pid| {
        write(pid, "uid_map", uids)?;
        write(pid, "gid_map", gids)?;
        open(format!("/proc/{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    })?;
    Ok((namespace?, dying))
}

/// Whether a namespace has these ids: one line of its map must cover them all (user_namespaces(7)).
fn maps(map: &str, first: u32, count: u32) -> bool {
    let covers = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        match (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten()) {
            (Some(inside), Some(_), Some(length)) => {
                inside <= u64::from(first) && u64::from(first) + u64::from(count) <= inside + length
            }
            _ => false,
        }
    };
    map.lines().any(covers)
}

fn write(pid: u32, file: &str, content: &str) -> Result<(), Errno> {
    fs::write(format!("/proc/{pid}/{file}"), content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Above what distributions and systemd hand out (docs of systemd, "Users, Groups, UIDs and GIDs").
const FIRST_RANGE: u32 = 0x7000_0000;
/// Ids in one range.
const RANGE: u32 = 0x1_0000;
/// How many there are below the sign bit.
const RANGES: u64 = 0x0ff0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_be_in_the_map() {
        for (map, has) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 0 1879048192\n", false),
            ("1879048192 5 65536\n", true),
            ("1879048192 5 65535\n", false),
            ("", false),
            ("0 0\n", false),
        ] {
            assert_eq!(maps(map, FIRST_RANGE, RANGE), has, "{map}");
        }
    }
}

//! Which users of the host the sandbox's users are.

use super::check::remedy_for_root;
use crate::layout::{Layered, ROOT_ID, USER_ID};
use belljar_spec::{Admin, ErrorCode, SandboxError, SandboxId};
use belljar_sys::ids;
use belljar_sys::launch::{Dying, with_user_namespace};
use belljar_sys::mount;
use belljar_sys::opened::OpenedPath;
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_sys::rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, open, statat};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{getegid, geteuid};
use belljar_wire::message::Step;
use std::fs;
use std::path::Path;

/// The sandbox's users, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// One user: us. All that an ordinary user can have.
    Own { uid: u32, gid: u32, inside: u32 },
    /// A range of ids that no user has.
    Range { first: u32, inside: u32 },
}

impl Identity {
    /// A range derived from the sandbox's id when we are root and have it to give; otherwise ours. Root in a rootless
    /// container is an ordinary user under another name.
    ///
    /// Refuses to make a sandbox's user of the machine's root: even without capabilities root owns `/proc/sys`, and may write there.
    pub(crate) fn choose(id: SandboxId, admin: Admin) -> Result<Identity, SandboxError> {
        let inside = user_inside(admin);
        let first = first_of(id);
        if !ids::are_ours(first..first + RANGE) {
            return if ids::is_root_outside() {
                Err(no_identity("root has no other user ids to give here, and the sandbox would be root"))
            } else {
                Ok(Identity::Own { uid: geteuid().as_raw(), gid: getegid().as_raw(), inside })
            };
        }
        if !ids::may_mount() {
            let reason = "root may not mount here (it lacks CAP_SYS_ADMIN), so no folder can be shown to the sandbox's user";
            return Err(no_identity(reason));
        }
        Ok(Identity::Range { first, inside })
    }

    /// The sandbox's user, as the host knows it.
    pub(crate) fn user_on_host(self) -> (u32, u32) {
        match self {
            Identity::Own { uid, gid, .. } => (uid, gid),
            Identity::Range { first, inside } => (first + inside, first + inside),
        }
    }

    /// The other user in a range: its root, or where the user is that, its usual user.
    fn other_on_host(self) -> u32 {
        match self {
            Identity::Own { uid, .. } => uid,
            Identity::Range { first, inside: ROOT_ID } => first + USER_ID,
            Identity::Range { first, .. } => first + ROOT_ID,
        }
    }

    /// A container has no users of its own, and its files may be served by another process: gVisor's file server, which is
    /// root, makes each as its own before it gives it to its owner. For that moment it belongs to `nobody`.
    fn server(self, owner: u32) -> String {
        match self {
            Identity::Range { first: 0, .. } => {
                format!("\n{} 0 1", if owner == NOBODY { NOBODY - 1 } else { NOBODY })
            }
            Identity::Range { .. } | Identity::Own { .. } => String::new(),
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

fn no_identity(reason: &str) -> SandboxError {
    ErrorCode::BackendUnavailable.error(reason).hint(remedy_for_root())
}

/// The user of a container, inside and outside: it has no user namespace that could make two of them. No user has the
/// number, and every sandbox has another one: a host user with it could reach the container's processes, and through them
/// what it is shown.
pub(crate) fn user_of_container(id: SandboxId) -> u32 {
    first_of(id) + USER_ID
}

fn first_of(id: SandboxId) -> u32 {
    ids::SANDBOXES.start + (id.as_u64() % RANGES) as u32 * RANGE
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

/// A detached mount of what was judged, in which its owner is `identity`'s user, and all other users are `nobody`.
pub(crate) fn mapped_mount(judged: &OpenedPath, identity: Identity) -> Result<Passed, SandboxError> {
    mount_mapped(judged, judged.owner(), Ours::Unmapped, identity)
}

/// A detached mount of a layer's directory, which is ours, with what lies in it the folder's owner's: changes are owned by
/// the owner of the folder.
pub(super) fn layer_mount(
    layer: &Layered,
    directory: &OpenedPath,
    folder: &OpenedPath,
    identity: Identity,
) -> Result<Passed, SandboxError> {
    let failed = |errno: Errno| {
        let message = format!("cannot use the layer `{}`: {errno}", layer.directory.display());
        ErrorCode::WorkspaceFailed.error(message).caused_by(errno)
    };
    let (uid, gid) = folder.owner();
    for name in [&layer.upper, &layer.work] {
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if (found.st_uid, found.st_gid) != (uid, gid) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        }
    }
    mount_mapped(directory, folder.owner(), Ours::Roots, identity)
}

/// Which users a sandbox has, where it has a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// All of the range.
    All,
    /// Its user alone, to whom root's files belong.
    One,
}

/// Detached mounts of directories that hold a root's files, with the ids of its own users in them.
pub(super) fn root_mounts(
    directories: &[&OpenedPath],
    identity: Identity,
    users: Users,
) -> Result<Vec<Passed>, SandboxError> {
    let failed = |path: &Path, errno: Errno| {
        let message = format!("cannot mount the root from `{}`: {errno}", path.display());
        ErrorCode::ImageFailed.error(message)
    };
    let (user, _) = identity.user_on_host();
    let map = match (identity, users) {
        (Identity::Range { first, .. }, Users::All) => format!("0 {first} {RANGE}"),
        _ => format!("0 {user} 1"),
    };
    let mut namespace = None;
    let mut mounts = Vec::new();
    for directory in directories {
        let path = directory.path();
        if namespace.is_none() {
            namespace = Some(namespace_with_maps(&map, &map).map_err(|errno| failed(path, errno))?);
        }
        let Some((mapping, _)) = &namespace else { continue };
        // Alone: what is mounted below it is no part of the root.
        let mount = mount::clone_one(directory, c"").map_err(|errno| failed(path, errno))?;
        mount::map_ids(&mount, mapping).map_err(|errno| match errno {
            Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM => no_mapping(path, errno),
            other => failed(path, other),
        })?;
        mounts.push(Passed::from(mount));
    }
    if let (Some(last), Some((_, dying))) = (mounts.last_mut(), namespace) {
        last._dying = Some(dying);
    }
    Ok(mounts)
}

fn no_mapping(path: &Path, errno: Errno) -> SandboxError {
    let message = format!(
        "the filesystem of `{}` cannot show its files under another user ({errno}), and without that the sandbox would have \
         to be root",
        path.display()
    );
    ErrorCode::NotSupported.error(message)
        .hint(
            "run belljar as the owner of the folder instead of root, or copy the folder to ext4, xfs, btrfs or tmpfs (in a \
             container: to a volume)",
        )
}

/// Whose the host root's files are inside.
#[derive(Clone, Copy)]
enum Ours {
    Unmapped,
    Roots,
}

/// A copy of what was judged, which carries nothing that is mounted on it back to the host, as that of a mount would that the
/// host shares.
pub(super) fn private_copy(judged: &OpenedPath) -> Result<OwnedFd, SandboxError> {
    let copied = mount::clone_tree(judged, c"").and_then(|tree| {
        mount::make_private(&tree)?;
        Ok(tree)
    });
    copied.map_err(|errno| {
        let message = format!("cannot mount `{}`: {errno}", judged.path().display());
        ErrorCode::StartFailed.error(message).caused_by(errno)
    })
}

fn mount_mapped(
    judged: &OpenedPath,
    (owner, group): (u32, u32),
    ours: Ours,
    identity: Identity,
) -> Result<Passed, SandboxError> {
    let path = judged.path();
    let failed = |doing: &str, errno: Errno| {
        let message = format!("cannot {doing} `{}`: {errno}", path.display());
        ErrorCode::StartFailed.error(message)
    };
    let tree = private_copy(judged)?;
    let (uid, gid) = identity.user_on_host();
    let root = identity.other_on_host();
    let map = |owner: u32, user: u32| match (ours, owner) {
        (Ours::Unmapped, _) | (Ours::Roots, 0) => format!("{owner} {user} 1{}", identity.server(owner)),
        // Root's own files are those of the sandbox's root.
        (Ours::Roots, _) => format!("{owner} {user} 1\n0 {root} 1"),
    };
    let (namespace, dying) = namespace_with_maps(&map(owner, uid), &map(group, gid))
        .map_err(|errno| failed("map the owner of", errno))?;
    mount::map_ids(&tree, namespace).map_err(|errno| match errno {
        Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM => no_mapping(path, errno),
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

fn write(pid: u32, file: &str, content: &str) -> Result<(), Errno> {
    fs::write(format!("/proc/{pid}/{file}"), content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The id of all users that have none here (/proc/sys/kernel/overflowuid).
const NOBODY: u32 = 65_534;
/// Ids in one range.
const RANGE: u32 = 0x1_0000;
/// How many there are.
const RANGES: u64 = ((ids::SANDBOXES.end - ids::SANDBOXES.start) / RANGE) as u64;

//! What the guest does before the first command exists.

use super::{Bytes, EgressReport, EgressSetup, Fault};
use serde::{Deserialize, Serialize};

/// Everything the guest needs to know, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Must equal [`VERSION`].
    pub version: u16,
    /// Carried out in order.
    pub steps: Vec<Step>,
    /// What the guest closes behind itself.
    pub confinement: Confinement,
    /// Where file operations are held.
    pub files: FileRoot,
    /// The directory that relative paths start from.
    pub workspace: String,
}

/// One step of building the sandbox's world. Targets are relative to the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Make an empty tmpfs the new root; every later target lies in it.
    NewRoot,
    /// A directory.
    Dir { target: String, mode: u32 },
    /// A file with this content.
    File { target: String, mode: u32, content: Bytes },
    /// A symbolic link.
    Symlink { target: String, to: String },
    /// One filesystem for all private directories, so that one number limits them together. Made before the new
    /// root, over a directory (`cover`) that goes away with what is there now.
    Private { cover: String, bytes: u64, inodes: u64, modes: Vec<u32> },
    /// A part of the host's filesystem.
    Bind { source: Source, target: String, kind: NodeKind, access: Access },
    /// The next directory of the private filesystem.
    PrivateDir { target: String },
    /// Unmount the topmost mount at this path.
    Unmount { target: String },
    /// Remove an empty directory.
    RemoveDir { target: String },
    /// A proc filesystem of the sandbox's own.
    Proc { target: String },
    /// Pseudo-terminals of the sandbox's own.
    DevPts { target: String },
    /// Hide what is there: nothing in it can be read, written or connected to. Where nothing is, there is nothing to hide, unless it
    /// `must_exist`: then it was there a moment ago and has another name now.
    Mask { target: String, must_exist: bool },
    /// Show a read-only file with this content in the place of a file that was there a moment ago.
    Cover { target: String, content: Bytes },
    /// Make the new root `/`, and let go of the old one.
    Pivot,
    /// Make `/` itself read-only.
    ReadOnlyRoot,
    /// Set the host name.
    Hostname { name: String },
    /// Become this user of the sandbox, and leave every group behind.
    BecomeUser { uid: u32, gid: u32 },
    /// Be in a network namespace of the sandbox's own, with nothing in it but the loopback interface and its egress
    /// sockets, if it has any. The guest entered it before the setup arrived, and an earlier message named the sockets: the
    /// same `egress setup`.
    EnterNetwork { egress: Option<EgressSetup> },
    /// Open the egress sockets in the network namespace that we are in.
    OpenEgress(EgressSetup),
    /// Write to a file of the new root (a sysctl), if it exists.
    Write { target: String, content: String },
    /// Become the reaper of all descendants, where the guest is not process 1.
    Subreaper,
    /// A folder of the host with a layer over it that takes all changes. `layer` is a directory that holds `upper` and
    /// `work`; nothing else of it is seen. `mountpoints` are seen where the folder has nothing. With `lowers`, directories that are named from
    /// the folder, topmost first, they are what lies below, and nothing else of the folder is seen.
    Overlay {
        target: String,
        folder: Source,
        layer: Source,
        upper: String,
        work: String,
        mountpoints: Vec<Mountpoint>,
        lowers: Vec<String>,
    },
    /// Make layers the new root; every later target lies in it. `lowers` are named from `holder`, topmost first; over them
    /// lie `mountpoints` and `links` (path, destination), owned by `owner` if that is another user. `layer` is a directory
    /// that holds `upper` and `work`, and takes all changes; without it the private filesystem does. `sealed` are earlier changes, right below
    /// the present ones: a directory, and what of it lies over each other, topmost first.
    RootOverlay {
        holder: Source,
        lowers: Vec<String>,
        layer: Option<Source>,
        mountpoints: Vec<Mountpoint>,
        links: Vec<(String, String)>,
        owner: Option<(u32, u32)>,
        sealed: Option<(Source, Vec<String>)>,
    },
    /// Make an empty tmpfs at this absolute path of the present mount namespace, which is the host's, the new root: the
    /// container runtime mounts what is put together there. No mount travels from it to the host's or back.
    Stage { place: String },
    /// Unmount what covers this absolute path; what the path holds stays where it was put.
    Uncover { cover: String },
    /// Make files as this user, and keep every capability: where there is no user namespace to become another user in.
    ActAs { uid: u32, gid: u32 },
    /// Enter the network namespace of the process whose handle came with the setup stream; nothing is in it yet.
    JoinNetwork,
    /// Another process opened the egress sockets in the network namespace that we are in; `report` says how far that went.
    NetworkIsReady { egress: Option<EgressSetup>, report: Option<EgressReport> },
    /// Open the egress sockets without any capability over the network: a listener for each port that may be dialled.
    /// Connections go to the host as streams.
    RelayEgress(EgressSetup),
    /// Make a directory that was prepared on the host the new root, read-only. `holds` are the directories, and the files to
    /// mount onto, that later steps find in it.
    PreparedRoot { source: Source, holds: Vec<String> },
    /// Turn this on for everything that is mounted in the new root by now, the root included.
    Restrict(Restriction),
    /// A directory of the private filesystem with these files (name, content), mounted read-only.
    OwnFiles { target: String, files: Vec<(String, Bytes)> },
}

/// A mount point: a path that is seen inside although the folder or image has nothing there, because a mount needs one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mountpoint {
    /// Relative, in its plainest spelling; parents first.
    pub path: String,
    pub kind: MountpointKind,
}

/// What kind of file a mount point is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountpointKind {
    /// An empty directory.
    Directory,
    /// A file with this content.
    File(Bytes),
}

/// Where a bind comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A path of the host.
    Path(String),
    /// The n-th mount that came with the setup stream (already detached, and mapped to the sandbox's user).
    Passed(u8),
    /// What earlier steps made this place of the new root, which no link may lead to. The target may be the same place: what
    /// is mounted onto itself can be neither moved nor removed, and can be read-only.
    Inside(String),
    /// What was planted at this place over a root of layers, whatever the layers say of it: neither a command's changes nor those
    /// of an earlier life are seen in it.
    Planted(String),
    /// A path of the host that leads over no link to the file with this identity, which was judged and is still open on the
    /// host. Any other file there is refused (`ESTALE`).
    Judged { path: String, device: u64, inode: u64 },
    /// The guest's own program, as a file.
    OwnProgram,
    /// A program with this content, as a file.
    Script(Bytes),
}

/// Whether a bind's target is a directory or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

/// How a bind may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading and running.
    ReadOnly,
    /// Writing too.
    ReadWrite,
    /// A device node: read and write, and it stays a device.
    Device,
    /// Writing too, inside of something that earlier steps made read-only.
    Reopened,
    /// What a later [`Step::Restrict`] makes of it, together with others: one call of the kernel for all of them.
    Restricted,
}

/// What mounts lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restriction {
    /// Nothing can be written, set-user-id bits mean nothing, and devices cannot be opened.
    ReadOnly,
    /// Set-user-id bits mean nothing.
    NoSetuid,
}

/// What is closed after the steps, before the first command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Resource limits (number, value), soft and hard, of every command.
    pub rlimits: Vec<(u32, u64)>,
    /// Whether anything is given up at all.
    pub privileges: Privileges,
    /// Which system calls stay.
    pub syscalls: Syscalls,
    /// A second layer of isolation around the filesystem, where the kernel has Landlock.
    pub landlock: Option<Landlock>,
    /// Isolation without namespaces, in the place of the two before.
    pub supervision: Option<Supervision>,
}

/// How commands are confined among the processes and paths of the host: by Landlock, and by a supervisor on the host that answers
/// their system calls. The guest itself has Landlock's rules alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervision {
    /// The newest version of Landlock that may be used; it is there.
    pub landlock_abi: u32,
    /// Absolute paths that may be used, and how; all others are closed. One that does not exist is passed over.
    pub paths: Vec<(String, PathUse)>,
}

/// What may be done with a path of the host, and with all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathUse {
    /// Reading, listing and running.
    Read,
    /// Listing.
    List,
    /// Everything.
    Write,
    /// Reading and writing what is there.
    Device,
}

/// The numbers (first, how many) that the supervisor gives to descriptors that stand for UDP sockets. The filter knows them by it
/// (crates/guest/build/table.rs).
pub const WINDOWS: [(u32, u32); 2] = [(960, 64), (3584, 512)];

/// From this version of Landlock on a signal reaches no process outside (`LANDLOCK_SCOPE_SIGNAL`, Linux 6.12).
pub const LANDLOCK_WITH_SCOPES: u32 = 6;
/// From this version on truncating is a right of its own (Linux 6.2). What is older is of no use.
pub const OLDEST_LANDLOCK: u32 = 3;

/// What becomes of the powers that the guest was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privileges {
    /// No capability, and no program brings any back.
    Dropped,
    /// As they are: where there is no isolation, and commands run as the user who started the sandbox.
    Unchanged,
    /// Kept are those that root inside needs to maintain a system of its own: to give files to its users, and to become
    /// them. They mean nothing outside of its user namespace.
    Maintainer,
}

/// The choice of seccomp filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Syscalls {
    /// The allow-list.
    Default,
    /// The allow-list and what namespaces inside need.
    Nested,
}

/// Paths inside that may be written; everything else may be read only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landlock {
    /// Absolute paths inside. `None`: only signals and abstract sockets are scoped.
    pub writable: Option<Vec<String>>,
}

/// Where file operations are held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRoot {
    /// The kernel holds them: all that is visible is the sandbox's.
    Sandbox,
    /// The host's paths are visible: the kernel resolves every path beneath one of these directories or not at all.
    Beneath(Vec<String>),
}

/// The answer to `Setup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetupReply {
    /// Confined; requests are welcome.
    Ready(Confined),
    /// This step failed.
    Failed(Fault),
}

/// What the guest could close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// The Landlock ABI in force; 0 means that the kernel has none.
    pub landlock_abi: u32,
    /// The egress sockets, which wait at the control socket.
    pub egress: Option<EgressReport>,
    /// The listener of the filter, which waits there in their place: for the supervisor.
    pub is_supervised: bool,
}

//! The messages. `Setup` goes in once, on the first stream; then each stream carries one `Request` and what
//! belongs to it. Field and variant order is the encoding: add at the end, and raise [`VERSION`].

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Both sides must say the same number.
pub const VERSION: u16 = 8;

// ---------------------------------------------------------------------------------------------------------
// Setup: what the guest does before the first command exists.

/// Everything the guest needs to know, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Must equal [`VERSION`].
    pub version: u16,
    /// Carried out in order.
    pub steps: Vec<Step>,
    /// What the guest closes behind itself.
    pub seal: Seal,
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
    /// Take the topmost mount at this place away.
    Unmount { target: String },
    /// Take an empty directory away.
    RemoveDir { target: String },
    /// A proc filesystem of the sandbox's own.
    Proc { target: String },
    /// Pseudo-terminals of the sandbox's own.
    DevPts { target: String },
    /// Hide what is there, if it is there: nothing in it can be read, written or connected to.
    Mask { target: String },
    /// Make the new root `/`, and let go of the old one.
    Pivot,
    /// Let nobody write to `/` itself any more.
    ReadOnlyRoot,
    /// Set the host name.
    Hostname { name: String },
    /// Become this user of the sandbox, and leave every group behind.
    BecomeUser { uid: u32, gid: u32 },
    /// Enter a network namespace of the sandbox's own, with nothing in it but the loopback interface, and its way out
    /// if it has one. It is made beside the steps before this one.
    EnterNetwork { intake: Option<Intake> },
    /// Open the way out in the network namespace that we are in.
    OpenIntake(Intake),
    /// Write to a file of the new root (a sysctl), if it exists.
    Write { target: String, content: String },
    /// Become the reaper of all descendants, where the guest is not process 1.
    Subreaper,
    /// A folder of the host with a layer over it that takes all changes. `layer` is a directory that holds `upper` and
    /// `work`; nothing else of it is seen. `stubs` are seen where the folder has nothing.
    Overlay { target: String, folder: Source, layer: Source, upper: String, work: String, stubs: Vec<Stub> },
    /// Make layers the new root; every later target lies in it. `lowers` are named from `holder`, topmost first; over them lie
    /// `stubs` and `links` (place, destination), owned by `owner` if that is somebody else. `layer` is a directory that holds
    /// `upper` and `work`, and takes all changes; without it the private filesystem does.
    RootOverlay {
        holder: Source,
        lowers: Vec<String>,
        layer: Option<Source>,
        stubs: Vec<Stub>,
        links: Vec<(String, String)>,
        owner: Option<(u32, u32)>,
    },
    /// Make an empty tmpfs at this absolute path of the present mount namespace, which is the host's, the new root: what is
    /// put together there is shown to a container by somebody else. No mount travels from it to the host's or back.
    Stage { place: String },
    /// Take what covers this absolute path away again; what it holds stays where it was put.
    Uncover { cover: String },
    /// Make files as this user, and keep every power: where there is no user namespace to be somebody else in.
    ActAs { uid: u32, gid: u32 },
    /// Enter the network namespace of the process whose handle came with the setup stream; nothing is in it yet.
    JoinNetwork,
    /// Somebody else opened the way out of the network namespace that we are in; `report` says how far that went.
    NetworkIsReady { intake: Option<Intake>, report: Option<IntakeReport> },
    /// Open the way out without any power over the network: a listener for each port that may be dialled. Connections go to the
    /// host as streams.
    RelayIntake(Intake),
}

/// Something that is not there and is seen all the same: whoever mounts needs a place for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stub {
    /// Relative, in its plainest spelling; parents first.
    pub path: String,
    pub kind: StubKind,
}

/// What a stub is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StubKind {
    /// An empty directory.
    Directory,
    /// A file with this content.
    File(Bytes),
}

/// The sandbox's way out: sockets that the host serves. They go to the host through the door, before the answer to
/// the setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    /// What is dialled by name, if anything may be.
    pub catch: Option<Catch>,
    /// The ports of the loopback addresses where programs find what the host serves to them: a model, its repository.
    pub routes: Vec<u16>,
}

/// How whatever is dialled arrives at the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catch {
    /// The sandbox's own addresses. Every other address is local too.
    pub ipv4: [u8; 4],
    pub ipv6: [u8; 16],
    /// Every TCP port leads to this one, which no command can bind.
    pub port: u16,
    /// Where the kernel cannot do that: only these have a listener.
    pub ports_without_netfilter: Vec<u16>,
}

/// What became of an intake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntakeReport {
    pub families: Families,
    pub caught: Caught,
    /// So many of the descriptors are TCP listeners; behind them are UDP sockets that names are asked at.
    pub listeners: u16,
    /// At the end are the TCP listeners of the routes: so many for each port, in the order in which they were asked for.
    pub routes: Vec<u16>,
}

/// Which addresses the sandbox's network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Families {
    /// IPv4 only: the kernel has IPv6 switched off.
    Ipv4,
    /// IPv4 and IPv6.
    Both,
}

/// Which connections arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caught {
    /// All of them, with the destination to be read from the socket (SO_ORIGINAL_DST).
    EveryPort,
    /// Those to some ports; the socket's own address is the destination.
    SomePorts,
    /// None: only routes are open.
    Nothing,
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
}

/// What is closed after the steps, before the first command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Resource limits (number, value), soft and hard, of every command.
    pub rlimits: Vec<(u32, u64)>,
    /// Whether anything is given up at all.
    pub privileges: Privileges,
    /// Which system calls stay.
    pub syscalls: Syscalls,
    /// A second wall around the filesystem, where the kernel has it.
    pub landlock: Option<Landlock>,
}

/// What becomes of the powers that the guest was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privileges {
    /// No capability, and no program brings any back.
    Dropped,
    /// As they are: where there is no wall, and commands run as who asked for them.
    Kept,
    /// Those stay that whoever is root inside needs to maintain a system of its own: to give files to its users, and to become
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
    /// No wall around us: the kernel resolves every path beneath this directory or not at all.
    Beneath(String),
}

/// The answer to `Setup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetupReply {
    /// Sealed; requests are welcome.
    Ready(Sealed),
    /// This step failed.
    Failed(Fault),
}

/// What the guest could close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The Landlock ABI in force; 0 means that the kernel has none.
    pub landlock_abi: u32,
    /// The way out; its sockets are waiting at the door.
    pub intake: Option<IntakeReport>,
}

// ---------------------------------------------------------------------------------------------------------
// Requests: one a stream.

/// The first message of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a command; `ExecControl` and `Stdin` frames follow, `ExecEvent` and output frames come back. Closing
    /// the host's direction of the stream kills the command and all that descends from it: that gets through
    /// even when standard input is stuck.
    Exec(Exec),
    /// Send a file: `Reply::Opened`, `Data` frames, an empty one at the end.
    Read { path: String },
    /// Take a file: `Reply::Opened`, then `Data` frames come in, an empty one at the end, then `Reply::Done`. A stream that
    /// ends before the empty one leaves what was there before.
    Write { path: String },
    /// Make a directory.
    Mkdir { path: String, recursive: bool },
    /// List a directory: `Reply::Entries`, an empty one at the end.
    ReadDir { path: String },
    /// Remove a file or directory.
    Remove { path: String, recursive: bool },
    /// Describe a path without following a last link.
    Stat { path: String },
    /// Give a file or directory another name; a file that has it is replaced.
    Rename { from: String, to: String },
    /// Connect to a port of the sandbox's own loopback: `Reply::Opened`, with the connected socket beside it.
    Connect { port: u16 },
    /// Stop every process but the guest.
    Pause,
    /// Let those go on that `Pause` stopped.
    Resume,
    /// Say what changes in a directory: `Reply::Opened`, then `Reply::Changes` until the host closes its direction. An empty
    /// one is the last: the directory itself is gone.
    Watch { path: String, recursive: bool },
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments; never empty.
    pub argv: Vec<Bytes>,
    /// All of its environment.
    pub env: Vec<(Bytes, Bytes)>,
    /// Where it starts; relative to the workspace.
    pub cwd: String,
    /// What its standard streams are.
    pub stdio: Stdio,
}

/// A command's standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// Three pipes.
    Pipes,
    /// One terminal of this size.
    Terminal(WindowSize),
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// What the host says to a running command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecControl {
    /// No more standard input.
    CloseStdin,
    /// The terminal has a new size.
    Resize(WindowSize),
    /// A signal for the command's process group.
    Signal(i32),
}

/// What the guest says of a command. The last one ends the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecEvent {
    /// It ended.
    Ended { ending: Ending, disk: Disk },
    /// It never started.
    NotStarted(Fault),
    /// Its supervisor was killed from inside; the guest has killed every command.
    SupervisorLost,
    /// It never started: the sandbox is paused.
    Paused,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Whether the sandbox's private filesystem still takes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disk {
    /// It does.
    Free,
    /// It is full.
    Full,
}

/// What comes back for a file operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// The file is open; its pieces follow.
    Opened,
    /// Some of a directory's entries.
    Entries(Vec<Entry>),
    /// What a path is.
    Metadata(Metadata),
    /// It could not be done.
    Failed(Fault),
    /// What changed in a directory that is watched, in this order.
    Changes(Vec<Change>),
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// Where, relative to the directory that is watched; empty for itself.
    pub path: Bytes,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It is there now.
    Created,
    /// Its content or its metadata changed.
    Modified,
    /// It is not there any more.
    Removed,
    /// More happened, below this path, than could be told.
    Overflow,
}

/// A directory's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: Bytes,
    /// What it is.
    pub kind: EntryKind,
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a device, a pipe.
    Other,
}

/// The answer to `Stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What it is.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Last change of the contents, in milliseconds since 1970.
    pub mtime_ms: i64,
}

/// What went wrong, as the kernel said it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What was being done, with its object: "mount proc at /proc".
    pub doing: String,
    /// The kernel's error number; 0 when it was not the kernel that refused.
    pub errno: i32,
}

/// Bytes that are taken as a whole: serde would take a `Vec<u8>` one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }
}

/// A message as bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Every type of this module is finite and has a known length, which is all postcard asks for.
    postcard::to_allocvec(message).expect("messages of this module always serialize")
}

/// A message from bytes; `None` for anything else, trailing bytes included.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_messages() {
        let exec = Request::Exec(Exec {
            argv: vec![Bytes(b"true".to_vec())],
            env: vec![(Bytes(b"A".to_vec()), Bytes(b"b".to_vec()))],
            cwd: "/w".into(),
            stdio: Stdio::Terminal(WindowSize { rows: 24, cols: 80 }),
        });
        assert_eq!(
            encode(&exec),
            [0, 1, 4, b't', b'r', b'u', b'e', 1, 1, b'A', 1, b'b', 2, b'/', b'w', 1, 24, 80]
        );
        assert_eq!(encode(&ExecEvent::Ended { ending: Ending::Exited(1), disk: Disk::Free }), [0, 0, 2, 0]);
        assert_eq!(
            encode(&ExecEvent::Ended { ending: Ending::Signaled(9), disk: Disk::Full }),
            [0, 1, 18, 1]
        );
        assert_eq!(encode(&ExecControl::Signal(15)), [2, 30]);
        assert_eq!(encode(&SetupReply::Ready(Sealed { landlock_abi: 7, intake: None })), [0, 7, 0]);
        let intake = IntakeReport {
            families: Families::Both,
            caught: Caught::Nothing,
            listeners: 0,
            routes: vec![2, 1],
        };
        assert_eq!(
            encode(&SetupReply::Ready(Sealed { landlock_abi: 7, intake: Some(intake) })),
            [0, 7, 1, 1, 2, 0, 2, 2, 1]
        );
    }

    #[test]
    fn golden_bytes_of_what_living_sandboxes_need() {
        let rename = Request::Rename { from: "a".into(), to: "b".into() };
        assert_eq!(encode(&rename), [7, 1, b'a', 1, b'b']);
        assert_eq!(encode(&Request::Connect { port: 8080 }), [8, 0x90, 0x3f]);
        assert_eq!(encode(&Request::Pause), [9]);
        assert_eq!(encode(&Request::Resume), [10]);
        assert_eq!(encode(&Request::Watch { path: ".".into(), recursive: true }), [11, 1, b'.', 1]);
        assert_eq!(encode(&ExecEvent::Paused), [3]);
        let change = |kind, path: &[u8]| Change { kind, path: Bytes(path.to_vec()) };
        let changes = vec![change(ChangeKind::Created, b"f"), change(ChangeKind::Overflow, b"")];
        assert_eq!(encode(&Reply::Changes(changes)), [5, 2, 0, 1, b'f', 3, 0]);
    }

    #[test]
    fn golden_bytes_of_an_intake() {
        let routes = Intake { catch: None, routes: vec![8080, 9418] };
        assert_eq!(encode(&Step::OpenIntake(routes)), [17, 0, 2, 0x90, 0x3f, 0xca, 0x49]);
        let catch =
            Catch { ipv4: [198, 18, 0, 1], ipv6: [6; 16], port: 1, ports_without_netfilter: vec![443] };
        let mut expected = vec![17, 1, 198, 18, 0, 1];
        expected.extend([6; 16]);
        expected.extend([1, 1, 0xbb, 0x03, 0]);
        assert_eq!(encode(&Step::OpenIntake(Intake { catch: Some(catch), routes: Vec::new() })), expected);
    }

    #[test]
    fn golden_bytes_of_a_root_of_layers() {
        let root = Step::RootOverlay {
            holder: Source::Passed(1),
            lowers: vec!["b".into(), "a".into()],
            layer: None,
            stubs: vec![Stub { path: "d".into(), kind: StubKind::Directory }],
            links: vec![("l".into(), "/d".into())],
            owner: Some((0, 0)),
        };
        let bytes = [21, 1, 1, 2, 1, b'b', 1, b'a', 0, 1, 1, b'd', 0, 1, 1, b'l', 2, b'/', b'd', 1, 0, 0];
        assert_eq!(encode(&root), bytes);
        assert_eq!(decode(&bytes), Some(root));
    }

    #[test]
    fn golden_bytes_of_what_a_container_needs() {
        assert_eq!(encode(&Step::Stage { place: "/s".into() }), [22, 2, b'/', b's']);
        assert_eq!(encode(&Step::Uncover { cover: "/s".into() }), [23, 2, b'/', b's']);
        assert_eq!(encode(&Step::ActAs { uid: 1, gid: 2 }), [24, 1, 2]);
        assert_eq!(encode(&Step::JoinNetwork), [25]);
        assert_eq!(encode(&Step::NetworkIsReady { intake: None, report: None }), [26, 0, 0]);
        let routes = Intake { catch: None, routes: vec![80] };
        assert_eq!(encode(&Step::RelayIntake(routes)), [27, 0, 1, 80]);
    }

    #[test]
    fn golden_bytes_of_an_overlay() {
        let stub = |path: &str, kind: StubKind| Stub { path: path.into(), kind };
        let overlay = Step::Overlay {
            target: "w".into(),
            folder: Source::Path("/f".into()),
            layer: Source::Passed(1),
            upper: "u".into(),
            work: "k".into(),
            stubs: vec![stub("d", StubKind::Directory), stub("f", StubKind::File(Bytes(b".".to_vec())))],
        };
        let expected =
            [20, 1, b'w', 0, 2, b'/', b'f', 1, 1, 1, b'u', 1, b'k', 2, 1, b'd', 0, 1, b'f', 1, 1, b'.'];
        assert_eq!(encode(&overlay), expected);
        let held = Step::Bind {
            source: Source::Inside("w".into()),
            target: "w".into(),
            kind: NodeKind::Directory,
            access: Access::ReadOnly,
        };
        assert_eq!(encode(&held), [5, 2, 1, b'w', 1, b'w', 0, 0]);
        assert_eq!(encode(&Source::Planted("p".into())), [3, 1, b'p']);
        assert_eq!(encode(&Access::Reopened), [3]);
    }

    #[test]
    fn trailing_bytes_are_not_a_message() {
        let mut bytes = encode(&ExecControl::CloseStdin);
        bytes.push(0);
        assert_eq!(decode::<ExecControl>(&bytes), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512)) {
            let _ = decode::<ExecEvent>(&bytes);
            let _ = decode::<Reply>(&bytes);
            let _ = decode::<SetupReply>(&bytes);
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Setup>(&bytes);
        }
    }
}

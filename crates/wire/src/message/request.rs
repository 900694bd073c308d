//! What is asked of the guest, one request a stream, and what comes back.

use super::{Bytes, Fault};
use serde::{Deserialize, Serialize};

/// The first message of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a command; `ExecControl` and `Stdin` frames follow, `ExecEvent` and output frames come back. Of standard input
    /// no more than [`STDIN_WINDOW`] is in flight that `ExecEvent::Taken` has not acknowledged, so that signals and sizes
    /// get through when the command does not read it. If the host closes its direction of the stream, the command and all
    /// its descendants are killed: that gets through whatever is in flight.
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
    /// Resume the processes that `Pause` stopped.
    Resume,
    /// Say what changes in a directory: `Reply::Opened`, then `Reply::Changes` until the host closes its direction. An empty
    /// one is the last: the directory itself is gone.
    Watch { path: String, recursive: bool },
    /// Give a file these attributes (`user.*`, see xattr(7)), and none beside them whose name begins with the prefix. Names are without
    /// `user.`.
    SetAttributes { path: String, prefix: String, attributes: Vec<(String, Bytes)> },
    /// Say which TCP ports programs of the sandbox listen at: `Reply::Ports`.
    Listening,
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

/// What the guest says of a command. All but `Started`, `Taken` and `Stopped` end the stream.
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
    /// So many more bytes of its standard input need not be kept any longer: there is room for as many.
    Taken(u32),
    /// A signal of job control stopped it, as at ctrl-Z. It waits for SIGCONT.
    Stopped,
    /// It runs: its process id as the sandbox knows it. The first event of one that started.
    Started(u32),
}

/// What a [`super::Fault`] says of a command that was to have a terminal of its own, and got none.
pub const OPEN_TERMINAL: &str = "open a terminal";

/// How much of a command's standard input may be in flight: what a guest keeps for a command that does not read.
pub const STDIN_WINDOW: usize = 256 * 1024;

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
    /// Ports that are open inside.
    Ports(Vec<u16>),
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What it is.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Last change of the contents, in milliseconds since 1970.
    pub mtime_ms: i64,
    /// The permission bits, with those for set-user-id and the like.
    pub mode: u32,
    /// The user and the group that it belongs to, as the sandbox knows them.
    pub owner: (u32, u32),
    /// What a symbolic link holds.
    pub link: Option<Bytes>,
    /// Attributes of a file or directory (`user.*`, see xattr(7)): names without `user.`, and values.
    pub attributes: Vec<(Bytes, Bytes)>,
}

//! The messages. `Setup` goes in once, on the first stream; then each stream carries one `Request` and what
//! belongs to it. Field and variant order is the encoding: add at the end, and raise [`VERSION`].

mod bytes;
mod egress;
mod request;
mod setup;
#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use egress::{Catch, Caught, EgressReport, EgressSetup, Families};
pub use request::{
    Change, ChangeKind, Disk, Ending, Entry, EntryKind, Exec, ExecControl, ExecEvent, Metadata,
    OPEN_TERMINAL, Reply, Request, STDIN_WINDOW, Stdio, WindowSize,
};
pub use setup::{
    Access, Confined, Confinement, FileRoot, LANDLOCK_WITH_SCOPES, Landlock, Mountpoint, MountpointKind,
    NodeKind, OLDEST_LANDLOCK, PathUse, Privileges, Restriction, Setup, SetupReply, Source, Step,
    Supervision, Syscalls, WINDOWS,
};

use serde::{Deserialize, Serialize};

/// Both sides must say the same number.
pub const VERSION: u16 = 17;

/// What went wrong, as the kernel said it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What was being done, with its object: "mount proc at /proc".
    pub doing: String,
    /// The kernel's error number; 0 when it was not the kernel that refused.
    pub errno: i32,
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

//! Watching a folder: what changes in it, as it happens.

use crate::Sandbox;
use crate::faults::{self, guest_gone};
use crate::stream::{FromGuest, ToGuest};
use belljar_spec::SandboxError;
use belljar_wire::message::{self, Change, Reply, Request};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A folder that is watched. Dropped, it is not any more.
pub struct Watch {
    /// Closed, it ends the watch.
    _to: ToGuest,
    from: FromGuest,
    waiting: VecDeque<Change>,
    is_over: bool,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub kind: ChangeKind,
    /// Relative to the folder that is watched; empty for itself.
    pub path: OsString,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there now: made, or moved to this name.
    Created,
    /// Its content or its metadata changed.
    Modified,
    /// It is not there any more: removed, or moved away from this name. All that was below it is gone with it.
    Removed,
    /// More happened below this path than could be told: look for yourself.
    Overflow,
}

impl Sandbox {
    /// Watches a folder, with `recursive` also all below it: folders that are new there too, whose files are reported as
    /// created. Links are not followed. Whatever happens after this returns is reported.
    pub async fn watch(&self, path: &str, recursive: bool) -> Result<Watch, SandboxError> {
        let (to, mut from) = self.request(&Request::Watch { path: path.into(), recursive }).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Opened => Ok(Watch { _to: to, from, waiting: VecDeque::new(), is_over: false }),
            Reply::Failed(fault) => Err(faults::file(&fault)),
            _ => Err(guest_gone()),
        }
    }
}

impl Watch {
    /// What changed next; `None` once the folder itself is gone. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<FileChange>, SandboxError> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Ok(Some(to_change(change)));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.from.receive_message().await? {
                Reply::Changes(changes) => {
                    self.is_over = changes.is_empty();
                    self.waiting = changes.into();
                }
                Reply::Failed(fault) => return Err(faults::file(&fault)),
                _ => return Err(guest_gone()),
            }
        }
    }
}

fn to_change(Change { kind, path }: Change) -> FileChange {
    let kind = match kind {
        message::ChangeKind::Created => ChangeKind::Created,
        message::ChangeKind::Modified => ChangeKind::Modified,
        message::ChangeKind::Removed => ChangeKind::Removed,
        message::ChangeKind::Overflow => ChangeKind::Overflow,
    };
    FileChange { kind, path: OsString::from_vec(path.0) }
}

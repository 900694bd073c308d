//! The sandbox that the checks of one test share.
//!
//! [`crate::SandboxFixture::new`] takes it, and dropping the place gives it back. Between two checks the runner looks whether it still answers,
//! and empties its workspace. What a check leaves elsewhere, in `/tmp` or as a process in the background, is there for the next one:
//! checks that would mind have a sandbox of their own.

use crate::fixture::Parts;
use belljar_engine::Sandbox;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;

thread_local! {
    /// Of the thread that runs the checks: everywhere else nothing is shared.
    static SHARED: RefCell<Shared> = const { RefCell::new(Shared::Off) };
}

enum Shared {
    /// Each test has its own.
    Off,
    /// A check has it, or it is not made yet.
    Lent,
    Here(Box<Parts>),
}

/// From now on a sandbox is shared.
pub(crate) fn begin() {
    SHARED.set(Shared::Lent);
}

/// The last check is over.
pub(crate) fn end() {
    SHARED.set(Shared::Off);
}

/// The next check gets another.
pub(crate) fn replace() {
    SHARED.set(Shared::Lent);
}

pub(crate) fn take() -> Option<Parts> {
    SHARED.with_borrow_mut(|shared| match std::mem::replace(shared, Shared::Off) {
        Shared::Here(parts) => {
            *shared = Shared::Lent;
            Some(*parts)
        }
        other => {
            *shared = other;
            None
        }
    })
}

/// A check has several at once: the first that comes back stays, the others end here.
pub(crate) fn give_back(parts: Parts) {
    let is_selected = SHARED.with_borrow(|shared| matches!(shared, Shared::Lent));
    if is_selected && !std::thread::panicking() {
        SHARED.set(Shared::Here(Box::new(parts)));
    }
}

/// Makes it ready for the next check, or ends one that is disposed of, paused or dead.
pub(crate) async fn tidy() {
    let Some(parts) = take() else { return };
    if !parts.sandbox.is_paused()
        && empty(parts.elsewhere.as_deref().unwrap_or(parts.folder.path())).is_ok()
        && is_empty_inside(&parts.sandbox).await
    {
        give_back(parts);
    }
}

/// gVisor keeps pipes and sockets to itself: the host never had them.
async fn is_empty_inside(sandbox: &Sandbox) -> bool {
    let Ok(left) = sandbox.readdir(".").await else { return false };
    for entry in left {
        let Some(name) = entry.name.to_str() else { return false };
        if sandbox.remove(name, true).await.is_err() {
            return false;
        }
    }
    true
}

fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

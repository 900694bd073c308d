//! What a Docker daemon that died while it started a container has lost track of: a runtime that waits to be told to
//! continue, and the shim that looks after it. The daemon's API cannot list them, and plain `docker run` leaves them too.
//! They bear the container's id, 64 digits that nothing else has, and which is noted before a container is started
//! (`S/docker/started/ID`).

use belljar_state::{Survives, create_private, write_atomic};
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Before a container is started: from now on there may be something to forget. `sandbox` is whose it is.
pub(super) fn note(containers: &Path, container: &str, sandbox: &str) {
    let notes = containers.join(STARTED);
    let _ = create_private(&notes)
        .and_then(|()| write_atomic(&notes.join(container), sandbox.as_bytes(), Survives::Kill));
}

/// One whose start and removal its daemon has confirmed has nothing that was forgotten.
pub(super) fn forget(containers: &Path, container: &str) {
    let _ = fs::remove_file(containers.join(STARTED).join(container));
}

/// The containers that were started, and whose they are.
pub(super) fn noted(containers: &Path) -> Vec<(String, String)> {
    let notes = fs::read_dir(containers.join(STARTED)).into_iter().flatten().flatten();
    let read = |note: fs::DirEntry| {
        Some((note.file_name().into_string().ok()?, fs::read_to_string(note.path()).ok()?))
    };
    notes.filter_map(read).collect()
}

/// Ends what is left of noted containers that their daemon does not know, for as long as containerd may still be busy with them.
/// Without the right to, or where the daemon is on another machine, nothing happens.
pub(super) fn end_noted(containers: &Path, forgotten: &[String]) {
    let (ids, unfinished): (Vec<&String>, Vec<&String>) = forgotten.iter().partition(|id| is_whole(id));
    if !ids.is_empty() {
        // What is in a container first: containerd hears of a shim's end, and removes the rest.
        end(|pid| ids_of(pid).iter().any(|id| ids.contains(&id)));
        end(|pid| shim_of(pid).is_some_and(|id| ids.contains(&&id)));
    }
    for note in ids.into_iter().chain(unfinished) {
        let written = containers.join(STARTED).join(note).metadata().and_then(|note| note.modified());
        let age = written.ok().and_then(|when| when.elapsed().ok());
        if age.is_some_and(|age| age > LONG_AFTER) {
            forget(containers, note);
        }
    }
}

/// The containers that a process is within: what it may not leave says so.
fn ids_of(pid: Pid) -> Vec<String> {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let words = cgroups.split(|c: char| !c.is_ascii_hexdigit());
    words.filter(|word| word.len() == ID_LENGTH).map(String::from).collect()
}

/// Kills those that belong.
fn end(belongs: impl Fn(Pid) -> bool) {
    for pid in processes().filter(|pid| belongs(*pid)) {
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Checked again while the pidfd is held: the number may have been given to another process.
        if belongs(pid) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// The container that a process is the shim of, by its words: `containerd-shim-runc-v2 -namespace moby -id ID …`.
fn shim_of(pid: Pid) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let name = words.first()?.rsplit(|byte| *byte == b'/').next()?;
    let at = words.iter().position(|word| *word == b"-id")?;
    let id = words.get(at + 1).filter(|_| name.starts_with(SHIM))?;
    Some(String::from_utf8_lossy(id).into_owned())
}

fn is_whole(id: &str) -> bool {
    id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

/// The directory of notes.
const STARTED: &str = "started";
/// Longer than a start takes that no process waits for.
const LONG_AFTER: Duration = Duration::from_secs(60);
/// Of containers, in hexadecimal digits.
const ID_LENGTH: usize = 64;
const SHIM: &[u8] = b"containerd-shim";

//! What a Docker that died while it started a container has forgotten: a runtime that waits to be told to go on, and the shim that
//! looks after it. Its API has no word for them, and plain `docker run` leaves them too. They bear the container's id, 64 digits
//! that nothing else has, and which is noted before a container is started (`S/docker/started/ID`).

use super::door::is_within;
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Before a container is started: from now on there may be something to forget.
pub(super) fn note(containers: &Path, container: &str) {
    let _ = fs::create_dir_all(containers.join(STARTED));
    let _ = fs::write(containers.join(STARTED).join(container), "");
}

/// One that was ready has nothing that its daemon forgot.
pub(super) fn forget(containers: &Path, container: &str) {
    let _ = fs::remove_file(containers.join(STARTED).join(container));
}

/// The containers that were started.
pub(super) fn noted(containers: &Path) -> Vec<String> {
    let notes = fs::read_dir(containers.join(STARTED)).into_iter().flatten().flatten();
    notes.filter_map(|note| note.file_name().into_string().ok()).collect()
}

/// Ends what is left of a noted container that its daemon does not know, for as long as containerd may still be busy with it.
pub(super) fn end_noted(containers: &Path, container: &str) {
    end_strays(container);
    let note = containers.join(STARTED).join(container);
    let age = note.metadata().and_then(|note| note.modified()).ok().and_then(|when| when.elapsed().ok());
    if age.is_none_or(|age| age > LONG_AFTER) {
        forget(containers, container);
    }
}

/// Ends what is left of a container that the daemon has removed. Without the right to, or where the daemon is on another machine,
/// nothing happens.
fn end_strays(container: &str) {
    if container.len() != ID_LENGTH {
        return;
    }
    // What is in it first: containerd hears of a shim's end, and takes the rest away.
    for belongs in [is_within, is_shim_of] {
        for pid in processes().filter(|pid| belongs(*pid, container)) {
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // Looked at again while it is held: the number may have been given to somebody else.
            if belongs(pid, container) {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
    }
}

/// By its words: `containerd-shim-runc-v2 -namespace moby -id ID …`.
fn is_shim_of(pid: Pid, container: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let is_shim = words[0].rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(SHIM));
    is_shim && words.windows(2).any(|pair| pair == [b"-id".as_slice(), container.as_bytes()])
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
}

/// The directory of notes.
const STARTED: &str = "started";
/// Longer than a start takes that nobody waits for.
const LONG_AFTER: Duration = Duration::from_secs(60);
/// Of containers, in hexadecimal digits.
const ID_LENGTH: usize = 64;
const SHIM: &[u8] = b"containerd-shim";

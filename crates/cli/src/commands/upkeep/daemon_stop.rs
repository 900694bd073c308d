//! `belljar daemon stop`. The daemon is the process that holds the lock of the fleet: it is found by that lock, and by no
//! file that may be older than it. Its shims, and so its sandboxes, keep running.

use crate::commands::daemon::directory;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Lock, lock_holder};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(in crate::commands) fn stop() -> Result<u8, SandboxError> {
    match end_daemon()? {
        Some(process) => eprintln!(
            "belljar: the daemon (process {process}) has ended; its sandboxes keep running, and the next command that needs a daemon starts one"
        ),
        None => eprintln!("belljar: no daemon runs"),
    }
    Ok(0)
}

/// The process of the daemon, if one runs.
pub(super) fn daemon() -> Result<Option<u32>, SandboxError> {
    let lock = lock()?;
    if !lock.exists() || !Lock::is_held(&lock) {
        return Ok(None);
    }
    match lock_holder(&lock) {
        Ok(Some(process)) => Ok(Some(process)),
        // It may have ended since.
        Ok(None) if !Lock::is_held(&lock) => Ok(None),
        Ok(None) | Err(_) => Err(not_found(&lock)),
    }
}

/// Ends the daemon in order, and waits for that. Gives its process.
pub(super) fn end_daemon() -> Result<Option<u32>, SandboxError> {
    let Some(process) = daemon()? else { return Ok(None) };
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let failed = |errno: Errno| {
        ErrorCode::Internal.error(format!("cannot end the daemon, process {process}: {errno}")).hint(
            "it belongs to another user, or to a system service: stop it as that user, or with `systemctl`",
        )
    };
    let opened = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(Errno::SRCH)) | None => return Ok(None),
        Some(Err(errno)) => return Err(failed(errno)),
    };
    // The number may be another process's since: what is open now holds the lock, or is left alone.
    if daemon()? != Some(process) {
        return Ok(None);
    }
    match pidfd_send_signal(&opened, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while daemon().is_ok_and(|now| now == Some(process)) {
        if Instant::now() > deadline {
            let message = format!(
                "the daemon, process {process}, has not ended within {} seconds",
                STOP_TIMEOUT.as_secs()
            );
            return Err(ErrorCode::Internal.error(message).hint(format!(
                "it may be waiting for a sandbox; look at its log, or end it: `kill -9 {process}`"
            )));
        }
        sleep(BETWEEN_LOOKS);
    }
    Ok(Some(process))
}

fn lock() -> Result<PathBuf, SandboxError> {
    Ok(directory()?.join("daemon.lock"))
}

fn not_found(lock: &Path) -> SandboxError {
    ErrorCode::Internal
        .error(format!("a daemon holds `{}`, and this process cannot see which one", lock.display()))
        .hint("it may run in another container: stop it there")
}

/// A daemon that ends in order waits for short requests and for sandboxes without a lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

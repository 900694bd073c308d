//! Signals to more than one process.

use rustix::io::Errno;
use rustix::process::Signal;

/// Signals every process that we may signal, but ourselves and process 1: for process 1 of a namespace, every other process in it.
pub fn signal_all(signal: Signal) -> Result<(), Errno> {
    // SAFETY: numbers only.
    match unsafe { libc::kill(-1, signal.as_raw()) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

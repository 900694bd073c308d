//! Appends to a file: a line is written completely or not at all, by one process at a time.

use crate::AuditError;
use belljar_state::lock_open_file;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Writes at the end of a file that was opened for appending. A line that cannot be written completely is removed; if even that
/// fails, nothing may be written any more.
pub(crate) fn append(file: &File, path: &Path, line: &[u8]) -> Result<(), AuditError> {
    let mut written = 0;
    let source = loop {
        match (&*file).write(&line[written..]) {
            // A nearly full disk takes a part; a second write returns the error.
            Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
        if written == line.len() {
            return Ok(());
        }
    };
    if written > 0 {
        take_back(file, written as u64).map_err(|_| AuditError::Torn { path: path.into() })?;
    }
    Err(AuditError::Write { path: path.into(), source })
}

/// Cuts off the last bytes.
pub(crate) fn take_back(file: &File, bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    file.set_len(length.saturating_sub(bytes))
}

/// Locks the file for this process. Others hold the lock for less than a millisecond, unless they were stopped just then: so the
/// wait has a time limit.
pub(crate) fn hold(file: &File, path: &Path) -> Result<(), AuditError> {
    match lock_open_file(file, LOCK_TIMEOUT) {
        Ok(true) => Ok(()),
        Ok(false) => Err(AuditError::Held { path: path.into(), seconds: LOCK_TIMEOUT.as_secs() }),
        Err(source) => Err(AuditError::Open { path: path.into(), source }),
    }
}

const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

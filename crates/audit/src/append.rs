//! The end of a file: a line is put there whole or not at all, by one process at a time.

use crate::AuditError;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes at the end of a file that was opened for appending. Of a line that cannot be written whole nothing stays;
/// where even that fails, nothing may be written any more.
pub(crate) fn append(file: &File, path: &Path, line: &[u8]) -> Result<(), AuditError> {
    let mut written = 0;
    let source = loop {
        match (&*file).write(&line[written..]) {
            // A disk that is nearly full takes a part; asking again says why not the rest.
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

/// Takes the file for this process alone. Others hold it for less than a millisecond, unless somebody stopped them in
/// just that one: then waiting has an end.
pub(crate) fn hold(file: &File, path: &Path) -> Result<(), AuditError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(AuditError::Held { path: path.into(), seconds: PATIENCE.as_secs() });
            }
            Err(TryLockError::Error(source)) => return Err(AuditError::Open { path: path.into(), source }),
        }
    }
}

/// Whether a writer holds the file, which is to say: lives. Readers who ask at the same time do not see each other.
pub(crate) fn is_held(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // Kept until the file is closed otherwise; not even that can fail in a way that matters.
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        // A filesystem without locks: nobody can hold one.
        Err(TryLockError::Error(_)) => false,
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(200);

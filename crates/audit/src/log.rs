//! The log of one sandbox, while it is being written.
//!
//! ```text
//!   create: file made and locked, ledger says opened --append--> ... --end: ledger says closed--> file unlocked
//!                                                     |
//!                                                  kill -9: file unlocked, ledger still says opened; the
//!                                                  next `Ledger::sweep` or `verify` says closed, unfinished
//! ```

use crate::append::{append, hold};
use crate::chain::Tip;
use crate::ledger::{Closing, Ledger};
use crate::{AuditError, Event, log_path};
use belljar_spec::SandboxId;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A log for writing, from any thread. Dropped without [`Log::end`], it counts as one whose writer was killed.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    path: PathBuf,
    sandbox: SandboxId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Locked while the sandbox lives, so that a reader knows; `None` after the end.
    file: Option<File>,
    tip: Tip,
    /// Records that could not be written since the last written one.
    lost: u64,
    /// An unfinished line could not be removed.
    torn: bool,
}

impl Log {
    /// Makes the log of a sandbox in the directory of all logs, which is made if needed. Also closes logs whose writers were
    /// killed.
    pub fn create(directory: &Path, sandbox: SandboxId) -> Result<Log, AuditError> {
        log_path::prepare(directory)?;
        let path = log_path::log(directory, sandbox);
        let file =
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(|source| {
                match source.kind() {
                    ErrorKind::AlreadyExists => AuditError::Taken(sandbox),
                    _ => AuditError::Open { path: path.clone(), source },
                }
            })?;
        // The file first: a file that the ledger lists and that is missing counts as removed.
        let opened = hold(&file, &path).and_then(|()| {
            let mut ledger = Ledger::hold(directory)?;
            ledger.sweep();
            ledger.opened(sandbox)
        });
        let head = opened.inspect_err(|_| {
            // The log was never announced. If it stays, it is an empty file that `verify` reports.
            let _ = std::fs::remove_file(&path);
        })?;
        let state = State { file: Some(file), tip: Tip { next: 0, head }, lost: 0, torn: false };
        Ok(Log { directory: directory.into(), path, sandbox, state: Mutex::new(state) })
    }

    /// Whether this sandbox has a log there, live or ended and not yet pruned.
    pub fn exists(directory: &Path, sandbox: SandboxId) -> bool {
        log_path::log(directory, sandbox).symlink_metadata().is_ok()
    }

    /// Writes a record. If this fails, nothing of it is in the file, and the recorded action must not happen.
    pub fn append(&self, event: &Event) -> Result<(), AuditError> {
        self.state().append(self, event)
    }

    /// Writes how many records were lost, if any were: then the log takes lines again.
    pub fn catch_up(&self) -> Result<(), AuditError> {
        let mut state = self.state();
        match std::mem::take(&mut state.lost) {
            0 => Ok(()),
            count => {
                let written = state.append(self, &Event::RecordsLost { count });
                if written.is_err() {
                    // The failed line about lost records is not itself counted as lost.
                    state.lost = count;
                }
                written
            }
        }
    }

    /// Writes the last record, and the log's end to the ledger.
    pub fn end(&self, event: &Event) -> Result<(), AuditError> {
        let mut state = self.state();
        state.append(self, event)?;
        let Tip { next, head } = state.tip;
        let closing = Closing { lines: next, head, finished: true, torn: 0 };
        // Locked until the ledger is written, or another process would take the sandbox for killed.
        Ledger::hold(&self.directory)?.closed(self.sandbox, closing)?;
        if let Some(file) = state.file.take() {
            // A child process that is being started has it open too, for an instant.
            let _ = file.unlock();
        }
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its sandbox.
    pub fn sandbox(&self) -> SandboxId {
        self.sandbox
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every change of the state is one assignment after the write: it is consistent after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn append(&mut self, log: &Log, event: &Event) -> Result<(), AuditError> {
        let Some(file) = &self.file else {
            return Err(AuditError::Ended { path: log.path.clone() });
        };
        if self.torn {
            return Err(AuditError::Torn { path: log.path.clone() });
        }
        let (mut lines, mut tip) = (Vec::new(), self.tip);
        if self.lost > 0 {
            (lines, tip) = tip.line(log.sandbox, &Event::RecordsLost { count: self.lost });
        }
        let (line, tip) = tip.line(log.sandbox, event);
        if lines.is_empty() {
            lines = line;
        } else {
            lines.extend_from_slice(&line);
        }
        match append(file, &log.path, &lines) {
            Ok(()) => {
                self.tip = tip;
                self.lost = 0;
                Ok(())
            }
            Err(error) => {
                self.lost += 1;
                self.torn = matches!(error, AuditError::Torn { .. });
                Err(error)
            }
        }
    }
}

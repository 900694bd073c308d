//! Removes old logs: the ledger says so first, and is itself never shortened. A log that was tampered with stays, since the
//! operator has to look at it.

use crate::ledger::{Ledger, end};
use crate::verify::{Finding, Holder, LogState, Progress, Severity, Verified, View, verify};
use crate::{AuditError, log_path};
use belljar_spec::SandboxId;
use belljar_state::is_written_to;
use serde::Serialize;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

/// The result of pruning.
#[derive(Debug, Default, Serialize)]
pub struct Pruned {
    /// The sandboxes whose logs were removed, or would be.
    pub removed: Vec<SandboxId>,
    /// Their size in bytes.
    pub bytes: u64,
    /// The sandboxes whose logs are old enough, but were tampered with: they stay.
    pub doubtful: Vec<SandboxId>,
}

/// Whether it happens, or is only simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pruning {
    Real,
    Imagined,
}

/// Removes the logs that were last written to before a moment and whose sandboxes have ended.
pub fn prune(
    directory: &Path,
    before: SystemTime,
    pruning: Pruning,
    progress: impl FnMut(Progress),
) -> Result<Pruned, AuditError> {
    let report = verify(directory, None, None, progress)?;
    let ledger = log_path::ledger(directory);
    if is_wrong(&report.findings, &ledger) {
        return Err(AuditError::LedgerDoubtful { path: ledger });
    }
    let mut pruned = Pruned::default();
    let mut old = Vec::new();
    for Verified { sandbox, file, state, .. } in &report.logs {
        let Ok(found) = fs::metadata(file) else { continue };
        let is_old = found.modified().is_ok_and(|written| written < before);
        if !is_old || *state == LogState::Running {
            continue;
        }
        if is_wrong(&report.findings, file) {
            pruned.doubtful.push(*sandbox);
        } else {
            old.push(Old { sandbox: *sandbox, length: found.len(), file: identity(&found) });
        }
    }
    let mut known = None;
    for (number, batch) in old.chunks(AT_ONCE).enumerate() {
        if number > 0 {
            // Let other processes take the ledger's lock.
            thread::sleep(BETWEEN);
        }
        let gone = match pruning {
            Pruning::Real => remove(directory, batch, &mut known)?,
            Pruning::Imagined => batch.iter().collect(),
        };
        pruned.bytes += gone.iter().map(|log| log.length).sum::<u64>();
        pruned.removed.extend(gone.into_iter().map(|log| log.sandbox));
    }
    Ok(pruned)
}

fn is_wrong(findings: &[Finding], file: &Path) -> bool {
    let mut of_it = findings.iter().filter(|finding| finding.file == file);
    of_it.any(|finding| finding.problem.severity() == Severity::Error)
}

/// A log that was found intact.
struct Old {
    sandbox: SandboxId,
    length: u64,
    /// Identifies the file: another one of the same name belongs to another sandbox.
    file: Identity,
}

/// Device, inode, length, and modification time: inode numbers are reused.
type Identity = (u64, u64, u64, (i64, i64));

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino(), found.len(), (found.mtime(), found.mtime_nsec()))
}

/// The ledger's content, and its length at that time.
type Known = Option<(View, u64)>;

/// Returns the removed ones.
fn remove<'a>(directory: &Path, batch: &'a [Old], known: &mut Known) -> Result<Vec<&'a Old>, AuditError> {
    let mut ledger = Ledger::hold(directory)?;
    // Read while we hold the lock: another process may have pruned since. Not read again if only we have written to it.
    let view = match known.take() {
        Some((view, lines)) if lines == ledger.lines() => view,
        _ => View::read(directory, None, Holder::Us)?,
    };
    if is_wrong(&view.findings, &log_path::ledger(directory)) {
        return Err(AuditError::LedgerDoubtful { path: log_path::ledger(directory) });
    }
    let mut gone = Vec::new();
    for log in batch {
        let path = log_path::log(directory, log.sandbox);
        // It may be gone, or belong to a new sandbox of the same name, which will be in the ledger in a moment.
        let Ok(file) = File::open(&path) else { continue };
        let is_it = file.metadata().is_ok_and(|found| identity(&found) == log.file);
        if !is_it || is_written_to(&file) {
            continue;
        }
        match view.accounts.get(&log.sandbox) {
            Some(account) if account.is_pruned => {}
            Some(account) => {
                if account.closed.is_none() {
                    // Its writer was killed, and `verify`, which found it intact, has not recorded that.
                    let Some(closing) = end(&file) else { continue };
                    ledger.closed(log.sandbox, closing)?;
                }
                ledger.pruned(log.sandbox)?;
            }
            // Its writer was killed before the first record.
            None if log.length == 0 => {}
            None => continue,
        }
        fs::remove_file(&path).map_err(|source| AuditError::Remove { path, source })?;
        gone.push(log);
    }
    *known = Some((view, ledger.lines()));
    Ok(gone)
}

/// A process that starts a sandbox meanwhile waits for one batch.
const AT_ONCE: usize = 256;
/// Longer than a waiting process pauses between two tries.
const BETWEEN: Duration = Duration::from_millis(2);

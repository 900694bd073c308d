//! Old logs are removed: the ledger says so first, and stays whole itself. What is not as it was written stays, since somebody has
//! to look at it.

use crate::ledger::Ledger;
use crate::verify::{Holder, LogState, Progress, Severity, Verified, View, verify};
use crate::{AuditError, place};
use belljar_spec::SandboxId;
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

/// What became of the logs.
#[derive(Debug, Default, Serialize)]
pub struct Pruned {
    /// Whose were removed, or would be.
    pub removed: Vec<SandboxId>,
    /// How many bytes they had.
    pub bytes: u64,
    /// Whose are old enough, and not as they were written: they stay.
    pub doubtful: Vec<SandboxId>,
}

/// Whether it happens, or is only said.
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
    let is_wrong = |path: &Path| {
        let mut of_it = report.findings.iter().filter(|finding| finding.file == path);
        of_it.any(|finding| finding.problem.severity() == Severity::Error)
    };
    let ledger = place::ledger(directory);
    if is_wrong(&ledger) {
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
        if is_wrong(file) {
            pruned.doubtful.push(*sandbox);
        } else {
            old.push((*sandbox, found.len()));
        }
    }
    for batch in old.chunks(AT_ONCE) {
        let gone = match pruning {
            Pruning::Real => remove(directory, batch)?,
            Pruning::Imagined => batch.to_vec(),
        };
        pruned.bytes += gone.iter().map(|(_, length)| length).sum::<u64>();
        pruned.removed.extend(gone.into_iter().map(|(sandbox, _)| sandbox));
    }
    Ok(pruned)
}

/// Gives those that are gone. Whose end the ledger does not know, since its writer was killed and `verify` could not say so, stays.
fn remove(directory: &Path, batch: &[(SandboxId, u64)]) -> Result<Vec<(SandboxId, u64)>, AuditError> {
    let mut ledger = Ledger::hold(directory)?;
    // Read while it is held: somebody else may have pruned since, and a new sandbox may have taken the name.
    let view = View::read(directory, None, Holder::Us)?;
    let mut gone = Vec::new();
    for (sandbox, length) in batch {
        let Some(account) = view.accounts.get(sandbox).filter(|account| account.closed.is_some()) else {
            continue;
        };
        if !account.is_pruned {
            ledger.pruned(*sandbox)?;
        }
        let path = place::log(directory, *sandbox);
        match fs::remove_file(&path) {
            Ok(()) => gone.push((*sandbox, *length)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(AuditError::Remove { path, source }),
        }
    }
    Ok(gone)
}

/// Whoever starts a sandbox meanwhile waits for so many.
const AT_ONCE: usize = 1024;

//! Errors of logs, by the step that failed.

use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, SandboxId, hint};
use std::io;
use std::path::PathBuf;

/// A record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// There is no state directory.
    #[error("there is no place for the audit log: neither `HOME` nor `XDG_STATE_HOME` is an absolute path")]
    NoHome,
    /// The directory of the logs cannot be used.
    #[error("cannot make the audit directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// A file could not be opened or made.
    #[error("cannot open the audit log {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// A sandbox of this name has one already.
    #[error("there is an audit log of a sandbox `{0}` already")]
    Taken(SandboxId),
    /// Another process holds the lock for longer than an instant.
    #[error("the audit log {} has been held by another process for {seconds} seconds", path.display())]
    Held { path: PathBuf, seconds: u64 },
    /// A record was not written; nothing of it is in the file.
    #[error("cannot write to the audit log {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// An unfinished line could not be removed; nothing may follow it.
    #[error("the audit log {} ends in an unfinished line that cannot be taken back", path.display())]
    Torn { path: PathBuf },
    /// The sandbox has ended.
    #[error("the audit log {} has ended", path.display())]
    Ended { path: PathBuf },
    /// A file could not be read.
    #[error("cannot read the audit log {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The ledger ends in garbage, so it is not known where its chain continues.
    #[error("the audit ledger {} ends in something that is not a record", path.display())]
    LedgerDamaged { path: PathBuf },
    /// The ledger was changed, so it must not decide what is removed.
    #[error("the audit ledger {} is not as it was written", path.display())]
    LedgerDoubtful { path: PathBuf },
    /// A file could not be removed.
    #[error("cannot remove the audit log {}: {source}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    /// There is no such log.
    #[error("there is no audit log of a sandbox `{0}`")]
    NoSuchLog(String),
    /// The log was pruned.
    #[error("the audit log of a sandbox `{0}` was pruned")]
    Pruned(String),
    /// There is more than one such log.
    #[error("more than one audit log is of a sandbox that starts with `{0}`")]
    Ambiguous(String),
    /// There are no logs.
    #[error("there are no audit logs in {}", .0.display())]
    NoLogs(PathBuf),
}

impl AuditError {
    /// What to do next.
    pub fn hint(&self) -> Hint {
        match self {
            AuditError::NoHome => "set `HOME`, or `XDG_STATE_HOME` to a folder of yours".into(),
            AuditError::Directory { path, .. } | AuditError::Open { path, .. } => format!(
                "`ls -ld {}` says whose it is; it must be yours, or set `XDG_STATE_HOME` to a folder that is",
                path.display()
            )
            .into(),
            AuditError::Taken(id) => {
                hint!(
                    "give it a name that is new; {} says what the other one was",
                    CommandLine::AuditShow.of(id)
                )
            }
            AuditError::Held { path, .. } => {
                format!("`fuser {}` says by which; it may be stopped", path.display()).into()
            }
            AuditError::Write { path, .. } | AuditError::Torn { path } => format!(
                "`df {}` says whether the disk is full; nothing leaves a sandbox unrecorded",
                path.display()
            )
            .into(),
            AuditError::Ended { .. } => "one sandbox, one log".into(),
            AuditError::Read { path, .. } => format!("`ls -l {}` says whose it is", path.display()).into(),
            AuditError::LedgerDamaged { .. } => {
                hint!("{} says where; to start anew, move the whole directory away", CommandLine::AuditVerify)
            }
            AuditError::LedgerDoubtful { .. } => {
                hint!("{} says where; nothing was removed", CommandLine::AuditVerify)
            }
            AuditError::Remove { path, .. } => {
                format!("`ls -ld {}` says whose it is; then prune again", path.display()).into()
            }
            AuditError::NoSuchLog(_) | AuditError::Ambiguous(_) => hint!("{} lists them", CommandLine::Audit),
            AuditError::Pruned(_) => {
                hint!("the ledger says when; {} lists those that are there", CommandLine::Audit)
            }
            AuditError::NoLogs(_) => "each sandbox writes one".into(),
        }
    }
}

impl From<AuditError> for SandboxError {
    fn from(error: AuditError) -> SandboxError {
        let code = match &error {
            AuditError::NoSuchLog(_)
            | AuditError::Pruned(_)
            | AuditError::Ambiguous(_)
            | AuditError::NoLogs(_) => ErrorCode::NotFound,
            AuditError::Taken(_) => ErrorCode::NameTaken,
            _ => ErrorCode::StateFailed,
        };
        code.error(error.to_string()).hint(error.hint()).caused_by(error)
    }
}

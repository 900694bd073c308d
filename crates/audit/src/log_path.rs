//! Where logs lie: `<state>/audit/<sandbox>.jsonl`, and beside them the ledger and its head.

use crate::AuditError;
use belljar_spec::SandboxId;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of the logs.
pub fn directory() -> Result<PathBuf, AuditError> {
    let state = belljar_state::state_directory().map_err(|_| AuditError::NoHome)?;
    Ok(state.join("audit"))
}

/// Makes the directory if needed, and closes it to other users.
pub(crate) fn prepare(directory: &Path) -> Result<(), AuditError> {
    let failed = |source| AuditError::Directory { path: directory.into(), source };
    let mode = match fs::metadata(directory) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return belljar_state::create_private(directory).map_err(failed);
        }
        Err(error) => return Err(failed(error)),
    };
    if mode & 0o077 != 0 {
        // Fails on another user's directory, as it should: that user could replace the files in it.
        fs::set_permissions(directory, fs::Permissions::from_mode(PRIVATE)).map_err(failed)?;
    }
    Ok(())
}

pub(crate) fn log(directory: &Path, sandbox: SandboxId) -> PathBuf {
    directory.join(format!("{sandbox}.jsonl"))
}

pub(crate) fn ledger(directory: &Path) -> PathBuf {
    directory.join("ledger.jsonl")
}

pub(crate) fn ledger_head(directory: &Path) -> PathBuf {
    directory.join("ledger.head")
}

/// The sandbox of a log file in the directory, if the file is a log.
pub(crate) fn sandbox_of(file: &Path) -> Option<SandboxId> {
    SandboxId::parse(file.file_name()?.to_str()?.strip_suffix(".jsonl")?)
}

const PRIVATE: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sandboxs_file_is_its_log() {
        let id = SandboxId::from_random(*b"belljar!");
        assert_eq!(sandbox_of(&log(Path::new("/x"), id)), Some(id));
        let others = [
            "ledger.jsonl",
            "ledger.head",
            "62656C6C6A617221.jsonl",
            "+2656c6c6a617221.jsonl",
            "1.jsonl",
            "62656c6c6a617221",
        ];
        for other in others {
            assert_eq!(sandbox_of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_directory_that_is_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let new = folder.path().join("a/b/audit");
        prepare(&new).unwrap();
        assert_eq!((mode(&new), mode(&folder.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&new, fs::Permissions::from_mode(0o777)).unwrap();
        prepare(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
    }
}

//! The path of the state directory, and making directories in it.

use belljar_spec::{ErrorCode, SandboxError};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where belljar keeps what must outlive it: `$XDG_STATE_HOME/belljar`, else `~/.local/state/belljar`. It may not exist yet.
pub fn state_directory() -> Result<PathBuf, NoStateDirectory> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    state_below(variable("XDG_STATE_HOME"), variable("HOME"))
}

/// Makes a directory that only its owner can enter, and its parents. An existing one is not changed.
pub fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(directory)
}

/// Neither variable names a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no state directory: neither `HOME` nor `XDG_STATE_HOME` is an absolute path")]
pub struct NoStateDirectory;

impl NoStateDirectory {
    /// What to do next.
    pub fn hint(&self) -> String {
        "set `HOME`, or `XDG_STATE_HOME` to a folder of yours".into()
    }
}

impl From<NoStateDirectory> for SandboxError {
    fn from(error: NoStateDirectory) -> SandboxError {
        ErrorCode::StateFailed.error(error.to_string()).hint(error.hint()).caused_by(error)
    }
}

fn state_below(state: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, NoStateDirectory> {
    // By the XDG specification, a relative path is ignored.
    let absolute = |path: &PathBuf| path.is_absolute();
    let state =
        state.filter(absolute).or_else(|| home.filter(absolute).map(|home| home.join(".local/state")));
    state.map(|state| state.join("belljar")).ok_or(NoStateDirectory)
}

const PRIVATE_DIRECTORY: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_state_directory_follows_the_variables() {
        let path = |text: &str| Some(PathBuf::from(text));
        let below =
            |state, home| state_below(state, home).ok().and_then(|path| Some(path.to_str()?.to_string()));
        assert_eq!(below(path("/s"), path("/h")).as_deref(), Some("/s/belljar"));
        assert_eq!(below(None, path("/h")).as_deref(), Some("/h/.local/state/belljar"));
        assert_eq!(below(path("relative"), path("/h")).as_deref(), Some("/h/.local/state/belljar"));
        assert_eq!(below(path(""), None), None);
        assert_eq!(below(None, path("")), None);
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone_with_those_above_it() {
        let folder = tempfile::tempdir().unwrap();
        create_private(&folder.path().join("a/b")).unwrap();
        create_private(&folder.path().join("a/b")).unwrap();
        for made in ["a", "a/b"] {
            let mode = fs::metadata(folder.path().join(made)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
    }
}

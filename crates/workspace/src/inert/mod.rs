//! git, started so that nothing in a repository can make it run anything: no hooks, no filters, no helpers, no includes
//! from outside, no protocols. The only place that starts git on the host.

mod call;

pub use call::{Call, Finished, GitError};

use std::path::{Path, PathBuf};

/// The host's git.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
}

impl Git {
    /// The first one in the system's directories; PATH may be an agent's work.
    pub fn find() -> Result<Git, GitError> {
        let places = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"];
        let program = places.into_iter().map(PathBuf::from).find(|path| path.is_file());
        Ok(Git { program: program.ok_or(GitError::Missing)? })
    }

    /// A call on a repository: `directory` is its git directory, and a repository of the host's or of ours. Never one whose
    /// config an agent could write: its objects are read from a repository of ours, as alternates.
    pub fn on(&self, directory: &Path) -> Call {
        Call::new(&self.program, Some(directory))
    }

    /// A call without a repository.
    pub fn anywhere(&self) -> Call {
        Call::new(&self.program, None)
    }
}

//! git, started so that nothing in a repository can make it run anything: no hooks, no filters, no helpers, no drivers, no
//! protocols. The only place that starts git on the host.
//!
//! Two defences, of which the first alone should do. Git is never started on a repository that an agent can write to:
//! [`crate::foreign`] reads its objects and refs into one of ours. And every git is started by a [`Call`], whose environment
//! overrides every config file: so git runs nothing even in a malicious repository, for the operations in `tests/inert.rs`.
//! Checkout, add and merge are not among them unless the config is ours: a filter's name cannot be guessed, so no setting of ours
//! can switch it off.
//!
//! A git that works in a host repository for a sandbox is confined to that repository's directories by the kernel ([`Reach`]).
//!
//! Every call ends: it has a deadline and a limit on what it may print, and its whole process group dies with it and with this
//! process. Those of one sandbox are on its [`Leash`]: they run in its cgroup, share one sum of processor time, and can be ended
//! together.

mod call;
mod leash;
mod odd;
mod pack_limits;
mod reach;
mod running;
mod settings;

pub use call::{Call, Finished, GitError, PLAIN_DIFF};
pub use leash::Leash;
pub use odd::odd_file;
pub(crate) use pack_limits::pack_limits;
pub use reach::Reach;
pub use running::Running;
pub use settings::other_side;

use std::path::{Path, PathBuf};

/// The host's git.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    leash: Option<Leash>,
}

impl Git {
    /// The first one in the system's directories; an agent may have influenced PATH.
    pub fn find() -> Result<Git, GitError> {
        let places = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"];
        let program = places.into_iter().map(PathBuf::from).find(|path| path.is_file());
        Ok(Git { program: program.ok_or(GitError::Missing)?, leash: None })
    }

    /// The same, on a leash: every call of it.
    pub fn on_leash(&self, leash: &Leash) -> Git {
        Git { program: self.program.clone(), leash: Some(leash.clone()) }
    }

    /// The same, always on a leash: if it has none, on one for [after the end](Leash::after_end).
    pub(crate) fn on_any_leash(&self) -> Git {
        match &self.leash {
            Some(_) => self.clone(),
            None => self.on_leash(&Leash::after_end()),
        }
    }

    /// A call on a repository: `directory` is its git directory, and a repository of the host's or of ours. Never one whose
    /// config an agent could write: its objects are read from a repository of ours.
    pub fn on(&self, directory: &Path) -> Call {
        Call::new(&self.program, Some(directory), self.leash.clone())
    }

    /// A call without a repository. It runs in `/`, so that no repository is found by looking upward.
    pub fn anywhere(&self) -> Call {
        Call::new(&self.program, None, self.leash.clone())
    }
}

//! git, started so that nothing in a repository can make it run anything: no hooks, no filters, no helpers, no drivers, no
//! protocols. The only place that starts git on the host.
//!
//! Two walls, of which the first alone should do. A repository that an agent can write to is never the one that git is
//! started on: its objects and refs are read by [`crate::foreign`] into one of ours. And whatever git is started on, it is
//! started by a [`Call`], whose environment counts before every config file: git then behaves even on a repository that was
//! made to bite, for the operations in `tests/inert.rs`. Checking out, adding and merging are not among them where the
//! config is not ours: a filter's name cannot be guessed, so that no setting of ours can switch it off.
//!
//! A git that works in a repository of the host's for a sandbox is held to that one's directories by the kernel ([`Reach`]).
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
    /// The first one in the system's directories; PATH may be an agent's work.
    pub fn find() -> Result<Git, GitError> {
        let places = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"];
        let program = places.into_iter().map(PathBuf::from).find(|path| path.is_file());
        Ok(Git { program: program.ok_or(GitError::Missing)?, leash: None })
    }

    /// The same, on a leash: every call of it.
    pub fn on_leash(&self, leash: &Leash) -> Git {
        Git { program: self.program.clone(), leash: Some(leash.clone()) }
    }

    /// The same, surely on a leash: without one of its own, on one for [after the end](Leash::after_end).
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

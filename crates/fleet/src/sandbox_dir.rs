//! Where one sandbox is kept on disk, and whether a shim holds it.
//!
//! ```text
//! <state>/fleet/
//!   daemon.lock           held by the one daemon of this state directory
//!   grants.json           hashes of tokens and what they allow
//!   reserve               space that is given back when the disk is full
//!   volumes/<volume>/     what outlives sandboxes
//!   sandboxes/<name>/
//!     record.json         the daemon's: identity, leases, state
//!     keeper.lock         held by the shim as long as it lives
//!     keeper.json         the shim's: where it listens, what it holds
//!     keeper.log          the shim's log
//!     counters            what it counted, for `/metrics`
//!     workspace/          the folder that belongs to the sandbox, where no other was named
//!     home/               its home, if it is persistent
//!     root/               what it changed of its root, if it is persistent and has one of its own
//! ```

use belljar_state::Lock;
use std::io;
use std::path::{Path, PathBuf};

/// A sandbox's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxDir {
    directory: PathBuf,
}

impl SandboxDir {
    /// Of this directory.
    pub fn new(directory: impl Into<PathBuf>) -> SandboxDir {
        SandboxDir { directory: directory.into() }
    }

    /// Of the sandbox of this name, in the directory of a fleet.
    pub fn of_fleet(fleet: &Path, name: &str) -> SandboxDir {
        SandboxDir::new(fleet.join(SANDBOXES).join(name))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn record(&self) -> PathBuf {
        self.directory.join("record.json")
    }

    pub fn contact(&self) -> PathBuf {
        self.directory.join("keeper.json")
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("keeper.log")
    }

    pub fn counters(&self) -> PathBuf {
        self.directory.join("counters")
    }

    pub fn workspace(&self) -> PathBuf {
        self.directory.join("workspace")
    }

    pub fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Becomes its shim; `None` while another process is. The kernel releases the lock when its holder dies, and at no other
    /// time: the lock, and no process id, tells whether a shim lives.
    pub fn hold(&self) -> io::Result<Option<Lock>> {
        Lock::try_now(&self.directory.join("keeper.lock"))
    }
}

/// Where a fleet has its sandboxes.
pub(crate) const SANDBOXES: &str = "sandboxes";

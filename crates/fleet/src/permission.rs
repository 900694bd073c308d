//! The caller, and which sandboxes of others it may use. Keys are no capabilities: knowing one is not enough.

use belljar_spec::SandboxError;

/// The caller that makes a request.
pub trait Permission: Send + Sync {
    /// Its grant; [`OWNER`] for the person whose machine it is.
    fn grant(&self) -> &str;

    /// May it make or join the sandbox with this key? `made_by` is the grant that made it, if it is there. Not asked about what the
    /// grant itself made.
    fn may_join(&self, key: &str, made_by: Option<&str>) -> Result<(), SandboxError>;

    /// Is a sandbox with this key its own although another grant made it? Then it may wake, pause, stop and delete it. What a request
    /// says of its role does not matter: a role that the caller chooses is none.
    fn may_own(&self, _key: &str) -> bool {
        false
    }

    /// The lease that the request is made under, if it names one.
    fn lease(&self) -> Option<&str> {
        None
    }

    /// How many sandboxes it may have alive at the same time.
    fn most_sandboxes(&self) -> Option<u32> {
        None
    }

    /// How many snapshots it may have.
    fn most_snapshots(&self) -> Option<u32> {
        None
    }
}

/// The person whose machine it is. Everything is allowed.
#[derive(Debug, Clone, Default)]
pub struct Owner {
    pub lease: Option<String>,
}

impl Permission for Owner {
    fn grant(&self) -> &str {
        OWNER
    }

    fn may_join(&self, _: &str, _: Option<&str>) -> Result<(), SandboxError> {
        Ok(())
    }

    fn may_own(&self, _: &str) -> bool {
        true
    }

    fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }
}

/// The grant of the person whose machine it is.
pub const OWNER: &str = "owner";

//! What is asked of the task of a sandbox.

use crate::identity::Role;
use crate::lease_request::LeaseRequest;
use crate::snapshots::{Forkable, SnapshotOrder, SnapshotReport};
use belljar_api::{Created, LeaseInfo, SandboxInfo, SweptSandbox};
use belljar_spec::SandboxError;
use tokio::sync::oneshot;

/// Where the answer goes. Dropped without one, the sandbox is gone.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, SandboxError>>;

pub(crate) enum Command {
    Acquire(Box<Acquire>),
    /// A request was made by this grant, perhaps under a lease.
    Used {
        grant: String,
        lease: Option<String>,
    },
    Renew {
        lease: String,
        holder: Option<String>,
        lasts_s: Option<u64>,
        answer: Answer<LeaseInfo>,
    },
    Drop {
        lease: String,
        holder: Option<String>,
        answer: Answer<()>,
    },
    Change(Change, Answer<SandboxInfo>),
    /// Takes a snapshot, or goes back to one.
    Snapshot(Box<SnapshotOrder>, Answer<SnapshotReport>),
    /// What a fork of it is made of.
    Forkable(Answer<Forkable>),
    /// Looks whether the shim lives after all.
    Check {
        dry_run: bool,
        answer: Answer<Option<SweptSandbox>>,
    },
    /// Answered when nothing is under way.
    Settle(Answer<()>),
    /// The daemon ends: a sandbox without leases ends too, the rest stays.
    Close(Answer<()>),
}

/// A caller wants a lease on it.
pub(crate) struct Acquire {
    pub(crate) lease_request: LeaseRequest,
    pub(crate) grant: String,
    /// The name that the lease will have.
    pub(crate) lease: String,
    /// It was made for this one.
    pub(crate) created: bool,
    /// It is only to be started, without a lease.
    pub(crate) ahead: bool,
    pub(crate) answer: Answer<Created>,
}

/// What an owner can do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Pause,
    Resume,
    Stop,
    Delete,
}

impl Acquire {
    pub(crate) fn role(&self) -> Role {
        self.lease_request.identity.role
    }

    /// Whether the caller has stopped waiting for the answer.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

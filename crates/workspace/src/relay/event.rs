//! Events for the audit log.

use belljar_git::{ObjectId, PushRefusal, RefName};

/// An event at the relay, as the host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayEvent {
    /// The sandbox fetched; the number of bytes sent.
    Fetched { bytes: u64 },
    /// A ref moved on the host; `landed` differs from `requested` if that branch is in use there. All zeros: the ref did not exist, or
    /// no longer does.
    Moved { requested: RefName, landed: RefName, old: ObjectId, new: ObjectId },
    /// A ref did not move.
    Refused { requested: RefName, refusal: PushRefusal },
    /// A request that is neither a push nor a fetch of this repository.
    Unserved { why: String },
    /// A push or a fetch that ended early, on either side.
    Broken { why: String },
}

//! What is worth recording.

use belljar_git::{ObjectId, PushRefusal, RefName};

/// Something that happened at the relay, as the host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayEvent {
    /// The sandbox fetched, and so much went to it.
    Fetched { bytes: u64 },
    /// A ref moved on the host; `landed` differs from `asked` if that branch is in use there. All zeros: the ref did not exist, or
    /// no longer does.
    Moved { asked: RefName, landed: RefName, old: ObjectId, new: ObjectId },
    /// A ref did not move.
    Refused { asked: RefName, refusal: PushRefusal },
    /// Something that is no push and no fetch of this repository.
    Unserved { why: String },
    /// A push or a fetch that ended early, on either side.
    Broken { why: String },
}

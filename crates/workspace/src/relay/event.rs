//! What is worth recording.

use belljar_git::{ObjectId, PushRefusal, RefName};

/// Something that happened at the relay, as the host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayEvent {
    /// The sandbox fetched, and so much went to it.
    Fetched { bytes: u64 },
    /// A ref moved on the host; `landed` is another name than `asked` if somebody there works on that branch. Zeros mean
    /// that there was, or is, none.
    Moved { asked: RefName, landed: RefName, old: ObjectId, new: ObjectId },
    /// A ref did not move.
    Refused { asked: RefName, refusal: PushRefusal },
    /// Something that is no push and no fetch of this repository.
    Unserved { why: String },
    /// A push or a fetch that ended early, on either side.
    Broken { why: String },
}

//! Moves refs.

use super::{HostRepository, QuarantineError};
use belljar_git::{ObjectId, PushRefusal, RefName};

/// The move of one host ref. Zeros: the ref does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landing {
    pub name: RefName,
    pub old: ObjectId,
    pub new: ObjectId,
}

impl HostRepository {
    /// Moves all of these refs or none, each only if it still has its old value, and writes its reflog.
    pub fn land(&self, landings: &[Landing]) -> Result<(), QuarantineError> {
        let mut orders = "start\n".to_string();
        for Landing { name, old, new } in landings {
            orders += &match new.is_zero() {
                true => format!("delete {name} {old}\n"),
                false => format!("update {name} {new} {old}\n"),
            };
        }
        // If we are killed before `commit` is written, git aborts and removes its locks.
        orders += "prepare\ncommit\n";
        let call = self.moving_refs(self.call(), "belljar: push from a sandbox");
        let finished = call.run_with(orders.as_bytes())?;
        match finished.code {
            Some(0) => Ok(()),
            _ => Err(QuarantineError::Refused(refusal(&finished.reason()))),
        }
    }

    /// Is this name a symbolic ref, perhaps to a missing one?
    pub fn is_symbolic(&self, name: &RefName) -> Result<bool, QuarantineError> {
        Ok(self.call().args(["symbolic-ref", "--quiet", name.as_str()]).run()?.code == Some(0))
    }
}

/// git's messages for refs that changed between reading and moving (LC_ALL=C).
fn refusal(reason: &str) -> PushRefusal {
    let says = |words: &str| reason.contains(words);
    if says("but expected") || says("reference already exists") || says("unable to resolve reference") {
        PushRefusal::Stale
    } else if says("cannot create") && says("exists") {
        PushRefusal::Failed {
            detail: "a branch whose name is the beginning of this one is in the way".to_string(),
        }
    } else if says(".lock") {
        PushRefusal::Failed { detail: "another git on the host is at work here: push again".to_string() }
    } else {
        PushRefusal::Failed { detail: "git on the host could not move it".to_string() }
    }
}

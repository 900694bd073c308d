//! A branch that the user and the agent moved at the same time.
//!
//! Both work on the same files, so both sides' changes are in the folder, and a merge by hand would find one side's files in the
//! way of the other's. If no line was changed by both, belljar makes the merge commit: the host's branch follows to it, and the
//! next update carries it into the sandbox. If the same lines were changed, the agent's commits are set aside.

use super::host_state::HostState;
use super::import::{ImportMode, Importer};
use super::inside::{Inside, Moved};
use super::{ImportReport, Synced};
use crate::quarantine::{Merged, Quarantine, QuarantineError};
use belljar_git::ObjectId;

/// A branch whose two sides were merged.
#[derive(Debug)]
pub(super) struct Joined {
    name: String,
    /// Its commit inside.
    inside: ObjectId,
    pub(super) merged: Merged,
}

impl Importer<'_> {
    /// Merges the two sides of the checked-out branch, if both only added commits and git finds no conflict. Rewritten history is
    /// not merged: that would bring back dropped commits.
    pub(super) fn join(
        &self,
        synced: &Synced,
        inside: &Inside,
        host: &HostState,
        quarantine: &Quarantine,
        moved: &[Moved],
    ) -> Result<Option<Joined>, QuarantineError> {
        let is_quiet = host.unfinished.is_none() && inside.unfinished.is_none();
        if self.mode == ImportMode::Overlay || !is_quiet {
            return Ok(None);
        }
        let current = moved.iter().find(|one| host.is_current(&one.name) && inside.is_current(&one.name));
        let Some(Moved { name, new: Some(new) }) = current else { return Ok(None) };
        let (Some(base), Some(theirs)) = (synced.refs.get(name), host.refs.get(name)) else {
            return Ok(None);
        };
        let has_moved = theirs != base && theirs != new && new != base;
        if !has_moved
            || !quarantine.follows(base, theirs)?
            || !quarantine.follows(base, new)?
            || quarantine.follows(theirs, new)?
            || quarantine.follows(new, theirs)?
        {
            return Ok(None);
        }
        let mut tips: Vec<ObjectId> = moved.iter().filter_map(|one| one.new.clone()).collect();
        tips.retain(|tip| !host.ids.contains(tip));
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
        let message = format!(
            "Merge the host's and the sandbox's commits on {branch}\n\nBoth were made at the same time; merged by belljar, sandbox {}.",
            self.id
        );
        let merged = quarantine.merge((new, theirs), &message, &tips, &host.known(), self.policy.limits)?;
        Ok(merged.map(|merged| Joined { name: name.clone(), inside: new.clone(), merged }))
    }
}

impl Joined {
    /// The moves, with the merge commit in place of the sandbox's commit.
    pub(super) fn moved(&self, moved: &[Moved]) -> Vec<Moved> {
        let new = |one: &Moved| match one.name == self.name {
            true => Some(self.merged.commit.clone()),
            false => one.new.clone(),
        };
        moved.iter().map(|one| Moved { name: one.name.clone(), new: new(one) }).collect()
    }

    /// Whether the host does not follow to the merge: then the sandbox's own commits are set aside, and not the merge.
    pub(super) fn is_set_aside(&self, report: &ImportReport) -> bool {
        report.set_aside.iter().any(|one| one.commit == self.merged.commit)
    }

    /// Both sides agree on the sandbox's commit: the host is ahead by the merge, which the next update carries inside.
    pub(super) fn settle(&self, synced: &mut Synced, report: &mut ImportReport) {
        let merge = &self.merged.commit;
        if synced.refs.get(&self.name) == Some(merge) {
            synced.refs.insert(self.name.clone(), self.inside.clone());
            let branch = self.name.strip_prefix("refs/heads/").unwrap_or(&self.name);
            report.notes.push(format!(
                "{branch} got commits here and in the sandbox at the same time; no line was changed by both, and belljar merged them"
            ));
        }
    }
}

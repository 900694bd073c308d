//! Merges two diverged histories in a quarantine.

use super::{Quarantine, QuarantineError, Taken};
use belljar_git::ObjectId;
use belljar_spec::git::PushLimits;

/// A merge commit of both sides, and all objects that the host needs for it.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) commit: ObjectId,
    pub(crate) taken: Taken,
}

impl Quarantine {
    /// A merge commit of `theirs` into `ours`; `None` if both changed the same lines, or git cannot tell. No work tree is read or
    /// written, and no merge driver runs: the quarantine's config names none. The result has all objects that the merge and `tips`
    /// need beyond `known`, which the host has.
    pub(crate) fn merge(
        &self,
        (ours, theirs): (&ObjectId, &ObjectId),
        message: &str,
        tips: &[ObjectId],
        known: &[ObjectId],
        limits: PushLimits,
    ) -> Result<Option<Merged>, QuarantineError> {
        let words = ["merge-tree", "--write-tree", "--no-messages", ours.as_str(), theirs.as_str()];
        let finished = self.call().args(words).run()?;
        // git before 2.38 has no `--write-tree`; 1 means conflicts.
        let tree = String::from_utf8_lossy(&finished.stdout).trim().parse::<ObjectId>();
        let (Some(0), Ok(tree)) = (finished.code, tree) else { return Ok(None) };
        let parents = ["-p", ours.as_str(), "-p", theirs.as_str()];
        let call = self.call().args(["commit-tree", "-m", message]).args(parents).arg(tree.as_str());
        let call = ["AUTHOR", "COMMITTER"].iter().fold(call, |call, who| {
            call.env(&format!("GIT_{who}_NAME"), "belljar")
                .env(&format!("GIT_{who}_EMAIL"), "belljar@localhost")
        });
        let commit = call.line()?;
        let commit = commit.trim().parse::<ObjectId>();
        let commit = commit.map_err(|_| QuarantineError::pack("git did not say what it merged to"))?;
        let all: Vec<ObjectId> = tips.iter().chain([&commit]).cloned().collect();
        let taken = self.take_packed(&self.directory, &all, known, limits)?;
        Ok(Some(Merged { commit, taken }))
    }
}

//! The host's repository as it is now.

use super::HostGit;
use super::inside::UNFINISHED;
use crate::foreign::Head;
use crate::quarantine::{HostRef, HostRepository, QuarantineError};
use belljar_git::ObjectId;
use belljar_spec::git::BranchName;
use std::collections::{BTreeMap, HashSet};
use std::fs;

/// The host's refs and the worktree that the sandbox works in.
#[derive(Debug)]
pub(super) struct HostState {
    pub(super) head: Option<Head>,
    /// The commit of HEAD; `None` before the first one.
    pub(super) commit: Option<ObjectId>,
    pub(super) refs: BTreeMap<String, ObjectId>,
    /// The values of all refs, including those whose name is not UTF-8.
    pub(super) ids: Vec<ObjectId>,
    /// The same without belljar's own refs. Commits that only those have were set aside: if a branch takes them over, they are
    /// judged as new.
    pub(super) judged: Vec<ObjectId>,
    /// Branches that another worktree has checked out, or is rebasing or bisecting.
    pub(super) busy: HashSet<String>,
    /// The unfinished operation of git in this worktree.
    pub(super) unfinished: Option<&'static str>,
}

impl HostState {
    /// Costs one call of git; a second one if there are other worktrees, or refs are not files.
    pub(super) fn read(repository: &HostRepository, host: &HostGit) -> Result<HostState, QuarantineError> {
        let head = head(repository, host)?;
        let all = repository.refs()?;
        if let Some(Head::Branch(branch)) = &head
            && all.iter().any(|one| one.is_symbolic && one.name == branch.full().as_bytes())
        {
            let message = format!("its branch `{branch}` is another name for another branch");
            return Err(QuarantineError::Unusable(message));
        }
        let ids_of = |refs: &mut dyn Iterator<Item = &HostRef>| {
            refs.map(|one| one.id.clone()).collect::<HashSet<_>>().into_iter().collect()
        };
        let ids = ids_of(&mut all.iter());
        let judged = ids_of(&mut all.iter().filter(|one| !one.is_own()));
        let named = all.into_iter().filter(|one| !one.is_symbolic);
        let named = named.filter_map(|one| Some((String::from_utf8(one.name).ok()?, one.id)));
        let refs: BTreeMap<String, ObjectId> = named.collect();
        let commit = match &head {
            Some(Head::Branch(branch)) => refs.get(&branch.full()).cloned(),
            Some(Head::Detached(commit)) => Some(commit.clone()),
            None => None,
        };
        let mut busy = match host.own == host.common && !host.common.join("worktrees").exists() {
            true => HashSet::new(),
            false => repository.busy_branches()?,
        };
        if let Some(Head::Branch(branch)) = &head {
            busy.remove(&branch.full());
        }
        Ok(HostState { head, commit, refs, ids, judged, busy, unfinished: unfinished(host) })
    }

    /// Commits whose history the host has.
    pub(super) fn known(&self) -> Vec<ObjectId> {
        let mut known = self.ids.clone();
        known.extend(self.commit.clone().filter(|commit| !self.ids.contains(commit)));
        known
    }

    /// Commits that contain nothing new: the history of the user's own refs.
    pub(super) fn own_history(&self) -> Vec<ObjectId> {
        let mut known = self.judged.clone();
        known.extend(self.commit.clone().filter(|commit| !self.judged.contains(commit)));
        known
    }

    /// The branch that is checked out.
    pub(super) fn is_current(&self, name: &str) -> bool {
        matches!(&self.head, Some(Head::Branch(branch)) if branch.full() == name)
    }
}

/// The unfinished operation of git in this worktree.
pub(super) fn unfinished(host: &HostGit) -> Option<&'static str> {
    UNFINISHED.iter().find(|(file, _)| host.own.join(file).exists()).map(|(_, name)| *name)
}

/// This worktree's HEAD; `None` if it is neither a branch nor a commit.
pub(super) fn head(repository: &HostRepository, host: &HostGit) -> Result<Option<Head>, QuarantineError> {
    let path = host.own.join("HEAD");
    let text = match host.common.join("reftable").exists() {
        false => fs::read_to_string(&path).map_err(QuarantineError::file("read", &path))?,
        // With a reftable, the file is a dummy.
        true => {
            let symbolic = repository.call_in(&host.own).args(["symbolic-ref", "-q", "HEAD"]).run()?;
            match symbolic.code {
                Some(0) => format!("ref: {}", String::from_utf8_lossy(&symbolic.stdout)),
                _ => repository.call_in(&host.own).args(["rev-parse", "-q", "--verify", "HEAD"]).line()?,
            }
        }
    };
    Ok(read_head(&text))
}

/// The text of a HEAD file.
pub(super) fn read_head(text: &str) -> Option<Head> {
    match text.trim_end().strip_prefix("ref:") {
        Some(name) => BranchName::of_ref(name.trim_start()).map(Head::Branch),
        None => text.trim_end().parse().ok().map(Head::Detached),
    }
}

/// The same the other way round.
pub(super) fn head_text(head: &Head) -> String {
    match head {
        Head::Branch(branch) => format!("ref: {}", branch.full()),
        Head::Detached(commit) => commit.to_string(),
    }
}

//! Decides whether the host's refs follow those of the sandbox.

use super::Synced;
use super::beside::fits;
use super::gitlinks::Gitlinks;
use super::host_state::{HostState, read_head};
use super::import::{Blocked, ImportMode, Importer};
use super::inside::Inside;
use crate::foreign::{Head, excludes};
use crate::quarantine::{Quarantine, QuarantineError};
use belljar_git::judge;
use belljar_git::push::Update;
use belljar_git::{ObjectId, RefName};
use std::collections::{BTreeMap, BTreeSet};

/// All inputs of a decision.
pub(super) struct Judge<'a> {
    pub(super) importer: &'a Importer<'a>,
    pub(super) synced: &'a Synced,
    pub(super) inside: &'a Inside,
    pub(super) host: &'a HostState,
    pub(super) quarantine: &'a Quarantine,
    /// The commits that are in no ref of the user, with their parents.
    pub(super) commits: &'a BTreeMap<ObjectId, Vec<ObjectId>>,
    pub(super) gitlinks: &'a Gitlinks,
    /// The obstacles of an earlier attempt.
    pub(super) blocked: &'a Blocked,
}

/// The decision on a ref that moved inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Follow,
    Aside(Reason),
}

/// Why the host does not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) text: String,
    /// The commits turn a path into a submodule that is none on the host.
    pub(super) makes_submodule: bool,
    /// It may follow the next time, without a change inside.
    pub(super) passes: bool,
}

impl Reason {
    pub(super) fn new(text: String) -> Reason {
        Reason { text, makes_submodule: false, passes: false }
    }
}

impl Judge<'_> {
    /// A branch that is at `new` inside, and at another commit on the host or missing there. `after` are the host's refs after the
    /// import.
    pub(super) fn branch(
        &self,
        name: &str,
        new: &ObjectId,
        after: &BTreeMap<String, ObjectId>,
    ) -> Result<Verdict, QuarantineError> {
        Ok(self.unless_submodule(self.branch_itself(name, new, after)?, self.gitlink_obstacle(new)))
    }

    fn branch_itself(
        &self,
        name: &str,
        new: &ObjectId,
        after: &BTreeMap<String, ObjectId>,
    ) -> Result<Verdict, QuarantineError> {
        let old = self.host.refs.get(name);
        let is_current = self.host.is_current(name);
        if let Some(reason) = self.nothing_follows(is_current) {
            return Ok(Verdict::Aside(reason));
        }
        let aside = |text: String| Ok(Verdict::Aside(Reason::new(text)));
        if self.host.busy.contains(name) {
            return aside("another worktree of the host uses the branch".to_string());
        }
        if let Some(text) = self.renamed(name) {
            return aside(text);
        }
        let Ok(whole) = RefName::parse(name.as_bytes()) else {
            return aside("its name is not one that git accepts".to_string());
        };
        let zero = ObjectId::zero(self.importer.repository.format());
        let update = Update { old: old.cloned().unwrap_or(zero), new: new.clone(), name: whole };
        // The folder's checked-out branch is the work that the sandbox was given. The agent chooses where HEAD inside points.
        if !is_current && let Err(refusal) = judge::by_name(self.importer.policy, &update) {
            return aside(refusal.to_string());
        }
        if old.is_none() {
            if self.synced.refs.contains_key(name) && !is_current {
                return aside("the host has deleted the branch meanwhile".to_string());
            }
            if let Some(hidden) = self.hidden_by_branch(name) {
                return aside(format!("a branch of this name would hide {hidden}"));
            }
            if let Some(text) = no_room(name, after) {
                return aside(text);
            }
        }
        if !self.is_commit(new)? {
            return aside("a branch is made of commits".to_string());
        }
        if let Some(old) = old
            && !self.contains(new, old)?
            && !self.is_own_rewrite(name, old, new)?
        {
            return aside("the host's branch has commits that are not in it".to_string());
        }
        if !self.importer.policy.workflows && !self.quarantine.keeps_workflows(new, &self.host.judged)? {
            return aside(belljar_git::PushRefusal::Workflows.to_string());
        }
        Ok(Verdict::Follow)
    }

    /// A tag that is new inside, or has moved.
    pub(super) fn tag(&self, name: &str, new: &ObjectId, after: &BTreeMap<String, ObjectId>) -> Verdict {
        let obstacle = match self.commits.contains_key(new) {
            true => self.gitlink_obstacle(new),
            // An annotated tag: its commit is one of these.
            false => self.obstacle_in(new, self.commits.keys()),
        };
        self.unless_submodule(self.tag_itself(name, new, after), obstacle)
    }

    fn tag_itself(&self, name: &str, new: &ObjectId, after: &BTreeMap<String, ObjectId>) -> Verdict {
        let aside = |text: String| Verdict::Aside(Reason::new(text));
        if let Some(reason) = self.nothing_follows(false) {
            return Verdict::Aside(reason);
        }
        if let Some(text) = self.renamed(name) {
            return aside(text);
        }
        let Ok(whole) = RefName::parse(name.as_bytes()) else {
            return aside("its name is not one that git accepts".to_string());
        };
        let zero = ObjectId::zero(self.importer.repository.format());
        let old = self.host.refs.get(name).cloned().unwrap_or(zero);
        if let Err(refusal) =
            judge::by_name(self.importer.policy, &Update { old, new: new.clone(), name: whole })
        {
            return aside(refusal.to_string());
        }
        if let Some(hidden) = self.hidden_by_tag(name) {
            return aside(format!("a tag of this name would hide {hidden}"));
        }
        match no_room(name, after) {
            Some(text) => aside(text),
            None => Verdict::Follow,
        }
    }

    /// A verdict, and the submodule that the commits add: always reported, since git would run its config for a user who merges
    /// them.
    fn unless_submodule(&self, verdict: Verdict, obstacle: Option<String>) -> Verdict {
        match (verdict, obstacle) {
            (verdict, None) => verdict,
            (Verdict::Follow, Some(text)) => {
                Verdict::Aside(Reason { makes_submodule: true, ..Reason::new(text) })
            }
            (Verdict::Aside(Reason { text, passes, .. }), Some(submodule)) => {
                let text = format!("{text}; and {submodule}");
                Verdict::Aside(Reason { text, passes, makes_submodule: true })
            }
        }
    }

    /// HEAD, which has moved inside: the commit that the host's HEAD moves to. `after` are the host's refs after the import.
    pub(super) fn head(&self, head: &Head, after: &BTreeMap<String, ObjectId>) -> Result<ObjectId, Reason> {
        if let Some(reason) = self.nothing_follows(true) {
            return Err(reason);
        }
        let aside = |text: &str| Reason::new(text.to_string());
        let commit = match head {
            Head::Detached(commit) => commit.clone(),
            Head::Branch(branch) => {
                let name = branch.full();
                if self.host.busy.contains(&name) {
                    return Err(aside("another worktree of the host uses the branch"));
                }
                // A checked-out branch follows regardless of the policy: so HEAD moves only to a branch that the policy allows.
                if !self.host.is_current(&name) && !self.importer.policy.allows_branch(branch) {
                    return Err(aside("its branch is not one that the sandbox may change"));
                }
                match (self.inside.refs.get(&name), after.get(&name)) {
                    (Some(inside), Some(host)) if inside == host => host.clone(),
                    (Some(_), _) => return Err(aside("its branch was set aside")),
                    (None, _) => return Err(aside("its branch has no commit yet")),
                }
            }
        };
        match self.gitlink_obstacle(&commit) {
            Some(text) => Err(Reason { makes_submodule: true, ..Reason::new(text) }),
            None => Ok(commit),
        }
    }

    /// Is `old` part of the history of `new`?
    pub(super) fn contains(&self, new: &ObjectId, old: &ObjectId) -> Result<bool, QuarantineError> {
        if new == old || self.new_in(new).iter().any(|commit| self.commits[*commit].contains(old)) {
            return Ok(true);
        }
        // Objects of other kinds are in no history.
        Ok(self.is_commit(old)? && self.is_commit(new)? && self.quarantine.follows(old, new)?)
    }

    /// The new commits that are part of the history of this one.
    pub(super) fn new_in(&self, tip: &ObjectId) -> BTreeSet<&ObjectId> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![tip];
        while let Some(commit) = waiting.pop() {
            if let Some((commit, parents)) = self.commits.get_key_value(commit)
                && found.insert(commit)
            {
                waiting.extend(parents);
            }
        }
        found
    }

    fn renamed(&self, name: &str) -> Option<String> {
        let text = "its name inside is not valid UTF-8, too long, or none that git accepts";
        self.inside.renamed.contains(name).then(|| text.to_string())
    }

    fn nothing_follows(&self, is_checked_out: bool) -> Option<Reason> {
        let reason = |text: String, passes| Some(Reason { passes, ..Reason::new(text) });
        match self.importer.mode {
            ImportMode::Overlay => {
                return reason("the sandbox's files are not applied yet".to_string(), false);
            }
            ImportMode::Bind => {}
        }
        if let Some(what) = self.host.unfinished {
            return reason(format!("the host is in the middle of {what}"), true);
        }
        let was = read_head(&self.synced.head);
        if self.host.head != was && self.host.head != self.inside.head {
            return reason("the host has switched to another branch or commit meanwhile".to_string(), true);
        }
        match self.blocked {
            Blocked::Nothing => None,
            Blocked::CheckedOut(text) if is_checked_out => reason(text.clone(), true),
            Blocked::CheckedOut(_) => None,
            Blocked::Everything(text) => reason(text.clone(), true),
        }
    }

    /// History that this sandbox itself put there may be replaced by other history of the sandbox: if the host's branch is still
    /// where the sandbox put it, and the dropped commits are in no other ref.
    fn is_own_rewrite(&self, name: &str, old: &ObjectId, new: &ObjectId) -> Result<bool, QuarantineError> {
        let (Some(put), Some(before)) = (self.synced.put.get(name), self.synced.before.get(name)) else {
            return Ok(false);
        };
        if put != old || !(before.is_zero() || self.contains(new, before)?) {
            return Ok(false);
        }
        let ours = format!("refs/belljar/{}/", self.importer.id);
        let others = self.host.refs.iter().filter(|(other, _)| *other != name && !other.starts_with(&ours));
        let mut without: Vec<ObjectId> = others.map(|(_, id)| id.clone()).collect();
        without.push(new.clone());
        let from = std::slice::from_ref(old);
        let gone = self.quarantine.commits_without(from, std::slice::from_ref(new))?;
        Ok(gone.len() == self.quarantine.commits_without(from, &without)?.len())
    }

    fn is_commit(&self, id: &ObjectId) -> Result<bool, QuarantineError> {
        if self.commits.contains_key(id) {
            return Ok(true);
        }
        let kinds = self.quarantine.kinds(std::slice::from_ref(id))?;
        Ok(kinds.get(id).is_some_and(|kind| kind == "commit"))
    }

    fn gitlink_obstacle(&self, tip: &ObjectId) -> Option<String> {
        self.obstacle_in(tip, self.new_in(tip))
    }

    fn obstacle_in<'o>(
        &self,
        tip: &'o ObjectId,
        commits: impl IntoIterator<Item = &'o ObjectId>,
    ) -> Option<String> {
        let Importer { repository, host, .. } = self.importer;
        self.gitlinks.obstacle(tip, commits, repository.git(), host)
    }

    /// The name that git on the host would no longer resolve, or would call ambiguous, beside a branch of this name
    /// (gitrevisions(7)).
    fn hidden_by_branch(&self, name: &str) -> Option<String> {
        let short = name.strip_prefix("refs/heads/")?;
        self.hidden(short, &[format!("refs/tags/{short}")])
    }

    fn hidden_by_tag(&self, name: &str) -> Option<String> {
        let short = name.strip_prefix("refs/tags/")?;
        self.hidden(short, &[format!("refs/heads/{short}")])
    }

    fn hidden(&self, short: &str, more: &[String]) -> Option<String> {
        let first = short.split('/').next().unwrap_or(short);
        if matches!(first, "refs" | "heads" | "tags" | "remotes" | "notes" | "stash" | "bisect") {
            return Some(format!("refs below `{first}`"));
        }
        // `HEAD`, `FETCH_HEAD`, and other names of that form that git writes.
        if short.ends_with("HEAD") && !short.contains('/') {
            return Some(format!("git's own `{short}`"));
        }
        if short.len() >= SHORTEST_HASH && short.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some("commits by their hash".to_string());
        }
        let of_remote = format!("refs/remotes/{first}/");
        let mut names = self.host.refs.keys();
        names.find(|name| name.starts_with(&of_remote) || more.contains(name)).map(|name| format!("`{name}`"))
    }
}

/// Why a ref of this name cannot exist beside these.
fn no_room(name: &str, refs: &BTreeMap<String, ObjectId>) -> Option<String> {
    if !fits(name) {
        return Some("its name is too long".to_string());
    }
    let other = refs.keys().find(|other| excludes(other, name))?;
    Some(format!("`{other}` is in the way"))
}

/// git takes a name of this many hex digits for a hash.
const SHORTEST_HASH: usize = 7;

//! The changes of an import to the host, planned before any of them is made.

use super::beside::Beside;
use super::decide::{Judge, Reason, Verdict};
use super::follow::{HeadMove, Trees};
use super::host_state::head_text;
use super::import::ImportMode;
use super::inside::Moved;
use super::{Followed, ImportReport, SetAside, Synced, pin};
use crate::foreign::Head;
use crate::quarantine::{Landing, QuarantineError};
use belljar_git::{ObjectFormat, ObjectId, RefName};
use std::collections::BTreeMap;

/// The changes to the host, and the state that both sides agree on afterwards.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) landings: Vec<Landing>,
    pub(super) head: Option<HeadMove>,
    pub(super) trees: Option<Trees>,
    pub(super) report: ImportReport,
    pub(super) synced: Synced,
}

/// Whether HEAD is considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithHead {
    Yes,
    No,
}

impl Plan {
    pub(super) fn make(
        judge: &Judge<'_>,
        moved: &[Moved],
        with_head: WithHead,
    ) -> Result<Plan, QuarantineError> {
        let format = judge.importer.repository.format();
        let mut making = Making {
            judge,
            format,
            after: judge.host.refs.clone(),
            beside: Beside::new(judge.importer.id, format, &judge.host.refs),
            plan: Plan {
                landings: Vec::new(),
                head: None,
                trees: None,
                report: ImportReport::default(),
                synced: judge.synced.clone(),
            },
        };
        for Moved { name, new } in moved {
            match new {
                Some(new) => making.moved(name, new)?,
                None => making.gone(name)?,
            }
        }
        if with_head == WithHead::Yes && judge.inside.head_moved(judge.synced) {
            making.head()?;
        }
        let Making { mut plan, beside, after, .. } = making;
        // HEAD stays, and its branch follows.
        if let (None, Some(Head::Branch(branch))) = (&plan.head, &judge.host.head) {
            let new = after.get(&branch.full()).filter(|new| judge.host.commit.as_ref() != Some(*new));
            plan.trees = new.map(|new| Trees { old: judge.host.commit.clone(), new: new.clone() });
        }
        let beside = beside.landings();
        let gone = beside.iter().filter(|landing| landing.new.is_zero());
        plan.report.released = gone.map(|landing| landing.name.as_str().to_string()).collect();
        plan.landings.extend(beside);
        Ok(plan)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.landings.is_empty() && self.head.is_none()
    }
}

struct Making<'a> {
    judge: &'a Judge<'a>,
    format: ObjectFormat,
    /// The host's refs after the import.
    after: BTreeMap<String, ObjectId>,
    beside: Beside,
    plan: Plan,
}

impl Making<'_> {
    fn moved(&mut self, name: &str, new: &ObjectId) -> Result<(), QuarantineError> {
        let old = self.judge.host.refs.get(name);
        if old == Some(new) {
            self.plan.synced.refs.insert(name.to_string(), new.clone());
            self.plan.synced.set_aside.remove(name);
            return Ok(());
        }
        let verdict = match name.starts_with("refs/heads/") {
            true => self.judge.branch(name, new, &self.after)?,
            false => self.judge.tag(name, new, &self.after),
        };
        match verdict {
            Verdict::Follow => self.follow(name, old, new),
            Verdict::Aside(reason) => self.set_aside(name, new, reason),
        }
    }

    fn follow(&mut self, name: &str, old: Option<&ObjectId>, new: &ObjectId) -> Result<(), QuarantineError> {
        let zero = ObjectId::zero(self.format);
        let landing = Landing {
            name: RefName::parse(name.as_bytes())
                .map_err(|_| QuarantineError::Unusable(format!("`{name}` cannot be a ref")))?,
            old: old.cloned().unwrap_or_else(|| zero.clone()),
            new: new.clone(),
        };
        let Synced { refs, before, put, set_aside, .. } = &mut self.plan.synced;
        if put.get(name) != old || old.is_none() {
            before.insert(name.to_string(), landing.old.clone());
        }
        put.insert(name.to_string(), new.clone());
        refs.insert(name.to_string(), new.clone());
        set_aside.remove(name);
        self.after.insert(name.to_string(), new.clone());
        self.beside.release(name, |kept| self.judge.contains(new, kept))?;
        let followed = Followed { reference: name.to_string(), old: old.cloned(), new: Some(new.clone()) };
        self.plan.report.followed.push(followed);
        self.plan.landings.push(landing);
        Ok(())
    }

    fn set_aside(&mut self, name: &str, new: &ObjectId, reason: Reason) -> Result<(), QuarantineError> {
        let kept_as = self.beside.keep(name, new, |kept| self.judge.contains(new, kept))?;
        if !reason.passes {
            self.plan.synced.set_aside.insert(name.to_string(), new.clone());
        }
        self.report(name, Some(kept_as), new, reason);
        Ok(())
    }

    /// A ref that is gone inside: the host's goes too if this sandbox made it and it is where the sandbox put it.
    fn gone(&mut self, name: &str) -> Result<(), QuarantineError> {
        let judge = self.judge;
        let Some(old) = judge.host.refs.get(name) else {
            self.forget(name);
            return Ok(());
        };
        let is_own = judge.synced.before.get(name).is_some_and(ObjectId::is_zero)
            && judge.synced.put.get(name) == Some(old);
        // The host's HEAD is on it, and has to move first: at the next import.
        if is_own && judge.host.is_current(name) && judge.importer.mode == ImportMode::Bind {
            return Ok(());
        }
        let is_free = !judge.host.is_current(name) && !judge.host.busy.contains(name);
        self.forget(name);
        if judge.importer.mode == ImportMode::Overlay || !is_own || !is_free {
            self.report(name, None, old, Reason::new("it was deleted inside; the host keeps it".to_string()));
            return Ok(());
        }
        let others = self.after.iter().filter(|(other, _)| *other != name).map(|(_, id)| id.clone());
        let others: Vec<ObjectId> = others.collect();
        let only_here = judge.quarantine.commits_without(std::slice::from_ref(old), &others)?;
        if !only_here.is_empty() {
            let kept_as = self.beside.keep(name, old, |kept| judge.contains(old, kept))?;
            let reason = "its branch was deleted inside, and no other has these commits".to_string();
            self.report(name, Some(kept_as), old, Reason::new(reason));
        }
        self.after.remove(name);
        self.plan.landings.push(Landing {
            name: RefName::parse(name.as_bytes())
                .map_err(|_| QuarantineError::Unusable(format!("`{name}` cannot be a ref")))?,
            old: old.clone(),
            new: ObjectId::zero(self.format),
        });
        let followed = Followed { reference: name.to_string(), old: Some(old.clone()), new: None };
        self.plan.report.followed.push(followed);
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        let Synced { refs, before, put, set_aside, .. } = &mut self.plan.synced;
        for all in [refs, before, put, set_aside] {
            all.remove(name);
        }
    }

    fn head(&mut self) -> Result<(), QuarantineError> {
        let judge = self.judge;
        let Some(head) = judge.inside.head.clone() else { return Ok(()) };
        if judge.host.head.as_ref() == Some(&head) {
            self.agree_on_head(&head);
            return Ok(());
        }
        match judge.head(&head, &self.after) {
            Ok(commit) => {
                let Some(old) = judge.host.head.clone() else { return Ok(()) };
                if !judge.commits.contains_key(&commit) {
                    self.beside.set(&pin::switched(judge.importer.id, &commit), &commit)?;
                }
                self.agree_on_head(&head);
                if let Head::Detached(new) = &head {
                    let (old, new) = (judge.host.commit.clone(), Some(new.clone()));
                    self.plan.report.followed.push(Followed { reference: "HEAD".to_string(), old, new });
                }
                self.plan.report.head = Some(head.clone());
                self.plan.head = Some(HeadMove { old, commit: judge.host.commit.clone(), new: head });
                self.plan.trees = Some(Trees { old: judge.host.commit.clone(), new: commit });
            }
            Err(reason) => {
                let Some(commit) = judge.inside.commit() else { return Ok(()) };
                if !reason.passes {
                    self.plan.synced.set_aside.insert("HEAD".to_string(), commit.clone());
                }
                // Commits in a branch are kept with the branch.
                let is_kept = matches!(head, Head::Branch(_)) || !judge.commits.contains_key(&commit);
                if is_kept && judge.importer.mode == ImportMode::Overlay {
                    return Ok(());
                }
                let kept_as = match is_kept {
                    true => None,
                    false => Some(self.beside.keep("HEAD", &commit, |kept| judge.contains(&commit, kept))?),
                };
                self.report("HEAD", kept_as, &commit, reason);
            }
        }
        Ok(())
    }

    fn agree_on_head(&mut self, head: &Head) {
        self.plan.synced.head = head_text(head);
        self.plan.synced.set_aside.remove("HEAD");
    }

    fn report(&mut self, name: &str, kept_as: Option<String>, commit: &ObjectId, reason: Reason) {
        let Reason { text: reason, makes_submodule, .. } = reason;
        let commit = commit.clone();
        // Without a belljar ref it is a branch that the host keeps.
        let is_on_host = kept_as.is_none();
        let one = SetAside { reference: name.into(), kept_as, commit, is_on_host, reason, makes_submodule };
        self.plan.report.set_aside.push(one);
    }
}

//! The decision on each ref of a push, from its name to the place where it lands.

use crate::quarantine::{HostRef, HostRepository, Landing, Quarantine, QuarantineError, Taken, shown};
use belljar_git::judge::{self, Facts, Questions, Seen};
use belljar_git::push::{Change, Push, Update};
use belljar_git::{ObjectFormat, ObjectId, PushRefusal, RefName};
use belljar_spec::git::RefPolicy;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// The refs of a push, each with the decision so far.
pub(super) struct Moves {
    pub(super) all: Vec<Judged>,
    /// All of them or none.
    is_atomic: bool,
}

/// One ref. Until it is placed, it lands where the client asked.
pub(super) struct Judged {
    pub(super) update: Update,
    pub(super) result: Result<Landing, PushRefusal>,
}

impl Moves {
    /// Judges the refs by their names.
    pub(super) fn new(push: &Push, by_name: impl Fn(&Update) -> Result<Questions, PushRefusal>) -> Moves {
        let judged = |update: &Update| {
            let Update { old, new, name } = update.clone();
            let result = by_name(update).map(|_| Landing { name, old, new });
            Judged { update: update.clone(), result }
        };
        let all = push.updates.iter().map(judged).collect();
        let mut moves = Moves { all, is_atomic: push.capabilities.has("atomic") };
        moves.together();
        moves
    }

    /// Is any ref not refused?
    pub(super) fn any(&self) -> bool {
        self.all.iter().any(|judged| judged.result.is_ok())
    }

    /// The refs that are not refused.
    pub(super) fn landings(&self) -> Vec<Landing> {
        self.all.iter().filter_map(|judged| judged.result.clone().ok()).collect()
    }

    pub(super) fn refuse_all(&mut self, refusal: &PushRefusal) {
        for judged in self.all.iter_mut().filter(|judged| judged.result.is_ok()) {
            judged.result = Err(refusal.clone());
        }
    }

    /// Decides where each of them lands, by the host's present refs.
    pub(super) fn place(&mut self, host: &HostRepository, refs: &[HostRef]) -> Result<(), QuarantineError> {
        let busy = host.busy_branches()?;
        self.each(|Update { old, new, name }, _| {
            let found = find(refs, name);
            // A symbolic ref to a missing one is in no list.
            if found.is_some_and(|found| found.is_symbolic) || (found.is_none() && host.is_symbolic(name)?) {
                return Ok(Err(PushRefusal::Symbolic));
            }
            if id_of(found, host.format()) != *old {
                return Ok(Err(PushRefusal::Stale));
            }
            let landing = match (busy.contains(name.as_str()), name.branch()) {
                (true, Some(_)) if new.is_zero() => return Ok(Err(PushRefusal::InUse)),
                (true, Some(branch)) => {
                    let beside = RefName::parse(format!("refs/belljar/{branch}").as_bytes());
                    let name =
                        beside.map_err(|_| QuarantineError::Unusable(format!("no ref beside `{branch}`")))?;
                    let there = find(refs, &name);
                    if there.is_some_and(|there| there.is_symbolic) {
                        return Ok(Err(PushRefusal::Symbolic));
                    }
                    Landing { old: id_of(there, host.format()), new: new.clone(), name }
                }
                (_, _) => Landing { name: name.clone(), old: old.clone(), new: new.clone() },
            };
            Ok(match in_the_way(refs, &landing) {
                Some(other) => Err(PushRefusal::InTheWay { other }),
                None => Ok(landing),
            })
        })
    }

    /// Judges the refs by their objects.
    pub(super) fn look(
        &mut self,
        quarantine: &Quarantine,
        taken: &Taken,
        policy: &RefPolicy,
        refs: &[HostRef],
    ) -> Result<(), QuarantineError> {
        let mut tips = self.landings().into_iter().map(|landing| landing.new).collect::<Vec<_>>();
        tips.retain(|tip| !tip.is_zero());
        if tips.is_empty() {
            return Ok(());
        }
        let shown = shown(refs);
        quarantine.check_whole(taken, &tips, &shown)?;
        let kinds = quarantine.kinds(&tips)?;
        let looking = Looking { quarantine, shown: &shown, known: RefCell::default() };
        self.each(|update, landing| {
            if update.change() == Change::Delete {
                return Ok(Ok(landing));
            }
            if update.name.branch().is_some() && kinds.get(&update.new).map(String::as_str) != Some("commit")
            {
                return Ok(Err(PushRefusal::Pack { detail: "a branch is made of commits".to_string() }));
            }
            let questions = match judge::by_name(policy, update) {
                Ok(questions) => questions,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let facts = looking.facts(update, questions)?;
            if let Err(refusal) = judge::by_facts(policy, update, facts) {
                return Ok(Err(refusal));
            }
            Ok(match policy.force || looking.takes_all(update, &landing)? {
                true => Ok(landing),
                false => Err(PushRefusal::NotTaken { landed: landing.name }),
            })
        })
    }

    /// Refuses the branches that are in use on the host by now.
    pub(super) fn leave(&mut self, busy: &HashSet<String>) {
        for judged in &mut self.all {
            if judged.result.as_ref().is_ok_and(|landing| busy.contains(landing.name.as_str())) {
                judged.result = Err(PushRefusal::Stale);
            }
        }
        self.together();
    }

    /// Moves them: all at once, or, if that fails and the push is not atomic, one by one.
    pub(super) fn land(&mut self, host: &HostRepository) {
        let landings = self.landings();
        match host.land(&landings) {
            Ok(()) => {}
            Err(error) if self.is_atomic || landings.len() == 1 => self.refuse_all(&error.refusal()),
            Err(_) => {
                for judged in &mut self.all {
                    if let Ok(landing) = &judged.result
                        && let Err(error) = host.land(std::slice::from_ref(landing))
                    {
                        judged.result = Err(error.refusal());
                    }
                }
            }
        }
    }

    /// Judges each ref that is not refused.
    fn each(
        &mut self,
        judge: impl Fn(&Update, Landing) -> Result<Result<Landing, PushRefusal>, QuarantineError>,
    ) -> Result<(), QuarantineError> {
        for judged in &mut self.all {
            if let Ok(landing) = judged.result.clone() {
                judged.result = judge(&judged.update, landing)?;
            }
        }
        self.together();
        Ok(())
    }

    fn together(&mut self) {
        if self.is_atomic && self.all.iter().any(|judged| judged.result.is_err()) {
            self.refuse_all(&PushRefusal::Together);
        }
    }
}

/// A cache of answers about objects. Many refs of a push make the same move: no question is asked twice.
struct Looking<'a> {
    quarantine: &'a Quarantine,
    shown: &'a [ObjectId],
    known: RefCell<HashMap<(ObjectId, ObjectId), bool>>,
}

impl Looking<'_> {
    fn facts(&self, update: &Update, questions: Questions) -> Result<Facts, QuarantineError> {
        let seen = |is_so: bool| if is_so { Seen::Yes } else { Seen::No };
        let mut facts = Facts::UNKNOWN;
        if questions.follows {
            facts.follows = seen(self.follows(&update.old, &update.new)?);
        }
        if questions.keeps_workflows {
            facts.keeps_workflows = seen(self.quarantine.keeps_workflows(&update.new, self.shown)?);
        }
        Ok(facts)
    }

    /// A commit that landed beside a branch earlier may be replaced if the branch contains it by now, or if the new commits build
    /// on it.
    fn takes_all(&self, update: &Update, landing: &Landing) -> Result<bool, QuarantineError> {
        let waits = &landing.old;
        Ok(landing.name == update.name
            || waits.is_zero()
            || self.follows(waits, &update.new)?
            || (!update.old.is_zero() && self.follows(waits, &update.old)?))
    }

    fn follows(&self, old: &ObjectId, new: &ObjectId) -> Result<bool, QuarantineError> {
        let way = (old.clone(), new.clone());
        if let Some(known) = self.known.borrow().get(&way) {
            return Ok(*known);
        }
        let follows = self.quarantine.follows(old, new)?;
        self.known.borrow_mut().insert(way, follows);
        Ok(follows)
    }
}

fn find<'a>(refs: &'a [HostRef], name: &RefName) -> Option<&'a HostRef> {
    refs.iter().find(|one| one.name == name.as_str().as_bytes())
}

fn id_of(found: Option<&HostRef>, format: ObjectFormat) -> ObjectId {
    found.map_or_else(|| ObjectId::zero(format), |found| found.id.clone())
}

/// A ref is a file, and cannot also be a directory of other refs.
fn in_the_way(refs: &[HostRef], landing: &Landing) -> Option<String> {
    let name = landing.name.as_str().as_bytes();
    let is_below = |longer: &[u8], shorter: &[u8]| {
        longer.strip_prefix(shorter).is_some_and(|rest| rest.starts_with(b"/"))
    };
    let other = refs.iter().find(|one| is_below(&one.name, name) || is_below(name, &one.name));
    other.filter(|_| landing.old.is_zero()).map(|one| String::from_utf8_lossy(&one.name).into_owned())
}

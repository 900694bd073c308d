//! Imports a sandbox's commits into the host's repository.
//!
//! ```text
//! inside (files) -> nothing moved: done, without git
//!    -> objects: copied, packed, quarantined, checked -> decided, ref by ref -> admitted -> refs, index, HEAD follow
//! ```
//!
//! If the host's refs move meanwhile, they are read and decided again. If one ref of the sandbox cannot be taken, the others are,
//! one by one. If we are killed at any moment, the host's repository is in its old or its new state; the next import continues from
//! there.

use super::decide::Judge;
use super::follow::{Follow, Obstacle};
use super::gitlinks::Gitlinks;
use super::host_state::HostState;
use super::inside::{Inside, Moved};
use super::plan::{Plan, WithHead};
use super::protected;
use super::{HostGit, ImportReport, SetAside, Synced, step};
use crate::foreign::{Foreign, ForeignError, Head};
use crate::inert::Leash;
use crate::quarantine::{HostRepository, Quarantine, QuarantineError, sweep};
use belljar_git::ObjectId;
use belljar_spec::git::RefPolicy;
use belljar_spec::workspace::ProtectedPath;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Imports the commits of a sandbox's git directory that the host lacks.
#[derive(Clone, Copy)]
pub struct Importer<'a> {
    /// The worktree whose files the sandbox works on.
    pub host: &'a HostGit,
    pub repository: &'a HostRepository,
    /// The sandbox's git directory.
    pub from: &'a Foreign,
    /// The sandbox's name in `refs/belljar/ID/`.
    pub id: &'a str,
    /// Where quarantines are.
    pub state: &'a Path,
    /// The branches that the sandbox may make or move besides the checked-out one, and the size limit of an import.
    pub policy: &'a RefPolicy,
    pub mode: ImportMode,
    /// Paths of the worktree that the sandbox cannot change: a commit that does is reported.
    pub protected: &'a [ProtectedPath],
    /// The sandbox's cgroup and processor time, for every git that reads what the sandbox made. Not for those that hold locks of
    /// the host's repository: the sandbox may be paused.
    pub leash: Option<&'a Leash>,
}

/// The files that the sandbox changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    /// The host's files: its branch, index and HEAD follow.
    Bind,
    /// An overlay: everything is set aside, since the host's files differ from the sandbox's.
    Overlay,
}

/// An obstacle to following.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocked {
    Nothing,
    /// For the checked-out branch: the index cannot follow.
    CheckedOut(String),
    Everything(String),
}

impl Importer<'_> {
    /// Imports the refs that moved since both sides last agreed. Without a call of git if none did. The returned changes are done
    /// and recorded in `synced`, which the caller must write.
    pub fn import(&self, synced: &mut Synced) -> Result<ImportReport, QuarantineError> {
        let inside = Inside::read(self.from).map_err(unreadable)?;
        let mut moved = inside.moved(synced);
        if moved.is_empty() && !inside.head_moved(synced) {
            return Ok(ImportReport::default());
        }
        // Each takes some calls of git; the branch that is checked out inside comes first.
        moved.sort_by_key(|one| !inside.is_current(&one.name));
        let rest = moved.split_off(moved.len().min(MAX_MOVED_REFS));
        // The leftovers of a killed import may lock the index.
        sweep(self.state)?;
        let mut report = match self.take(synced, &inside, &moved, WithHead::Yes, Joining::Try(0)) {
            Err(QuarantineError::Refused(_)) => self.one_by_one(synced, &inside, &moved)?,
            outcome => outcome?,
        };
        let number = rest.len();
        if let Some(commit) = rest.iter().find_map(|one| one.new.clone()) {
            report.set_aside.push(SetAside {
                // Always by the same name: the last value counts.
                reference: "the rest of the refs".into(),
                kept_as: None,
                commit,
                is_on_host: false,
                reason: format!("{number} beyond {MAX_MOVED_REFS} moved at once"),
                makes_submodule: false,
            });
        }
        for Moved { name, new } in rest {
            synced.set_aside.extend(new.map(|new| (name, new)));
        }
        Ok(report)
    }

    /// The repository, for every git that reads the sandbox's work.
    pub(super) fn reading(&self) -> HostRepository {
        match self.leash {
            Some(leash) => self.repository.clone().on_leash(leash),
            None => self.repository.clone(),
        }
    }

    fn one_by_one(
        &self,
        synced: &mut Synced,
        inside: &Inside,
        moved: &[Moved],
    ) -> Result<ImportReport, QuarantineError> {
        let mut report = ImportReport::default();
        let heads = [("HEAD".to_string(), inside.commit())];
        let refs = moved.iter().map(|one| (one.name.clone(), one.new.clone()));
        let until = Instant::now() + ONE_BY_ONE_TIMEOUT;
        for (name, commit) in refs.chain(heads) {
            let (moved, with_head) = match name == "HEAD" {
                true => (Vec::new(), WithHead::Yes),
                false => (vec![Moved { name: name.clone(), new: commit.clone() }], WithHead::No),
            };
            let taken = match Instant::now() < until {
                true => self.take(synced, inside, &moved, with_head, Joining::Try(0)),
                false => Err(too_slow()),
            };
            match (taken, commit) {
                (Err(QuarantineError::Refused(refusal)), Some(commit)) => {
                    synced.set_aside.insert(name.clone(), commit.clone());
                    let (reference, reason) = (name.as_str().into(), refusal.to_string());
                    report.set_aside.push(SetAside {
                        reference,
                        kept_as: None,
                        commit,
                        is_on_host: false,
                        reason,
                        makes_submodule: false,
                    });
                }
                (outcome, _) => report.join(outcome?),
            }
        }
        Ok(report)
    }

    fn take(
        &self,
        synced: &mut Synced,
        inside: &Inside,
        moved: &[Moved],
        with_head: WithHead,
        joining: Joining,
    ) -> Result<ImportReport, QuarantineError> {
        let mut host = HostState::read(self.repository, self.host)?;
        let quarantine = Quarantine::create(self.state, &self.reading())?;
        step("quarantine");
        let head =
            (with_head == WithHead::Yes && inside.head_moved(synced)).then(|| inside.commit()).flatten();
        let detached = matches!(inside.head, Some(Head::Detached(_)));
        let mut tips: Vec<ObjectId> = moved.iter().filter_map(|one| one.new.clone()).collect();
        tips.extend(head.clone().filter(|_| detached));
        let mut judged: Vec<ObjectId> =
            tips.iter().filter(|tip| !host.judged.contains(tip)).cloned().collect();
        tips.retain(|tip| !host.ids.contains(tip));
        let known = host.known();
        let taken = match tips.is_empty() {
            true => None,
            false => {
                let limits = self.policy.limits;
                let taken = quarantine.take_from(self.from, self.repository, &tips, &known, limits)?;
                step("taken");
                Some(taken)
            }
        };
        let as_inside = moved;
        let joined = match joining {
            Joining::Try(_) => self.join(synced, inside, &host, &quarantine, moved)?,
            Joining::Lost | Joining::Refused => None,
        };
        let joined_moved = joined.as_ref().map(|joined| joined.moved(moved));
        let moved = joined_moved.as_deref().unwrap_or(moved);
        if let Some(joined) = &joined {
            judged.push(joined.merged.commit.clone());
            step("joined");
        }
        let taken = joined.as_ref().map(|joined| &joined.merged.taken).or(taken.as_ref());
        let commits = match judged.is_empty() {
            true => BTreeMap::new(),
            false => quarantine.new_commits(taken, &judged, &host.own_history())?,
        };
        let files = quarantine.index_files(&self.host.own);
        let message = format!("belljar: from sandbox {}", self.id);
        let mut blocked = Blocked::Nothing;
        for attempt in 0.. {
            let changes = self.changes(&quarantine, &host, moved, head.as_ref(), &commits)?;
            let gitlinks = Gitlinks::read(&changes);
            let judge = Judge {
                importer: self,
                synced,
                inside,
                host: &host,
                quarantine: &quarantine,
                commits: &commits,
                gitlinks: &gitlinks,
                blocked: &blocked,
            };
            let plan = Plan::make(&judge, moved, with_head)?;
            if joined.as_ref().is_some_and(|joined| joined.is_set_aside(&plan.report)) {
                return self.take(synced, inside, as_inside, with_head, Joining::Refused);
            }
            let lfs = self.take_lfs(&quarantine, taken)?;
            if !plan.is_empty() {
                let _admitted = quarantine.admit_import(taken, self.repository, &plan.landings, &files)?;
                step("admitted");
                let follow = Follow {
                    quarantine: &quarantine,
                    repository: self.repository,
                    host: self.host,
                    files: &files,
                    landings: &plan.landings,
                    head: plan.head.as_ref(),
                    trees: plan.trees.as_ref(),
                    on: host.head.as_ref(),
                    message: &message,
                };
                match follow.carry_out() {
                    Ok(()) => {}
                    Err(Obstacle::Failed(error)) => return Err(error),
                    Err(Obstacle::Moved(reason)) if attempt > MAX_ATTEMPTS => {
                        return Err(QuarantineError::Unusable(reason));
                    }
                    // The merge was made with a commit that the host's branch has since moved on from.
                    Err(Obstacle::Moved(_)) if joined.is_some() => {
                        return self.take(synced, inside, as_inside, with_head, joining.after_a_lost_race());
                    }
                    Err(obstacle) => {
                        blocked = blocked.after(obstacle, attempt);
                        host = HostState::read(self.repository, self.host)?;
                        continue;
                    }
                }
            }
            let Plan { synced: mut agreed, mut report, .. } = plan;
            if joining == Joining::Lost {
                // The host keeps moving: the next import tries again.
                agreed.set_aside.retain(|name, _| !host.is_current(name));
            }
            report.notes.extend(lfs);
            report.notes.extend(protected::note(&changes, &commits, self.protected));
            joined.iter().for_each(|joined| joined.settle(&mut agreed, &mut report));
            *synced = agreed;
            return Ok(report);
        }
        Ok(ImportReport::default())
    }

    /// The changes that the host would follow to, as raw records of `git diff-tree`.
    fn changes(
        &self,
        quarantine: &Quarantine,
        host: &HostState,
        moved: &[Moved],
        head: Option<&ObjectId>,
        commits: &BTreeMap<ObjectId, Vec<ObjectId>>,
    ) -> Result<Vec<u8>, QuarantineError> {
        if self.mode == ImportMode::Overlay {
            return Ok(Vec::new());
        }
        let mut lines = commits.keys().map(|commit| format!("{commit}\n")).collect::<String>();
        for Moved { name, new } in moved {
            // From the first to the last, since the last commit alone does not show the changes of those before it.
            if let (Some(new), Some(old)) = (new, host.refs.get(name))
                && (commits.contains_key(new) || host.is_current(name))
            {
                lines += &format!("{new} {old}\n");
            }
        }
        // The index moves from one to the other, even if no commit is new.
        if let (Some(new), Some(old)) = (head, &host.commit) {
            lines += &format!("{new} {old}\n");
        }
        match lines.is_empty() {
            true => Ok(Vec::new()),
            false => quarantine.raw_changes(&lines),
        }
    }
}

/// Whether two sides of a branch are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    /// Merge if possible; the number of times that it was tried and the host moved meanwhile.
    Try(u32),
    /// The host moved every time.
    Lost,
    /// The host may not follow to the merge.
    Refused,
}

impl Joining {
    fn after_a_lost_race(self) -> Joining {
        match self {
            Joining::Try(times) if times < MAX_ATTEMPTS => Joining::Try(times + 1),
            Joining::Try(_) | Joining::Lost | Joining::Refused => Joining::Lost,
        }
    }
}

impl Blocked {
    fn after(&self, obstacle: Obstacle, attempt: u32) -> Blocked {
        match obstacle {
            Obstacle::Index(reason) => Blocked::CheckedOut(reason),
            // The user moved a ref on the host first; after the second time no ref follows, but the commits are kept.
            Obstacle::Moved(reason) if attempt > 0 => Blocked::Everything(reason),
            Obstacle::Moved(_) | Obstacle::Died | Obstacle::Failed(_) => self.clone(),
        }
    }
}

impl ImportReport {
    /// Combines the reports of two imports, one after the other.
    pub fn join(&mut self, other: ImportReport) {
        self.is_partial |= other.is_partial;
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.followed.extend(other.followed);
        // Commits that were set aside, and are in a branch by now.
        let is_released =
            |one: &SetAside| one.kept_as.as_ref().is_some_and(|name| other.released.contains(name));
        // Only a branch that was deleted inside is reported without a belljar ref while the host has it.
        let is_made_again = |one: &SetAside| {
            one.kept_as.is_none() && one.is_on_host && other.present.contains(&one.reference.to_string())
        };
        self.set_aside.retain(|known| !is_released(known) && !is_made_again(known));
        for one in other.set_aside {
            // Reported once, however often it is tried.
            self.set_aside.retain(|known| known.reference != one.reference || known.kept_as != one.kept_as);
            self.set_aside.push(one);
        }
        self.head = other.head.or(self.head.take());
        self.unfinished = other.unfinished.or(self.unfinished);
    }
}

/// Nothing can be read: the agent has damaged its git directory, and it is no repository any more.
pub(super) fn unreadable(error: ForeignError) -> QuarantineError {
    QuarantineError::pack(error.to_string())
}

/// Many refs of the agent are no commits, and each takes a while to be refused.
pub(super) fn too_slow() -> QuarantineError {
    QuarantineError::pack("there is too much that is refused")
}

const MAX_ATTEMPTS: u32 = 3;
/// Each may copy as much as all together.
pub(super) const ONE_BY_ONE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of refs that one import handles.
const MAX_MOVED_REFS: usize = 256;

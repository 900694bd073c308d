//! Work that only the sandbox's git directory has when the sandbox ends: stashes, dropped commits, and unfinished operations of git
//! inside.

use super::beside::Beside;
use super::follow::{Follow, Obstacle};
use super::gitlinks::Gitlinks;
use super::host_state::HostState;
use super::import::{ONE_BY_ONE_TIMEOUT, too_slow, unreadable};
use super::inside::Inside;
use super::worktrees::Worktree;
use super::{ImportReport, Importer, SetAside, Synced};
use crate::quarantine::{Quarantine, QuarantineError};
use belljar_git::ObjectId;
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

impl Importer<'_> {
    /// The last import of a sandbox: refs that were set aside have another chance to be followed, and commits that are in no ref
    /// inside are kept beside the host's branches: stash entries as `refs/belljar/ID/stash/N`, dropped commits as
    /// `refs/belljar/ID/dropped/N`.
    pub fn finish(&self, synced: &mut Synced) -> Result<ImportReport, QuarantineError> {
        synced.set_aside.clear();
        let mut report = self.import(synced)?;
        // Refs that waited for HEAD to move. Without any, no git is started.
        report.join(self.import(synced)?);
        let inside = Inside::read(self.from).map_err(unreadable)?;
        report.unfinished = inside.unfinished;
        report.present = inside.refs.keys().cloned().collect();
        let stash = self.stash()?;
        let worktrees = self.worktrees();
        let dropped = self.dropped(&inside, &stash, &worktrees)?;
        report.notes.extend(worktrees.iter().filter_map(Worktree::sentence));
        let all: Vec<ObjectId> = stash.iter().chain(&dropped).cloned().collect();
        let missing = self.missing(&all)?;
        let mut unreachable: Vec<ObjectId> = all.into_iter().filter(|id| missing.contains(id)).collect();
        if unreachable.len() > MAX_REFS {
            let number = unreachable.len() - MAX_REFS;
            report.set_aside.push(SetAside {
                reference: format!("{number} more stashes or dropped commits").as_str().into(),
                kept_as: None,
                commit: unreachable[MAX_REFS].clone(),
                is_on_host: false,
                reason: format!("there are more than {MAX_REFS}"),
                makes_submodule: false,
            });
            unreachable.truncate(MAX_REFS);
        }
        if !unreachable.is_empty() {
            match self.keep(&unreachable, &stash, &mut report) {
                Err(QuarantineError::Refused(_)) => {
                    let until = Instant::now() + ONE_BY_ONE_TIMEOUT;
                    for one in unreachable {
                        let kept = match Instant::now() < until {
                            true => self.keep(std::slice::from_ref(&one), &stash, &mut report),
                            false => Err(too_slow()),
                        };
                        if let Err(QuarantineError::Refused(refusal)) = kept {
                            let name = if stash.contains(&one) { "a stash" } else { "a commit" };
                            let (reference, reason) = (name.into(), refusal.to_string());
                            report.set_aside.push(SetAside {
                                reference,
                                kept_as: None,
                                commit: one,
                                is_on_host: false,
                                reason,
                                makes_submodule: false,
                            });
                        }
                    }
                }
                outcome => outcome?,
            }
        }
        Ok(report)
    }

    /// Stash entries, newest first.
    fn stash(&self) -> Result<Vec<ObjectId>, QuarantineError> {
        let top = self.from.read("refs/stash", MAX_REF_BYTES).ok().flatten().unwrap_or_default();
        let Ok(top) = ObjectId::parse(top.trim_ascii_end()) else { return Ok(Vec::new()) };
        let mut entries = self.from.log("refs/stash").map_err(unreadable)?;
        if entries.last() != Some(&top) {
            entries.push(top);
        }
        entries.reverse();
        Ok(entries)
    }

    /// Commits that HEAD or a branch was at, and that no ref inside has now.
    fn dropped(
        &self,
        inside: &Inside,
        stash: &[ObjectId],
        worktrees: &[Worktree],
    ) -> Result<Vec<ObjectId>, QuarantineError> {
        let mut seen: HashSet<ObjectId> = inside.refs.values().chain(stash).cloned().collect();
        let heads = worktrees.iter().flat_map(|one| one.heads.iter().cloned());
        let mut dropped: Vec<ObjectId> = heads.filter(|id| seen.insert(id.clone())).collect();
        let mut names = self.from.logged_branches().map_err(unreadable)?;
        names.truncate(MAX_LOGS);
        names.insert(0, "HEAD".to_string());
        // Without packs, a commit that is no loose object does not exist: a log can name anything.
        let has_packs = self.from.names("objects/pack").is_ok_and(|names| !names.is_empty());
        for name in names {
            // A log that cannot be read is not used by git inside either.
            let ids = self.from.log(&name).unwrap_or_default();
            let is_there = |id: &ObjectId| has_packs || self.from.has_loose(id);
            dropped.extend(ids.into_iter().filter(|id| seen.insert(id.clone()) && is_there(id)));
            if seen.len() > MAX_LOGGED {
                break;
            }
        }
        // Newest first: they are at the end of the logs.
        dropped.reverse();
        Ok(dropped)
    }

    /// The commits that the host does not have.
    fn missing(&self, ids: &[ObjectId]) -> Result<BTreeSet<ObjectId>, QuarantineError> {
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let names = ids.iter().map(|id| format!("{id}\n")).collect::<String>();
        let call = self.repository.call().args(["cat-file", "--batch-check=%(objectname)", "--buffer"]);
        let answers = call.output_with(names.as_bytes())?;
        let answers = String::from_utf8_lossy(&answers);
        let missing = answers.lines().filter_map(|line| line.strip_suffix(" missing"));
        Ok(missing.filter_map(|id| id.parse().ok()).collect())
    }

    fn keep(
        &self,
        tips: &[ObjectId],
        stash: &[ObjectId],
        report: &mut ImportReport,
    ) -> Result<(), QuarantineError> {
        let host = HostState::read(self.repository, self.host)?;
        let quarantine = Quarantine::create(self.state, &self.reading())?;
        let known = host.known();
        let taken = quarantine.take_from(self.from, self.repository, tips, &known, self.policy.limits)?;
        report.notes.extend(self.take_lfs(&quarantine, Some(&taken))?);
        let commits = quarantine.new_commits(Some(&taken), tips, &known)?;
        let parents: HashSet<&ObjectId> = commits.values().flatten().collect();
        let lines = commits.keys().map(|commit| format!("{commit}\n")).collect::<String>();
        let gitlinks = Gitlinks::read(&quarantine.raw_changes(&lines)?);
        let mut beside = Beside::new(self.id, self.repository.format(), &host.refs);
        for tip in tips {
            let submodule = gitlinks.obstacle(tip, commits.keys(), self.repository.git(), self.host);
            let (reference, kept_as, reason) = match stash.iter().position(|entry| entry == tip) {
                Some(number) => {
                    let name = format!("refs/stash/{number}");
                    let kept_as = beside.keep(&name, tip, |_| Ok(false))?;
                    (format!("stash@{{{number}}}"), kept_as, "it was stashed inside")
                }
                // A commit's ancestors are kept with it.
                None if parents.contains(tip) => continue,
                None => {
                    let kept_as = beside.keep_numbered("dropped", tip)?;
                    ("reflog".to_string(), kept_as, "no branch inside has it any more")
                }
            };
            report.set_aside.push(SetAside {
                reference: reference.as_str().into(),
                kept_as: Some(kept_as),
                is_on_host: true,
                commit: tip.clone(),
                makes_submodule: submodule.is_some(),
                reason: submodule
                    .map_or(reason.to_string(), |submodule| format!("{reason}; and {submodule}")),
            });
        }
        let files = quarantine.index_files(&self.host.own);
        let landings = beside.landings();
        let _admitted = quarantine.admit_import(Some(&taken), self.repository, &landings, &files)?;
        let message = format!("belljar: from sandbox {}", self.id);
        let follow = Follow {
            quarantine: &quarantine,
            repository: self.repository,
            host: self.host,
            files: &files,
            landings: &landings,
            head: None,
            trees: None,
            on: host.head.as_ref(),
            message: &message,
        };
        match follow.carry_out() {
            Ok(()) => Ok(()),
            Err(Obstacle::Failed(error)) => Err(error),
            Err(Obstacle::Moved(reason) | Obstacle::Index(reason)) => Err(QuarantineError::Unusable(reason)),
            Err(Obstacle::Died) => Err(QuarantineError::Unusable("git on the host was killed".to_string())),
        }
    }
}

const MAX_REF_BYTES: u64 = 4096;
/// Limit of stashes and dropped commits: each becomes a ref.
const MAX_REFS: usize = 256;
/// Limit of logs that are read, each of which may be long.
const MAX_LOGS: usize = 256;
/// Limit of commits that the logs name together.
const MAX_LOGGED: usize = 200_000;

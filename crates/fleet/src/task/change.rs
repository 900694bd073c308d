//! Starting, pausing and ending a sandbox.

use super::work::{Done, Finding};
use super::{Task, time, work};
use crate::access::Gate;
use crate::command::{Acquire, Answer, Change, Command};
use crate::machine::{Act, Event, Phase, step};
use crate::permission::OWNER;
use crate::record::{Intent, Record};
use crate::refusal;
use crate::sandbox_dir::SandboxDir;
use crate::shim::{Shim, ShimPlan, Stop};
use crate::snapshots::{Forkable, SnapshotOrder, SnapshotReport, Subject};
use crate::sweep::{make_place, report};
use belljar_api::{SandboxInfo, SweptSandbox};
use belljar_spec::SandboxError;
use belljar_state::new_id;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

impl Task {
    pub(super) async fn change(&mut self, change: Change, answer: Answer<SandboxInfo>) {
        if self.work.is_some() {
            if change == Change::Delete && self.is_starting() && self.cancel_at.is_none() {
                self.cancel_at = Some(self.now() + time::START_GRACE_MS);
            }
            return self.later.push_back(Command::Change(change, answer));
        }
        match (step(self.phase, change.event(), self.nature()), self.shim.clone()) {
            ((_, Act::Wait), _) => self.later.push_back(Command::Change(change, answer)),
            ((_, Act::Nothing), _) => drop(answer.send(Ok(self.tell()))),
            ((next, Act::Pause | Act::Resume), Some(shim)) => {
                self.work = Some(work::change(shim, change, next, answer));
            }
            ((next, Act::End(files)), _) => {
                // It is answered when it has arrived there.
                self.later.push_front(Command::Change(change, answer));
                self.phase = next;
                self.end(files).await;
            }
            ((_, Act::Refuse | Act::Start | Act::Pause | Act::Resume), _) => {
                drop(answer.send(Err(refusal::not_alive(&self.record.name))));
            }
        }
    }

    /// Takes a snapshot or goes back to one: its shim does it, or, where none lives, this process with the sandbox's lock.
    pub(super) fn snapshot(&mut self, order: Box<SnapshotOrder>, answer: Answer<SnapshotReport>) {
        if self.work.is_some() {
            return self.later.push_back(Command::Snapshot(order, answer));
        }
        match (self.phase, self.shim.clone()) {
            (Phase::Live | Phase::Paused, Some(shim)) => {
                self.work = Some(work::snapshot(shim, order, answer));
            }
            (Phase::Stopped, _) if self.made => match Subject::stopped(self.place.clone(), &self.record) {
                Ok(subject) => self.work = Some(work::snapshot_stopped(subject, order, answer)),
                Err(error) => drop(answer.send(Err(error))),
            },
            (Phase::Starting | Phase::Stopping(_), _) => {
                self.later.push_back(Command::Snapshot(order, answer));
            }
            (Phase::Live | Phase::Paused | Phase::Stopped | Phase::Gone, _) => {
                drop(answer.send(Err(refusal::not_alive(&self.record.name))));
            }
        }
    }

    pub(super) fn forkable(&self) -> Result<Forkable, SandboxError> {
        // Of an older record the sum alone is known.
        let requested = self.record.requested.clone().unwrap_or_else(|| self.record.sandbox.clone());
        Ok(Forkable {
            requested,
            profile: self.record.profile.clone(),
            persistent: self.record.persistent,
            idle_s: self.record.idle_s,
        })
    }

    pub(super) async fn done(&mut self, done: Done) {
        self.cancel_at = None;
        match done {
            Done::Turn(turn) => self.start(turn).await,
            Done::Started(Ok(shim)) => self.ready(shim, false),
            Done::Started(Err(error)) => self.failed(error).await,
            Done::Found(finding) => self.found(finding).await,
            Done::Changed { change, to, outcome, answer } => {
                if outcome.is_ok() {
                    self.phase = to;
                    self.open();
                    self.tell();
                }
                let _ = answer.send(outcome.map(|()| self.tell()));
                debug_assert!(
                    matches!(change, Change::Pause | Change::Resume),
                    "others are no work of this kind"
                );
            }
            Done::Snapped { outcome, answer } => drop(answer.send(outcome)),
            Done::Looked { status, entered } => self.looked(status, entered).await,
            Done::Ended(outcome) => self.ended(outcome).await,
        }
    }

    /// Puts on disk that it is to live, before anything is started.
    pub(super) async fn prepare(&mut self, hold: &Acquire) -> Result<(), SandboxError> {
        self.world.reserve.before_start(self.made);
        if self.made {
            let (sandbox, note) = hold.lease_request.woken(&self.record)?;
            let mut woken = Record { sandbox, ..self.record.clone() };
            hold.lease_request.must_fit(&woken)?;
            if !hold.lease_request.environment.is_empty() {
                woken.environment = hold.lease_request.environment.clone();
            }
            let before = std::mem::replace(&mut self.record, woken);
            self.remember(hold);
            self.record.intent = Intent::Live;
            self.record.fault = None;
            let written = self.write().await;
            self.wake_note = note;
            return written.inspect_err(|_| self.record = before);
        }
        self.remember(hold);
        let (place, record) = (self.place.clone(), self.record.clone());
        let made = tokio::task::spawn_blocking(move || make_place(&place, &record)).await;
        let made = made.unwrap_or_else(|_| Err(work::mute()));
        self.made = made.is_ok();
        if made.is_err() {
            self.phase = Phase::Gone;
        }
        made
    }

    pub(super) fn wait_for_turn(&mut self) {
        self.access.set(Gate::Wait);
        self.work = Some(work::turn(self.world.starts.clone()));
    }

    async fn start(&mut self, turn: Option<OwnedSemaphorePermit>) {
        let plan = match turn {
            // The caller hung up while the start waited: nothing was started, and nothing is.
            Some(turn) if self.is_needed() => self.plan().map(|plan| (turn, plan)),
            Some(_) | None => Err(refusal::closing()),
        };
        match plan {
            Ok((turn, plan)) => {
                let (shims, place) = (self.world.shims.clone(), self.place.clone());
                self.work = Some(work::start(shims, place, plan, turn));
            }
            Err(error) => self.failed(error).await,
        }
    }

    /// What the shim of a new life is told. Nothing of the last one is left to be mistaken for it.
    fn plan(&self) -> Result<ShimPlan, SandboxError> {
        clear_life(&self.place);
        Ok(ShimPlan {
            name: self.record.name.clone(),
            key: self.record.key.clone(),
            id: new_id()?.to_string(),
            sandbox: self.record.sandbox.clone(),
            persistent: self.record.persistent,
            is_owners: self.record.owner == OWNER,
            environment: self.record.environment.clone(),
        })
    }

    fn ready(&mut self, shim: Arc<dyn Shim>, paused: bool) {
        self.phase = step(self.phase, Event::Ready { paused }, self.nature()).0;
        let now = self.now();
        self.record.alive = Some(shim.alive().clone());
        self.record.fault = None;
        self.write_at = Some(now);
        self.idle_since = now;
        self.keep(shim);
    }

    /// This is its shim from now on.
    fn keep(&mut self, shim: Arc<dyn Shim>) {
        let watched = shim.clone();
        self.death = Some(Box::pin(async move { watched.gone().await }));
        self.shim = Some(shim);
        self.open();
    }

    fn open(&mut self) {
        // Also while it is paused: its files and what its commands wrote can be read, and the shim refuses the rest.
        if let (Phase::Live | Phase::Paused, Some(shim)) = (self.phase, &self.shim) {
            self.access.set(Gate::Open(shim.clone()));
        }
    }

    async fn failed(&mut self, error: SandboxError) {
        self.record.fault = Some(error.message.clone());
        for command in std::mem::take(&mut self.later) {
            match command {
                Command::Acquire(hold) => self.failures.push((hold.answer, error.clone())),
                other => self.later.push_back(other),
            }
        }
        self.act_on(Event::Failed).await;
    }

    /// Ends a start that hangs: once the task drops its wait, the shim is killed, and all that it started dies with it.
    pub(super) async fn cancel_start(&mut self) {
        self.cancel_at = None;
        self.work = None;
        self.failed(refusal::deleted(&self.record.name)).await;
    }

    /// Looks whether its shim lives. Until that is known every request waits.
    pub(super) fn search(&mut self) {
        self.searching = true;
        self.access.set(Gate::Wait);
        self.work = Some(work::find(self.world.shims.clone(), self.place.clone()));
    }

    async fn found(&mut self, finding: Finding) {
        self.searching = false;
        match finding {
            Finding::Alive { shim, paused } if self.phase == Phase::Starting => {
                let intent = self.record.intent;
                self.ready(shim, paused);
                let event = match intent {
                    Intent::Live => return,
                    Intent::Stopped => Event::Stop,
                    Intent::Deleting => Event::Delete,
                };
                self.act_on(event).await;
            }
            Finding::Alive { shim, paused } => {
                self.phase = if paused { Phase::Paused } else { Phase::Live };
                self.keep(shim);
            }
            Finding::Dead => {
                self.record.fault = Some("its shim died".into());
                if self.phase == Phase::Starting && self.record.was_ready() {
                    // It was found on disk, and has been alive.
                    self.phase = Phase::Live;
                }
                let deleting = self.record.intent == Intent::Deleting && self.is_alive();
                self.act_on(if deleting { Event::Delete } else { Event::Died }).await;
            }
            Finding::Mute => {
                let error = work::mute();
                self.record.fault = Some(error.message.clone());
                self.access.set(Gate::Shut(error.clone()));
                self.refuse_later(&error);
                self.retry_at = Some(self.now() + time::RETRY_MS);
            }
        }
    }

    async fn act_on(&mut self, event: Event) {
        if let (next, Act::End(files)) = step(self.phase, event, self.nature()) {
            self.phase = next;
            self.end(files).await;
        }
    }

    /// Sweeps it, if its shim died unnoticed.
    pub(super) async fn check(&mut self, dry_run: bool) -> Option<SweptSandbox> {
        if self.work.is_some() || !self.is_alive() || !matches!(self.place.hold(), Ok(Some(_))) {
            return None;
        }
        let swept = report(&self.record, self.nature().files(), "its shim is dead");
        if !dry_run {
            self.record.fault = Some("its shim died".into());
            self.act_on(Event::Died).await;
        }
        Some(swept)
    }

    /// Ends its shim. The intent is on disk first: if this daemon dies, the next one continues with it.
    pub(super) async fn end(&mut self, files: Stop) {
        self.access.set(Gate::Shut(refusal::not_alive(&self.record.name)));
        self.death = None;
        self.record.leases.clear();
        self.record.intent = match files {
            Stop::Keep => Intent::Stopped,
            Stop::Wipe => Intent::Deleting,
        };
        if self.made {
            // If not, it is ended all the same; at worst the next daemon finds it dead.
            let _ = self.write().await;
        }
        let (shims, place) = (self.world.shims.clone(), self.place.clone());
        let died = self.record.fault.is_some();
        self.work = Some(work::end(shims, place, self.shim.take(), files, died));
    }

    async fn ended(&mut self, outcome: Result<(), SandboxError>) {
        if let Err(error) = outcome {
            self.record.fault = Some(error.message.clone());
            self.retry_at = Some(self.now() + time::RETRY_MS);
            self.answer_failures();
            return self.refuse_later(&error);
        }
        self.running = 0;
        self.phase = step(self.phase, Event::Ended, self.nature()).0;
        if self.phase == Phase::Stopped {
            clear_life(&self.place);
            self.write_at = Some(self.now());
            self.answer_failures();
        }
    }

    /// Tells the callers that waited for a start why it failed, now that nothing is left of it.
    pub(super) fn answer_failures(&mut self) {
        self.tell();
        for (answer, error) in std::mem::take(&mut self.failures) {
            let _ = answer.send(Err(error));
        }
    }
}

/// What a shim left of its life, which says nothing any more.
fn clear_life(place: &SandboxDir) {
    // The last two are of builds that wrote plans and failures to files.
    for file in ["keeper.json", "plan.json", "failed.json"] {
        // Not there, most of the time.
        let _ = std::fs::remove_file(place.directory().join(file));
    }
}

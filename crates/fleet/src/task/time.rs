//! What happens to a sandbox with time: leases end, and one without leases or use ends too.

use super::{Task, work};
use crate::command::Change;
use crate::machine::{Act, Event, Phase, step};
use crate::refusal;
use crate::shim::Status;
use belljar_spec::SandboxError;
use std::time::Duration;

impl Task {
    /// How long there is nothing to do.
    pub(super) fn until_next(&self) -> Duration {
        let now = self.now();
        let idle = if self.work.is_none() { self.look_at() } else { None };
        let retry = if self.work.is_none() { self.retry_at } else { None };
        let next = [self.record.leases.next_end(), idle, self.write_at, retry, self.cancel_at];
        let next = next.into_iter().flatten().min();
        let pause = next.map_or(MAX_INTERVAL_MS, |at| at.saturating_sub(now).clamp(0, MAX_INTERVAL_MS));
        Duration::from_millis(u64::try_from(pause).unwrap_or_default())
    }

    pub(super) async fn tick(&mut self) {
        let now = self.now();
        self.expire();
        if self.write_at.is_some_and(|at| at <= now) {
            // It is tried again.
            let _ = self.write().await;
        }
        if self.cancel_at.is_some_and(|at| at <= now) {
            return self.cancel_start().await;
        }
        if self.work.is_some() {
            return;
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            match self.phase {
                Phase::Stopping(files) => self.end(files).await,
                Phase::Starting | Phase::Live | Phase::Paused => self.search(),
                Phase::Stopped | Phase::Gone => {}
            }
            return;
        }
        if let (Some(at), Some(shim)) = (self.look_at(), &self.shim)
            && at <= now
        {
            self.work = Some(work::look(shim.clone(), self.access.entered()));
        }
    }

    /// A look inside, before it is ended: a running command counts as use.
    pub(super) async fn looked(&mut self, status: Result<Status, SandboxError>, entered: u64) {
        let now = self.now();
        self.looked = true;
        let Ok(status) = status else {
            // Perhaps it is dying; that is found out elsewhere.
            self.not_before = now + RETRY_MS;
            return;
        };
        self.running = status.commands;
        if !self.record.leases.is_empty() || !self.is_alive() {
            return;
        }
        if status.commands > 0 {
            self.idle_since = now;
            self.not_before = now + LEAST_MS;
            return;
        }
        self.idle_since = self.idle_since.max(status.used_ms.min(now));
        let due = !self.closing.is_empty() || self.idle_end().is_some_and(|at| at <= now);
        if due && self.access.shut_if_unused(entered, refusal::not_alive(&self.record.name)) {
            if let (next, Act::End(files)) = step(self.phase, Event::Idle, self.nature()) {
                self.phase = next;
                self.end(files).await;
            }
            return;
        }
        self.not_before = now + LEAST_MS;
    }

    /// When it ends unless it is held or used before.
    pub(super) fn idle_end(&self) -> Option<i64> {
        if !self.is_alive() || !self.record.leases.is_empty() {
            return None;
        }
        // A request may still get it; not at the end of the daemon.
        if self.closing.is_empty() && self.record.warm && self.is_waiting() {
            return None;
        }
        let idle_ms = i64::try_from(self.record.idle_s).unwrap_or(i64::MAX).saturating_mul(1000);
        Some(self.idle_since.max(self.access.used_ms()).saturating_add(idle_ms))
    }

    /// When the task should look whether it is used.
    fn look_at(&self) -> Option<i64> {
        let end = self.idle_end()?;
        // At the end of the daemon there is no later.
        let hurry = !self.closing.is_empty() && !self.looked;
        Some(if hurry { 0 } else { end.max(self.not_before) })
    }
}

impl Change {
    pub(super) fn event(self) -> Event {
        match self {
            Change::Pause => Event::Pause,
            Change::Resume => Event::Resume,
            Change::Stop => Event::Stop,
            Change::Delete => Event::Delete,
        }
    }
}

/// How late the record may know of a use.
pub(crate) const LAZY_MS: i64 = 10_000;
/// When something that failed is tried again.
pub(super) const RETRY_MS: i64 = 5_000;
/// How long a deletion waits for a start that is under way: most are done by then, and the caller has its sandbox.
pub(super) const START_GRACE_MS: i64 = 10_000;
/// A sandbox that is in use is not looked at more often.
const LEAST_MS: i64 = 1_000;
/// The wall clock may be set: nothing sleeps longer without looking at it.
const MAX_INTERVAL_MS: i64 = 60_000;

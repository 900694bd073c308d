//! Holding a sandbox, and letting go of it.

use super::{Task, time};
use crate::command::{Acquire, Command};
use crate::identity::Role;
use crate::lease::Lease;
use crate::machine::{Act, Event, Phase, step};
use crate::record::Once;
use crate::refusal;
use belljar_api::{Created, LeaseInfo};
use belljar_spec::SandboxError;

impl Task {
    pub(super) async fn hold(&mut self, mut hold: Box<Acquire>) {
        if hold.is_abandoned() {
            if !self.made {
                // It was to be made for this one, and there is nothing of it.
                self.phase = Phase::Gone;
            }
            return;
        }
        if self.searching {
            return self.later.push_back(Command::Acquire(hold));
        }
        match step(self.phase, Event::Acquire(hold.role()), self.nature()) {
            (_, Act::Wait) => self.later.push_back(Command::Acquire(hold)),
            (_, Act::Nothing) => self.attach(hold).await,
            (next, Act::Start) => {
                hold.created = !self.made;
                if let Err(error) = self.prepare(&hold).await {
                    let _ = hold.answer.send(Err(error));
                    return;
                }
                self.later.push_back(Command::Acquire(hold));
                self.phase = next;
                self.wait_for_turn();
            }
            (_, Act::Refuse | Act::Pause | Act::Resume | Act::End(_)) => {
                let _ = hold.answer.send(Err(refusal::not_alive(&self.record.name)));
            }
        }
    }

    /// Gives a lease of what lives, and says so when it is on disk.
    async fn attach(&mut self, hold: Box<Acquire>) {
        let Given { id, created, new } = match self.give(&hold).await {
            Ok(given) => given,
            Err(error) => return drop(hold.answer.send(Err(error))),
        };
        let lease = match hold.ahead {
            true => Some(Lease::new(id.clone(), &hold.grant, hold.role(), 0, self.now()).info()),
            false => self.record.leases.get(&id).map(Lease::info),
        };
        let Some(lease) = lease else { return };
        let mut notes = self.shim.as_ref().map(|shim| shim.alive().notes.clone()).unwrap_or_default();
        notes.extend(self.wake_note.clone());
        let answer = Created { sandbox: self.tell(), lease, created, notes };
        if hold.answer.send(Ok(answer)).is_err() && new {
            // The caller hung up just now, and does not know of the lease.
            self.record.leases.remove(&id);
            self.let_go();
        }
    }

    async fn give(&mut self, hold: &Acquire) -> Result<Given, SandboxError> {
        hold.lease_request.must_fit(&self.record)?;
        if let (Some(path), Some(alive)) = (&self.record.sandbox.workspace.folder, &self.record.alive)
            && let Some(folder) = alive.folder
        {
            folder.must_be_at(path)?;
        }
        let now = self.now();
        self.expire();
        let (id, created) = match self.once(hold) {
            Some(once) => (once.lease.clone(), once.created),
            None => (hold.lease.clone(), hold.created),
        };
        let new = !hold.ahead && self.record.leases.get(&id).is_none();
        if new {
            let lasts_s = hold.lease_request.lease_s.unwrap_or(self.world.settings.lease.as_secs());
            let room = self.record.leases.may_add(&hold.grant, lasts_s);
            room.map_err(|why| refusal::too_many_leases(&self.record.name, why))?;
            self.record.leases.add(Lease::new(id.clone(), &hold.grant, hold.role(), lasts_s, now));
            self.record.waiting = false;
        }
        self.remember(hold);
        if let (Role::Owner, Some(idle_s)) = (hold.role(), hold.lease_request.idle_s) {
            self.record.idle_s = idle_s;
        }
        self.record.used_ms = now;
        self.write_soon().await;
        Ok(Given { id, created, new })
    }

    /// What was answered to the same request before.
    fn once(&self, hold: &Acquire) -> Option<&Once> {
        let lease_request = hold.lease_request.idempotency.as_ref()?;
        self.record.once.iter().find(|once| once.grant == hold.grant && once.key == lease_request.key)
    }

    /// So that the same request gets the same answer.
    pub(super) fn remember(&mut self, hold: &Acquire) {
        let Some(idempotency) = hold.lease_request.idempotency.as_ref().filter(|_| self.once(hold).is_none())
        else {
            return;
        };
        let now = self.now();
        self.record.once.push(Once {
            grant: hold.grant.clone(),
            key: idempotency.key.clone(),
            body: idempotency.body.clone(),
            lease: hold.lease.clone(),
            created: hold.created,
            at_ms: now,
        });
        let of_grant = self.record.once.iter().filter(|once| once.grant == hold.grant).count();
        let mut too_many = of_grant.saturating_sub(MAX_ONCE);
        let registry = self.world.registry.upgrade();
        // The oldest come first.
        self.record.once.retain(|once| {
            let over = once.grant == hold.grant && too_many > 0;
            too_many -= usize::from(over);
            let counts = !over && once.at_ms.saturating_add(ONCE_MS) > now;
            if let (false, Some(registry)) = (counts, &registry) {
                registry.forget(&once.grant, &once.key);
            }
            counts
        });
    }

    pub(super) fn used(&mut self, grant: &str, lease: Option<&str>) {
        let now = self.now();
        self.record.leases.used(grant, lease, now);
        self.record.used_ms = now;
        self.idle_since = self.idle_since.max(now);
        // Not for every request: what is lost by a kill is made up for when the record is read.
        self.write_at.get_or_insert(now + time::LAZY_MS);
    }

    pub(super) async fn renew(
        &mut self,
        lease: &str,
        holder: Option<&str>,
        lasts_s: Option<u64>,
    ) -> Result<LeaseInfo, SandboxError> {
        self.expire();
        self.held_by(lease, holder)?;
        if let Some(lasts_s) = lasts_s {
            let room = self.record.leases.may_last(lease, lasts_s);
            room.map_err(|why| refusal::too_many_leases(&self.record.name, why))?;
        }
        let now = self.now();
        let renewed = self.record.leases.renew(lease, lasts_s, now).map(Lease::info);
        self.write_soon().await;
        renewed.ok_or_else(|| refusal::no_lease(lease))
    }

    pub(super) async fn drop_lease(&mut self, lease: &str, holder: Option<&str>) -> Result<(), SandboxError> {
        self.expire();
        self.held_by(lease, holder)?;
        self.record.leases.remove(lease);
        self.write_soon().await;
        self.let_go();
        Ok(())
    }

    /// Puts the record on disk before an answer tells of it, if the disk takes it. Where it does not, the answer is given all the same and
    /// the write is tried again: on a full disk, a command in a living sandbox may be how its user frees space. A daemon that is killed
    /// before then has lost a lease, and no user's file.
    async fn write_soon(&mut self) {
        let _ = self.write().await;
    }

    fn held_by(&self, lease: &str, holder: Option<&str>) -> Result<(), SandboxError> {
        let found = self.record.leases.get(lease);
        match found.filter(|found| holder.is_none_or(|holder| found.holder == holder)) {
            Some(_) => Ok(()),
            // Another holder's lease is treated as unknown.
            None => Err(refusal::no_lease(lease)),
        }
    }

    /// Leases that have ended are gone.
    pub(super) fn expire(&mut self) {
        if self.record.leases.expire(self.now()) {
            self.let_go();
        }
    }

    /// A lease was dropped.
    pub(super) fn let_go(&mut self) {
        let now = self.now();
        self.write_at.get_or_insert(now);
        if self.record.leases.is_empty() {
            self.idle_since = now;
            self.not_before = 0;
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        self.later.iter().any(|command| match command {
            Command::Acquire(hold) => !hold.is_abandoned(),
            _ => false,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Paused)
    }
}

/// A lease that was given.
struct Given {
    id: String,
    /// The sandbox was made for it.
    created: bool,
    /// It was not given before, to the same request.
    new: bool,
}

/// How many requests of one grant a sandbox remembers by their idempotency key.
const MAX_ONCE: usize = 64;
/// How long a request is remembered: who asks again does so within a day.
const ONCE_MS: i64 = 24 * 60 * 60 * 1000;

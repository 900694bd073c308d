//! The life of a sandbox: made, paused, resumed, ended. One change at a time for each ([`Entry::turn`]).
//!
//! ```text
//!   making ──> running <──resume── paused (memory) | stopped (files alone)
//!                 │  ───pause───>
//!                 └── kill, end of time ──> ending ──> gone
//! ```
//! Whatever ends or pauses a sandbox first makes it unreachable, then breaks what streams from it, and only then has the daemon do it:
//! a client sees a broken connection, and never the end of a command that was taken away.

use crate::book::Entry;
use crate::facts::{Facts, OnTimeout, Standing, after, now_ms};
use crate::fault::Fault;
use crate::server::E2b;
use crate::template::start;
use belljar_api::client::{ClientError, SandboxFilter};
use belljar_api::{CreateSandbox, State};
use belljar_spec::ErrorCode;
use hyper::StatusCode;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// What a connect found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Running,
    /// It was resumed.
    Paused,
}

impl E2b {
    /// Makes a sandbox: `facts` as they are before the daemon has answered.
    pub(crate) async fn make(&self, facts: Facts) -> Result<Arc<Entry>, Fault> {
        if let Some(entry) = self.book.every().into_iter().find(|entry| entry.facts().id == facts.id) {
            // The same request, said again: it is under way, or done.
            drop(entry.turn.lock().await);
            let known = entry.facts();
            if known.request != facts.request || known.metadata != facts.metadata {
                return Err(Fault::conflict("the idempotency key was used for another request"));
            }
            return match known.is_there() {
                true => Ok(entry),
                false => Err(Fault::conflict("the sandbox of this idempotency key has ended")),
            };
        }
        let entry = self.book.add(facts)?;
        let _turn = entry.turn.lock().await;
        let facts = entry.facts();
        let made = self.client(&facts.grant).create_once(&facts.request, &word(&facts.id)).await;
        let created = match made {
            Ok(created) => created,
            Err(error) => {
                self.book.forget(&facts.id);
                return Err(error.into());
            }
        };
        let now = now_ms();
        self.book.change(&entry, |facts| {
            facts.name = created.sandbox.name;
            facts.key = created.sandbox.key;
            facts.lease = created.lease.id;
            facts.standing = Standing::Running;
            facts.started_ms = now;
            facts.ends_ms = after(now, facts.timeout_s);
        })?;
        if let Err(fault) = self.begin(&entry.facts()).await {
            self.book.hide(&entry);
            self.remove(&entry).await;
            return Err(fault);
        }
        drop(_turn);
        Ok(entry)
    }

    /// Starts what its template starts.
    async fn begin(&self, facts: &Facts) -> Result<(), Fault> {
        start::begin(&self.sandbox(facts), &facts.begin, &BTreeMap::new(), READY_TIMEOUT).await
    }

    /// Ends it. `false`: it was gone already.
    pub(crate) async fn kill(&self, entry: &Entry) -> Result<bool, Fault> {
        let _turn = entry.turn.lock().await;
        if !entry.facts().is_there() {
            return Ok(false);
        }
        self.book.hide(entry);
        self.under_way.break_off(&entry.facts().id);
        self.remove(entry).await;
        Ok(true)
    }

    /// Removes what the daemon has of it. What cannot be removed now is tried again at the end of times.
    async fn remove(&self, entry: &Entry) {
        let facts = entry.facts();
        // The owner removes also what a revoked grant has left.
        match self.owner.sandbox(&facts.name).delete().await {
            Ok(()) => self.book.forget(&facts.id),
            Err(error) if error.status() == Some(404) => self.book.forget(&facts.id),
            Err(error) => warn!("cannot remove the sandbox {}: {error}", facts.name),
        }
    }

    /// Pauses it, with its memory or without.
    pub(crate) async fn pause(&self, entry: &Entry, memory: bool) -> Result<(), Fault> {
        let _turn = entry.turn.lock().await;
        let facts = must_be_there(entry)?;
        if facts.is_paused() {
            return Err(Fault::conflict(format!("sandbox {} is already paused", facts.id)));
        }
        self.pause_now(entry, memory).await
    }

    async fn pause_now(&self, entry: &Entry, memory: bool) -> Result<(), Fault> {
        let standing = if memory { Standing::Paused } else { Standing::Stopped };
        let before = entry.facts();
        // A lease that lasts: it stays paused until a client wants it.
        let held = self.client(&before.grant).sandbox(&before.name);
        self.renew(&before, PAUSED_LEASE_S).await?;
        self.book.change(entry, |facts| facts.standing = standing)?;
        self.under_way.break_off(&before.id);
        let done = match memory {
            true => held.pause().await,
            false => held.stop().await,
        };
        if let Err(error) = done {
            self.book.change(entry, |facts| facts.standing = Standing::Running)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// A client wants it running for so long from now. Never shortens its time.
    pub(crate) async fn connect(
        &self,
        entry: &Entry,
        timeout_s: u64,
        memory: bool,
    ) -> Result<(Facts, Found), Fault> {
        let _turn = entry.turn.lock().await;
        let facts = must_be_there(entry)?;
        if facts.is_paused() {
            let facts = self.resume_now(entry, timeout_s, memory).await?;
            return Ok((facts, Found::Paused));
        }
        let facts = self.extend(entry, after(now_ms(), timeout_s)).await?;
        Ok((facts, Found::Running))
    }

    /// A request for a sandbox that is paused, and wakes with the first one.
    pub(crate) async fn wake(&self, entry: &Entry) -> Result<(), Fault> {
        let _turn = entry.turn.lock().await;
        let facts = must_be_there(entry)?;
        // Another request may have done it.
        if facts.is_paused() {
            self.resume_now(entry, facts.timeout_s, true).await?;
        }
        Ok(())
    }

    async fn resume_now(&self, entry: &Entry, timeout_s: u64, memory: bool) -> Result<Facts, Fault> {
        let facts = entry.facts();
        let held = self.client(&facts.grant).sandbox(&facts.name);
        let state = held.info().await.map_err(|error| self.lost(entry, error))?.state;
        let lease = match (state, memory) {
            (State::Paused | State::Live, true) => {
                // The owner of the machine may have resumed it.
                if state == State::Paused {
                    held.resume().await?;
                }
                self.renew(&facts, lease_s(timeout_s)).await?;
                facts.lease.clone()
            }
            _ => {
                if matches!(state, State::Paused | State::Live) {
                    held.stop().await?;
                }
                entry.commands.clear();
                entry.watchers.clear();
                self.start_again(&facts, timeout_s).await?
            }
        };
        let is_new_life = lease != facts.lease;
        let now = now_ms();
        let facts = self.book.change(entry, |facts| {
            facts.standing = Standing::Running;
            facts.lease = lease;
            facts.started_ms = now;
            facts.ends_ms = after(now, timeout_s);
        })?;
        if is_new_life && let Err(fault) = self.begin(&facts).await {
            warn!("in the sandbox {}: {}", facts.id, fault.message);
        }
        Ok(facts)
    }

    /// A new life from the files of the last. Its key was generated, and so is the owner's to say.
    async fn start_again(&self, facts: &Facts, timeout_s: u64) -> Result<String, Fault> {
        // One at a time: two must not both take the last place.
        let _turn = self.waking.lock().await;
        // Whether the grant still counts.
        self.client(&facts.grant).sandbox(&facts.name).info().await?;
        self.must_have_room(&facts.grant).await?;
        let request = CreateSandbox {
            key: Some(facts.key.clone()),
            lease_s: Some(lease_s(timeout_s)),
            ..CreateSandbox::default()
        };
        let created = self.owner.create(&request).await?;
        Ok(created.lease.id)
    }

    /// A grant may have only so many alive. The daemon counts for those that a grant asks for; here the owner asks.
    async fn must_have_room(&self, grant: &str) -> Result<(), Fault> {
        let Some(most) = self.rules(grant).await?.and_then(|rules| rules.sandboxes) else { return Ok(()) };
        let all = self.owner.sandboxes(&SandboxFilter::default()).await?;
        let alive = all.iter().filter(|info| info.owner == grant && info.state != State::Stopped).count();
        if alive < most as usize {
            return Ok(());
        }
        let message =
            format!("the key has {alive} sandboxes that run, and may have {most}: pause or kill one first");
        Err(Fault::new(StatusCode::FORBIDDEN, message))
    }

    /// It ends so many seconds from now.
    pub(crate) async fn set_timeout(&self, entry: &Entry, timeout_s: u64) -> Result<(), Fault> {
        let _turn = entry.turn.lock().await;
        must_run(entry)?;
        self.set_end(entry, after(now_ms(), timeout_s)).await.map(drop)
    }

    /// It lives so many seconds from now at least.
    pub(crate) async fn refresh(&self, entry: &Entry, duration_s: u64) -> Result<(), Fault> {
        let _turn = entry.turn.lock().await;
        must_run(entry)?;
        self.extend(entry, after(now_ms(), duration_s)).await.map(drop)
    }

    async fn extend(&self, entry: &Entry, ends_ms: i64) -> Result<Facts, Fault> {
        let facts = entry.facts();
        if ends_ms <= facts.ends_ms { Ok(facts) } else { self.set_end(entry, ends_ms).await }
    }

    async fn set_end(&self, entry: &Entry, ends_ms: i64) -> Result<Facts, Fault> {
        let facts = entry.facts();
        let left_s = u64::try_from(ends_ms.saturating_sub(now_ms())).unwrap_or(0).div_ceil(1000);
        self.renew(&facts, lease_s(left_s)).await.map_err(|error| self.lost(entry, error))?;
        self.book.change(entry, |facts| facts.ends_ms = ends_ms)
    }

    /// The daemon holds it for so long. Asked as the owner, who has the lease of one that was started again.
    async fn renew(&self, facts: &Facts, seconds: u64) -> Result<(), ClientError> {
        self.owner.sandbox(&facts.name).renew(&facts.lease, Some(seconds)).await.map(drop)
    }

    /// Its time is over.
    pub(crate) async fn expire(&self, entry: &Entry) {
        let _turn = entry.turn.lock().await;
        let facts = entry.facts();
        // It may have been extended, paused or ended meanwhile.
        match facts.standing {
            Standing::Ending => return self.remove(entry).await,
            Standing::Making => return self.finish_making(entry).await,
            Standing::Running if facts.ends_ms <= now_ms() => {}
            Standing::Running | Standing::Paused | Standing::Stopped => return,
        }
        let paused = match facts.on_timeout {
            OnTimeout::Kill => None,
            OnTimeout::Pause => Some(self.pause_now(entry, true).await),
            OnTimeout::Stop => Some(self.pause_now(entry, false).await),
        };
        match paused {
            Some(Ok(())) => return,
            Some(Err(fault)) => warn!("the sandbox {} cannot be paused: {}", facts.id, fault.message),
            None => {}
        }
        self.book.hide(entry);
        self.under_way.break_off(&facts.id);
        self.remove(entry).await;
    }

    /// The daemon was killed while it made this one: nobody knows of it. Asked again under the same name, the daemon says which it is.
    async fn finish_making(&self, entry: &Entry) {
        let facts = entry.facts();
        match self.client(&facts.grant).create_once(&facts.request, &word(&facts.id)).await {
            Ok(created) => {
                let named = self.book.change(entry, |facts| {
                    facts.name = created.sandbox.name;
                    facts.standing = Standing::Ending;
                });
                if named.is_ok() {
                    self.remove(entry).await;
                }
            }
            Err(error) if error.status().is_some() => self.book.forget(&facts.id),
            Err(error) => warn!("cannot find the sandbox {} again: {error}", facts.id),
        }
    }

    /// What became of sandboxes while no request came here: one that died, that the owner of the machine removed, or that a reboot ended.
    pub(crate) async fn reconcile(&self) {
        let known: Vec<_> = self.book.there().into_iter().map(|entry| (entry.facts(), entry)).collect();
        let Ok(all) = self.owner.sandboxes(&SandboxFilter::default()).await else { return };
        let states: HashMap<&str, State> = all.iter().map(|info| (info.name.as_str(), info.state)).collect();
        for (facts, entry) in known {
            // One that is being changed, or was meanwhile, is looked at the next time.
            let Ok(_turn) = entry.turn.try_lock() else { continue };
            if entry.facts() != facts {
                continue;
            }
            match (states.get(facts.name.as_str()), facts.standing) {
                (None, Standing::Running | Standing::Paused | Standing::Stopped)
                | (Some(State::Stopped), Standing::Running) => {
                    self.book.hide(&entry);
                    self.under_way.break_off(&facts.id);
                    self.remove(&entry).await;
                }
                (Some(State::Stopped), Standing::Paused) => {
                    // Its memory is lost, and its files are not.
                    let _ = self.book.change(&entry, |facts| facts.standing = Standing::Stopped);
                }
                _ => {}
            }
        }
    }

    /// An error of the daemon. Where that has no such sandbox any more, there is none here either.
    pub(crate) fn lost(&self, entry: &Entry, error: ClientError) -> Fault {
        if error.code() == ErrorCode::SandboxNotFound {
            let id = entry.facts().id;
            self.book.hide(entry);
            self.under_way.break_off(&id);
            self.book.forget(&id);
            return Fault::not_found(format!("sandbox {id} was not found"));
        }
        error.into()
    }
}

fn must_be_there(entry: &Entry) -> Result<Facts, Fault> {
    let facts = entry.facts();
    match facts.is_there() {
        true => Ok(facts),
        false => Err(Fault::not_found(format!("sandbox {} was not found", facts.id))),
    }
}

fn must_run(entry: &Entry) -> Result<Facts, Fault> {
    let facts = must_be_there(entry)?;
    match facts.is_paused() {
        true => Err(Fault::new(StatusCode::NOT_FOUND, format!("sandbox {} is paused", facts.id))),
        false => Ok(facts),
    }
}

/// The name of the request that makes a sandbox.
fn word(id: &str) -> String {
    format!("e2b-{id}")
}

/// How long the daemon holds a sandbox that is to live so long: what ends it is its time here, and this where no daemon serves this
/// protocol any more.
pub(crate) fn lease_s(timeout_s: u64) -> u64 {
    timeout_s.saturating_add(GRACE_S).min(PAUSED_LEASE_S)
}

/// How long what a template starts may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const GRACE_S: u64 = 60;
/// The longest that the daemon knows: a year.
const PAUSED_LEASE_S: u64 = 31_536_000;
/// The longest life that a client may ask for.
pub(crate) const MAX_TIMEOUT_S: u64 = PAUSED_LEASE_S - GRACE_S;

//! Sandboxes that are started before they are asked for (`[daemon] warm`), so that a request for a new one of the same settings has not to
//! wait for it.
//!
//! ```text
//!   create without a key ── no sandbox waits ──> started as ever; from now on some of its kind are kept ready
//!                        └─ one waits ─────────> gets its first lease
//! ```
//! A kind is all that a start depends on: the grant, the request with what the profile and the grant say of it, the environment. A
//! sandbox that waits is an ordinary one of that grant, without a lease and in no list; it is handed out once. One that was
//! started with other files of settings, secrets or images than are there now, or too long ago, is removed instead.

use crate::command::{Acquire, Command};
use crate::identity::{Key, Role};
use crate::lease_request::LeaseRequest;
use crate::registry::{Entry, Registry};
use crate::settings::Clock;
use crate::task::World;
use belljar_api::WorkspaceRequest;
use belljar_config::ConfigPaths;
use belljar_spec::SandboxError;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// The sandboxes that wait to be asked for.
pub(crate) struct Pool {
    /// Of each kind.
    count: usize,
    clock: Clock,
    kinds: Mutex<Vec<Kind>>,
    changed: Notify,
}

/// Sandboxes that are the same but for their names.
struct Kind {
    grant: String,
    lease_request: LeaseRequest,
    /// How many are kept ready: never more than its grant may have.
    count: usize,
    ready: Vec<Ready>,
    used_ms: i64,
    /// When a start that failed is tried again.
    retry_ms: i64,
}

struct Ready {
    key: Key,
    entry: Entry,
    made_ms: i64,
    stamp: Stamp,
}

/// One that is being handed out. Dropped before its first lease was given, it is removed, and no caller has heard of it.
pub(crate) struct Taken {
    pub(crate) key: Key,
    entry: Entry,
    registry: Arc<Registry>,
    was_handed_out: bool,
}

/// What files are there that a start reads: device, inode, and the time of the last change of each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp(Vec<Option<(u64, u64, i64, i64)>>);

impl Pool {
    pub(crate) fn new(count: usize, clock: Clock) -> Arc<Pool> {
        Arc::new(Pool { count, clock, kinds: Mutex::default(), changed: Notify::new() })
    }

    /// Whether a request can be answered with a sandbox that was started before it: one that any caller may get, of which all is known
    /// but its holder.
    pub(crate) fn serves(&self, lease_request: &LeaseRequest) -> bool {
        let LeaseRequest { identity, sandbox, .. } = lease_request;
        self.count > 0
            && identity.key.is_unique()
            && identity.role == Role::Owner
            && !identity.persistent.persistent
            && sandbox.snapshot.is_none()
            && sandbox.workspace == WorkspaceRequest::default()
            && sandbox.volumes.is_empty()
    }

    /// One of these that is ready, if there is one.
    pub(crate) fn take(
        &self,
        registry: &Arc<Registry>,
        lease_request: &LeaseRequest,
        grant: &str,
    ) -> Option<Taken> {
        let (now_ms, stamp) = (self.clock.now_ms(), Stamp::now());
        let mut kinds = self.lock();
        let kind = kinds.iter_mut().find(|kind| kind.is(lease_request, grant))?;
        let at = kind.ready.iter().position(|ready| ready.is_good(&stamp, now_ms))?;
        let Ready { key, entry, .. } = kind.ready.remove(at);
        Some(Taken { key, entry, registry: Arc::clone(registry), was_handed_out: false })
    }

    /// Such a one was asked for, and made or handed out: others are kept ready. `most` is how many the grant may have.
    pub(crate) fn note(&self, lease_request: &LeaseRequest, grant: &str, most: Option<u32>) {
        let now_ms = self.clock.now_ms();
        let mut kinds = self.lock();
        match kinds.iter_mut().find(|kind| kind.is(lease_request, grant)) {
            Some(kind) => kind.used_ms = now_ms,
            None => {
                // A grant that asks for many kinds takes no place of another's.
                let of_grant = kinds.iter().filter(|kind| kind.grant == grant).count();
                let may_go = |kind: &Kind| of_grant < MAX_KINDS_OF_GRANT || kind.grant == grant;
                if (of_grant >= MAX_KINDS_OF_GRANT || kinds.len() >= MAX_KINDS)
                    && let Some(oldest) =
                        kinds.iter().filter(|kind| may_go(kind)).map(|kind| kind.used_ms).min()
                    && let Some(at) = kinds.iter().position(|kind| may_go(kind) && kind.used_ms == oldest)
                {
                    remove(kinds.remove(at).ready);
                }
                let count = self.count.min(most.map_or(usize::MAX, |most| most as usize));
                let lease_request =
                    LeaseRequest { idle_s: None, lease_s: None, idempotency: None, ..lease_request.clone() };
                let (grant, ready) = (grant.to_string(), Vec::new());
                kinds.push(Kind { grant, lease_request, count, ready, used_ms: now_ms, retry_ms: now_ms });
            }
        }
        drop(kinds);
        self.changed.notify_one();
    }

    /// A grant is no more: nothing waits for it.
    pub(crate) fn forget(&self, grant: &str) {
        let forgotten = self.lock().extract_if(.., |kind| kind.grant == grant).collect::<Vec<_>>();
        forgotten.into_iter().for_each(|kind| remove(kind.ready));
    }

    /// Starts what is missing and removes what is too old, until the fleet is gone.
    pub(crate) async fn tend(self: Arc<Pool>, world: World) {
        loop {
            let Some(registry) = world.registry.upgrade().filter(|registry| !registry.is_closed()) else {
                return;
            };
            self.discard_old();
            let missing = self.missing();
            match missing {
                Some((lease_request, grant)) => {
                    let stamp = Stamp::now();
                    let made = make(&registry, &world, lease_request.clone(), &grant).await;
                    self.keep(&lease_request, &grant, stamp, made);
                }
                None => {
                    drop(registry);
                    let _ = timeout(LOOK_INTERVAL, self.changed.notified()).await;
                    // Requests are answered first: several often come together.
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn missing(&self) -> Option<(LeaseRequest, String)> {
        let now_ms = self.clock.now_ms();
        let kinds = self.lock();
        let lacks = |kind: &&Kind| kind.ready.len() < kind.count && kind.retry_ms <= now_ms;
        kinds.iter().find(lacks).map(|kind| (kind.lease_request.clone(), kind.grant.clone()))
    }

    fn keep(
        &self,
        lease_request: &LeaseRequest,
        grant: &str,
        stamp: Stamp,
        made: Result<(Key, Entry), SandboxError>,
    ) {
        let now_ms = self.clock.now_ms();
        let mut kinds = self.lock();
        let kind = kinds.iter_mut().find(|kind| kind.is(lease_request, grant));
        match (made, kind) {
            (Ok((key, entry)), Some(kind)) => kind.ready.push(Ready { key, entry, made_ms: now_ms, stamp }),
            (Ok((_, entry)), None) => entry.delete(),
            // The next request is told why.
            (Err(_), Some(kind)) => kind.retry_ms = now_ms + RETRY_MS,
            (Err(_), None) => {}
        }
    }

    fn discard_old(&self) {
        let (now_ms, stamp) = (self.clock.now_ms(), Stamp::now());
        let mut kinds = self.lock();
        let forgotten = kinds.extract_if(.., |kind| now_ms - kind.used_ms > KIND_MAX_UNUSED_MS);
        let mut old: Vec<Ready> = forgotten.flat_map(|kind| kind.ready).collect();
        for kind in kinds.iter_mut() {
            // What dies as soon as it lives is not started over and over.
            if kind.ready.iter().any(|ready| !ready.entry.is_live()) {
                kind.retry_ms = now_ms + RETRY_MS;
            }
            old.extend(kind.ready.extract_if(.., |ready| !ready.is_good(&stamp, now_ms)));
        }
        drop(kinds);
        remove(old);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sandboxes that wait. They are in no list until they are gone.
fn remove(waiting: Vec<Ready>) {
    waiting.iter().for_each(|ready| ready.entry.delete());
}

impl Kind {
    fn is(&self, lease_request: &LeaseRequest, grant: &str) -> bool {
        let LeaseRequest { requested, requested_profile, sandbox, profile, rules, environment, .. } =
            lease_request;
        self.grant == grant
            && self.lease_request.sandbox == *sandbox
            && self.lease_request.requested == *requested
            && self.lease_request.profile == *profile
            && self.lease_request.requested_profile == *requested_profile
            && self.lease_request.rules == *rules
            && self.lease_request.environment == *environment
    }
}

impl Ready {
    fn is_good(&self, stamp: &Stamp, now_ms: i64) -> bool {
        // A clock that was set back makes nothing young.
        let is_young = (0..MAX_AGE_MS).contains(&(now_ms - self.made_ms));
        self.entry.is_live() && self.stamp == *stamp && is_young
    }
}

impl Taken {
    /// Its first lease is given: it is a sandbox like any other from now on.
    pub(crate) fn hand_out(mut self) {
        self.registry.end_wait(&self.entry.name);
        self.was_handed_out = true;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        match self.was_handed_out {
            true => {}
            false if self.entry.access.info().leases.is_empty() => self.entry.delete(),
            // The same request was made again under its idempotency key, and got it.
            false => self.registry.end_wait(&self.entry.name),
        }
    }
}

impl Stamp {
    fn now() -> Stamp {
        let ConfigPaths { operator, user, state, .. } = ConfigPaths::real();
        let below = |name: &str| state.as_ref().map(|state| state.join(name));
        let read = [Some(operator), user, below("vault"), below("images/names"), below("golden")];
        let facts = |found: fs::Metadata| (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        Stamp(read.into_iter().map(|path| fs::metadata(path?).ok().map(facts)).collect())
    }
}

/// Starts one, without a lease.
async fn make(
    registry: &Registry,
    world: &World,
    mut lease_request: LeaseRequest,
    grant: &str,
) -> Result<(Key, Entry), SandboxError> {
    let key = Key::unique()?;
    lease_request.identity.key = key.clone();
    let entry = registry.begin_wait(world, &lease_request, grant)?;
    let (answer, answered) = oneshot::channel();
    let (grant, lease) = (grant.into(), String::new());
    let hold = Acquire { lease_request, grant, lease, created: true, ahead: true, answer };
    let _ = entry.commands.send(Command::Acquire(Box::new(hold)));
    answered.await.map_err(|_| crate::refusal::not_found(&entry.name)).flatten()?;
    Ok((key, entry))
}

/// Grants and requests differ, and each kind costs memory.
const MAX_KINDS: usize = 16;
const MAX_KINDS_OF_GRANT: usize = 4;
/// A sandbox sees the host's files as they were when it was started.
const MAX_AGE_MS: i64 = 10 * 60 * 1000;
/// A kind that is not asked for any more is not kept ready.
const KIND_MAX_UNUSED_MS: i64 = 60 * 60 * 1000;
const RETRY_MS: i64 = 30 * 1000;
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

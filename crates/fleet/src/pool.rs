//! Sandboxes that are started before they are asked for (`[daemon] warm`), so that a request for a new one of the same settings has not to
//! wait for it.
//!
//! ```text
//!   create without a key ── no sandbox waits ──> started as ever; from now on some of its kind are kept ready
//!                        └─ one waits ─────────> gets its first lease
//! ```
//! A kind is all that a start depends on: the grant, the request with what the profile and the grant say of it, the environment. A
//! sandbox that waits is an ordinary one of that grant, without a lease, that nobody is told of; it is handed out once. One that was
//! started with other files of settings, secrets or images than are there now, or too long ago, is removed instead.

use crate::command::{Change, Command, Hold};
use crate::identity::{Key, Role};
use crate::registry::{Entry, Registry};
use crate::task::World;
use crate::wanted::Wanted;
use belljar_api::WorkspaceRequest;
use belljar_config::ConfigPaths;
use belljar_spec::SandboxError;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// The sandboxes that wait to be asked for.
pub(crate) struct Pool {
    /// Of each kind.
    count: usize,
    kinds: Mutex<Vec<Kind>>,
    changed: Notify,
}

/// Sandboxes that are the same but for their names.
struct Kind {
    grant: String,
    wanted: Wanted,
    ready: Vec<Ready>,
    used: Instant,
    /// When a start that failed is tried again.
    retry: Instant,
}

struct Ready {
    key: Key,
    entry: Entry,
    made: Instant,
    stamp: Stamp,
}

/// One that is being handed out. Dropped, it is a sandbox like any other: without a lease it ends.
pub(crate) struct Taken {
    pub(crate) key: Key,
    name: String,
    registry: Arc<Registry>,
}

/// What files are there that a start reads: device, inode, and the time of the last change of each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp(Vec<Option<(u64, u64, i64, i64)>>);

impl Pool {
    pub(crate) fn new(count: usize) -> Arc<Pool> {
        Arc::new(Pool { count, kinds: Mutex::default(), changed: Notify::new() })
    }

    /// Whether a request can be answered with a sandbox that was started before it: one that is anybody's who asks for it, of which all
    /// is known but who holds it.
    pub(crate) fn serves(&self, wanted: &Wanted) -> bool {
        let Wanted { identity, sandbox, .. } = wanted;
        self.count > 0
            && identity.key.is_unique()
            && identity.role == Role::Owner
            && !identity.persistent.persistent
            && sandbox.workspace == WorkspaceRequest::default()
            && sandbox.volumes.is_empty()
    }

    /// One of these that is ready, if there is one. Notes that such are asked for.
    pub(crate) fn take(&self, registry: &Arc<Registry>, wanted: &Wanted, grant: &str) -> Option<Taken> {
        let now = Instant::now();
        let mut kinds = self.lock();
        let taken = match kinds.iter_mut().find(|kind| kind.is(wanted, grant)) {
            Some(kind) => {
                kind.used = now;
                let stamp = Stamp::now();
                let found = kind.ready.iter().position(|ready| ready.is_good(&stamp, now));
                found.map(|at| kind.ready.remove(at))
            }
            None => {
                if kinds.len() >= MAX_KINDS
                    && let Some(oldest) = kinds.iter().map(|kind| kind.used).min()
                {
                    // Their sandboxes are not waiting any more, and end as any without a lease does.
                    for kind in kinds.extract_if(.., |kind| kind.used == oldest) {
                        kind.ready.iter().for_each(|ready| registry.end_wait(&ready.entry.name));
                    }
                }
                let wanted = Wanted { idle_s: None, lease_s: None, idempotency: None, ..wanted.clone() };
                kinds.push(Kind { grant: grant.into(), wanted, ready: Vec::new(), used: now, retry: now });
                None
            }
        };
        drop(kinds);
        self.changed.notify_one();
        let Ready { key, entry, .. } = taken?;
        Some(Taken { key, name: entry.name, registry: Arc::clone(registry) })
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
                Some((wanted, grant)) => {
                    let stamp = Stamp::now();
                    let made = make(&registry, &world, wanted.clone(), &grant).await;
                    self.keep(&registry, &wanted, &grant, stamp, made);
                }
                None => {
                    drop(registry);
                    let _ = timeout(LOOK_INTERVAL, self.changed.notified()).await;
                    // Whoever asks is answered first: several requests often come together.
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn missing(&self) -> Option<(Wanted, String)> {
        let now = Instant::now();
        let kinds = self.lock();
        let lacks = |kind: &&Kind| kind.ready.len() < self.count && kind.retry <= now;
        kinds.iter().find(lacks).map(|kind| (kind.wanted.clone(), kind.grant.clone()))
    }

    fn keep(
        &self,
        registry: &Registry,
        wanted: &Wanted,
        grant: &str,
        stamp: Stamp,
        made: Result<(Key, Entry), SandboxError>,
    ) {
        let now = Instant::now();
        let mut kinds = self.lock();
        let kind = kinds.iter_mut().find(|kind| kind.is(wanted, grant));
        match (made, kind) {
            (Ok((key, entry)), Some(kind)) => kind.ready.push(Ready { key, entry, made: now, stamp }),
            (Ok((_, entry)), None) => registry.end_wait(&entry.name),
            // Whoever asks next is told why.
            (Err(_), Some(kind)) => kind.retry = now + RETRY_INTERVAL,
            (Err(_), None) => {}
        }
    }

    fn discard_old(&self) {
        let (now, stamp) = (Instant::now(), Stamp::now());
        let mut kinds = self.lock();
        let forgotten = kinds.extract_if(.., |kind| now - kind.used > KIND_MAX_UNUSED);
        let mut old: Vec<Ready> = forgotten.flat_map(|kind| kind.ready).collect();
        for kind in kinds.iter_mut() {
            old.extend(kind.ready.extract_if(.., |ready| !ready.is_good(&stamp, now)));
        }
        drop(kinds);
        for ready in old {
            let (answer, _) = oneshot::channel();
            let _ = ready.entry.commands.send(Command::Change(Change::Delete, answer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn is(&self, wanted: &Wanted, grant: &str) -> bool {
        let Wanted { asked, asked_profile, sandbox, profile, rules, environment, .. } = wanted;
        self.grant == grant
            && self.wanted.sandbox == *sandbox
            && self.wanted.asked == *asked
            && self.wanted.profile == *profile
            && self.wanted.asked_profile == *asked_profile
            && self.wanted.rules == *rules
            && self.wanted.environment == *environment
    }
}

impl Ready {
    fn is_good(&self, stamp: &Stamp, now: Instant) -> bool {
        self.entry.is_live() && self.stamp == *stamp && now - self.made < MAX_AGE
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.registry.end_wait(&self.name);
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

/// Starts one. Nobody holds it when it is there.
async fn make(
    registry: &Registry,
    world: &World,
    mut wanted: Wanted,
    grant: &str,
) -> Result<(Key, Entry), SandboxError> {
    let key = Key::unique()?;
    wanted.identity.key = key.clone();
    let entry = registry.begin_wait(world, &wanted, grant)?;
    let (answer, answered) = oneshot::channel();
    let (grant, lease) = (grant.into(), String::new());
    let hold = Hold { wanted, grant, lease, created: true, ahead: true, answer };
    let _ = entry.commands.send(Command::Hold(Box::new(hold)));
    answered.await.map_err(|_| crate::refusal::not_found(&entry.name)).flatten()?;
    Ok((key, entry))
}

/// Grants and requests differ, and each kind costs memory.
const MAX_KINDS: usize = 8;
/// A sandbox sees the host's files as they were when it was started.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);
/// A kind that is not asked for any more is not kept ready.
const KIND_MAX_UNUSED: Duration = Duration::from_secs(60 * 60);
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

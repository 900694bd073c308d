//! All sandboxes of one state directory, for the server. Checks what the caller may do, and hands on to the sandbox's own task.

use crate::access::InUse;
use crate::command::{Acquire, Answer, Change, Command};
use crate::identity::{Identity, Parent};
use crate::lease_request::LeaseRequest;
use crate::permission::{OWNER, Owner, Permission};
use crate::pool::Pool;
use crate::refusal;
use crate::registry::{Entry, Registry, RunSeat};
use crate::reserve::Reserve;
use crate::settings::Settings;
use crate::shim::Shims;
use crate::sweep::Ground;
use crate::task::World;
use belljar_api::{CreateSandbox, Created, LeaseInfo, Page, SandboxInfo, State, Sweep};
use belljar_overlay::snapshot::Forking;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::new_id;
use belljar_state::sweep_removed;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// All sandboxes of one state directory. Copies are the same fleet; with the last one its tasks end, and sandboxes live on.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) registry: Arc<Registry>,
    pub(crate) world: World,
    swept: Arc<Sweep>,
    pool: Arc<Pool>,
    /// One snapshot at a time of each grant whose snapshots are counted.
    snapshot_turns: Arc<Mutex<HashMap<String, Turn>>>,
}

/// Held by the one whose turn it is.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Which sandboxes of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub key: Option<String>,
    pub state: Option<State>,
    /// Only behind this name.
    pub after: Option<String>,
    /// How many at most; nothing is all of them.
    pub limit: Option<usize>,
}

impl Fleet {
    /// Takes a directory (`<state>/fleet`) for this process, finds what lives in it, and sweeps what is dead. Refused while another
    /// process has it.
    pub async fn open(
        directory: impl Into<PathBuf>,
        shims: Arc<dyn Shims>,
        settings: Settings,
    ) -> Result<Fleet, SandboxError> {
        let directory = directory.into();
        let (ground, mut findings) = blocking(move || {
            let ground = Ground::take(&directory)?;
            let findings = ground.sweep(false)?;
            Ok((ground, findings))
        })
        .await?;
        let swept = Arc::new(std::mem::take(&mut findings.sweep));
        let reserve = Arc::new(Reserve::at(ground.directory()));
        let registry = Arc::new(Registry::new(ground));
        let world = World {
            shims,
            reserve,
            starts: Arc::new(Semaphore::new(settings.starts.max(1))),
            settings,
            registry: Arc::downgrade(&registry),
        };
        registry.adopt(&world, findings);
        let pool = Pool::new(world.settings.warm, world.settings.clock);
        if world.settings.warm > 0 {
            tokio::spawn(Arc::clone(&pool).tend(world.clone()));
        }
        let fleet = Fleet { registry, world, swept, pool, snapshot_turns: Arc::default() };
        // The first request should not see every sandbox as starting; a slow one delays no request for longer than this.
        let _ = timeout(ADOPTION, fleet.settle()).await;
        Ok(fleet)
    }

    /// Waits until no other snapshot of this grant is being taken.
    pub(crate) async fn snapshot_turn(&self, grant: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.snapshot_turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(grant.to_string()).or_default())
        };
        turn.lock_owned().await
    }

    /// What was swept when it was opened.
    pub fn swept_at_start(&self) -> &Sweep {
        &self.swept
    }

    /// What is on disk and not understood, by name. It is left as it is.
    pub fn unknown(&self) -> Vec<(String, SandboxError)> {
        self.registry.unknown()
    }

    /// Which sandbox a request means, for this caller.
    pub fn identify(
        &self,
        request: &CreateSandbox,
        caller: &dyn Permission,
    ) -> Result<Identity, SandboxError> {
        let Some(name) = &request.inherit else { return Identity::of(request, None) };
        match self.allowed(name, caller) {
            Ok(entry) => {
                let info = entry.access.info();
                Identity::of(request, Some(&Parent { key: info.key, persistent: info.persistent }))
            }
            // What is said beside it is refused first, whatever is there.
            Err(error) => match Identity::of(request, None) {
                Err(found) if found.code == ErrorCode::RequestConflict => Err(found),
                Ok(_) | Err(_) => Err(error),
            },
        }
    }

    /// Holds a sandbox: the one of that key, woken up or made if need be. However many ask for one key at once, there is one sandbox,
    /// and each of them holds it. A caller that hangs up while this waits leaves no lease.
    pub async fn create(
        &self,
        lease_request: LeaseRequest,
        caller: &dyn Permission,
    ) -> Result<Created, SandboxError> {
        let lease = format!("lease_{}", new_id()?);
        let grant = caller.grant();
        let is_new =
            self.pool.serves(&lease_request) && !self.registry.was_answered_before(&lease_request, grant);
        let may_take = is_new && self.registry.has_room(caller);
        let mut warm = may_take.then(|| self.pool.take(&self.registry, &lease_request, grant)).flatten();
        let first = lease_request;
        loop {
            let mut lease_request = first.clone();
            if let Some(warm) = &warm {
                lease_request.identity.key = warm.key.clone();
            }
            let seat = self.registry.seat(&self.world, &lease_request, caller)?;
            let (answer, answered) = oneshot::channel();
            lease_request.identity.role = seat.role;
            let created = warm.is_some();
            let (of, lease) = (grant.into(), lease.clone());
            let hold = Acquire { lease_request, grant: of, lease, created, ahead: false, answer };
            let _ = seat.entry.commands.send(Command::Acquire(Box::new(hold)));
            match answered.await {
                Ok(Ok(created)) => {
                    if let Some(warm) = warm {
                        warm.hand_out();
                    }
                    if is_new {
                        self.pool.note(&first, grant, caller.most_sandboxes());
                    }
                    return Ok(Created { sandbox: shown(created.sandbox, caller), ..created });
                }
                Ok(Err(error)) => {
                    seat.fail();
                    return Err(error);
                }
                // It was being deleted, and is gone: there is room for a new one.
                Err(_) => {
                    seat.fail();
                    warm = None;
                }
            }
        }
    }

    /// A grant was revoked: nothing is kept ready for it.
    pub fn forget_grant(&self, grant: &str) {
        self.pool.forget(grant);
    }

    /// Room for a run of one command, whose sandbox is none of these and counts as one of them.
    pub fn seat_run(&self, caller: &dyn Permission) -> Result<RunSeat, SandboxError> {
        self.registry.seat_run(caller)
    }

    /// Those that the caller may use, by name.
    pub async fn list(&self, filter: &Filter, caller: &dyn Permission) -> Page<SandboxInfo> {
        let limit = filter.limit.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        let mut next = None;
        let mut lookers = Vec::new();
        for (info, entry) in self.all(caller) {
            let behind = filter.after.as_ref().is_none_or(|after| info.name > *after);
            let keyed = filter.key.as_ref().is_none_or(|key| info.key == *key);
            let in_state = filter.state.is_none_or(|state| info.state == state);
            if !(behind && keyed && in_state) {
                continue;
            }
            if lookers.len() == limit {
                next = lookers.last().map(|(name, _): &(String, _)| name.clone());
                break;
            }
            let name = info.name.clone();
            let looker = async move {
                match entry {
                    Some(entry) => info_of(entry).await,
                    None => info,
                }
            };
            lookers.push((name, tokio::spawn(looker)));
        }
        for (_, looker) in lookers {
            items.extend(looker.await.map(|info| shown(info, caller)));
        }
        Page { items, next }
    }

    /// All of them as they are known here, without asking their shims.
    pub fn known(&self) -> Vec<SandboxInfo> {
        self.all(&Owner::default()).into_iter().map(|(info, _)| info).collect()
    }

    pub async fn get(&self, name: &str, caller: &dyn Permission) -> Result<SandboxInfo, SandboxError> {
        match self.unreadable().into_iter().find(|info| info.name == name) {
            Some(info) if caller.grant() == OWNER => Ok(info),
            Some(_) | None => Ok(shown(info_of(self.allowed(name, caller)?).await, caller)),
        }
    }

    /// The same, for a caller that may change it, and not only use it.
    pub async fn owned(&self, name: &str, caller: &dyn Permission) -> Result<SandboxInfo, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        Ok(shown(info_of(entry).await, caller))
    }

    /// All processes inside are paused.
    pub async fn pause(&self, name: &str, caller: &dyn Permission) -> Result<SandboxInfo, SandboxError> {
        self.change(name, Change::Pause, caller).await
    }

    pub async fn resume(&self, name: &str, caller: &dyn Permission) -> Result<SandboxInfo, SandboxError> {
        self.change(name, Change::Resume, caller).await
    }

    /// Ends it. A persistent one stays, with its files; what is ephemeral is gone.
    pub async fn stop(&self, name: &str, caller: &dyn Permission) -> Result<SandboxInfo, SandboxError> {
        self.change(name, Change::Stop, caller).await
    }

    /// Ends it and removes its files, be it persistent or not.
    pub async fn delete(&self, name: &str, caller: &dyn Permission) -> Result<(), SandboxError> {
        self.change(name, Change::Delete, caller).await.map(drop)
    }

    /// A lease counts anew.
    pub async fn renew(
        &self,
        name: &str,
        lease: &str,
        lasts_s: Option<u64>,
        caller: &dyn Permission,
    ) -> Result<LeaseInfo, SandboxError> {
        let entry = self.allowed(name, caller)?;
        let (lease, holder) = (lease.to_string(), holder(caller));
        self.ask(&entry, |answer| Command::Renew { lease, holder, lasts_s, answer }).await
    }

    /// Holds it no more.
    pub async fn drop_lease(
        &self,
        name: &str,
        lease: &str,
        caller: &dyn Permission,
    ) -> Result<(), SandboxError> {
        let entry = self.allowed(name, caller)?;
        let (lease, holder) = (lease.to_string(), holder(caller));
        self.ask(&entry, |answer| Command::Drop { lease, holder, answer }).await
    }

    /// The shim of what lives, for a request: waits while it is being started, and prolongs what the caller holds.
    pub async fn shim(&self, name: &str, caller: &dyn Permission) -> Result<InUse, SandboxError> {
        let entry = self.allowed(name, caller)?;
        let used = entry.access.enter().await?;
        let lease = caller.lease().map(str::to_string);
        let _ = entry.commands.send(Command::Used { grant: caller.grant().into(), lease });
        Ok(used)
    }

    /// Sweeps what died unnoticed.
    pub async fn sweep(&self, dry_run: bool) -> Result<Sweep, SandboxError> {
        let mut swept = Vec::new();
        for entry in self.registry.entries() {
            // What is gone meanwhile needs no sweep.
            let Ok(Some(found)) = self.ask(&entry, |answer| Command::Check { dry_run, answer }).await else {
                continue;
            };
            let _ = self.ask(&entry, Command::Settle).await;
            swept.push(found);
        }
        if !dry_run {
            self.collect_layers(Forking::Perhaps).await?;
            let sandboxes = self.registry.ground.sandboxes();
            blocking(move || {
                sweep_removed(&sandboxes);
                Ok(())
            })
            .await?;
        }
        Ok(Sweep { dry_run, swept })
    }

    /// The daemon ends: nothing new is begun, what is under way is finished, sandboxes without leases or use are ended, and all others
    /// live on with their leases on disk.
    pub async fn shutdown(&self) -> Result<(), SandboxError> {
        self.registry.close();
        let mut waiting = Vec::new();
        for entry in self.registry.entries() {
            let (answer, answered) = oneshot::channel();
            let _ = entry.commands.send(Command::Close(answer));
            waiting.push(answered);
        }
        let mut outcome = Ok(());
        for answered in waiting {
            // One that is gone by now is finished too.
            outcome = outcome.and(answered.await.unwrap_or(Ok(())));
        }
        outcome
    }

    async fn settle(&self) {
        for entry in self.registry.entries() {
            // One that is gone is settled.
            let _ = self.ask(&entry, Command::Settle).await;
        }
    }

    async fn change(
        &self,
        name: &str,
        change: Change,
        caller: &dyn Permission,
    ) -> Result<SandboxInfo, SandboxError> {
        let entry = self.allowed(name, caller)?;
        must_own(&entry, caller)?;
        let info = self.ask(&entry, |answer| Command::Change(change, answer)).await?;
        Ok(shown(info, caller))
    }

    /// The sandbox of this name, for a caller that may use it. For any other there is none: names follow from keys, and another answer
    /// would tell which keys are in use.
    pub(crate) fn allowed(&self, name: &str, caller: &dyn Permission) -> Result<Entry, SandboxError> {
        match self.registry.entry(name) {
            Ok(entry) if may_use(&entry, caller).is_ok() && !self.registry.is_waiting(name) => Ok(entry),
            Err(error) if caller.grant() == OWNER => Err(error),
            Ok(_) | Err(_) => Err(refusal::not_found(name)),
        }
    }

    pub(crate) async fn ask<T>(
        &self,
        entry: &Entry,
        command: impl FnOnce(Answer<T>) -> Command,
    ) -> Result<T, SandboxError> {
        let (answer, answered) = oneshot::channel();
        let _ = entry.commands.send(command(answer));
        answered.await.unwrap_or_else(|_| {
            Err(if self.registry.is_closed() { refusal::closing() } else { refusal::not_found(&entry.name) })
        })
    }
}

/// Sweeps a directory that no daemon has.
pub async fn sweep_alone(directory: &Path, dry_run: bool) -> Result<Sweep, SandboxError> {
    let directory = directory.to_path_buf();
    blocking(move || Ok(Ground::take(&directory)?.sweep(dry_run)?.sweep)).await
}

/// With how many commands run inside, if its shim says so soon.
async fn info_of(entry: Entry) -> SandboxInfo {
    let mut info = entry.access.info();
    if let Some(shim) = entry.access.shim()
        && let Ok(Ok(status)) = timeout(GLANCE, shim.status()).await
    {
        info.commands = status.commands;
    }
    info
}

/// As the caller is told: of leases its own, unless it is the person whose machine it is.
pub(crate) fn shown(mut info: SandboxInfo, caller: &dyn Permission) -> SandboxInfo {
    let grant = caller.grant();
    info.leases.retain(|lease| grant == OWNER || lease.holder == grant);
    info
}

/// What it made, or holds, or may join.
pub(crate) fn may_use(entry: &Entry, caller: &dyn Permission) -> Result<(), SandboxError> {
    if entry.owner == caller.grant()
        || entry.access.info().leases.iter().any(|lease| lease.holder == caller.grant())
    {
        return Ok(());
    }
    caller.may_join(&entry.key, Some(&entry.owner))
}

/// The grant that made it, or one that has its key for its own. A request that is made under a guest's lease is a guest's, whichever
/// grant makes it; an owner's lease adds nothing, since the caller asked for it.
pub(crate) fn must_own(entry: &Entry, caller: &dyn Permission) -> Result<(), SandboxError> {
    let info = entry.access.info();
    let grant = caller.grant();
    let held = |lease: &&LeaseInfo| grant == OWNER || lease.holder == grant;
    let lease = caller.lease().and_then(|id| info.leases.iter().filter(held).find(|lease| lease.id == id));
    let is_guest = lease.is_some_and(|lease| !lease.owner);
    match !is_guest && (entry.owner == grant || caller.may_own(&entry.key)) {
        true => Ok(()),
        false => Err(refusal::not_owner(&entry.name)),
    }
}

/// Whose leases the caller may touch: its own, unless it is the person whose machine it is.
fn holder(caller: &dyn Permission) -> Option<String> {
    Some(caller.grant().to_string()).filter(|grant| grant != OWNER)
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    let failed = |_| Err(ErrorCode::Internal.error("work of the fleet was cut short"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(failed)
}

/// How long shims of before may take to be found, before others are served.
const ADOPTION: Duration = Duration::from_secs(5);
/// How long a look at a shim may take: a list is not held up by one that is busy.
const GLANCE: Duration = Duration::from_secs(1);

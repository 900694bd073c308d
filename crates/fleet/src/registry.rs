//! Which sandboxes there are: names to tasks. One sandbox per key, however many callers ask for it at once, because each request
//! looks it up and inserts it under one lock, which is never held while waiting.

use crate::access::Access;
use crate::command::{Change, Command};
use crate::identity::Role;
use crate::lease::Leases;
use crate::lease_request::LeaseRequest;
use crate::machine::Phase;
use crate::name::name_of;
use crate::permission::Permission;
use crate::record::{Intent, Record, VERSION};
use crate::sweep::Ground;
use crate::task::{Birth, Task, World};
use crate::{refusal, sweep::Findings};
use belljar_api::State;
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// The sandboxes of one directory.
pub(crate) struct Registry {
    pub(crate) ground: Ground,
    inside: Mutex<Inside>,
}

/// A sandbox that has a task.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) access: Arc<Access>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    task: AbortHandle,
}

#[derive(Default)]
struct Inside {
    closed: bool,
    entries: BTreeMap<String, Entry>,
    /// Requests by grant and idempotency key: the sandbox, and what was asked.
    once: HashMap<(String, String), (String, String)>,
    /// What is on disk and not understood. Its name is taken.
    unknown: BTreeMap<String, SandboxError>,
    /// The requests that are under way: grant and name.
    asking: Vec<(String, String)>,
    /// How many one-shot runs are active, by grant. Each has a sandbox of its own.
    runs: HashMap<String, usize>,
    /// Names of sandboxes that were started ahead and are in no list ([`crate::pool`]).
    waiting: HashSet<String>,
}

/// A request that has found its sandbox. While this lives it counts among what its grant has.
pub(crate) struct Seat {
    pub(crate) entry: Entry,
    /// What its grant is to the sandbox: no more than the request wants to be.
    pub(crate) role: Role,
    registry: Arc<Registry>,
    grant: String,
    /// Its idempotency key, if no earlier request used it.
    once: Option<String>,
}

/// A run of one command, which counts among what its grant has until this is dropped. It does not keep the fleet.
#[must_use = "dropped, the run is over"]
pub struct RunSeat {
    registry: Weak<Registry>,
    grant: String,
}

impl Registry {
    pub(crate) fn new(ground: Ground) -> Registry {
        Registry { ground, inside: Mutex::default() }
    }

    /// Takes over what was found on disk.
    pub(crate) fn adopt(&self, world: &World, findings: Findings) {
        let mut inside = self.lock();
        inside.unknown.extend(findings.unknown);
        for found in findings.there {
            let mut record = found.record;
            record.leases.give_slack(crate::task::time::LAZY_MS);
            for once in &record.once {
                let requested = (record.name.clone(), once.body.clone());
                inside.once.insert((once.grant.clone(), once.key.clone()), requested);
            }
            let birth = if found.is_running { Birth::Running } else { Birth::Stopped };
            let is_waiting = record.waiting;
            let entry = self.begin(world, record, birth);
            if is_waiting {
                inside.waiting.insert(entry.name.clone());
                entry.delete();
            }
            inside.entries.insert(entry.name.clone(), entry);
        }
    }

    /// Finds the sandbox that is wanted, or makes room for it.
    pub(crate) fn seat(
        self: &Arc<Registry>,
        world: &World,
        lease_request: &LeaseRequest,
        caller: &dyn Permission,
    ) -> Result<Seat, SandboxError> {
        let mut inside = self.lock();
        if inside.closed {
            return Err(refusal::closing());
        }
        let grant = caller.grant();
        let key = &lease_request.identity.key;
        let before = inside.answered_before(lease_request, grant)?;
        let name = before.clone().unwrap_or_else(|| name_of(key.as_str()));
        let found = inside.entries.get(&name).cloned();
        // Before anything else is said of it: a grant without the key learns the same whether there is such a sandbox or not.
        match &found {
            Some(entry) if entry.owner == grant => {}
            Some(entry) => caller.may_join(&entry.key, Some(&entry.owner))?,
            None if key.is_unique() => {}
            None => caller.may_join(key.as_str(), None)?,
        }
        if let Some(error) = inside.unknown.get(&name) {
            return Err(error.clone());
        }
        // The pool alone hands it out, under the key that it made for it.
        if inside.waiting.contains(&name) && !key.is_unique() {
            return Err(ErrorCode::NameTaken
                .error("the key belongs to something else")
                .hint("use another key"));
        }
        if found.as_ref().is_some_and(|entry| before.is_none() && entry.key != key.as_str()) {
            let message = format!("the sandbox `{name}` has another key than `{}`", key.as_str());
            return Err(ErrorCode::NameTaken.error(message).hint("use another key"));
        }
        let role = match &found {
            Some(entry) if entry.owner != grant && !caller.may_own(&entry.key) => Role::Guest,
            Some(_) | None => lease_request.identity.role,
        };
        if lease_request.identity.insists && role != Role::Owner {
            return Err(refusal::not_owner(&name));
        }
        if found.is_none() && role == Role::Guest {
            return Err(refusal::not_alive(&name));
        }
        inside.must_have_room(Some(&name), caller)?;
        let entry = match found {
            Some(entry) if entry.commands.is_closed() => return Err(lost(&name)),
            Some(entry) => entry,
            None => {
                let entry = self.begin(world, self.record(world, &name, lease_request, grant), Birth::New);
                inside.entries.insert(name.clone(), entry.clone());
                entry
            }
        };
        let once = lease_request.idempotency.as_ref().filter(|_| before.is_none()).map(|once| {
            inside.once.insert((grant.into(), once.key.clone()), (name.clone(), once.body.clone()));
            once.key.clone()
        });
        inside.asking.push((grant.into(), name));
        Ok(Seat { entry, role, registry: self.clone(), grant: grant.into(), once })
    }

    /// Whether a request that was made before under the same idempotency key has its sandbox.
    pub(crate) fn was_answered_before(&self, lease_request: &LeaseRequest, grant: &str) -> bool {
        !matches!(self.lock().answered_before(lease_request, grant), Ok(None))
    }

    /// Whether the caller may have one more sandbox.
    pub(crate) fn has_room(&self, caller: &dyn Permission) -> bool {
        self.lock().must_have_room(None, caller).is_ok()
    }

    /// Begins a sandbox ahead of a request. It counts among what its grant has when a request gets it.
    pub(crate) fn begin_wait(
        &self,
        world: &World,
        lease_request: &LeaseRequest,
        grant: &str,
    ) -> Result<Entry, SandboxError> {
        let mut inside = self.lock();
        if inside.closed {
            return Err(refusal::closing());
        }
        let name = name_of(lease_request.identity.key.as_str());
        let record = Record { warm: true, waiting: true, ..self.record(world, &name, lease_request, grant) };
        let entry = self.begin(world, record, Birth::New);
        inside.entries.insert(name.clone(), entry.clone());
        inside.waiting.insert(name);
        Ok(entry)
    }

    /// It is a sandbox like any other from now on.
    pub(crate) fn end_wait(&self, name: &str) {
        self.lock().waiting.remove(name);
    }

    pub(crate) fn is_waiting(&self, name: &str) -> bool {
        self.lock().waiting.contains(name)
    }

    /// Makes room for a run, under the same lock as for sandboxes: together they are no more than the grant may have.
    pub(crate) fn seat_run(self: &Arc<Registry>, caller: &dyn Permission) -> Result<RunSeat, SandboxError> {
        let mut inside = self.lock();
        if inside.closed {
            return Err(refusal::closing());
        }
        inside.must_have_room(None, caller)?;
        let grant = caller.grant().to_string();
        *inside.runs.entry(grant.clone()).or_default() += 1;
        Ok(RunSeat { registry: Arc::downgrade(self), grant })
    }

    pub(crate) fn entry(&self, name: &str) -> Result<Entry, SandboxError> {
        let inside = self.lock();
        if let Some(error) = inside.unknown.get(name) {
            return Err(error.clone());
        }
        inside.entries.get(name).cloned().ok_or_else(|| refusal::not_found(name))
    }

    /// By name, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.lock().entries.values().cloned().collect()
    }

    pub(crate) fn unknown(&self) -> Vec<(String, SandboxError)> {
        self.lock().unknown.clone().into_iter().collect()
    }

    /// What was not understood is gone; its name is free.
    pub(crate) fn forget_unknown(&self, name: &str) {
        self.lock().unknown.remove(name);
    }

    /// Nothing new from now on.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// A sandbox is gone; its name is free.
    pub(crate) fn remove(&self, name: &str, access: &Arc<Access>) {
        let mut inside = self.lock();
        if inside.entries.get(name).is_some_and(|entry| Arc::ptr_eq(&entry.access, access)) {
            inside.entries.remove(name);
            inside.waiting.remove(name);
            inside.once.retain(|_, (of, _)| of != name);
        }
    }

    /// An idempotency key may be used for something else.
    pub(crate) fn forget(&self, grant: &str, key: &str) {
        self.lock().once.remove(&(grant.to_string(), key.to_string()));
    }

    fn begin(&self, world: &World, record: Record, birth: Birth) -> Entry {
        let (commands, orders) = mpsc::unbounded_channel();
        let phase = if birth == Birth::Stopped { Phase::Stopped } else { Phase::Starting };
        let access = Arc::new(Access::new(record.info(phase, 0, None), world.settings.clock));
        let (name, key, owner) = (record.name.clone(), record.key.clone(), record.owner.clone());
        let task = Task::new(world.clone(), self.ground.place(&name), access.clone(), orders, record, birth);
        let task = tokio::spawn(task.run()).abort_handle();
        Entry { name, key, owner, access, commands, task }
    }

    fn record(&self, world: &World, name: &str, lease_request: &LeaseRequest, grant: &str) -> Record {
        let now = world.settings.clock.now_ms();
        Record {
            version: VERSION,
            name: name.into(),
            key: lease_request.identity.key.as_str().into(),
            owner: grant.into(),
            persistent: lease_request.identity.persistent.persistent,
            profile: lease_request.profile.clone(),
            sandbox: lease_request.sandbox.clone(),
            requested: Some(lease_request.requested.clone()),
            rules: lease_request.rules.clone(),
            environment: lease_request.environment.clone(),
            idle_s: lease_request.idle_s.unwrap_or(world.settings.idle.as_secs()),
            intent: Intent::Live,
            leases: Leases::default(),
            once: Vec::new(),
            created_ms: now,
            used_ms: now,
            alive: None,
            fault: None,
            warm: false,
            waiting: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// The sandbox that the same request got before.
    fn answered_before(
        &self,
        lease_request: &LeaseRequest,
        grant: &str,
    ) -> Result<Option<String>, SandboxError> {
        let Some(once) = &lease_request.idempotency else { return Ok(None) };
        let requested = self.once.get(&(grant.to_string(), once.key.clone()));
        let Some((name, body)) = requested.filter(|(name, _)| self.entries.contains_key(name)) else {
            return Ok(None);
        };
        if !once.is(body) {
            let message = format!("the idempotency key `{}` was used for another request", once.key);
            return Err(ErrorCode::IdempotencyMismatch
                .error(message)
                .hint("use a new key for a new request"));
        }
        Ok(Some(name.clone()))
    }

    /// A grant may have only so many alive, be they kept or made for one run. `name` is there already, or to be.
    fn must_have_room(&self, name: Option<&str>, caller: &dyn Permission) -> Result<(), SandboxError> {
        let Some(most) = caller.most_sandboxes() else { return Ok(()) };
        let grant = caller.grant();
        let asks = |of: &str| self.asking.iter().any(|(who, what)| who == grant && what == of);
        let has = |entry: &&Entry| {
            let info = entry.access.info();
            let own =
                entry.owner == grant && info.state != State::Stopped && !self.waiting.contains(&entry.name);
            own || asks(&entry.name) || info.leases.iter().any(|lease| lease.holder == grant)
        };
        let others = self.entries.values().filter(|entry| Some(entry.name.as_str()) != name).filter(has);
        let (others, runs) = (others.count(), self.runs.get(grant).copied().unwrap_or_default());
        if others + runs < most as usize {
            return Ok(());
        }
        let has = match runs {
            0 => format!("{others} sandboxes"),
            runs => format!("{others} sandboxes and {runs} runs"),
        };
        let message = format!("the grant `{grant}` has {has}, and may have {most} in all");
        Err(ErrorCode::QuotaExceeded
            .error(message)
            .hint("delete one that is not needed, or wait for a run to end"))
    }
}

impl Entry {
    /// Ends it, whatever becomes of that.
    pub(crate) fn delete(&self) {
        let (answer, _) = oneshot::channel();
        let _ = self.commands.send(Command::Change(Change::Delete, answer));
    }

    /// It is ready for commands, as far as is known.
    pub(crate) fn is_live(&self) -> bool {
        self.access.info().state == State::Live && !self.commands.is_closed()
    }
}

impl Seat {
    /// Nothing came of it: its idempotency key is free again.
    pub(crate) fn fail(&self) {
        if let Some(once) = &self.once {
            self.registry.forget(&self.grant, once);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.registry.lock();
        let at =
            inside.asking.iter().position(|(grant, name)| *grant == self.grant && *name == self.entry.name);
        if let Some(at) = at {
            inside.asking.swap_remove(at);
        }
    }
}

impl Drop for RunSeat {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut inside = registry.lock();
        if let Some(runs) = inside.runs.get_mut(&self.grant) {
            *runs -= 1;
            if *runs == 0 {
                inside.runs.remove(&self.grant);
            }
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        for entry in self.lock().entries.values() {
            entry.task.abort();
        }
    }
}

fn lost(name: &str) -> SandboxError {
    ErrorCode::Internal
        .error(format!("the daemon lost hold of the sandbox `{name}`"))
        .hint("restart the daemon: it finds running sandboxes")
}

//! Keepers that are no processes but behave as such: they hold the lock of their place, go on when the daemon is killed, and die when
//! they are told to or by themselves.

use belljar_api::{CreateSandbox, Created};
use belljar_fleet::*;
use belljar_spec::SandboxError;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A machine: a disk and what runs on it.
#[derive(Clone)]
pub(crate) struct World {
    inside: Arc<Mutex<Inside>>,
    folder: Arc<tempfile::TempDir>,
}

struct Inside {
    now_ms: i64,
    clock: Option<Clock>,
    processes: HashMap<PathBuf, Arc<Process>>,
    start_takes: Duration,
    stop_takes: Duration,
    fail_starts: u32,
    starting: usize,
    most_starting: usize,
    started: Vec<KeptPlan>,
    /// What must never happen, and did.
    wrong: Vec<String>,
}

/// What would be a process.
pub(crate) struct Process {
    alive: Alive,
    state: Mutex<State>,
    life: watch::Sender<bool>,
    world: World,
}

struct State {
    held: Option<Held>,
    ready: bool,
    commands: u32,
    paused: bool,
    used_ms: i64,
    /// Ends only who is asked to by name.
    may_stop_busy: bool,
    deaf: bool,
}

impl World {
    pub(crate) fn new() -> World {
        let inside = Inside {
            now_ms: 1_000_000,
            clock: None,
            processes: HashMap::new(),
            start_takes: Duration::from_millis(50),
            stop_takes: Duration::from_millis(20),
            fail_starts: 0,
            starting: 0,
            most_starting: 0,
            started: Vec::new(),
            wrong: Vec::new(),
        };
        World { inside: Arc::new(Mutex::new(inside)), folder: Arc::new(folder()) }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.folder.path().join("fleet")
    }

    /// What lies where sandboxes are kept.
    pub(crate) fn on_disk(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.directory().join("sandboxes")) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn place(&self, key: &str) -> Place {
        Place::new(self.directory().join("sandboxes").join(name_of(key)))
    }

    pub(crate) fn set(&self, edit: impl FnOnce(&mut Settable<'_>)) {
        let mut inside = self.lock();
        let inside = &mut *inside;
        edit(&mut Settable {
            start_takes: &mut inside.start_takes,
            stop_takes: &mut inside.stop_takes,
            fail_starts: &mut inside.fail_starts,
        });
    }

    pub(crate) fn started(&self) -> Vec<KeptPlan> {
        self.lock().started.clone()
    }

    pub(crate) fn most_starting(&self) -> usize {
        self.lock().most_starting
    }

    pub(crate) fn process(&self, key: &str) -> Option<Arc<Process>> {
        self.lock().processes.get(self.place(key).directory()).cloned().filter(|process| process.lives())
    }

    pub(crate) fn living(&self) -> usize {
        self.lock().processes.values().filter(|process| process.lives()).count()
    }

    pub(crate) fn must_be_right(&self) {
        assert_eq!(self.lock().wrong, Vec::<String>::new());
    }

    pub(crate) fn wrong(&self, what: String) {
        self.lock().wrong.push(what);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let inside = self.lock();
        inside.clock.map_or(inside.now_ms, |clock| clock.now_ms())
    }

    /// Runs a daemon of this machine for as long as `body` takes, and kills it then.
    pub(crate) fn run<T>(&self, body: impl AsyncFnOnce(Fleet) -> T) -> T {
        self.run_with(|_| {}, body)
    }

    pub(crate) fn run_with<T>(
        &self,
        edit: impl FnOnce(&mut Settings),
        body: impl AsyncFnOnce(Fleet) -> T,
    ) -> T {
        self.alone(async || body(self.open_with(edit).await.unwrap()).await)
    }

    /// Runs something in stopped time; what it left is killed.
    pub(crate) fn alone<T>(&self, body: impl AsyncFnOnce() -> T) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::Steady { began: Instant::now(), began_ms: self.lock().now_ms };
            self.lock().clock = Some(clock);
            let value = body().await;
            let now_ms = self.now_ms();
            let mut inside = self.lock();
            (inside.clock, inside.now_ms, inside.starting) = (None, now_ms, 0);
            value
        })
    }

    pub(crate) async fn open(&self) -> Result<Fleet, SandboxError> {
        self.open_with(|_| {}).await
    }

    async fn open_with(&self, edit: impl FnOnce(&mut Settings)) -> Result<Fleet, SandboxError> {
        let clock = self.lock().clock.unwrap();
        let mut settings = Settings { starts: 4, clock, ..Settings::default() };
        edit(&mut settings);
        Fleet::open(self.directory(), Arc::new(self.clone()), settings).await
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }
}

pub(crate) struct Settable<'a> {
    pub(crate) start_takes: &'a mut Duration,
    pub(crate) stop_takes: &'a mut Duration,
    pub(crate) fail_starts: &'a mut u32,
}

impl Keepers for World {
    fn start<'a>(
        &'a self,
        place: &'a Place,
        plan: &'a KeptPlan,
    ) -> Future<'a, Result<Arc<dyn Keeper>, SandboxError>> {
        Box::pin(async move {
            let (takes, fails) = {
                let mut inside = self.lock();
                inside.starting += 1;
                inside.most_starting = inside.most_starting.max(inside.starting);
                inside.started.push(plan.clone());
                let fails = inside.fail_starts > 0;
                inside.fail_starts = inside.fail_starts.saturating_sub(1);
                (inside.start_takes, fails)
            };
            // Before it exists.
            sleep(takes / 2).await;
            let process = match place.hold() {
                Ok(Some(held)) => self.process_of(place, plan, held),
                other => {
                    self.wrong(format!("a second keeper for {}: {other:?}", plan.key));
                    return Err(SandboxError::runtime("held", "it is held"));
                }
            };
            // It comes up by itself from here on.
            sleep(takes / 2).await;
            self.lock().starting -= 1;
            if fails {
                process.die();
                return Err(SandboxError::runtime("start_failed", "it was told to fail"));
            }
            process.state().ready = true;
            Ok(process as Arc<dyn Keeper>)
        })
    }

    fn find<'a>(&'a self, place: &'a Place) -> Future<'a, Result<Option<Arc<dyn Keeper>>, SandboxError>> {
        Box::pin(async move {
            let process =
                self.lock().processes.get(place.directory()).cloned().filter(|process| process.lives());
            let Some(process) = process else { return Ok(None) };
            let mut state = process.state();
            if !state.ready {
                // The next one who asks finds it ready.
                state.ready = true;
                return Ok(None);
            }
            drop(state);
            Ok(Some(process as Arc<dyn Keeper>))
        })
    }
}

impl World {
    fn process_of(&self, place: &Place, plan: &KeptPlan, held: Held) -> Arc<Process> {
        let read: KeptPlan = serde_json::from_slice(&std::fs::read(place.plan()).unwrap()).unwrap();
        assert_eq!(&read, plan, "the plan is on disk before its keeper");
        let now_ms = self.now_ms();
        let process = Arc::new(Process {
            alive: Alive {
                id: plan.id.clone(),
                backend: "native".into(),
                assurance: "strong".into(),
                workspace: "/workspace".into(),
                started_ms: now_ms,
                notes: vec!["a note".into()],
            },
            state: Mutex::new(State {
                held: Some(held),
                ready: false,
                commands: 0,
                paused: false,
                used_ms: now_ms,
                may_stop_busy: false,
                deaf: false,
            }),
            life: watch::Sender::new(true),
            world: self.clone(),
        });
        self.lock().processes.insert(place.directory().into(), process.clone());
        process
    }
}

impl Process {
    pub(crate) fn lives(&self) -> bool {
        self.state().held.is_some()
    }

    pub(crate) fn id(&self) -> &str {
        &self.alive.id
    }

    /// As by `kill -9`.
    pub(crate) fn die(&self) {
        self.state().held = None;
        self.life.send_replace(false);
    }

    /// The same, and nobody hears of it.
    pub(crate) fn die_unnoticed(&self) {
        self.state().held = None;
    }

    /// The connection to it breaks, and it lives.
    pub(crate) fn lose(&self) {
        self.life.send_replace(false);
        self.life.send_replace(true);
    }

    pub(crate) fn run_commands(&self, commands: u32) {
        let now_ms = self.world.now_ms();
        let mut state = self.state();
        (state.commands, state.used_ms) = (commands, now_ms);
    }

    pub(crate) fn commands(&self) -> u32 {
        self.state().commands
    }

    pub(crate) fn may_stop_busy(&self, may: bool) {
        self.state().may_stop_busy = may;
    }

    /// It answers nothing, and does nothing.
    pub(crate) fn be_deaf(&self, deaf: bool) {
        self.state().deaf = deaf;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn living(&self) -> Result<MutexGuard<'_, State>, SandboxError> {
        let state = self.state();
        if state.held.is_none() || state.deaf {
            return Err(SandboxError::unavailable("keeper_gone", "nobody answers"));
        }
        Ok(state)
    }
}

impl Keeper for Process {
    fn alive(&self) -> &Alive {
        &self.alive
    }

    fn status(&self) -> Future<'_, Result<Status, SandboxError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let state = self.living()?;
            Ok(Status { commands: state.commands, paused: state.paused, used_ms: state.used_ms })
        })
    }

    fn pause(&self) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.living()?.paused = true;
            Ok(())
        })
    }

    fn resume(&self) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.living()?.paused = false;
            Ok(())
        })
    }

    fn stop(&self, _: Stop) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            let takes = self.world.lock().stop_takes;
            sleep(takes / 2).await;
            {
                let state = self.living()?;
                if state.commands > 0 && !state.may_stop_busy {
                    self.world.wrong(format!("{} was stopped while a command ran", self.alive.id));
                }
            }
            self.die();
            sleep(takes / 2).await;
            Ok(())
        })
    }

    fn gone(&self) -> Future<'_, ()> {
        let mut life = self.life.subscribe();
        Box::pin(async move {
            if self.lives() {
                let _ = life.changed().await;
            }
        })
    }
}

/// Somebody with a grant and keys that they may use; `*` is all of them.
pub(crate) struct Somebody {
    pub(crate) grant: &'static str,
    pub(crate) keys: &'static [&'static str],
    pub(crate) lease: Option<String>,
    pub(crate) most: Option<u32>,
}

pub(crate) fn somebody(grant: &'static str, keys: &'static [&'static str]) -> Somebody {
    Somebody { grant, keys, lease: None, most: None }
}

impl Permission for Somebody {
    fn grant(&self) -> &str {
        self.grant
    }

    fn may_join(&self, key: &str, _: Option<&str>) -> Result<(), SandboxError> {
        let may = self.keys.iter().any(|may| *may == "*" || *may == key);
        may.then_some(()).ok_or_else(|| SandboxError::policy("key_not_granted", "not granted"))
    }

    fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    fn most_sandboxes(&self) -> Option<u32> {
        self.most
    }
}

pub(crate) fn owner() -> Owner {
    Owner::default()
}

pub(crate) fn keyed(key: &str) -> CreateSandbox {
    CreateSandbox { key: Some(key.into()), ..CreateSandbox::default() }
}

pub(crate) fn ephemeral(key: &str) -> CreateSandbox {
    CreateSandbox { persistent: Some(false), ..keyed(key) }
}

pub(crate) fn guest(key: &str) -> CreateSandbox {
    CreateSandbox { owner: Some(false), ..keyed(key) }
}

pub(crate) async fn create(fleet: &Fleet, request: CreateSandbox) -> Result<Created, SandboxError> {
    create_as(fleet, request, None, &owner()).await
}

pub(crate) async fn create_as(
    fleet: &Fleet,
    request: CreateSandbox,
    idempotency: Option<&str>,
    caller: &dyn Permission,
) -> Result<Created, SandboxError> {
    let wanted = Wanted {
        identity: fleet.identify(&request, caller)?,
        asked: request.sandbox.clone(),
        asked_profile: request.profile.clone(),
        sandbox: request.sandbox.clone(),
        profile: request.profile.clone().unwrap_or_else(|| "default".into()),
        idle_s: request.idle_s,
        lease_s: request.lease_s,
        idempotency: idempotency.map(|key| Idempotency::new(key, &request)).transpose()?,
    };
    fleet.create(wanted, caller).await
}

/// The code of a refusal.
pub(crate) fn refused<T>(result: Result<T, SandboxError>) -> &'static str {
    match result {
        Ok(_) => "nothing was refused",
        Err(error) => error.code,
    }
}

/// In memory if there is such a place: what waits for a disk is no part of this.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Time passes.
pub(crate) async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

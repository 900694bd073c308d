//! A machine: a disk, what runs on it, and daemons one after the other. Shims are no processes but behave as such.

pub(crate) use crate::asking::*;
pub(crate) use crate::process::Process;
use belljar_fleet::*;
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
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
    started: Vec<ShimPlan>,
    /// Keys of the sandboxes that a caller wants to end, whatever runs in them.
    to_end: Vec<String>,
    /// What must never happen, and did.
    wrong: Vec<String>,
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
            to_end: Vec::new(),
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

    pub(crate) fn place(&self, key: &str) -> SandboxDir {
        SandboxDir::new(self.directory().join("sandboxes").join(name_of(key)))
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

    pub(crate) fn started(&self) -> Vec<ShimPlan> {
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

    /// Every shim dies.
    pub(crate) fn kill_all(&self) {
        let processes: Vec<_> = self.lock().processes.values().cloned().collect();
        processes.iter().for_each(|process| process.die());
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

    /// From now on only these may be ended while a command runs.
    pub(crate) fn let_end(&self, keys: Vec<String>) {
        self.lock().to_end = keys;
    }

    pub(crate) fn may_end(&self, key: &str) -> bool {
        self.lock().to_end.iter().any(|may| may == key)
    }

    pub(crate) fn stop_takes(&self) -> Duration {
        self.lock().stop_takes
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

impl Shims for World {
    fn start<'a>(
        &'a self,
        place: &'a SandboxDir,
        plan: &'a ShimPlan,
    ) -> Future<'a, Result<Arc<dyn Shim>, SandboxError>> {
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
                Ok(Some(held)) => {
                    let process = Arc::new(Process::new(self, plan, held));
                    self.lock().processes.insert(place.directory().into(), process.clone());
                    process
                }
                other => {
                    self.wrong(format!("a second shim for {}: {other:?}", plan.key));
                    return Err(ErrorCode::StartFailed.error("it is held"));
                }
            };
            // It comes up by itself from here on.
            sleep(takes / 2).await;
            self.lock().starting -= 1;
            if fails || !process.lives() {
                process.die();
                return Err(ErrorCode::StartFailed.error("it was told to fail"));
            }
            process.come_up();
            Ok(process as Arc<dyn Shim>)
        })
    }

    fn find<'a>(&'a self, place: &'a SandboxDir) -> Future<'a, Result<Option<Arc<dyn Shim>>, SandboxError>> {
        Box::pin(async move {
            let process =
                self.lock().processes.get(place.directory()).cloned().filter(|process| process.lives());
            let Some(process) = process else { return Ok(None) };
            // The next one who asks finds it ready.
            if !process.come_up() {
                return Ok(None);
            }
            Ok(Some(process as Arc<dyn Shim>))
        })
    }
}

/// In memory if there is such a place: what waits for a disk is no part of this.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

//! From the daemon to the shims: starts them, finds them again, and speaks HTTP with those of living sandboxes over their abstract sockets.
//!
//! ```text
//!   start: plan ──> a copy of the zygote, in a session of its own ──> answer: a Line, a run, or why not
//!   find:  keeper.lock is held ──> keeper.json ──> it answers ──> Line
//! ```
//! A [`Line`] leads to one shim in one life of its sandbox. Fleets know it as a `Shim`; the front finds it by the id of that
//! life, to forward requests. Nothing here decides what may be asked.

mod life;
mod line;
mod pool;
mod process;
pub(crate) mod runs;
mod start;
mod zygote;

pub use line::Line;
pub use pool::{LinkError, Passing};
use process::Spawner;
pub(crate) use start::{Started, run_failed};
use zygote::Zygote;

use crate::metrics::Metrics;
use crate::shim::Contact;
use crate::shim::protocol::{Answer, Plan};
use belljar_fleet::{Future, SandboxDir, Shim, ShimPlan, Shims};
use belljar_spec::SandboxError;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The shims of one daemon.
#[derive(Debug)]
pub struct Link {
    spawner: Spawner,
    fleet: PathBuf,
    lines: Mutex<HashMap<String, Weak<Line>>>,
    metrics: Arc<Metrics>,
    will_sweep: Arc<AtomicBool>,
}

impl Link {
    /// Shims are copies of a zygote of this very program, and have these variables beside ours. Runs have their directories below `fleet`.
    pub fn new(fleet: &Path, environment: Vec<(&'static str, String)>) -> Link {
        Link::of(Spawner::Zygote(Arc::new(Zygote::new(environment))), fleet)
    }

    /// Shims are another program, for tests.
    pub fn of_program(program: PathBuf, fleet: &Path) -> Link {
        Link::of(Spawner::Program(program), fleet)
    }

    fn of(spawner: Spawner, fleet: &Path) -> Link {
        Link {
            spawner,
            fleet: fleet.to_path_buf(),
            lines: Mutex::default(),
            metrics: Arc::default(),
            will_sweep: Arc::default(),
        }
    }

    /// Makes ready for the first shim, in the background.
    pub(crate) fn prepare(&self) {
        if let Spawner::Zygote(zygote) = &self.spawner {
            let zygote = Arc::clone(zygote);
            spawn_blocking(move || zygote.start());
        }
    }

    /// What shims counted.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The way to the shim of this life of a sandbox.
    pub fn line(&self, id: &str) -> Option<Arc<Line>> {
        self.lines().get(id).and_then(Weak::upgrade)
    }

    /// Starts the shim of a run in a directory of its own, and waits for its answer. `on_end` gets the exit code when nothing of the run is
    /// left.
    pub(crate) async fn start_run(
        &self,
        plan: Plan,
        on_end: impl FnOnce(Option<i32>) + Send + 'static,
    ) -> Result<(Answer, Started), SandboxError> {
        self.start_shim(&runs::new_place(&self.fleet)?, plan, on_end).await
    }

    async fn start_shim(
        &self,
        place: &SandboxDir,
        plan: Plan,
        on_end: impl FnOnce(Option<i32>) + Send + 'static,
    ) -> Result<(Answer, Started), SandboxError> {
        self.sweep_soon();
        start::start(&self.spawner, &self.metrics, place, plan, on_end).await
    }

    /// A start is followed by a sweep of what killed processes left, many starts by one: shims leave that to us.
    fn sweep_soon(&self) {
        if self.will_sweep.swap(true, Ordering::Relaxed) {
            return;
        }
        let (will_sweep, fleet) = (Arc::clone(&self.will_sweep), self.fleet.clone());
        tokio::spawn(async move {
            sleep(BETWEEN_SWEEPS).await;
            will_sweep.store(false, Ordering::Relaxed);
            let _ = spawn_blocking(move || belljar_engine::sweep_leftovers(fleet.parent())).await;
        });
    }

    async fn find_line(&self, place: &SandboxDir) -> Result<Option<Arc<Line>>, SandboxError> {
        let held = place.hold().map_err(|error| start::broken(place, "look for a shim", &error))?;
        if held.is_some() {
            return Ok(None);
        }
        let contact =
            Contact::read(place).map_err(|error| start::broken(place, "read keeper.json", &error))?;
        let Some(contact) = contact else { return Ok(None) };
        if let Some(known) = self.line(&contact.alive.id) {
            return Ok(Some(known));
        }
        let line = Line::new(contact);
        match line.watch().await {
            Ok(()) => {
                let counted = self.metrics.found(place, line.pid());
                line.at_its_end(|| drop(counted));
                Ok(Some(self.keep(line)))
            }
            Err(_) => Ok(None),
        }
    }

    fn keep(&self, line: Line) -> Arc<Line> {
        let line = Arc::new(line);
        let mut lines = self.lines();
        lines.retain(|_, known| known.strong_count() > 0);
        lines.insert(line.alive().id.clone(), Arc::downgrade(&line));
        line
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<String, Weak<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shims for Link {
    fn start<'a>(
        &'a self,
        place: &'a SandboxDir,
        plan: &'a ShimPlan,
    ) -> Future<'a, Result<Arc<dyn Shim>, SandboxError>> {
        Box::pin(async move {
            let plan = Plan::Sandbox(Box::new(plan.clone()));
            let (Answer::Ready(contact), shim) = self.start_shim(place, plan, drop).await? else {
                return Err(start::broken(place, "start a sandbox", &"its shim holds a run"));
            };
            let line = Line::new(*contact);
            line.watch().await?;
            shim.release();
            Ok(self.keep(line) as Arc<dyn Shim>)
        })
    }

    fn find<'a>(&'a self, place: &'a SandboxDir) -> Future<'a, Result<Option<Arc<dyn Shim>>, SandboxError>> {
        Box::pin(async move { Ok(self.find_line(place).await?.map(|line| line as Arc<dyn Shim>)) })
    }
}

/// To look at what a thousand living sandboxes hold takes some milliseconds.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

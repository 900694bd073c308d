//! The one owner of a sandbox: a task that changes its state, writes its record, and starts and ends its shim. All others send it a
//! [`Command`] or use the [`Access`]. It waits for one thing at a time and keeps receiving commands meanwhile; those that have to wait
//! are put aside and handled again afterwards.

mod change;
mod hold;
pub(crate) mod time;
mod work;

use crate::access::{Access, Gate};
use crate::command::{Answer, Change, Command};
use crate::machine::{Nature, Phase};
use crate::record::Record;
use crate::registry::Registry;
use crate::reserve::Reserve;
use crate::settings::Settings;
use crate::shim::{Shim, Shims};
use crate::{SandboxDir, refusal};
use belljar_api::{Created, SandboxInfo};
use belljar_spec::SandboxError;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;
use work::Work;

pub(crate) use work::end_of;

/// What the tasks of a fleet share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) shims: Arc<dyn Shims>,
    pub(crate) starts: Arc<Semaphore>,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) settings: Settings,
    pub(crate) registry: Weak<Registry>,
}

/// How a task comes to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Nothing is there yet.
    New,
    /// It was on disk, and no shim holds it.
    Stopped,
    /// It was on disk, and a shim holds it.
    Running,
}

pub(crate) struct Task {
    world: World,
    place: SandboxDir,
    access: Arc<Access>,
    commands: mpsc::UnboundedReceiver<Command>,
    record: Record,
    phase: Phase,
    /// Its place is there.
    made: bool,
    shim: Option<Arc<dyn Shim>>,
    /// Ready when the shim has died.
    death: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    work: Option<Work>,
    /// Whether that is a search for a shim that seemed dead.
    searching: bool,
    /// What waits for it.
    later: VecDeque<Command>,
    /// The callers that waited for a start that failed, and why it did.
    failures: Vec<(Answer<Created>, SandboxError)>,
    /// Commands inside, when the task last looked.
    running: u32,
    /// What a person should know of its last wake.
    wake_note: Option<String>,
    idle_since: i64,
    not_before: i64,
    /// When what is not on disk yet must be.
    write_at: Option<i64>,
    /// When what failed is tried again.
    retry_at: Option<i64>,
    /// When a start ends that a deletion waits for.
    cancel_at: Option<i64>,
    closing: Vec<Answer<()>>,
    /// Whether it was looked for use since the daemon began to end.
    looked: bool,
}

impl Task {
    pub(crate) fn new(
        world: World,
        place: SandboxDir,
        access: Arc<Access>,
        commands: mpsc::UnboundedReceiver<Command>,
        record: Record,
        birth: Birth,
    ) -> Task {
        let now = world.settings.clock.now_ms();
        let mut task = Task {
            phase: if birth == Birth::Running { Phase::Starting } else { Phase::Stopped },
            made: birth != Birth::New,
            shim: None,
            death: None,
            work: None,
            searching: false,
            later: VecDeque::new(),
            failures: Vec::new(),
            running: 0,
            wake_note: None,
            idle_since: now,
            not_before: 0,
            write_at: None,
            retry_at: None,
            cancel_at: None,
            closing: Vec::new(),
            looked: false,
            world,
            place,
            access,
            commands,
            record,
        };
        match birth {
            Birth::Running => task.search(),
            Birth::Stopped => task.access.set(Gate::Shut(refusal::not_alive(&task.record.name))),
            Birth::New => {}
        }
        task
    }

    pub(crate) async fn run(mut self) {
        while self.phase != Phase::Gone {
            let pause = self.until_next();
            tokio::select! {
                biased;
                done = ready(&mut self.work) => {
                    self.work = None;
                    self.done(done).await;
                    // A caller that is answered now and asks again sees the same state.
                    self.tell();
                    self.resume().await;
                }
                () = ready(&mut self.death), if self.work.is_none() => {
                    self.death = None;
                    self.search();
                }
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command).await,
                    None => return,
                },
                () = sleep(pause) => self.tick().await,
            }
            self.tell();
            if self.may_close() {
                return self.close().await;
            }
        }
        self.finish();
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Acquire(hold) => self.hold(hold).await,
            Command::Used { grant, lease } => self.used(&grant, lease.as_deref()),
            Command::Renew { lease, holder, lasts_s, answer } => {
                let renewed = self.renew(&lease, holder.as_deref(), lasts_s).await;
                self.tell();
                let _ = answer.send(renewed);
            }
            Command::Drop { lease, holder, answer } => {
                let dropped = self.drop_lease(&lease, holder.as_deref()).await;
                self.tell();
                let _ = answer.send(dropped);
            }
            Command::Change(change, answer) => self.change(change, answer).await,
            Command::Snapshot(order, answer) => self.snapshot(order, answer),
            Command::Forkable(answer) => drop(answer.send(self.forkable())),
            Command::Check { dry_run, answer } => {
                let swept = self.check(dry_run).await;
                self.tell();
                let _ = answer.send(Ok(swept));
            }
            Command::Settle(answer) if self.is_settled() => drop(answer.send(Ok(()))),
            Command::Settle(_) => self.later.push_back(command),
            Command::Close(answer) => self.closing.push(answer),
        }
    }

    /// Handles again the commands that had to wait. Callers that waited for the end are answered when the name is free.
    async fn resume(&mut self) {
        if self.phase == Phase::Gone {
            return;
        }
        self.tell();
        for command in std::mem::take(&mut self.later) {
            self.handle(command).await;
        }
        if self.write_at.is_some_and(|at| at <= self.now()) {
            // It is tried again.
            let _ = self.write().await;
        }
    }

    /// Tells all waiting callers that it failed.
    fn refuse_later(&mut self, error: &SandboxError) {
        self.tell();
        for command in std::mem::take(&mut self.later) {
            match command {
                Command::Acquire(hold) => drop(hold.answer.send(Err(error.clone()))),
                Command::Change(_, answer) => drop(answer.send(Err(error.clone()))),
                Command::Snapshot(_, answer) => drop(answer.send(Err(error.clone()))),
                Command::Settle(answer) => drop(answer.send(Ok(()))),
                other => self.later.push_back(other),
            }
        }
    }

    /// Nothing is left. The name is free before any caller is answered, so that those who waited can make a new one.
    fn finish(mut self) {
        if let Some(registry) = self.world.registry.upgrade() {
            registry.remove(&self.record.name, &self.access);
        }
        self.access.set(Gate::Shut(refusal::not_found(&self.record.name)));
        self.answer_failures();
        self.commands.close();
        let mut rest = std::mem::take(&mut self.later);
        while let Ok(command) = self.commands.try_recv() {
            rest.push_back(command);
        }
        for command in rest {
            // Dropped, any other answer says that it is gone.
            if let Command::Change(Change::Stop | Change::Delete, answer) = command {
                let _ = answer.send(Ok(self.tell()));
            }
        }
        for answer in self.closing {
            let _ = answer.send(Ok(()));
        }
    }

    fn may_close(&self) -> bool {
        let pending = matches!(self.phase, Phase::Live | Phase::Paused)
            && self.record.leases.is_empty()
            && !self.looked;
        let over = self.phase == Phase::Gone;
        !self.closing.is_empty() && !over && (self.retry_at.is_some() || self.is_settled() && !pending)
    }

    /// Lets go of a sandbox that lives on.
    async fn close(mut self) {
        let written = if self.write_at.is_some() { self.write().await } else { Ok(()) };
        self.refuse_later(&refusal::closing());
        for answer in std::mem::take(&mut self.closing) {
            let _ = answer.send(written.clone());
        }
    }

    /// Nothing is under way.
    fn is_settled(&self) -> bool {
        self.work.is_none()
            && matches!(self.phase, Phase::Live | Phase::Paused | Phase::Stopped | Phase::Gone)
    }

    /// A shim is being started, or waits for its turn.
    fn is_starting(&self) -> bool {
        self.phase == Phase::Starting && self.work.is_some() && !self.searching
    }

    fn nature(&self) -> Nature {
        Nature { persistent: self.record.persistent, was_ready: self.record.was_ready() }
    }

    /// No request has got it yet.
    fn is_waiting(&self) -> bool {
        self.world.registry.upgrade().is_some_and(|registry| registry.is_waiting(&self.record.name))
    }

    fn now(&self) -> i64 {
        self.world.settings.clock.now_ms()
    }

    /// Its public state, for all callers.
    fn tell(&self) -> SandboxInfo {
        // What is new and not on disk yet is on its way there.
        let phase = if self.made { self.phase } else { Phase::Starting };
        let info = self.record.info(phase, self.running, self.idle_end());
        self.access.tell(info.clone());
        info
    }

    /// Puts the record on disk. A failed write is tried again later, and reported to the caller that waits for it.
    async fn write(&mut self) -> Result<(), SandboxError> {
        let written = if self.record.persistent {
            // It waits for the disk.
            let (record, place) = (self.record.clone(), self.place.clone());
            tokio::task::spawn_blocking(move || record.write(&place))
                .await
                .unwrap_or_else(|_| Err(work::mute()))
        } else {
            self.record.write(&self.place)
        };
        self.write_at = written.is_err().then(|| self.now() + time::RETRY_MS);
        written
    }
}

/// Ready when a future is, if there is one.
async fn ready<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.as_mut().await,
        None => pending().await,
    }
}

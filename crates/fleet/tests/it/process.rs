//! A shim that is no process but behaves as one: it holds the lock of its place, continues when the daemon is killed, and dies when
//! it is told to or by itself.

use crate::world::World;
use belljar_fleet::snapshots::{SnapshotOrder, SnapshotReport};
use belljar_fleet::*;
use belljar_spec::request::EnvValue;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::Lock;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::sleep;

/// What would be a process.
pub(crate) struct Process {
    key: String,
    alive: Alive,
    state: Mutex<State>,
    life: watch::Sender<bool>,
    world: World,
}

struct State {
    held: Option<Lock>,
    ready: bool,
    commands: u32,
    paused: bool,
    used_ms: i64,
    deaf: bool,
}

impl Process {
    pub(crate) fn new(world: &World, plan: &ShimPlan, held: Lock) -> Process {
        let now_ms = world.now_ms();
        let inside = plan.sandbox.env.iter().find_map(|(name, value)| match value {
            EnvValue::Text(mode) if name.as_str() == "EGRESS_INSIDE" => mode.clone().into_string().ok(),
            EnvValue::Text(_) | EnvValue::Secret(_) => None,
        });
        Process {
            key: plan.key.clone(),
            alive: Alive {
                id: plan.id.clone(),
                backend: "native".into(),
                assurance: "strong".into(),
                workspace: "/workspace".into(),
                started_ms: now_ms,
                notes: vec!["a note".into()],
                folder: plan.sandbox.workspace.folder.as_deref().and_then(FolderId::of),
                // A file of the machine may say another mode than the request, and open more ports.
                ports: inside.iter().map(|_| 3000).collect(),
                forwarded: Vec::new(),
                egress: inside,
                keeps: belljar_engine::Keeps::default(),
            },
            state: Mutex::new(State {
                held: Some(held),
                ready: false,
                commands: 0,
                paused: false,
                used_ms: now_ms,
                deaf: false,
            }),
            life: watch::Sender::new(true),
            world: world.clone(),
        }
    }

    /// Is ready from now on; whether it was before.
    pub(crate) fn come_up(&self) -> bool {
        std::mem::replace(&mut self.state().ready, true)
    }

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

    /// The same, and the daemon is not told.
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
            return Err(ErrorCode::SandboxNotAlive.error("nobody answers"));
        }
        Ok(state)
    }
}

impl Shim for Process {
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

    fn snapshot<'a>(&'a self, _: &'a SnapshotOrder) -> Future<'a, Result<SnapshotReport, SandboxError>> {
        Box::pin(async { Err(ErrorCode::NotSupported.error("it has no files")) })
    }

    fn stop(&self, _: Stop) -> Future<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            let takes = self.world.stop_takes();
            sleep(takes / 2).await;
            {
                let state = self.living()?;
                if state.commands > 0 && !self.world.may_end(&self.key) {
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

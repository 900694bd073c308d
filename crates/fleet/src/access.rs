//! Access to one sandbox for everything but its task: its public state, and its shim while it may be used. Entering needs no
//! turn of the task, so that a request costs next to nothing; the task shuts it before it ends the shim behind it.

use crate::settings::Clock;
use crate::shim::Shim;
use belljar_api::SandboxInfo;
use belljar_spec::SandboxError;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// One sandbox, from outside.
pub(crate) struct Access {
    inside: Mutex<Inside>,
    changed: watch::Sender<()>,
    clock: Clock,
}

/// Whether one may go through.
pub(crate) enum Gate {
    /// It is being made or found: wait.
    Wait,
    Open(Arc<dyn Shim>),
    Shut(SandboxError),
}

struct Inside {
    gate: Gate,
    info: SandboxInfo,
    /// How many are behind it now, and how many ever were.
    uses: u32,
    entered: u64,
    used_ms: i64,
}

/// A shim in use. As long as this is there its sandbox is not idle: keep it until the last byte of an answer is sent.
pub struct InUse {
    shim: Arc<dyn Shim>,
    access: Arc<Access>,
}

impl Access {
    pub(crate) fn new(info: SandboxInfo, clock: Clock) -> Access {
        let inside = Inside { gate: Gate::Wait, info, uses: 0, entered: 0, used_ms: 0 };
        Access { inside: Mutex::new(inside), changed: watch::Sender::new(()), clock }
    }

    /// Goes through, as soon as that can be decided.
    pub(crate) async fn enter(self: &Arc<Access>) -> Result<InUse, SandboxError> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            {
                let mut inside = self.lock();
                match &inside.gate {
                    Gate::Wait => {}
                    Gate::Shut(error) => return Err(error.clone()),
                    Gate::Open(shim) => {
                        let shim = shim.clone();
                        inside.uses += 1;
                        inside.entered += 1;
                        inside.used_ms = self.clock.now_ms();
                        return Ok(InUse { shim, access: self.clone() });
                    }
                }
            }
            if changed.changed().await.is_err() {
                return Err(crate::refusal::not_alive(&self.lock().info.name));
            }
        }
    }

    pub(crate) fn info(&self) -> SandboxInfo {
        self.lock().info.clone()
    }

    /// The shim, for looking only.
    pub(crate) fn shim(&self) -> Option<Arc<dyn Shim>> {
        match &self.lock().gate {
            Gate::Open(shim) => Some(shim.clone()),
            Gate::Wait | Gate::Shut(_) => None,
        }
    }

    pub(crate) fn set(&self, gate: Gate) {
        self.lock().gate = gate;
        self.changed.send_replace(());
    }

    pub(crate) fn tell(&self, info: SandboxInfo) {
        self.lock().info = info;
    }

    /// How many requests ever entered: if it is unchanged, none did since.
    pub(crate) fn entered(&self) -> u64 {
        self.lock().entered
    }

    /// When it was last used: now, if a request is using it.
    pub(crate) fn used_ms(&self) -> i64 {
        let inside = self.lock();
        if inside.uses > 0 { self.clock.now_ms() } else { inside.used_ms }
    }

    /// Shuts it, unless a request is using it or has used it since.
    pub(crate) fn shut_if_unused(&self, since: u64, refusal: SandboxError) -> bool {
        let mut inside = self.lock();
        if inside.uses > 0 || inside.entered != since {
            return false;
        }
        inside.gate = Gate::Shut(refusal);
        drop(inside);
        self.changed.send_replace(());
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    pub fn shim(&self) -> &Arc<dyn Shim> {
        &self.shim
    }
}

impl Deref for InUse {
    type Target = dyn Shim;

    fn deref(&self) -> &(dyn Shim + 'static) {
        &*self.shim
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut inside = self.access.lock();
        inside.uses -= 1;
        inside.used_ms = self.access.clock.now_ms();
    }
}

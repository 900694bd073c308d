//! What is told of a sandbox.

use crate::machine::Phase;
use crate::record::Record;
use crate::shim::Alive;
use belljar_api::{SandboxInfo, State};
use belljar_spec::Assurance;
use belljar_spec::egress::Mode;

impl Record {
    /// Its public state. `ends_ms` is when it ends unless it is held or used before.
    pub(crate) fn info(&self, phase: Phase, commands: u32, ends_ms: Option<i64>) -> SandboxInfo {
        let state = state_of(phase);
        let alive = self.alive.as_ref();
        let now = alive.filter(|_| matches!(state, State::Live | State::Paused));
        SandboxInfo {
            name: self.name.clone(),
            key: self.key.clone(),
            state,
            persistent: self.persistent,
            owner: self.owner.clone(),
            profile: self.profile.clone(),
            backend: alive.map(|alive| alive.backend.clone()),
            assurance: alive.map(|alive| alive.assurance.clone()),
            id: alive.map(|alive| alive.id.clone()),
            folder: self.sandbox.workspace.folder.as_ref().map(ToString::to_string),
            workspace: alive.map(|alive| alive.workspace.clone()),
            egress: self.egress(),
            ports: alive
                .map(|alive| alive.ports.clone())
                .filter(|ports| !ports.is_empty())
                .unwrap_or_else(|| self.sandbox.ports.clone()),
            forwarded: now.map(|alive| alive.forwarded.clone()).unwrap_or_default(),
            leases: self.leases.iter().map(|lease| lease.info()).collect(),
            commands,
            created_ms: self.created_ms,
            started_ms: now.map(|alive| alive.started_ms),
            ends_ms,
            fault: self.fault.clone(),
            warm: self.warm,
        }
    }
}

impl Record {
    /// The egress mode inside, as the shim of its present or last life told it; before that, the one that was asked for. Without a
    /// backend that isolates the network nothing holds it.
    fn egress(&self) -> String {
        if let Some(mode) = self.alive.as_ref().and_then(|alive| alive.egress.clone()) {
            return mode;
        }
        let weak =
            |alive: &Alive| alive.assurance.parse().is_ok_and(|assurance: Assurance| !assurance.isolates());
        let usual = if self.alive.as_ref().is_some_and(weak) { Mode::Open } else { Mode::default() };
        self.sandbox.egress.mode.unwrap_or(usual).to_string()
    }
}

fn state_of(phase: Phase) -> State {
    match phase {
        Phase::Starting => State::Starting,
        Phase::Live => State::Live,
        Phase::Paused => State::Paused,
        Phase::Stopping(_) => State::Stopping,
        Phase::Stopped | Phase::Gone => State::Stopped,
    }
}

//! From a plan to a guest that is served here for a sandbox elsewhere.

use super::own::{self, Note};
use super::{Remote, check, network};
use crate::cgroup::Counters;
use crate::guest::{Behind, ControlSocket, Process};
use crate::{Drawing, Guest, LimitsHeld, Meanwhile, Plan};
use belljar_e2b_client::{Lifetime, NewSandbox, RemoteSandbox, Serving};
use belljar_spec::secret::Forwarded;
use belljar_spec::{ErrorCode, Origin, SandboxError, SandboxSpec, Term, hint};
use belljar_wire::message::{Confinement, FileRoot, Privileges, Setup, Syscalls};

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    let remote = plan.remote().ok_or_else(check::not_configured)?;
    let spec = plan.spec();
    accept(plan)?;
    let network = network::rules(&spec.egress.clone().unwrap_or_default())?;
    let layout = plan.layout()?;
    own::sweep(remote);
    // From here on the log says that there is a sandbox.
    meanwhile()?;
    let note = if spec.persistent.is_none() { Some(Note::write(remote, plan.id)?) } else { None };
    let lifetime = lifetime(plan);
    let sandbox = begin(
        plan,
        remote,
        NewSandbox {
            template: remote.template.clone(),
            lifetime,
            metadata: own::metadata(remote, plan.id, spec.persistent.as_ref())?,
            network,
        },
    )?;
    let behind = BehindRemote {
        remote: remote.clone(),
        id: sandbox.id().to_string(),
        is_persistent: spec.persistent.is_some(),
        is_over: false,
        _note: note,
    };
    if let Some(identity) = &spec.persistent {
        own::keep(remote, identity, sandbox.id())?;
    }
    let (control_socket, theirs) = ControlSocket::new()?;
    let (serving, alive) = Serving::begin(&remote.service, &sandbox, theirs, lifetime.timeout)?;
    let mut guest = Guest::starting(control_socket, Process::remote(alive), None)
        .ready_within(plan)
        .in_front_of(Box::new(behind), None);
    serving.make_workspace(&remote.service)?;
    guest.dialled_by(Box::new(serving.dial()));
    guest.send_first(plan, layout)?;
    Ok(guest)
}

/// The sandbox of a key is the same in all its lives; any other is made.
fn begin(plan: &Plan, remote: &Remote, new: NewSandbox) -> Result<RemoteSandbox, SandboxError> {
    if plan.spec().persistent.is_some()
        && let Some(found) = remote.service.find(&new.metadata)?.first()
    {
        return remote.service.connect(&found.id, new.lifetime.timeout);
    }
    let life = belljar_state::new_id()?;
    remote.service.create(&new, &format!("belljar-{life}"))
}

/// Without us a sandbox lives as long as its longest command may run, so that a host that is cut off for a while ends none.
fn lifetime(plan: &Plan) -> Lifetime {
    let is_persistent = plan.spec().persistent.is_some();
    let longest = plan.limits.wall_time;
    let requested_s = if longest.origin == Origin::Requested { longest.value.as_secs() } else { 0 };
    Lifetime {
        timeout: requested_s.clamp(LEASE_S, MAX_LEASE_S),
        auto_pause: is_persistent,
        auto_pause_memory: false,
    }
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    accept(plan)?;
    network::rules(&plan.spec().egress.clone().unwrap_or_default())?;
    let setup = Setup {
        version: belljar_wire::VERSION,
        steps: Vec::new(),
        confinement: Confinement {
            rlimits: Vec::new(),
            privileges: Privileges::Dropped,
            syscalls: Syscalls::Default,
            landlock: None,
            supervision: None,
        },
        files: FileRoot::Sandbox,
        workspace: plan.workspace()?.to_string(),
    };
    let held = LimitsHeld { memory: None, cpus: None, pids: None, disk: None, open_files: None };
    Ok(Drawing { program: None, command: None, user: (USER_ID, USER_ID), setup, held })
}

/// Refuses what only this machine could do.
fn accept(plan: &Plan) -> Result<(), SandboxError> {
    let limits = &plan.limits;
    let refused = [
        ("memory", limits.memory.origin),
        ("processors", limits.cpus.origin),
        ("processes", limits.pids.origin),
        ("open files", limits.open_files.origin),
        ("disk", limits.disk.origin),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, origin)| *origin == Origin::Requested) {
        let message =
            format!("how much {name} a sandbox of an E2B-compatible service has is its template's to say");
        return Err(ErrorCode::LimitUnavailable
            .error(message)
            .hint(hint!("omit the limit, or use {}", Term::Backend.to("native"))));
    }
    let SandboxSpec { credentials, github, forwarded, .. } = plan.spec();
    let secret = match forwarded.first() {
        Some(Forwarded { source, .. }) => Some(format!("`{source}` would leave this machine")),
        None if !credentials.is_empty() || github.is_some() => {
            Some("no gateway of ours is there that could put credentials in".to_string())
        }
        None => None,
    };
    match secret {
        None => Ok(()),
        Some(why) => Err(ErrorCode::NotSupported
            .error(format!("a sandbox of an E2B-compatible service has no secrets: {why}"))
            .hint(hint!("omit the secrets, also in belljar.toml, or use {}", Term::Backend.to("native")))),
    }
}

/// The sandbox in its service. Dropped, it is ended, or stopped if it is kept.
struct BehindRemote {
    remote: Remote,
    id: String,
    is_persistent: bool,
    is_over: bool,
    /// Removed after it.
    _note: Option<Note>,
}

impl Behind for BehindRemote {
    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn leave(&mut self) {
        // No other process would.
        self.end();
    }
}

impl BehindRemote {
    fn end(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let service = &self.remote.service;
        let ended = if self.is_persistent { service.stop(&self.id) } else { service.kill(&self.id) };
        if let Err(error) = ended {
            tracing::warn!(%error, "a remote sandbox was not ended, and ends by its time to live");
        }
    }
}

impl Drop for BehindRemote {
    fn drop(&mut self) {
        self.end();
    }
}

/// E2B's own default. It is extended three times as often while the sandbox is used.
const LEASE_S: u64 = 300;
/// What services let a sandbox live at a time: a day.
const MAX_LEASE_S: u64 = 86_400;
/// The user of templates, as far as it is known.
const USER_ID: u32 = 1000;

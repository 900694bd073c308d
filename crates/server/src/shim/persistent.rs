//! A sandbox that lives: made, served over its socket, and ended.
//!
//! ```text
//! read the plan -> make the sandbox -> listen -> keeper.json, `ready` -> serve
//!                                                                          |
//!                                        snapshot: another sandbox <──┤
//!                                                       stop, SIGTERM, or no process left inside
//!                                                                          |
//!                                           the sandbox ends, then the process, then the lock
//! ```
//! The sandbox is made on the first thread, which lives as long as the process.

use super::commands::Registry;
use super::contact::{self, Contact};
use super::live::{Ending, Replacement};
use super::process::{engine, runtime, volumes};
use super::protocol::Answer;
use super::starter::Starter;
use super::wipe::wipe;
use super::{LiveSandbox, serve, snapshot};
use belljar_engine::{Engine, Forwarding, IfTaken, Keeps, Sandbox};
use belljar_fleet::request::{self, ResolvedRequest, Surroundings};
use belljar_fleet::{Alive, FolderId, SandboxDir, ShimPlan, Stop};
use belljar_spec::egress::Mode;
use belljar_spec::{ErrorCode, ForwardedAt, SandboxError, SandboxId, SandboxSpec};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Keeps the sandbox of this place until it is to end.
pub(super) fn keep(place: &SandboxDir, plan: ShimPlan, starter: &mut Starter) -> Result<(), SandboxError> {
    let resolved = understand(&plan, place)?;
    // Before it is opened: what comes in its place later is another one.
    let folder = plan.sandbox.workspace.folder.as_deref().and_then(FolderId::of);
    starter.end_with_daemon();
    let runtime = runtime()?;
    let engine = engine(place);
    // Opened first: a port that is in use starts no sandbox.
    let (forwarding, moved) = forwarding(&resolved)?;
    let made = engine.create_blocking(&resolved.spec)?;
    let mut notes: Vec<String> = resolved.notes.iter().map(|note| note.message.clone()).collect();
    notes.extend(made.warning());
    notes.extend(moved);
    let keeps = Keeps::of(&resolved.spec);
    let forwarded = forwarding.ports();
    let inside = Inside { ports: resolved.ports, forwarded, egress: egress(&resolved.spec, &made), keeps };
    let made = Arc::new(made);
    let opened = runtime.block_on(open(place, plan, folder, inside, notes, &made, starter));
    let outcome = opened.map(|mut open| {
        let live = Arc::clone(&open.live);
        let forwarding = runtime.spawn(forwarding.serve(move || live.sandbox()));
        let ending = loop {
            match runtime.block_on(open.next()) {
                Next::End(ending) => break ending,
                // Not on the runtime, which stands still meanwhile: a start builds one of its own for some of its steps.
                Next::Replace(replacement) => replace(&open.live, &engine, &resolved.spec, replacement),
            }
        };
        // No connection comes to a sandbox that ends.
        forwarding.abort();
        runtime.block_on(leave(place, &open.live, ending));
        open.serving.abort();
        open.live.sandbox().dispose_blocking();
    });
    // Also where it could not be served.
    made.dispose_blocking();
    runtime.shutdown_timeout(GRACE);
    outcome
}

/// The host's ports that lead into the sandbox, and what a person should know of them. One that only a file names may be another sandbox's of
/// the same repository.
fn forwarding(resolved: &ResolvedRequest) -> Result<(Forwarding, Vec<String>), SandboxError> {
    let (mut forwarding, mut notes) = (Forwarding::of(&resolved.spec.forward_ports)?, Vec::new());
    if !resolved.spec.backend_isolates() {
        return Ok((forwarding, notes));
    }
    for port in &resolved.forwarded {
        let at = forwarding.open(*port, IfTaken::ChooseAnother)?;
        if at.port != port.here {
            notes.push(format!(
                "port {} of this machine is in use: {}:{} leads to port {} inside",
                port.here, at.address, at.port, at.inside
            ));
        }
    }
    Ok((forwarding, notes))
}

/// Ends what is inside, does what is to be done meanwhile, and makes the sandbox again. On the first thread, with which it ends.
fn replace(live: &LiveSandbox, engine: &Engine, spec: &SandboxSpec, replacement: Replacement) {
    let Replacement { work, answer } = replacement;
    let suspended = live.sandbox().suspend_blocking();
    let done = work();
    let answered = match engine.continue_blocking(spec, &suspended) {
        Ok(sandbox) => {
            live.replace(Arc::new(sandbox));
            done
        }
        Err(error) => {
            tracing::error!("the sandbox could not be made again: {error}");
            suspended.end();
            live.leave(Ending::Alone);
            // Its files are whole: the next start finds what this one did not.
            done.and(Err(error))
        }
    };
    let _ = answer.send(answered);
}

/// The sandbox that a plan means.
fn understand(plan: &ShimPlan, place: &SandboxDir) -> Result<ResolvedRequest, SandboxError> {
    let id = SandboxId::parse(&plan.id).ok_or_else(|| {
        ErrorCode::StateFailed.error(format!("`{}` is not the name of a sandbox's life", plan.id))
    })?;
    let surroundings = Surroundings {
        name: plan.name.clone(),
        key: plan.key.clone(),
        id: Some(id),
        persistent: plan.persistent,
        place: place.clone(),
        volumes: volumes(place),
        is_owners: plan.is_owners,
    };
    request::understand(&plan.sandbox, &surroundings)
}

/// What files had a say in, as it came out.
struct Inside {
    ports: Vec<u16>,
    forwarded: Vec<ForwardedAt>,
    egress: String,
    keeps: Keeps,
}

/// A sandbox that is served.
struct Open {
    live: Arc<LiveSandbox>,
    serving: JoinHandle<std::io::Result<()>>,
    replacing: mpsc::UnboundedReceiver<Replacement>,
    terminate: Signal,
    _hangup: Signal,
    usual: Stop,
}

/// What comes next for it.
enum Next {
    End(Stop),
    Replace(Replacement),
}

impl Open {
    async fn next(&mut self) -> Next {
        let ending = tokio::select! {
            ending = self.live.left() => ending,
            Some(replacement) = self.replacing.recv() => return Next::Replace(replacement),
            _ = self.terminate.recv() => {
                self.live.leave(Ending::Requested(self.usual));
                Ending::Requested(self.usual)
            }
        };
        match ending {
            Ending::Requested(how) => {
                self.live.commands.close();
                Next::End(how)
            }
            Ending::Alone => Next::End(self.usual),
        }
    }
}

/// The egress mode that is held inside. A backend that does not isolate the network holds none.
fn egress(spec: &SandboxSpec, sandbox: &Sandbox) -> String {
    let mode = match &spec.egress {
        _ if !sandbox.assurance().isolates() => Mode::Open,
        Some(policy) => policy.mode,
        None => Mode::default(),
    };
    mode.as_str().into()
}

async fn open(
    place: &SandboxDir,
    mut plan: ShimPlan,
    folder: Option<FolderId>,
    inside: Inside,
    notes: Vec<String>,
    sandbox: &Arc<Sandbox>,
    starter: &Starter,
) -> Result<Open, SandboxError> {
    let failed = |error: std::io::Error| {
        ErrorCode::Internal.error(format!("a shim cannot listen: {error}")).caused_by(error)
    };
    // Before any process can know our id.
    let terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let _hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let (address, listener) = contact::listen().map_err(failed)?;
    let token = contact::random_hex().map_err(failed)?;
    plan.sandbox.ports = inside.ports.clone();
    let usual = if plan.persistent { Stop::Keep } else { Stop::Wipe };
    let alive = Alive {
        id: plan.id.clone(),
        backend: sandbox.backend().to_string(),
        assurance: sandbox.assurance().to_string(),
        workspace: sandbox.workspace().to_string(),
        started_ms: super::now_ms(),
        notes,
        folder,
        egress: Some(inside.egress),
        ports: inside.ports,
        forwarded: inside.forwarded,
        keeps: inside.keeps.clone(),
    };
    let subject = snapshot::subject(place, &plan.name, &plan.key, sandbox, inside.keeps);
    let (to_replace, replacing) = mpsc::unbounded_channel();
    let commands = Registry::new(place.directory());
    let live = LiveSandbox::new(plan, Arc::clone(sandbox), commands, token.clone(), subject, to_replace);
    let serving = tokio::spawn(serve::serve(listener, Arc::clone(&live)));
    let version = env!("CARGO_PKG_VERSION").to_string();
    let contact = Contact { address, token, pid: std::process::id(), version, alive };
    starter.outlive_daemon();
    contact.write(place).map_err(failed)?;
    starter.say(&Answer::Ready(Box::new(contact)));
    tokio::spawn(async {
        sleep(SETTLED).await;
        belljar_sys::heap::trim();
    });
    Ok(Open { live, serving, replacing, terminate, _hangup, usual })
}

/// Ends the sandbox, and tells the clients that follow its commands.
async fn leave(place: &SandboxDir, live: &LiveSandbox, how: Stop) {
    let _ = std::fs::remove_file(place.contact());
    live.sandbox().dispose().await;
    if how == Stop::Wipe {
        wipe(&live.sandbox());
    }
    let _ = timeout(GRACE, live.commands.all_ended()).await;
    live.say_farewell().await;
}

/// How long commands may take to end with their sandbox.
const GRACE: Duration = Duration::from_secs(2);
/// One that lives for so long may live for hours: what its making needed of memory is given back. Shorter ones do not pay for that.
const SETTLED: Duration = Duration::from_secs(1);

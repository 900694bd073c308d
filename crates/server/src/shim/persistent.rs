//! A sandbox that lives: made, served over its socket, and ended.
//!
//! ```text
//! read the plan -> make the sandbox -> listen -> keeper.json, `ready` -> serve
//!                                                                          |
//!                                                       stop, SIGTERM, or no process left inside
//!                                                                          |
//!                                           the sandbox ends, then the process, then the lock
//! ```
//! The sandbox is made on the first thread, which lives as long as the process.

use super::commands::Registry;
use super::contact::{self, Contact};
use super::kept::Ending;
use super::process::{engine, runtime, volumes};
use super::protocol::Answer;
use super::starter::Starter;
use super::wipe::wipe;
use super::{Kept, serve};
use belljar_engine::Sandbox;
use belljar_fleet::request::{self, Surroundings, Understood};
use belljar_fleet::{Alive, FolderId, SandboxDir, ShimPlan, Stop};
use belljar_spec::egress::Mode;
use belljar_spec::{Assurance, ErrorCode, SandboxError, SandboxId, SandboxSpec};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Keeps the sandbox of this place until it is to end.
pub(super) fn keep(place: &SandboxDir, plan: ShimPlan, starter: &mut Starter) -> Result<(), SandboxError> {
    let understood = understand(&plan, place)?;
    // Before it is opened: what comes in its place later is another one.
    let folder = plan.sandbox.workspace.folder.as_deref().and_then(FolderId::of);
    starter.end_with_daemon();
    let runtime = runtime()?;
    let made = engine(place).create_blocking(&understood.spec)?;
    let mut notes: Vec<String> = understood.notes.iter().map(|note| note.message.clone()).collect();
    notes.extend(made.warning());
    let inside = Inside { ports: understood.ports, egress: egress(&understood.spec, &made) };
    let made = Arc::new(made);
    let outcome = runtime.block_on(keep_sandbox(place, plan, folder, inside, notes, &made, starter));
    // Also where it could not be served.
    made.dispose_blocking();
    runtime.shutdown_timeout(GRACE);
    outcome
}

/// The sandbox that a plan means.
fn understand(plan: &ShimPlan, place: &SandboxDir) -> Result<Understood, SandboxError> {
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
    };
    request::understand(&plan.sandbox, &surroundings)
}

/// What files had a say in, as it came out.
struct Inside {
    ports: Vec<u16>,
    egress: String,
}

/// The egress mode that is held inside. A backend that does not isolate the network holds none.
fn egress(spec: &SandboxSpec, sandbox: &Sandbox) -> String {
    let mode = match &spec.egress {
        _ if sandbox.assurance() < Assurance::Namespace => Mode::Open,
        Some(policy) => policy.mode,
        None => Mode::default(),
    };
    mode.as_str().into()
}

async fn keep_sandbox(
    place: &SandboxDir,
    mut plan: ShimPlan,
    folder: Option<FolderId>,
    inside: Inside,
    notes: Vec<String>,
    sandbox: &Arc<Sandbox>,
    starter: &Starter,
) -> Result<(), SandboxError> {
    let failed = |error: std::io::Error| {
        ErrorCode::Internal.error(format!("a shim cannot listen: {error}")).caused_by(error)
    };
    // Before any process can know our id.
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
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
    };
    let commands = Registry::new(place.directory());
    let kept = Kept::new(plan, Arc::clone(sandbox), commands, token.clone());
    let serving = tokio::spawn(serve::serve(listener, Arc::clone(&kept)));
    let version = env!("CARGO_PKG_VERSION").to_string();
    let contact = Contact { address, token, pid: std::process::id(), version, alive };
    starter.outlive_daemon();
    contact.write(place).map_err(failed)?;
    starter.say(&Answer::Ready(Box::new(contact)));
    tokio::spawn(async {
        sleep(SETTLED).await;
        belljar_sys::heap::trim();
    });
    let ending = tokio::select! {
        ending = kept.left() => ending,
        _ = terminate.recv() => {
            kept.leave(Ending::Asked(usual));
            Ending::Asked(usual)
        }
    };
    let how = match ending {
        Ending::Asked(how) => {
            kept.commands.close();
            how
        }
        Ending::Alone => usual,
    };
    leave(place, &kept, how).await;
    serving.abort();
    Ok(())
}

/// Ends the sandbox, and tells the clients that follow its commands.
async fn leave(place: &SandboxDir, kept: &Kept, how: Stop) {
    let _ = std::fs::remove_file(place.contact());
    kept.sandbox.dispose().await;
    if how == Stop::Wipe {
        wipe(&kept.sandbox);
    }
    let _ = timeout(GRACE, kept.commands.all_ended()).await;
    kept.say_farewell().await;
}

/// How long commands may take to end with their sandbox.
const GRACE: Duration = Duration::from_secs(2);
/// One that lives for so long may live for hours: what its making needed of memory is given back. Shorter ones do not pay for that.
const SETTLED: Duration = Duration::from_secs(1);

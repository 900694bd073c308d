//! A keeper's process, from its start to its end.
//!
//! ```text
//! hold the place -> read the plan -> make the sandbox -> listen -> keeper.json -> serve
//!       \___________________ failed.json, exit 1 _________________/         |
//!                                                        stop, SIGTERM, or nobody left inside
//!                                                                           |
//!                                            the sandbox ends, then the process, then the lock
//! ```
//! The sandbox is made on the first thread, which lives as long as the process.

use super::commands::Registry;
use super::contact::{self, Contact};
use super::kept::Ending;
use super::noise::Starter;
use super::wipe::wipe;
use super::{Kept, noise, plan, routes, serve};
use belljar_engine::{Engine, Sandbox};
use belljar_fleet::{Alive, FolderId, KeptPlan, Place, Stop};
use belljar_spec::egress::Mode;
use belljar_spec::{Assurance, ErrorCode, SandboxError, SandboxSpec};
use belljar_state::Lock;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Keeps the sandbox of this place until it is to end.
pub fn run(directory: &Path) -> ExitCode {
    let place = Place::new(directory);
    let starter = noise::quieten(&place.log());
    match keep(&place, &starter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            noise::say(&format!("{}: {error}", error.code));
            // Nobody else can be told. The starter reads it when we let go of it, and not before.
            let _ = contact::write_failed(&place, &error);
            drop(starter);
            ExitCode::FAILURE
        }
    }
}

fn keep(place: &Place, starter: &Starter) -> Result<(), SandboxError> {
    let _held = hold(place)?;
    // Of an earlier life.
    let _ = std::fs::remove_file(place.keeper());
    let _ = std::fs::remove_file(contact::failed(place));
    let plan = plan::read(place)?;
    let understood = plan::understand(&plan, place)?;
    // Before it is opened: what comes in its place later is another one.
    let folder = plan.sandbox.workspace.folder.as_deref().and_then(FolderId::of);
    let runtime = runtime()?;
    let made = Engine::new().create_blocking(&understood.spec)?;
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
    place: &Place,
    mut plan: KeptPlan,
    folder: Option<FolderId>,
    inside: Inside,
    notes: Vec<String>,
    sandbox: &Arc<Sandbox>,
    starter: &Starter,
) -> Result<(), SandboxError> {
    let failed = |error: std::io::Error| {
        SandboxError::new(ErrorCode::Internal, format!("a keeper cannot listen: {error}")).caused_by(error)
    };
    // Before anybody can know us.
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
    let serving = tokio::spawn(serve::serve(listener, routes(Arc::clone(&kept))));
    let version = env!("CARGO_PKG_VERSION").to_string();
    Contact { address, token, pid: std::process::id(), version, alive }.write(place).map_err(failed)?;
    starter.say_ready();
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

/// Ends the sandbox, and tells whoever listens to its commands.
async fn leave(place: &Place, kept: &Kept, how: Stop) {
    let _ = std::fs::remove_file(place.keeper());
    kept.sandbox.dispose().await;
    if how == Stop::Wipe {
        wipe(&kept.sandbox);
    }
    let _ = timeout(GRACE, kept.commands.all_ended()).await;
    // The last words go out.
    sleep(BREATH).await;
}

fn hold(place: &Place) -> Result<Lock, SandboxError> {
    match place.hold() {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(SandboxError::new(ErrorCode::InUse, "this sandbox has a keeper already")),
        Err(error) => {
            let message = format!("cannot keep a sandbox in `{}`: {error}", place.directory().display());
            Err(SandboxError::new(ErrorCode::StateFailed, message))
        }
    }
}

/// One thread does, and a few more for the moments in which the kernel takes its time.
fn runtime() -> Result<Runtime, SandboxError> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING)
        .thread_keep_alive(GRACE)
        .build()
        .map_err(|error| {
            SandboxError::new(ErrorCode::Internal, format!("a keeper cannot begin: {error}")).caused_by(error)
        })
}

const BLOCKING: usize = 4;
/// How long followers may take to hear the end.
const GRACE: Duration = Duration::from_secs(2);
const BREATH: Duration = Duration::from_millis(30);

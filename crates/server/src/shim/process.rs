//! The process of a shim, from its start to its end. One kind of process for all: a sandbox that lives, a run of one command, a run of an
//! agent. It begins as a copy of the zygote ([`super::zygote`]). The daemon writes the plan to its standard input, in one line, and reads
//! its answer from standard output ([`super::protocol`]).
//!
//! ```text
//! read the plan -> hold the directory -> sandbox: make it, say `ready`, serve until it is to end
//!                                     -> run: wanted as long as standard input is open; its directory goes with it
//!       \________________ say `error`, exit 1 _________________/
//! ```

use super::protocol::{Answer, Plan};
use super::starter::Starter;
use super::{agent_run, one_shot, persistent};
use crate::metrics;
use belljar_api::ApiError;
use belljar_config::Surroundings;
use belljar_engine::Engine;
use belljar_fleet::SandboxDir;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::Lock;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tracing::error;

/// Does what the daemon says on standard input, with this directory, when its log has begun.
pub fn run(directory: &Path, start_log: impl FnOnce() -> Result<(), SandboxError>) -> ExitCode {
    let Ok(mut starter) = Starter::detach() else { return ExitCode::FAILURE };
    match start_log().and_then(|()| work(&SandboxDir::new(directory), &mut starter)) {
        Ok(code) => code,
        Err(error) => {
            starter.say(&Answer::Error(short(ApiError::from(&error))));
            ExitCode::FAILURE
        }
    }
}

fn work(place: &SandboxDir, starter: &mut Starter) -> Result<ExitCode, SandboxError> {
    let plan = starter.plan()?;
    let _held = hold(place)?;
    let result = match plan {
        Plan::Sandbox(plan) => {
            let log = |error: &SandboxError| error!("{}: {error}", error.code);
            return persistent::keep(place, *plan, starter).inspect_err(log).map(|()| ExitCode::SUCCESS);
        }
        Plan::OneShot(run) => one_shot::run(&run, place, starter).map(Some),
        Plan::AgentRun(run) => agent_run::run(&run, place, starter).map(|()| None),
    };
    // Also where the daemon is gone. What a killed shim leaves is removed by the next daemon.
    let _ = belljar_sys::remove_tree::remove(place.directory());
    Ok(result?.map_or(ExitCode::SUCCESS, |result| starter.say_result(&result)))
}

/// As long as this process lives, no other uses the directory, and no daemon removes it.
fn hold(place: &SandboxDir) -> Result<Lock, SandboxError> {
    match place.hold() {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(ErrorCode::InUse.error("this sandbox has a shim already")),
        Err(error) => {
            let message = format!("cannot keep a sandbox in `{}`: {error}", place.directory().display());
            Err(ErrorCode::StateFailed.error(message).caused_by(error))
        }
    }
}

/// One thread does, and a few more for the moments in which the kernel takes its time.
pub(super) fn runtime() -> Result<Runtime, SandboxError> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
        .map_err(|error| ErrorCode::Internal.error(format!("a shim cannot begin: {error}")).caused_by(error))
}

/// An engine that counts what its sandbox does.
pub(super) fn engine(place: &SandboxDir) -> Engine {
    match metrics::observer(place) {
        Some(observer) => Engine::new().observed(observer),
        None => Engine::new(),
    }
}

/// Of a sandbox that lives as long as its run, and has no key to be found by.
pub(super) fn surroundings(place: &SandboxDir) -> Surroundings {
    Surroundings { workspace: place.workspace(), volumes: volumes(place), ..Surroundings::default() }
}

/// The directories of sandboxes and runs are in `sandboxes` and `runs`, beside `volumes`.
pub(super) fn volumes(place: &SandboxDir) -> PathBuf {
    let fleet = place.directory().parent().and_then(Path::parent);
    fleet.unwrap_or(place.directory()).join("volumes")
}

const MAX_BLOCKING_THREADS: usize = 4;
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(2);

/// An error as the daemon reads it: a message may quote a path of the request, which is as long as the request was.
fn short(mut error: ApiError) -> ApiError {
    for text in [Some(&mut error.message), error.hint.as_mut()].into_iter().flatten() {
        if let Some((end, _)) = text.char_indices().nth(MAX_MESSAGE_CHARS) {
            text.truncate(end);
            text.push('…');
            error.hint_parts = None;
            error.hint_parts = None;
        }
    }
    error
}

/// Far below the longest line that the daemon reads, also with every character escaped.
const MAX_MESSAGE_CHARS: usize = 8 * 1024;

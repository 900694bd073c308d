//! What runs of agents and of one command have in common: a process of its own that is told on standard input what to do, and
//! a directory that goes with it. Standard input stays open as long as the run is wanted.

use crate::answer::log;
use belljar_engine::request::Surroundings;
use belljar_fleet::Place;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::Lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// The job that stands on standard input. `instead` is what a person would call.
pub(crate) fn read<J: DeserializeOwned>(instead: &str) -> Result<J, SandboxError> {
    let unclear = |error: &dyn std::fmt::Display| {
        SandboxError::new(ErrorCode::RequestValue, format!("there is no job on standard input: {error}"))
            .hint(format!("{instead}; this is for the daemon"))
    };
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| unclear(&error))?;
    serde_json::from_str(&line).map_err(|error| unclear(&error))
}

/// Says something in one line. Whoever started us may be gone.
pub(crate) fn say(said: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string(said)?)?;
    out.flush()
}

/// As long as we live, nobody clears our directory away.
pub(crate) fn hold(place: &Place) -> Result<Lock, SandboxError> {
    let failed = |why: String| {
        SandboxError::new(
            ErrorCode::StateFailed,
            format!("{} cannot be used: {why}", place.directory().display()),
        )
    };
    let held = place.hold().map_err(|error| failed(error.to_string()))?;
    held.ok_or_else(|| failed("somebody else does".into()))
}

/// Told when standard input ends. On a thread of its own, to the end of the process.
pub(crate) fn hung_up() -> Arc<Notify> {
    let told = Arc::new(Notify::new());
    let tell = Arc::clone(&told);
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while io::stdin().lock().read(&mut rest).is_ok_and(|count| count > 0) {}
        tell.notify_one();
    });
    told
}

/// What drives a run.
pub(crate) fn runtime() -> Result<Runtime, SandboxError> {
    Builder::new_current_thread().enable_all().build().map_err(|error| {
        SandboxError::new(ErrorCode::Internal, format!("the run cannot be driven: {error}")).caused_by(error)
    })
}

/// Of a sandbox that lives as long as its run, and has no key to be found by.
pub(crate) fn surroundings(place: &Place, volumes: &Path) -> Surroundings {
    Surroundings { workspace: place.workspace(), volumes: volumes.to_path_buf(), ..Surroundings::default() }
}

/// A directory for a run that is to be. It is made when the run is.
pub(crate) fn new_directory(fleet: &Path) -> Result<PathBuf, SandboxError> {
    Ok(folder(fleet).join(belljar_engine::new_id()?.to_string()))
}

/// Takes away what runs left that died with a daemon. Those that go on are not touched.
pub(crate) fn clear(fleet: &Path) {
    for entry in fs::read_dir(folder(fleet)).into_iter().flatten().flatten() {
        remove_directory(&entry.path());
    }
}

/// Takes away what a run that is over kept.
pub(crate) fn remove_directory(directory: &Path) {
    let Ok(Some(_held)) = Place::new(directory).hold() else { return };
    if let Err(error) = belljar_sys::remove_tree::remove(directory) {
        log(&format!("{} is left of a run: {error}", directory.display()));
    }
}

/// What could not be done for a run.
pub(crate) fn failed(what: &str, why: &dyn std::fmt::Display) -> SandboxError {
    SandboxError::new(ErrorCode::Internal, format!("cannot {what}: {why}"))
}

/// Where jobs are, below the daemon's own directory.
fn folder(fleet: &Path) -> PathBuf {
    fleet.join("runs")
}

/// This very program, whatever has become of its file.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

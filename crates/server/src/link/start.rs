//! The start of a keeper: a process of its own session, which says one word when its sandbox is ready.

use super::Line;
use crate::keeper::{Contact, failed};
use belljar_fleet::{KeptPlan, Place};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::{Survives, write_atomic};
use serde::de::DeserializeOwned;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::oneshot;

/// Starts one, and waits until its sandbox is ready or will never be.
pub(super) async fn start(program: &Path, place: &Place, plan: &KeptPlan) -> Result<Line, SandboxError> {
    let mut child =
        prepare(program, place, plan).map_err(|error| broken(place, "start a keeper in", &error))?;
    let said = child.stdout.take();
    let attended = attend(child);
    let outcome = match word(said).await {
        true => ready(place).await,
        false => Err(why_not(place)),
    };
    if outcome.is_ok() {
        attended.leave();
    }
    outcome
}

/// How the keeper of this place is reached.
pub(super) fn contact(place: &Place) -> Result<Option<Contact>, SandboxError> {
    Contact::read(place).map_err(|error| broken(place, "read keeper.json in", &error))
}

pub(super) fn broken(place: &Place, what: &str, error: &io::Error) -> SandboxError {
    let directory = place.directory().display();
    SandboxError::new(ErrorCode::Internal, format!("cannot {what} {directory}: {error}"))
}

fn prepare(program: &Path, place: &Place, plan: &KeptPlan) -> io::Result<Child> {
    for left in [place.keeper(), failed(place)] {
        match fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    write_atomic(&place.plan(), &serde_json::to_vec_pretty(plan)?, Survives::Kill)?;
    let log = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(place.log())?;
    let mut command = Command::new(program);
    // What ends with the daemon, or belongs to it alone, is not for a keeper.
    for own in
        ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]
    {
        command.env_remove(own);
    }
    command
        // Whose programs the sandbox sees, and which shell it has, is what the owner who starts it has, and not what whoever started the
        // daemon had.
        .envs(&plan.environment)
        .arg0("belljar")
        .arg("keeper")
        .arg(place.directory())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}

/// Whether the keeper said its word: a line of its own. A pipe that closes without it is a keeper that ended.
async fn word(said: Option<ChildStdout>) -> bool {
    let Some(said) = said else { return false };
    let mut lines = BufReader::new(said).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "ready" {
            return true;
        }
    }
    false
}

async fn ready(place: &Place) -> Result<Line, SandboxError> {
    let contact = contact(place)?.ok_or_else(|| why_not(place))?;
    let line = Line::new(contact);
    line.watch().await?;
    Ok(line)
}

/// What the keeper left instead of a sandbox.
fn why_not(place: &Place) -> SandboxError {
    if let Ok(Some(error)) = read::<belljar_api::ApiError>(&failed(place)) {
        return error.into();
    }
    let log = fs::read_to_string(place.log()).unwrap_or_default();
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let error = SandboxError::new(
        ErrorCode::StartFailed,
        format!("the sandbox's keeper ended before it was ready: {last}"),
    );
    match is_writable(place) {
        Ok(()) => error.hint("`GET /v1/capabilities` says which walls work here"),
        Err(why) => error.hint(format!("`{}` cannot be written: {why}", place.directory().display())),
    }
}

/// Whether a file can be made in a place: a full or read-only disk is no fault of a backend.
fn is_writable(place: &Place) -> io::Result<()> {
    let probe = place.directory().join("probe");
    write_atomic(&probe, &[0; 4096], Survives::Kill)?;
    fs::remove_file(probe)
}

/// A keeper that is being started: if nobody waits for it any more, it ends.
struct Attended(Option<oneshot::Sender<()>>);

impl Attended {
    /// It goes on by itself.
    fn leave(mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

/// Waits for the process in any case: one that nobody waits for stays a zombie.
fn attend(mut child: Child) -> Attended {
    let (leave, left) = oneshot::channel();
    tokio::spawn(async move {
        if left.await.is_err() {
            let _ = child.start_kill();
        }
        let _ = child.wait().await;
    });
    Attended(Some(leave))
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

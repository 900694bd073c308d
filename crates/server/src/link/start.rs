//! A shim as the daemon that starts it sees it:
//!
//! ```text
//!   shim, in DIR <── plan, a line; standard input stays open as long as the shim is wanted
//!     ├─ ready ──> the shim of a living sandbox, which is released: it continues by itself
//!     ├─ run ────> the id of a log
//!     ├─ result ─> its length, and the result, as the client takes it
//!     └─ error, or ended without an answer
//! ```
//! One task for each waits for its end, whatever becomes of the request that it was started for, and then removes the directory of a run.

use super::process::{ShimProcess, Spawner};
use super::runs;
use crate::metrics::Metrics;
use crate::shim::protocol::{Answer, Plan};
use crate::shim::zygote::Order;
use axum::body::Bytes;
use belljar_fleet::SandboxDir;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_state::{Survives, write_atomic};
use futures_util::{Stream, stream};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::{Instrument, debug, debug_span};

/// A shim that was started. Dropped, it is told to end.
pub(crate) struct Started {
    stdout: BufReader<pipe::Receiver>,
    release: oneshot::Sender<()>,
    /// Ready when the process has ended and `on_end` was called. Nothing is ever sent.
    over: oneshot::Receiver<()>,
}

/// Starts a shim with this directory and waits for its answer, which is not an error. `on_end` gets its exit code when the process has
/// ended and nothing of a run is left, and before the client can know that the run is over: it may at once ask for the next.
pub(super) async fn start(
    spawner: &Spawner,
    metrics: &Arc<Metrics>,
    place: &SandboxDir,
    plan: Plan,
    on_end: impl FnOnce(Option<i32>) + Send + 'static,
) -> Result<(Answer, Started), SandboxError> {
    let is_run = plan.is_run();
    let failed = |what: &str, why: &dyn Display| match is_run {
        true => run_failed(what, why),
        false => broken(place, what, why),
    };
    let mut line = serde_json::to_vec(&plan).map_err(|error| failed("write the plan of the shim", &error))?;
    line.push(b'\n');
    let (mut process, counters) =
        spawn(spawner, place, &plan).await.map_err(|error| failed("start the shim", &error))?;
    let counted = metrics.started(counters, process.pid);
    // With the standard input of its command it may be long.
    drop(plan);
    let (release, released) = oneshot::channel();
    let (end, over) = oneshot::channel();
    let stdout =
        process.stdout.take().ok_or_else(|| failed("start the shim", &"it has no standard output"))?;
    let directory = is_run.then(|| place.clone());
    let span = debug_span!("shim", shim.pid = process.pid);
    let attended = async move {
        let code = attend(process, line, released, directory).await;
        drop(counted);
        debug!(shim.exit_code = code, "the shim ended");
        on_end(code);
        drop::<oneshot::Sender<()>>(end);
    };
    tokio::spawn(attended.instrument(span.clone()));
    let mut shim = Started { stdout: BufReader::with_capacity(PIECE_BYTES, stdout), release, over };
    let error = match shim.answer().instrument(span).await {
        Ok(Some(Answer::Error(error))) => error.into(),
        Ok(Some(answer)) => return Ok((answer, shim)),
        Ok(None) if is_run => failed("read the answer of the shim", &"it ended without one"),
        Ok(None) => ended(place),
        Err(error) => failed("read the answer of the shim", &error),
    };
    let Started { release, over, stdout } = shim;
    // One that has more to say than is read must not wait for it.
    drop((release, stdout));
    let _ = over.await;
    Err(error)
}

impl Started {
    /// Lets it continue without the daemon.
    pub(super) fn release(self) {
        let _ = self.release.send(());
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn end_blocking(self) {
        drop(self.release);
        let _ = self.over.blocking_recv();
    }

    /// The result of this many bytes as it comes, to its last byte or an error. The rest waits in the shim.
    pub(crate) fn result(self, length: u64) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::try_unfold((self, length), |(mut shim, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let bytes = shim.stdout.fill_buf().await?;
            let piece = Bytes::copy_from_slice(
                &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))],
            );
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            shim.stdout.consume(piece.len());
            let left = left - piece.len() as u64;
            if left == 0 {
                let _ = (&mut shim.over).await;
            }
            Ok(Some((piece, (shim, left))))
        })
    }

    /// Its answer. Lines that are none are of a program around the shim.
    async fn answer(&mut self) -> io::Result<Option<Answer>> {
        let mut lines = (&mut self.stdout).take(MAX_ANSWER_BYTES);
        loop {
            let mut line = Vec::new();
            if lines.read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            if let Ok(answer) = serde_json::from_slice(&line) {
                return Ok(Some(answer));
            }
        }
    }
}

/// Starts it, with a file to count in.
async fn spawn(
    spawner: &Spawner,
    place: &SandboxDir,
    plan: &Plan,
) -> io::Result<(ShimProcess, Option<File>)> {
    let mut environment = Vec::new();
    let stderr = match plan {
        Plan::Sandbox(plan) => {
            // Whose programs the sandbox sees, and which shell it has, is what the owner who starts it has, and not the environment that
            // the daemon was started with.
            environment.extend(plan.environment.iter().map(|(name, value)| (name.into(), value.into())));
            let mut log = OpenOptions::new();
            log.create(true).truncate(true).write(true).mode(0o600).open(place.log())?.into()
        }
        Plan::OneShot(_) | Plan::AgentRun(_) => {
            fs::create_dir_all(place.directory())?;
            io::stderr().as_fd().try_clone_to_owned()?
        }
    };
    let counters = Metrics::prepare(place);
    let order = Order { directory: place.directory().to_path_buf(), environment };
    let process = spawner.spawn(order, stderr).await.inspect_err(|_| {
        if plan.is_run() {
            runs::remove(place);
        }
    })?;
    Ok((process, counters))
}

/// Gives the process its plan, and waits for its end. A run that is not wanted any more ends with its standard input, and
/// so does a sandbox that is not ready yet; killing its shim does not wait for a step that blocks.
async fn attend(
    mut process: ShimProcess,
    plan: Vec<u8>,
    released: oneshot::Receiver<()>,
    run: Option<SandboxDir>,
) -> Option<i32> {
    let mut stdin = process.stdin.take();
    let unwanted = async {
        if released.await.is_ok() {
            pending().await
        }
    };
    let ended = async {
        if let Some(stdin) = &mut stdin {
            // One that ended before it read all of it may have said why.
            let _ = stdin.write_all(&plan).await;
        }
        drop(plan);
        process.wait().await
    };
    let mut status = tokio::select! {
        biased;
        () = unwanted => None,
        status = ended => Some(status),
    };
    drop(stdin);
    if status.is_none() {
        if run.is_none() {
            process.kill();
        }
        status = Some(process.wait().await);
    }
    if let Some(place) = run {
        let was_killed = status == Some(None);
        let _ = spawn_blocking(move || runs::clean_up(&place, was_killed)).await;
    }
    status?
}

pub(super) fn broken(place: &SandboxDir, what: &str, why: &dyn Display) -> SandboxError {
    let directory = place.directory().display();
    ErrorCode::Internal.error(format!("cannot {what} in {directory}: {why}"))
}

pub(crate) fn run_failed(what: &str, why: &dyn Display) -> SandboxError {
    ErrorCode::Internal.error(format!("cannot {what}: {why}"))
}

/// Why a sandbox's shim ended without an answer.
fn ended(place: &SandboxDir) -> SandboxError {
    let log = fs::read_to_string(place.log()).unwrap_or_default();
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = format!("the sandbox's shim ended before it was ready: {last}");
    let error = ErrorCode::StartFailed.error(message);
    match is_writable(place) {
        Ok(()) => error.hint(hint!("{} says which backends work here", Term::Capabilities)),
        Err(why) => error.hint(format!("`{}` cannot be written: {why}", place.directory().display())),
    }
}

/// Whether a file can be made in a place: a full or read-only disk is no fault of a backend.
fn is_writable(place: &SandboxDir) -> io::Result<()> {
    let probe = place.directory().join("probe");
    write_atomic(&probe, &[0; 4096], Survives::Kill)?;
    fs::remove_file(probe)
}

/// Of a result, at a time: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;
/// A contact, a length, or an error with its hint.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests;

//! Drives a command to its end: gives it its input, passes its output on, and ends it at its time limit or when the caller aborts.
//!
//! ```text
//! running ──ended──────────────────────────────────────────────────────────────> Ended
//!    └──time limit, abort──> signal, grace period ──> killed with its descendants ──> Ended
//!                            (only with a `Grace`)        └──no report for 10 s──> the guest is killed ──> Ended
//! ```
//!
//! The only code that watches the time limit of a command; every caller goes through it. The first cause is what is reported: a
//! command that timed out has timed out, also where the guest was unresponsive then, or was lost while it killed the command.

use crate::exec::{Events, Input, Inputs, Output, Running};
use crate::observe::CommandObservation;
use belljar_spec::{Ended, LimitHit, SandboxError};
use belljar_sys::rustix::process::Signal;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{Instrument, Span};

/// How long a command may run, and how it is ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drive {
    /// Its time limit, if it has one.
    pub timeout: Option<Duration>,
    /// What precedes the kill.
    pub grace: Option<Grace>,
}

/// A command is sent a signal, and killed only after some time.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    pub signal: i32,
    pub time: Duration,
}

/// Where the input of a command comes from.
pub trait Source {
    /// The next input. Must be cancel-safe: it is dropped and called again while it waits.
    fn next(&mut self, filter: InputFilter) -> impl Future<Output = Input>;
}

/// What a command takes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFilter {
    /// Signals and terminal sizes: earlier standard input is still waiting for the command to read it.
    Controls,
    /// These, and standard input.
    All,
}

/// Where the output of a command goes.
pub trait Sink {
    /// Takes a piece of output. The command waits while this does.
    fn write(&mut self, stream: OutputStream, bytes: &[u8])
    -> impl Future<Output = Result<(), SandboxError>>;

    /// The command runs: its process id as the sandbox knows it.
    fn started(&mut self, _pid: u32) {}

    /// The command stopped itself, as at ctrl-Z. It is continued when this returns.
    fn stopped(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Whether some of the output was dropped.
    fn is_truncated(&self) -> bool;
}

/// One of a command's output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or the terminal.
    Stdout,
    Stderr,
}

/// Lets the first bytes of a stream pass, up to a limit.
#[derive(Debug, Clone, Copy)]
pub struct Cap {
    room: u64,
    is_exceeded: bool,
}

impl Cap {
    pub fn new(bytes: u64) -> Cap {
        Cap { room: bytes, is_exceeded: false }
    }

    /// As much of a piece as there is room for.
    pub fn take<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let kept = &bytes[..bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX))];
        self.room -= kept.len() as u64;
        self.is_exceeded |= kept.len() < bytes.len();
        kept
    }

    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}

/// Why a command is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    TimedOut,
    Aborted,
}

impl Running {
    /// Drives the command to its end. `abort` ends it early. An error means that the command could not be started, that its
    /// sandbox was lost while it ran, or that the sink failed; the command is killed then.
    pub async fn drive(
        mut self,
        drive: Drive,
        abort: impl Future<Output = ()>,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Result<Ended, SandboxError> {
        let observation = self.observation.take();
        let span = observation.as_ref().map_or_else(Span::none, CommandObservation::span);
        let outcome = self.drive_to_end(drive, abort, source, sink).instrument(span.clone()).await;
        if let Some(observation) = observation {
            span.in_scope(|| observation.ended(&outcome));
        }
        outcome
    }

    async fn drive_to_end(
        self,
        drive: Drive,
        abort: impl Future<Output = ()>,
        source: &mut impl Source,
        sink: &mut impl Sink,
    ) -> Result<Ended, SandboxError> {
        let Running { mut events, mut inputs, observation: _ } = self;
        let is_writing = AtomicBool::new(false);
        let (cause, report) = {
            let resume = Notify::new();
            let mut output = pin!(pass_on(&mut events, sink, &is_writing, &resume));
            let first = tokio::select! {
                // A command that never stops writing is ended like any other.
                biased;
                () = abort => Err(Cause::Aborted),
                () = elapsed(drive.timeout) => Err(Cause::TimedOut),
                report = &mut output => Ok(report),
                never = feed(&mut inputs, source, &resume) => match never {},
            };
            match first {
                Ok(report) => (None, Some(report)),
                Err(cause) => {
                    (Some(cause), end(&mut inputs, drive.grace, output.as_mut(), &is_writing).await)
                }
            }
        };
        let (mut ended, counted) = match (report, cause) {
            (Some(Ok(ended)), _) => (ended, None),
            (Some(Err(error)), None) => return Err(error),
            (report, _) => {
                // gVisor may stop at a limit instead of reporting it.
                let counted = events.limit_hit();
                if report.is_none() {
                    events.guest().kill_unresponsive();
                }
                (Ended::killed(), counted)
            }
        };
        ended.timed_out = cause == Some(Cause::TimedOut);
        ended.aborted = cause == Some(Cause::Aborted);
        ended.output_truncated = sink.is_truncated();
        let timeout = ended.timed_out.then_some(LimitHit::Timeout);
        let truncated = ended.output_truncated.then_some(LimitHit::OutputTruncated);
        ended.limit = counted.or(timeout).or(ended.limit).or(truncated);
        Ok(ended)
    }
}

/// Passes output on until the command has ended.
async fn pass_on(
    events: &mut Events,
    sink: &mut impl Sink,
    is_writing: &AtomicBool,
    resume: &Notify,
) -> Result<Ended, SandboxError> {
    loop {
        let (stream, bytes) = match events.next().await? {
            Output::Stdout(bytes) => (OutputStream::Stdout, bytes),
            Output::Stderr(bytes) => (OutputStream::Stderr, bytes),
            Output::Started(pid) => {
                sink.started(pid);
                continue;
            }
            Output::Stopped => {
                sink.stopped().await;
                resume.notify_one();
                continue;
            }
            Output::Ended(ended) => return Ok(ended),
        };
        is_writing.store(true, Ordering::Relaxed);
        sink.write(stream, &bytes).await?;
        is_writing.store(false, Ordering::Relaxed);
    }
}

/// Gives the command its input. Standard input waits while the command does not read it; signals and terminal sizes overtake it.
async fn feed(inputs: &mut Inputs, source: &mut impl Source, resume: &Notify) -> Infallible {
    let (mut bytes, mut sent) = (Vec::new(), 0);
    loop {
        let filter = if sent < bytes.len() { InputFilter::Controls } else { InputFilter::All };
        let outcome = tokio::select! {
            biased;
            () = resume.notified() => inputs.send(Input::Signal(Signal::CONT.as_raw())).await,
            input = source.next(filter) => match input {
                Input::Bytes(more) => {
                    (bytes, sent) = (more, 0);
                    Ok(())
                }
                control => inputs.send(control).await,
            },
            room = inputs.room(), if filter == InputFilter::Controls => match room {
                Ok(room) => {
                    let piece = &bytes[sent..bytes.len().min(sent + room)];
                    sent += piece.len();
                    inputs.send(Input::Bytes(piece.to_vec())).await
                }
                Err(error) => Err(error),
            },
        };
        if outcome.is_err() {
            // The output's end says why.
            return pending().await;
        }
    }
}

/// Ends the command, and waits for the guest's report. `None`: the guest sent none in time.
async fn end(
    inputs: &mut Inputs,
    grace: Option<Grace>,
    mut output: Pin<&mut impl Future<Output = Result<Ended, SandboxError>>>,
    is_writing: &AtomicBool,
) -> Option<Result<Ended, SandboxError>> {
    if let Some(Grace { signal, time }) = grace {
        // An unresponsive guest may not even take the signal.
        let signal = async {
            let _ = inputs.send(Input::Signal(signal)).await;
            pending().await
        };
        tokio::select! {
            biased;
            () = sleep(time) => {}
            report = &mut output => return Some(report),
            () = signal => {}
        }
    }
    inputs.kill().await;
    for _ in 0..SINK_WAITS {
        tokio::select! {
            biased;
            () = sleep(KILL_TIMEOUT) => {
                // A sink that waits for its reader is not a guest that is silent.
                if !is_writing.load(Ordering::Relaxed) {
                    return None;
                }
            }
            report = &mut output => return Some(report),
        }
    }
    // Nothing reads the output any more. The command was killed, and its caller is not kept waiting.
    Some(Ok(Ended::killed()))
}

async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// How long a guest may take to kill a command and its descendants, which takes milliseconds, or to answer anything at all, before
/// it counts as unresponsive.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that time may pass while the output of a killed command waits for its reader.
const SINK_WAITS: usize = 3;

#[cfg(test)]
mod tests;

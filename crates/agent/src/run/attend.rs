//! An agent while it runs: what it writes becomes lines of the log; time and ctrl-C end it.
//!
//! ```text
//! running ──deadline or stop──> asked to end (SIGINT) ──patience──> its whole tree killed ──> ended
//! ```

use super::course::Course;
use crate::claims::Claims;
use crate::entry::{Entry, System};
use crate::stream::Stream;
use belljar_engine::{Events, ExecOutput, Input, Inputs, Output, Running, Sandbox, TO_KILL_A_TREE};
use belljar_spec::{Command, LimitHit, SandboxError, Stdin};
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// How it ended, and what it said.
pub(super) struct Attended {
    pub(super) output: ExecOutput,
    pub(super) claims: Claims,
    /// Its output broke off within a line.
    pub(super) torn: bool,
    pub(super) cancelled: bool,
    pub(super) timed_out: bool,
    /// The end of it.
    pub(super) stderr: String,
    pub(super) elapsed: Duration,
}

pub(super) async fn attend(
    sandbox: &Sandbox,
    command: &Command,
    stream: Stream,
    course: &mut Course<'_>,
    deadline: Instant,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<Attended, SandboxError> {
    let since = Instant::now();
    let mut command = command.clone();
    let input = match std::mem::replace(&mut command.stdin, Stdin::Stream) {
        Stdin::Bytes(bytes) => bytes,
        Stdin::Empty | Stdin::Stream => Vec::new(),
    };
    let Running { mut events, inputs } = sandbox.spawn(&command).await?;
    let (say, said) = unbounded_channel();
    let mut written =
        Written { stream, room: sandbox.limits().output.value.as_u64(), warned: false, stderr: Vec::new() };
    let watched = watch(sandbox, &mut events, course, &mut written, &say, deadline, stop);
    let (output, cancelled, timed_out) = tokio::select! {
        outcome = watched => outcome?,
        () = drive(inputs, input, said) => unreachable!("it never ends"),
    };
    let (rest, claims) = written.stream.end();
    rest.iter().for_each(|heard| course.heard(heard));
    let stderr = tail(&written.stderr);
    let limit = output.limit.or(written.warned.then_some(LimitHit::OutputTruncated));
    Ok(Attended {
        output: ExecOutput { limit, ..output },
        claims,
        torn: written.stream.torn(),
        cancelled,
        timed_out,
        stderr,
        elapsed: since.elapsed(),
    })
}

/// What is kept of what it wrote.
struct Written {
    stream: Stream,
    /// For standard output.
    room: u64,
    /// It was said that there is no more.
    warned: bool,
    stderr: Vec<u8>,
}

/// What its driver is told.
enum Word {
    /// That somebody wants it to end.
    End,
    /// That it has to.
    Kill,
}

async fn watch(
    sandbox: &Sandbox,
    events: &mut Events,
    course: &mut Course<'_>,
    written: &mut Written,
    say: &UnboundedSender<Word>,
    deadline: Instant,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(ExecOutput, bool, bool), SandboxError> {
    let (mut cancelled, mut timed_out) = (false, false);
    let mut ending: Option<Instant> = None;
    let mut killed = false;
    loop {
        let until = ending.unwrap_or(deadline);
        tokio::select! {
            // Time and ctrl-C first: an agent that never stops writing is ended like any other.
            biased;
            () = stop.as_mut(), if !cancelled && !timed_out => {
                cancelled = true;
                ending = Some(Instant::now() + GRACE);
                let _ = say.send(Word::End);
            }
            () = sleep_until(until) => match (ending, killed) {
                (None, _) => {
                    timed_out = true;
                    ending = Some(Instant::now() + GRACE);
                    let _ = say.send(Word::End);
                }
                (Some(_), false) => {
                    killed = true;
                    ending = Some(Instant::now() + TO_KILL_A_TREE);
                    let _ = say.send(Word::Kill);
                }
                (Some(_), true) => {
                    // It does not say that it ended. What happened first is what counts.
                    sandbox.kill_deaf();
                    return Ok((ExecOutput::unheard(), cancelled, timed_out));
                }
            },
            event = events.next() => match event? {
                Output::Stdout(bytes) => {
                    let kept = usize::try_from(written.room).unwrap_or(usize::MAX).min(bytes.len());
                    written.room -= kept as u64;
                    if kept < bytes.len() && !std::mem::replace(&mut written.warned, true) {
                        let text = "the agent wrote more than is kept: what comes after this is not in the log".into();
                        course.write(Entry::System(System::Warning { text }));
                    }
                    for heard in written.stream.feed(&bytes[..kept]) {
                        course.heard(&heard);
                    }
                }
                Output::Stderr(bytes) => written.note(&bytes),
                Output::Ended(output) => return Ok((output, cancelled, timed_out)),
            },
        }
    }
}

/// Gives it its input, and then what its watcher says. Never ends by itself.
async fn drive(mut inputs: Inputs, input: Vec<u8>, mut said: UnboundedReceiver<Word>) {
    // Whether it ever reads its prompt or not.
    let mut word = tokio::select! {
        () = feed(&mut inputs, &input) => said.recv().await,
        word = said.recv() => word,
    };
    loop {
        match word {
            // A guest that stands still takes no word; that it has to end gets through.
            Some(Word::End) => tokio::select! {
                _ = inputs.send(Input::Signal(INTERRUPT)) => word = said.recv().await,
                next = said.recv() => word = next,
            },
            Some(Word::Kill) => {
                inputs.kill().await;
                word = said.recv().await;
            }
            None => return pending().await,
        }
    }
}

async fn feed(inputs: &mut Inputs, input: &[u8]) {
    for piece in input.chunks(PIECE) {
        if inputs.send(Input::Bytes(piece.to_vec())).await.is_err() {
            // The other direction knows why.
            return;
        }
    }
    let _ = inputs.send(Input::End).await;
}

impl Written {
    fn note(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        if self.stderr.len() > 2 * STDERR {
            self.stderr.drain(..self.stderr.len() - STDERR);
        }
    }
}

/// The end of it, as text.
fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(STDERR);
    String::from_utf8_lossy(&bytes[start..]).trim().to_string()
}

const INTERRUPT: i32 = 2;
/// Claude says what it used when it is asked to end; others do not listen.
const GRACE: Duration = Duration::from_secs(2);
/// Of standard error.
const STDERR: usize = 8 * 1024;
/// Of what it reads.
const PIECE: usize = 32 * 1024;

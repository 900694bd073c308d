//! An agent while it runs: its output becomes lines of the log. The time limit and a stop end it: first with SIGINT, then with a
//! kill.

use super::course::Course;
use crate::claims::Claims;
use crate::entry::{Entry, System};
use crate::stream::Stream;
use belljar_engine::{Cap, Drive, FixedInput, Grace, OutputStream, Sandbox, Sink};
use belljar_spec::{Command, Ended, SandboxError};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// How an agent ended, and what it wrote.
pub(super) struct Attended {
    pub(super) ended: Ended,
    pub(super) claims: Claims,
    /// Its output broke off within a line.
    pub(super) torn: bool,
    /// The end of its standard error.
    pub(super) stderr: String,
    pub(super) elapsed: Duration,
}

pub(super) async fn attend(
    sandbox: &Sandbox,
    command: &Command,
    stream: Stream,
    course: &mut Course<'_>,
    timeout: Duration,
    stop: impl Future<Output = ()>,
) -> Result<Attended, SandboxError> {
    let since = Instant::now();
    let running = sandbox.spawn(command).await?;
    let cap = Cap::new(sandbox.limits().output.value.as_u64());
    let mut output = AgentOutput { stream, course, cap, stderr: Vec::new() };
    let drive = Drive { timeout: Some(timeout), grace: Some(GRACE) };
    let ended = running.drive(drive, stop, &mut FixedInput::new(&command.stdin), &mut output).await?;
    let AgentOutput { mut stream, course, stderr, .. } = output;
    let (rest, claims) = stream.end();
    rest.iter().for_each(|event| course.event(event));
    Ok(Attended { ended, claims, torn: stream.torn(), stderr: tail(&stderr), elapsed: since.elapsed() })
}

/// The output of an agent: standard output becomes lines of the log, the end of standard error is kept.
struct AgentOutput<'a, 'w> {
    stream: Stream,
    course: &'a mut Course<'w>,
    /// For standard output.
    cap: Cap,
    stderr: Vec<u8>,
}

impl Sink for AgentOutput<'_, '_> {
    async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), SandboxError> {
        match stream {
            OutputStream::Stdout => {
                let was_exceeded = self.cap.is_exceeded();
                let kept = self.cap.take(bytes);
                if self.cap.is_exceeded() && !was_exceeded {
                    let text = "the agent wrote more than is kept: what comes after this is not in the log";
                    self.course.write(Entry::System(System::Warning { text: text.into() }));
                }
                self.stream.feed(kept).iter().for_each(|event| self.course.event(event));
            }
            OutputStream::Stderr => {
                self.stderr.extend_from_slice(bytes);
                if self.stderr.len() > 2 * MAX_STDERR_BYTES {
                    self.stderr.drain(..self.stderr.len() - MAX_STDERR_BYTES);
                }
            }
        }
        Ok(())
    }

    fn is_truncated(&self) -> bool {
        self.cap.is_exceeded()
    }
}

/// The end of it, as text.
fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(MAX_STDERR_BYTES);
    String::from_utf8_lossy(&bytes[start..]).trim().to_string()
}

/// SIGINT: Claude reports what it used when it is interrupted; other agents ignore it.
const GRACE: Grace = Grace { signal: 2, time: Duration::from_secs(2) };
const MAX_STDERR_BYTES: usize = 8 * 1024;

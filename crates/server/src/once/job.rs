//! The process of one run. It knows nothing of HTTP: a job on standard input; on standard output how long the result is, and then
//! the result.

use crate::command_request;
use crate::job::{self, hold, hung_up, surroundings};
use belljar_api::{ApiError, RunOnce, RunResult};
use belljar_engine::Engine;
use belljar_engine::request::resolve;
use belljar_fleet::{Place, request};
use belljar_spec::{ByteSize, Command, LimitsRequest, SandboxError, Stdin};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// A run to make, when everything was allowed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// With what the profile and the grant say of its sandbox.
    pub(crate) run: RunOnce,
    /// Where it may keep what goes with it.
    pub(crate) directory: PathBuf,
    /// Where volumes are kept.
    pub(crate) volumes: PathBuf,
}

/// What a job says first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// The result follows, in so many bytes.
    Result(u64),
    /// There is not even a run.
    Error(ApiError),
}

impl Job {
    /// That it makes sense, before a process is started for it.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        command(&self.run)?;
        request::check(&self.run.sandbox)
    }
}

/// Does the job that stands on standard input. Whoever wrote it keeps that open as long as the run is wanted.
pub fn run() -> Result<u8, SandboxError> {
    let job: Job = job::read("`belljar run --json` runs a command")?;
    let done = done(&job);
    // Also where nobody waits for us any more. What is left of a kill is cleared by the next daemon.
    let _ = belljar_sys::remove_tree::remove(&job.directory);
    let failed = done.is_err();
    // Whoever started us may be gone.
    let _ = match done {
        Ok(result) => tell(&result),
        Err(error) => job::say(&Said::Error(ApiError::from(&error)), &mut io::stdout()),
    };
    Ok(u8::from(failed))
}

/// Written as it is made: text with every byte escaped is six times as long, and nobody has to hold that.
fn tell(result: &RunResult) -> io::Result<()> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, result)?;
    let mut out = io::BufWriter::with_capacity(PIECE, io::stdout().lock());
    job::say(&Said::Result(length.0), &mut out)?;
    serde_json::to_writer(&mut out, result)?;
    out.flush()
}

/// Counts what is written.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn done(job: &Job) -> Result<RunResult, SandboxError> {
    let place = Place::new(&job.directory);
    let _held = hold(&place)?;
    let mut command = command(&job.run)?;
    let (spec, _) = resolve(job.run.sandbox.clone(), surroundings(&place, &job.volumes))?;
    hold_to(&mut command, &spec.limits);
    let runtime = job::runtime()?;
    let hung_up = hung_up();
    let run = runtime.block_on(Engine::new().run_once_until(spec, &command, hung_up.notified()));
    // A sandbox that was being made when nobody wanted it any more is taken away by whoever made it. What hangs there ends with us.
    runtime.shutdown_timeout(TO_CLEAR_UP);
    Ok(super::result(run?))
}

/// No command has more than its sandbox was made with: what the grant, the profile or the request itself says of that is a ceiling.
fn hold_to(command: &mut Command, limits: &LimitsRequest) {
    command.timeout = command.timeout.into_iter().chain(limits.timeout).min();
    command.max_output = command.max_output.into_iter().chain(limits.output).min();
}

/// The command that a request means.
fn command(run: &RunOnce) -> Result<Command, SandboxError> {
    let (mut command, stdin) = command_request::command(run.command())?;
    command.stdin = stdin.map_or(Stdin::Empty, Stdin::Bytes);
    match run.max_output {
        Some(more) if more > MOST_OUTPUT => Err(command_request::invalid(format!(
            "`max_output` is {MOST_OUTPUT} at most: an answer is one piece"
        ))),
        asked => {
            command.max_output = Some(ByteSize::bytes(asked.unwrap_or(USUAL_OUTPUT)));
            Ok(command)
        }
    }
}

/// Of each stream, unless somebody says otherwise.
const USUAL_OUTPUT: u64 = 2 << 20;
/// A result is one piece, which its process holds as bytes, as text and as base64. Whoever wants more follows a command.
const MOST_OUTPUT: u64 = 4 << 20;
/// Of a result that is written.
const PIECE: usize = 64 << 10;
/// How long a sandbox that nobody wants may take to be gone, before its process ends all the same.
const TO_CLEAR_UP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::ByteSize;

    #[test]
    fn no_command_has_more_than_its_sandbox() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let bytes = |bytes| Some(ByteSize::bytes(bytes));
        for (asked, limit, held) in [
            ((Some(60), Some(100)), (None, None), (seconds(60), bytes(100))),
            ((Some(60), Some(100)), (seconds(30), bytes(10)), (seconds(30), bytes(10))),
            ((Some(20), Some(5)), (seconds(30), bytes(10)), (seconds(20), bytes(5))),
            ((None, None), (seconds(30), bytes(10)), (seconds(30), bytes(10))),
            ((None, None), (None, bytes(1 << 30)), (None, bytes(USUAL_OUTPUT))),
        ] {
            let run = RunOnce {
                argv: vec!["true".into()],
                timeout_s: asked.0,
                max_output: asked.1,
                ..RunOnce::default()
            };
            let mut command = command(&run).expect("a command");
            let limits = LimitsRequest { timeout: limit.0, output: limit.1, ..LimitsRequest::default() };
            hold_to(&mut command, &limits);
            assert_eq!((command.timeout, command.max_output), held, "{asked:?} {limit:?}");
        }
    }
}

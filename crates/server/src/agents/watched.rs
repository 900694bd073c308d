//! A run as the daemon sees it: a process, a log that grows, and somebody who listens.

use super::job::{Job, Said};
use super::story;
use crate::answer::log;
use crate::job::{failed, remove_directory};
use belljar_agent::read::{self, Found, Reader};
use belljar_api::{RunEvent, RunInfo};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// A run that goes on as long as somebody has this. Nothing in it waits for whoever listens.
pub(crate) struct Watched {
    pub(crate) info: RunInfo,
    log: PathBuf,
    _process: Process,
}

/// The job's process. Dropped, it is told to stop, waited for, and its directory taken away.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    directory: PathBuf,
}

impl Watched {
    /// Starts it. Waits until there is a log, or an error; call it where waiting is no harm.
    pub(crate) fn start(program: &Path, state: &Path, job: &Job) -> Result<Watched, SandboxError> {
        fs::create_dir_all(&job.directory).map_err(|error| failed("make its directory", &error))?;
        let mut command = Command::new(program);
        command.args(["agent", "job"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.spawn().map_err(|error| failed("start its process", &error));
        let mut child = spawned.inspect_err(|_| drop(fs::remove_dir_all(&job.directory)))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let mut process = Process { child, stdin, directory: job.directory.clone() };
        let (Some(stdin), Some(stdout)) = (&mut process.stdin, stdout) else {
            return Err(SandboxError::new(ErrorCode::Internal, "the run's process has no pipes"));
        };
        let mut text = serde_json::to_vec(job).map_err(|error| failed("describe it", &error))?;
        text.push(b'\n');
        stdin.write_all(&text).map_err(|error| failed("describe it", &error))?;
        let mut answer = String::new();
        BufReader::new(stdout).read_line(&mut answer).map_err(|error| failed("hear of it", &error))?;
        match serde_json::from_str(&answer) {
            Ok(Said::Run(id)) => {
                let known =
                    SandboxId::parse(&id).ok_or_else(|| failed("hear of it", &"its process named no run"))?;
                let log = read::directory(state, known).join(belljar_agent::log::FILE);
                Ok(Watched { info: RunInfo { id, agent: job.agent.clone() }, log, _process: process })
            }
            Ok(Said::Error(error)) => Err(error.into()),
            Err(_) => Err(failed("hear of it", &"its process ended without a word")),
        }
    }

    /// What happens, from its first line to its result. The run ends when nobody takes them any more.
    pub(crate) fn events(self) -> Receiver<RunEvent> {
        let (tell, told) = channel(AHEAD);
        // Files are read and a process is waited for: a thread, for as long as the run takes.
        std::thread::spawn(move || self.follow(&tell));
        told
    }

    fn follow(self, tell: &Sender<RunEvent>) {
        let started = RunEvent::Started { run: self.info.clone() };
        if tell.blocking_send(started).is_ok()
            && let Err(error) = pass(&self.log, tell)
        {
            log(&format!("the log of run {} cannot be followed: {error}", self.info.id));
        }
    }
}

/// Every line, until the result, or until nobody writes or listens any more.
fn pass(path: &Path, tell: &Sender<RunEvent>) -> Result<(), read::ReadError> {
    let mut reader = Reader::open(path)?;
    loop {
        // Asked before the last lines are looked for, which may be written in between.
        let is_live = reader.is_live();
        while let Some(found) = reader.next_line()? {
            let Found::Line { line, text } = found else { continue };
            for event in story::told(&line, &text) {
                let is_last = matches!(event, RunEvent::Final { .. });
                if tell.blocking_send(event).is_err() || is_last {
                    return Ok(());
                }
            }
        }
        if !is_live {
            let _ = tell.blocking_send(story::broken_off());
            return Ok(());
        }
        if tell.is_closed() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its end is what a job waits for.
        drop(self.stdin.take());
        let _ = self.child.wait();
        remove_directory(&self.directory);
    }
}

/// Events that wait for a slow reader. The rest waits in the log.
const AHEAD: usize = 64;
/// How long a line waits at most before it is told.
const PAUSE: Duration = Duration::from_millis(40);

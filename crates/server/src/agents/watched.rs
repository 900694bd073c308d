//! A run as the daemon sees it: a shim, a log that grows, and somebody who listens.

use super::story;
use crate::answer::log;
use crate::link::{Started, Word, run_failed};
use belljar_agent::read::{self, Found, Reader};
use belljar_api::{RunEvent, RunInfo};
use belljar_spec::{SandboxError, SandboxId};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// A run that goes on as long as somebody has this. Nothing in it waits for whoever listens.
pub(crate) struct Watched {
    info: RunInfo,
    log: PathBuf,
    shim: Started,
}

impl Watched {
    /// Waits until there is a log, or an error.
    pub(crate) async fn new(mut shim: Started, agent: String, state: &Path) -> Result<Watched, SandboxError> {
        let unnamed = || run_failed("read the answer of the shim", &"it named no run");
        let Word::Run(id) = shim.answer().await? else { return Err(unnamed()) };
        let known = SandboxId::parse(&id).ok_or_else(unnamed)?;
        let log = read::directory(state, known).join(belljar_agent::log::FILE);
        Ok(Watched { info: RunInfo { id, agent }, log, shim })
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
        self.shim.end_blocking();
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

/// Events that wait for a slow reader. The rest waits in the log.
const AHEAD: usize = 64;
/// How long a line waits at most before it is told.
const PAUSE: Duration = Duration::from_millis(40);

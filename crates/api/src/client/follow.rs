//! What a command writes, followed to its end: also over the death of the daemon, which the command does not notice.

use crate::CommandEvent;
use crate::client::body::Download;
use crate::client::commands::below;
use crate::client::error::ClientError;
use crate::client::events::{Events, decoded};
use crate::client::sandbox::Sandbox;
use hyper::Method;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Events of a command, each of them once.
pub struct CommandEvents {
    sandbox: Sandbox,
    /// Known since the first event, or since it was asked for.
    command: Option<String>,
    events: Events<CommandEvent>,
    /// Behind the last event.
    cursor: u64,
    follow: bool,
    over: bool,
}

impl CommandEvents {
    /// Of a command that was started by this answer.
    pub(crate) fn of_start(sandbox: Sandbox, download: Download) -> CommandEvents {
        let events = Events::new(download);
        CommandEvents { sandbox, command: None, events, cursor: 0, follow: true, over: false }
    }

    pub(crate) async fn from(
        sandbox: Sandbox,
        command: &str,
        cursor: u64,
        follow: bool,
    ) -> Result<CommandEvents, ClientError> {
        let events = open(&sandbox, command, cursor, follow).await?;
        Ok(CommandEvents { sandbox, command: Some(command.into()), events, cursor, follow, over: false })
    }

    /// Which command, once it is known.
    pub fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// Behind the last event: where a later `follow` continues.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next one; nothing behind the last. May be dropped while it waits, and nothing is lost.
    pub async fn next(&mut self) -> Result<Option<CommandEvent>, ClientError> {
        loop {
            if self.over {
                return Ok(None);
            }
            match self.events.next_raw().await {
                Ok(Some(raw)) => {
                    let event: CommandEvent = decoded(&raw)?;
                    if let Some(cursor) = raw.id.as_deref().and_then(|id| id.parse().ok()) {
                        self.cursor = cursor;
                    }
                    match &event {
                        CommandEvent::Started { command } => self.command = Some(command.id.clone()),
                        CommandEvent::Ended { .. } => self.over = true,
                        CommandEvent::Output { .. } => {}
                    }
                    return Ok(Some(event));
                }
                Ok(None) if !self.follow => self.over = true,
                Ok(None) => self.resume(ClientError::Gone("it ended before the command did".into())).await?,
                Err(error) => self.resume(error).await?,
            }
        }
    }

    /// Follows again from where it was, once the daemon is back.
    async fn resume(&mut self, why: ClientError) -> Result<(), ClientError> {
        // Without the command's id it is unknown whether the daemon started it; so it is not started again.
        let Some(command) = self.command.clone().filter(|_| why.is_passing()) else {
            return Err(why);
        };
        let sandbox = &self.sandbox;
        let (cursor, follow) = (self.cursor, self.follow);
        self.events =
            patiently(sandbox.client.time_limit, || open(sandbox, &command, cursor, follow)).await?;
        Ok(())
    }
}

/// Tries until it is no longer for want of a daemon that it does not work.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
    time_limit: Duration,
    attempt: impl Fn() -> F,
) -> Result<T, ClientError> {
    let until = Instant::now() + time_limit;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(error) if error.is_passing() && Instant::now() < until => sleep(pause).await,
            outcome => return outcome,
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

async fn open(
    sandbox: &Sandbox,
    command: &str,
    cursor: u64,
    follow: bool,
) -> Result<Events<CommandEvent>, ClientError> {
    let call = sandbox.call(Method::GET, &below(command, "/output")).wants_events();
    let (_, download) = call.query("from", cursor).query("follow", follow).send().await?;
    Ok(Events::new(download))
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

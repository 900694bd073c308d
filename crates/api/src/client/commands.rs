//! Commands in a sandbox.

use crate::client::body;
use crate::client::call::escaped;
use crate::client::error::ClientError;
use crate::client::follow::{CommandEvents, patiently};
use crate::client::sandbox::Sandbox;
use crate::{CommandInfo, SendSignal, StartCommand, Terminal};
use hyper::Method;
use hyper::body::Bytes;
use std::time::Duration;

impl Sandbox {
    /// Runs it to its end; its output is in the answer.
    pub async fn run(&self, command: &StartCommand) -> Result<CommandInfo, ClientError> {
        let command = StartCommand { background: false, ..command.clone() };
        self.call(Method::POST, "/commands").json(&command).answer().await
    }

    /// Starts it, and leaves it alone.
    pub async fn start(&self, command: &StartCommand) -> Result<CommandInfo, ClientError> {
        let command = StartCommand { background: true, ..command.clone() };
        self.call(Method::POST, "/commands").json(&command).answer().await
    }

    /// Starts it and follows it.
    pub async fn run_following(&self, command: &StartCommand) -> Result<CommandEvents, ClientError> {
        let command = StartCommand { background: false, ..command.clone() };
        let (_, download) = self.call(Method::POST, "/commands").wants_events().json(&command).send().await?;
        Ok(CommandEvents::of_start(self.clone(), download))
    }

    /// Follows one from this cursor on; 0 is the beginning.
    pub async fn follow(&self, command: &str, from: u64) -> Result<CommandEvents, ClientError> {
        CommandEvents::from(self.clone(), command, from, true).await
    }

    /// What it wrote until now, from this cursor on.
    pub async fn output(&self, command: &str, from: u64) -> Result<CommandEvents, ClientError> {
        CommandEvents::from(self.clone(), command, from, false).await
    }

    /// All that ran or run in this life of the sandbox.
    pub async fn commands(&self) -> Result<Vec<CommandInfo>, ClientError> {
        self.client.every(&format!("/sandboxes/{}/commands", escaped(&self.name)), &[]).await
    }

    pub async fn command(&self, command: &str) -> Result<CommandInfo, ClientError> {
        self.call(Method::GET, &below(command, "")).answer().await
    }

    /// Ends it, with all it started.
    pub async fn kill(&self, command: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &below(command, "")).done().await
    }

    /// Waits for its end, or as long as is said: then it may still run.
    pub async fn wait(&self, command: &str, most: Option<Duration>) -> Result<CommandInfo, ClientError> {
        let seconds = most.map(|most| most.as_secs());
        self.call(Method::POST, &below(command, "/wait")).maybe_query("timeout_s", seconds).answer().await
    }

    /// More standard input; with `end`, there will be no more.
    pub async fn stdin(&self, command: &str, bytes: impl Into<Bytes>, end: bool) -> Result<(), ClientError> {
        let call = self.call(Method::POST, &below(command, "/stdin"));
        call.query("end", end).raw(body::bytes(bytes)).done().await
    }

    /// `SIGINT`, or a number. Where the daemon ends meanwhile it is sent again to the next one: better twice than never.
    pub async fn signal(&self, command: &str, signal: &str) -> Result<(), ClientError> {
        let signal = SendSignal { signal: signal.into() };
        let attempt = || self.call(Method::POST, &below(command, "/signal")).json(&signal).done();
        patiently(self.client.time_limit, attempt).await
    }

    /// The size of its terminal; said again likewise.
    pub async fn resize(&self, command: &str, size: Terminal) -> Result<(), ClientError> {
        let attempt = || self.call(Method::POST, &below(command, "/resize")).json(&size).done();
        patiently(self.client.time_limit, attempt).await
    }
}

pub(crate) fn below(command: &str, rest: &str) -> String {
    format!("/commands/{}{rest}", escaped(command))
}

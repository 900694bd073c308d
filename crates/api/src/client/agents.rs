//! Agents, and runs of them.

use crate::client::Client;
use crate::client::call::escaped;
use crate::client::error::ClientError;
use crate::client::events::Events;
use crate::{AgentInfo, AgentRun};
use hyper::Method;
use serde_json::Value;

impl Client {
    /// Those that are known, installed or not.
    pub async fn agents(&self) -> Result<Vec<AgentInfo>, ClientError> {
        self.every("/agents", &[]).await
    }

    /// Runs one, and tells what it does: the lines of its log.
    pub async fn run_agent(&self, agent: &str, run: &AgentRun) -> Result<Events<Value>, ClientError> {
        let call = self.call(Method::POST, format!("/agents/{}/runs", escaped(agent))).wants_events();
        let (_, download) = call.json(run).send().await?;
        Ok(Events::new(download))
    }
}

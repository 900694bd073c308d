//! What was decided for a sandbox, and what this machine can do.

use crate::client::Client;
use crate::client::call::escaped;
use crate::client::error::ClientError;
use crate::client::events::Events;
use crate::client::sandbox::Sandbox;
use crate::{AuditRecord, Capabilities, OpenPort, ProfileInfo, RefusedInfo};
use hyper::Method;
use serde_json::Value;

impl Client {
    pub async fn capabilities(&self) -> Result<Capabilities, ClientError> {
        self.call(Method::GET, "/capabilities").answer().await
    }

    /// Those that work here and may be named.
    pub async fn profiles(&self) -> Result<Vec<ProfileInfo>, ClientError> {
        self.every("/profiles", &[]).await
    }

    /// That the daemon answers, and no more.
    pub async fn health(&self) -> Result<(), ClientError> {
        self.call(Method::GET, "/health").done().await
    }
}

impl Sandbox {
    /// The egress decisions until now.
    pub async fn egress(&self) -> Result<Vec<Value>, ClientError> {
        self.records("egress").await
    }

    /// What it tried to reach and may not, since it was started.
    pub async fn refusals(&self) -> Result<Vec<RefusedInfo>, ClientError> {
        self.client.every(&format!("/sandboxes/{}/refusals", escaped(&self.name)), &[]).await
    }

    /// The TCP ports that programs inside listen at now.
    pub async fn open_ports(&self) -> Result<Vec<OpenPort>, ClientError> {
        self.client.every(&format!("/sandboxes/{}/ports", escaped(&self.name)), &[]).await
    }

    /// The egress decisions behind this line of its log.
    pub async fn egress_after(&self, line: u64) -> Result<Vec<AuditRecord>, ClientError> {
        let path = format!("/sandboxes/{}/egress", escaped(&self.name));
        self.client.every_after(&path, Some(line.to_string()), &[]).await
    }

    /// The egress decisions as they are made.
    pub async fn follow_egress(&self) -> Result<Events<Value>, ClientError> {
        self.follow_records("egress").await
    }

    /// Every record of it, until now.
    pub async fn audit(&self) -> Result<Vec<Value>, ClientError> {
        self.records("audit").await
    }

    /// Every record of it, as it is written.
    pub async fn follow_audit(&self) -> Result<Events<Value>, ClientError> {
        self.follow_records("audit").await
    }

    async fn records(&self, which: &str) -> Result<Vec<Value>, ClientError> {
        self.client.every(&format!("/sandboxes/{}/{which}", escaped(&self.name)), &[]).await
    }

    async fn follow_records(&self, which: &str) -> Result<Events<Value>, ClientError> {
        let call = self.call(Method::GET, &format!("/{which}")).wants_events();
        let (_, download) = call.query("follow", true).send().await?;
        Ok(Events::new(download))
    }
}

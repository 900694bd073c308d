//! Snapshots.

use crate::client::Client;
use crate::client::call::escaped;
use crate::client::error::ClientError;
use crate::client::sandbox::Sandbox;
use crate::{ForkSandbox, Forked, RestoreSandbox, Restored, SnapshotInfo, TakeSnapshot, UndoSandbox};
use hyper::Method;

impl Client {
    /// All that the caller took, the oldest first.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, ClientError> {
        self.every("/snapshots", &[]).await
    }

    /// One of them, by name or id, with its size.
    pub async fn snapshot(&self, name: &str) -> Result<SnapshotInfo, ClientError> {
        self.call(Method::GET, format!("/snapshots/{}", escaped(name))).answer().await
    }

    /// Sandboxes that were made from it keep their files.
    pub async fn remove_snapshot(&self, name: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, format!("/snapshots/{}", escaped(name))).done().await
    }
}

impl Sandbox {
    pub async fn snapshot(&self, request: &TakeSnapshot) -> Result<SnapshotInfo, ClientError> {
        self.call(Method::POST, "/snapshots").json(request).answer().await
    }

    /// Makes sandboxes like this one, with the files that it has now.
    pub async fn fork(&self, request: &ForkSandbox) -> Result<Forked, ClientError> {
        self.call(Method::POST, "/fork").json(request).answer().await
    }

    pub async fn restore(&self, request: &RestoreSandbox) -> Result<Restored, ClientError> {
        self.call(Method::POST, "/restore").json(request).answer().await
    }

    /// Goes back so many checkpoints.
    pub async fn undo(&self, steps: u32) -> Result<Restored, ClientError> {
        self.call(Method::POST, "/undo").json(&UndoSandbox { steps }).answer().await
    }
}

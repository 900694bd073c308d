//! Sandboxes: made, found, held, stopped and removed.

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::sandbox::Sandbox;
use crate::{CreateSandbox, Created, LeaseInfo, Page, RenewLease, SandboxInfo, State, Sweep};
use hyper::Method;
use serde::de::DeserializeOwned;

/// Which sandboxes are meant.
#[derive(Debug, Clone, Default)]
pub struct SandboxFilter {
    pub key: Option<String>,
    pub state: Option<State>,
}

impl Client {
    /// A hold on a sandbox: on the one of its key, or on a new one.
    pub async fn create(&self, request: &CreateSandbox) -> Result<Created, ClientError> {
        self.call(Method::POST, "/sandboxes").json(request).answer().await
    }

    /// The same; said again with the same word, it is the same answer and no second sandbox.
    pub async fn create_once(&self, request: &CreateSandbox, word: &str) -> Result<Created, ClientError> {
        self.call(Method::POST, "/sandboxes").header("idempotency-key", word).json(request).answer().await
    }

    /// All of them, however many parts the list has.
    pub async fn sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<SandboxInfo>, ClientError> {
        self.every("/sandboxes", &filter.words()).await
    }

    /// One part of the list.
    pub async fn sandboxes_page(
        &self,
        filter: &SandboxFilter,
        limit: u32,
        after: Option<&str>,
    ) -> Result<Page<SandboxInfo>, ClientError> {
        let mut call = self.call(Method::GET, "/sandboxes").query("limit", limit).maybe_query("after", after);
        for (name, value) in filter.words() {
            call = call.query(name, value);
        }
        call.answer().await
    }

    /// Removes what dead sandboxes left.
    pub async fn sweep(&self, dry_run: bool) -> Result<Sweep, ClientError> {
        self.call(Method::POST, "/sweep").query("dry_run", dry_run).answer().await
    }

    /// Every part of a list.
    pub(crate) async fn every<T: DeserializeOwned>(
        &self,
        path: &str,
        words: &[(&str, String)],
    ) -> Result<Vec<T>, ClientError> {
        self.every_after(path, None, words).await
    }

    /// The same, behind a part that is known.
    pub(crate) async fn every_after<T: DeserializeOwned>(
        &self,
        path: &str,
        mut after: Option<String>,
        words: &[(&str, String)],
    ) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        loop {
            let mut call =
                self.call(Method::GET, path).query("limit", PART).maybe_query("after", after.as_deref());
            for (name, value) in words {
                call = call.query(name, value);
            }
            let page: Page<T> = call.answer().await?;
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }
}

impl Sandbox {
    pub async fn info(&self) -> Result<SandboxInfo, ClientError> {
        self.call(Method::GET, "").answer().await
    }

    /// Removes it with all its files, regardless of leases.
    pub async fn delete(&self) -> Result<(), ClientError> {
        self.call(Method::DELETE, "").done().await
    }

    /// The same, also of one whose record the daemon does not understand.
    pub async fn delete_anyway(&self) -> Result<(), ClientError> {
        self.call(Method::DELETE, "").query("force", true).done().await
    }

    /// All processes inside are paused.
    pub async fn pause(&self) -> Result<SandboxInfo, ClientError> {
        self.call(Method::POST, "/pause").answer().await
    }

    pub async fn resume(&self) -> Result<SandboxInfo, ClientError> {
        self.call(Method::POST, "/resume").answer().await
    }

    /// Ends everything inside; a persistent one keeps its files.
    pub async fn stop(&self) -> Result<SandboxInfo, ClientError> {
        self.call(Method::POST, "/stop").answer().await
    }

    pub async fn renew(&self, lease: &str, lease_s: Option<u64>) -> Result<LeaseInfo, ClientError> {
        let below = format!("/leases/{}", crate::client::call::escaped(lease));
        self.call(Method::POST, &below).json(&RenewLease { lease_s }).answer().await
    }

    /// Lets go of it.
    pub async fn release(&self, lease: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &format!("/leases/{}", crate::client::call::escaped(lease))).done().await
    }
}

impl SandboxFilter {
    fn words(&self) -> Vec<(&'static str, String)> {
        let state = self.state.map(|state| match state {
            State::Starting => "starting",
            State::Live => "live",
            State::Paused => "paused",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
        });
        let key = self.key.clone().map(|key| ("key", key));
        key.into_iter().chain(state.map(|state| ("state", state.to_string()))).collect()
    }
}

/// How much of a list is asked for at once.
const PART: u32 = 500;

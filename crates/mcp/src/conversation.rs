//! The sandbox of a conversation: found or made at its first use, held while the client is there, found again if it was stopped
//! meanwhile.

use belljar_api::client::{Client, ClientError, Sandbox};
use belljar_api::{CreateSandbox, Created, SandboxInfo};
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How the sandbox of a conversation is found or made.
pub type Opening =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Opened, SandboxError>> + Send>> + Send + Sync>;

/// A sandbox that was found or made.
pub struct Opened {
    pub client: Client,
    pub created: Created,
    /// Where the client stands, below the workspace.
    pub below: Option<String>,
}

/// The sandbox of a request to the daemon.
pub fn opening(client: Client, request: CreateSandbox) -> Opening {
    Box::new(move || {
        let (client, request) = (client.clone(), request.clone());
        Box::pin(async move {
            let created = client.create(&request).await.map_err(failed)?;
            Ok(Opened { client, created, below: None })
        })
    })
}

/// A conversation with one client.
pub struct Conversation {
    open: Opening,
    hint: fn(&SandboxError) -> Option<String>,
    held: tokio::sync::Mutex<Option<Arc<Held>>>,
    /// How far the output of each command was shown.
    shown: Mutex<HashMap<String, u64>>,
}

/// The sandbox of a conversation, held.
pub(crate) struct Held {
    pub(crate) sandbox: Sandbox,
    pub(crate) info: SandboxInfo,
    lease: String,
    below: Option<String>,
}

impl Conversation {
    /// One whose sandbox is opened like this, and whose errors have these hints.
    pub fn new(open: Opening, hint: fn(&SandboxError) -> Option<String>) -> Conversation {
        Conversation { open, hint, held: tokio::sync::Mutex::default(), shown: Mutex::default() }
    }

    /// Does something in the sandbox; once more in a sandbox that is started again, if it was stopped meanwhile and nothing was done.
    pub(crate) async fn with<T, W, F>(&self, work: W) -> Result<T, SandboxError>
    where
        W: Fn(Arc<Held>) -> F,
        F: Future<Output = Result<T, SandboxError>>,
    {
        let held = self.held().await?;
        match work(Arc::clone(&held)).await {
            Err(error) if is_gone(error.code) => {
                self.forget(&held).await;
                work(self.held().await?).await
            }
            outcome => outcome,
        }
    }

    /// The sandbox, opened if it is not yet.
    pub(crate) async fn held(&self) -> Result<Arc<Held>, SandboxError> {
        let mut held = self.held.lock().await;
        if let Some(held) = &*held {
            return Ok(Arc::clone(held));
        }
        let Opened { client, created, below } = (self.open)().await?;
        let sandbox = client.sandbox(&created.sandbox.name).holding(&created.lease.id);
        let new = Arc::new(Held { sandbox, info: created.sandbox, lease: created.lease.id, below });
        // Ids of commands are counted anew in each life of a sandbox.
        self.shown().clear();
        *held = Some(Arc::clone(&new));
        Ok(new)
    }

    async fn forget(&self, gone: &Arc<Held>) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, gone)) {
            *held = None;
        }
    }

    /// Keeps the sandbox alive for as long as this is polled.
    pub async fn keep(&self) {
        loop {
            sleep(LEASE / 3).await;
            let held = self.held.lock().await.clone();
            if let Some(held) = held {
                // One that is gone is found again by the next call.
                let _ = held.sandbox.renew(&held.lease, Some(LEASE.as_secs())).await;
            }
        }
    }

    /// Lets go of the sandbox.
    pub async fn release(&self) {
        if let Some(held) = self.held.lock().await.take() {
            // A lease that is not given back ends by itself.
            let _ = held.sandbox.release(&held.lease).await;
        }
    }

    pub(crate) fn shown(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened and what to do next, for a model.
    pub(crate) fn report(&self, error: &SandboxError) -> String {
        match (self.hint)(error) {
            Some(hint) => format!("belljar: {error}\nhint: {hint}"),
            None => format!("belljar: {error}"),
        }
    }
}

impl Held {
    /// A path as the sandbox knows it: one of the host's folder is the same file of the workspace.
    pub(crate) fn inside(&self, path: &str) -> String {
        let (Some(folder), Some(workspace)) = (&self.info.folder, &self.info.workspace) else {
            return path.to_string();
        };
        match Path::new(path).strip_prefix(folder) {
            Ok(rest) => {
                let inside: PathBuf = Path::new(workspace).join(rest);
                inside.to_string_lossy().trim_end_matches('/').to_string()
            }
            Err(_) => path.to_string(),
        }
    }

    /// Where a command starts that is told this folder, or none.
    pub(crate) fn directory(&self, cwd: Option<&str>) -> Option<String> {
        cwd.map(|cwd| self.inside(cwd)).or_else(|| self.below.clone())
    }
}

/// What the daemon said.
pub(crate) fn failed(error: ClientError) -> SandboxError {
    let made = match error {
        ClientError::Api(error, _) => return SandboxError::from(*error),
        ClientError::NoDaemon { .. }
        | ClientError::Gone(_)
        | ClientError::Protocol(_)
        | ClientError::Source(_) => error.code().error(error.to_string()),
    };
    match error.hint() {
        Some(hint) => made.hint(hint),
        None => made,
    }
}

/// Whether the sandbox ended before anything was done in it.
fn is_gone(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::SandboxNotAlive | ErrorCode::SandboxNotFound)
}

/// For how long a sandbox stays when its client goes away without a word.
pub const LEASE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn held(folder: Option<&str>, workspace: &str) -> Held {
        let info = serde_json::from_value(json!({
            "name": "bj-web", "key": "repo:/home/ada/web", "state": "live", "persistent": true, "owner": "owner",
            "profile": "default", "folder": folder, "workspace": workspace, "egress": "strict", "ports": [], "leases": [],
            "commands": 0, "created_ms": 0,
        }))
        .expect("a sandbox");
        Held {
            sandbox: Client::unix("/nowhere").sandbox("bj-web"),
            info,
            lease: "lease".into(),
            below: Some("src".into()),
        }
    }

    #[test]
    fn a_path_of_the_folder_is_a_path_of_the_workspace() {
        let moved = held(Some("/home/ada/web"), "/workspace");
        for (path, expected) in [
            ("/home/ada/web", "/workspace"),
            ("/home/ada/web/src/main.rs", "/workspace/src/main.rs"),
            ("/home/ada/website", "/home/ada/website"),
            ("/etc/passwd", "/etc/passwd"),
            ("src/main.rs", "src/main.rs"),
            ("../x", "../x"),
        ] {
            assert_eq!(moved.inside(path), expected);
        }
        assert_eq!(held(Some("/home/ada/web"), "/home/ada/web").inside("/home/ada/web/a"), "/home/ada/web/a");
        assert_eq!(held(None, "/workspace").inside("/home/ada/web/a"), "/home/ada/web/a");
    }

    #[test]
    fn a_command_starts_where_the_client_stands() {
        let held = held(Some("/home/ada/web"), "/workspace");
        assert_eq!(held.directory(None).as_deref(), Some("src"));
        assert_eq!(held.directory(Some("/home/ada/web/docs")).as_deref(), Some("/workspace/docs"));
    }
}

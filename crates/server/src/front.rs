//! The daemon: who asks, may they, which sandbox; what is a sandbox's own goes through to its shim.
//!
//! ```text
//!   socket, TCP ─> connection ─> gate: host, origin, grant, rate ─┬─> sandboxes, leases, sweep ─> fleet
//!                                                                ├─> records ─> the log of a sandbox
//!                                                                ├─> grants, profiles, capabilities
//!                                                                ├─> agents, once ─> a process for each run
//!                                                                └─> proxy ─> link ─> shim
//! ```
//! It keeps nothing that a restart would lose: sandboxes are on disk and with their shims, grants in their file.

mod about;
mod activity;
mod agents;
mod backends;
mod connection;
mod executable;
mod extract;
mod gate;
mod grants;
mod host;
mod listen;
mod mcp;
mod notify;
mod once;
mod openapi;
mod policy;
mod proxy;
mod rate;
mod records;
mod sandboxes;
mod serve;
mod slots;
mod snapshots;
mod sweeping;

pub use host::AllowedHosts;
pub use openapi::description;
pub use serve::{Ready, Settings, serve};

use crate::answer::Answer;
use crate::link::{Line, Link, LinkError};
use activity::Activity;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, post};
use backends::Backends;
use belljar_api::client::Client;
use belljar_audit::LogFile;
use belljar_fleet::{Fleet, GrantStore, InUse, Permission, Profiles};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use connection::Used;
use gate::Asking;
use rate::Rates;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What every request can use.
pub(crate) struct Front {
    fleet: Fleet,
    link: Arc<Link>,
    grants: GrantStore,
    allowed_hosts: AllowedHosts,
    used: Used,
    rates: Rates,
    activity: Activity,
    backends: Backends,
    starts: usize,
    max_upload: Option<u64>,
    /// The API in JSON, as it is served.
    description: axum::body::Bytes,
    /// Of this run of the daemon, so that ids of requests are never used twice.
    run: String,
    requests: AtomicU64,
    began: SystemTime,
    mcp: mcp::Sessions,
    /// A client of this very daemon, for protocols that are translations of its API.
    own: Option<Client>,
}

impl Front {
    /// Everything that can be asked, behind the gate.
    fn routes(self: Arc<Front>) -> Router {
        let (api, _) = openapi::api().split_for_parts();
        let through = any(proxy::pass);
        api.route("/v1/sandboxes/{name}/commands", through.clone())
            .route("/v1/sandboxes/{name}/commands/{*rest}", through.clone())
            .route("/v1/sandboxes/{name}/fetch", through.clone())
            .route("/v1/sandboxes/{name}/refusals", through.clone())
            .route("/v1/sandboxes/{name}/files", through.clone())
            .route("/v1/sandboxes/{name}/files/{*rest}", through.clone())
            .route("/v1/sandboxes/{name}/ports", through.clone())
            .route("/v1/sandboxes/{name}/ports/{port}", through.clone())
            .route("/v1/sandboxes/{name}/ports/{port}/", through.clone())
            .route("/v1/sandboxes/{name}/ports/{port}/{*rest}", through)
            .route("/v1/mcp", post(mcp::post).delete(mcp::end))
            .fallback(nowhere)
            .method_not_allowed_fallback(not_that)
            .layer(from_fn_with_state(Arc::clone(&self), gate::gate))
            .with_state(self)
    }

    fn new_request_id(&self) -> String {
        format!("req_{}{:08x}", self.run, self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// The way to the shim of a sandbox that the caller may use. It is not idle as long as the first of the two is there.
    async fn line(&self, asking: &Asking, name: &str) -> Answer<(InUse, Arc<Line>)> {
        asking.caller.may_have_sandboxes()?;
        let in_use = self.fleet.shim(name, asking).await?;
        let line = self.link.line(&in_use.alive().id);
        let line = line.ok_or_else(|| LinkError::Gone(io::ErrorKind::NotFound.into()).to_error())?;
        Ok((in_use, line))
    }

    /// The log of a sandbox that the caller may see. The owner may also name the log itself, of one that is no more.
    async fn log_of(&self, asking: &Asking, name: &str) -> Answer<LogFile> {
        asking.caller.may_have_sandboxes()?;
        let id = match SandboxId::parse(name) {
            Some(id) if asking.caller.is_owner() => id.to_string(),
            _ => {
                let info = self.fleet.get(name, asking).await?;
                info.id.ok_or_else(|| ErrorCode::SandboxNotAlive.error("the sandbox has not lived yet"))?
            }
        };
        let found =
            belljar_audit::directory().and_then(|directory| belljar_audit::find(&directory, Some(&id)));
        Ok(found.map_err(|error| {
            ErrorCode::NotFound.error(format!("there is no log of this sandbox: {error}")).caused_by(error)
        })?)
    }

    async fn profiles(&self) -> Result<Profiles, SandboxError> {
        let backends = self.backends.reports().await;
        Profiles::of_this_machine(&backends)
    }

    fn concurrent_starts(&self) -> u32 {
        u32::try_from(self.starts).unwrap_or(u32::MAX)
    }

    /// Work that waits for the disk.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Front>,
        work: impl FnOnce(&Front) -> Result<T, SandboxError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let front = Arc::clone(self);
        let interrupted = |_| Err(ErrorCode::Internal.error("the daemon is stopping"));
        tokio::task::spawn_blocking(move || work(&front)).await.unwrap_or_else(interrupted)
    }
}

impl Permission for Asking {
    fn grant(&self) -> &str {
        self.caller.id()
    }

    fn may_join(&self, key: &str, _: Option<&str>) -> Result<(), SandboxError> {
        self.caller.may_use_key(key)
    }

    fn may_own(&self, key: &str) -> bool {
        self.caller.owns_key(key)
    }

    fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    fn most_sandboxes(&self) -> Option<u32> {
        self.caller.most_sandboxes()
    }

    fn most_snapshots(&self) -> Option<u32> {
        self.caller.most_snapshots()
    }
}

async fn nowhere() -> Answer<()> {
    let error = ErrorCode::NotFound.error("there is nothing at this path");
    Err(error.hint("`/v1/openapi.json` says what there is").into())
}

async fn not_that() -> Answer<()> {
    let error = ErrorCode::MethodNotAllowed.error("this path has no such method");
    Err(error.hint("`/v1/openapi.json` says what there is").into())
}

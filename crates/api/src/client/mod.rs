//! A typed client of the HTTP API, over the daemon's unix socket or over TCP with a token. What our own command line uses.
//!
//! ```no_run
//! # async fn example() -> Result<(), belljar_api::client::ClientError> {
//! use belljar_api::{CreateSandbox, StartCommand};
//! let client = belljar_api::client::Client::unix("/run/belljar/daemon.sock");
//! let created = client.create(&CreateSandbox { key: Some("web".into()), ..CreateSandbox::default() }).await?;
//! let sandbox = client.sandbox(&created.sandbox.name).holding(&created.lease.id);
//! let command = StartCommand { argv: vec!["make".into(), "test".into()], ..StartCommand::default() };
//! let ended = sandbox.run(&command).await?;
//! println!("{:?}", ended.result);
//! # Ok(())
//! # }
//! ```
//! A client that follows a command continues where it was when the daemon comes back: the command did not notice.

mod agents;
mod attach;
mod body;
mod bytes;
mod call;
mod commands;
mod connect;
mod error;
mod events;
mod files;
mod follow;
mod grants;
mod once;
mod policy;
mod pool;
mod ports;
mod records;
mod sandbox;
mod sandboxes;
mod snapshots;
mod sse;
mod start;

pub use attach::{AttachEvent, AttachInput, Attachment};
pub use body::Download;
pub use bytes::{base64, output_bytes};
pub use error::ClientError;
pub use events::Events;
pub use follow::CommandEvents;
pub use ports::PortStream;
pub use sandbox::Sandbox;
pub use sandboxes::SandboxFilter;

use connect::Target;
use pool::Pool;
use start::Starter;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

/// What a client shows with each request.
#[derive(Clone)]
pub(crate) enum Access {
    /// Nothing: a unix socket knows its user.
    Nothing,
    /// The token of a grant.
    Grant(Arc<str>),
    /// The id of a grant, in whose place the owner asks.
    For(Arc<str>),
    /// The token of a shim.
    Shim(Arc<str>),
}

/// A client of one daemon. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) target: Target,
    pub(crate) access: Access,
    pub(crate) starter: Option<Starter>,
    pub(crate) pool: Pool,
    pub(crate) time_limit: Duration,
}

impl Client {
    /// Of the daemon that listens at this socket.
    pub fn unix(path: impl Into<PathBuf>) -> Client {
        Client::new(Target::Unix(path.into()), Access::Nothing)
    }

    /// The same, with a grant's token: no more is allowed than the grant allows.
    pub fn with_token(self, token: &str) -> Client {
        Client { access: Access::Grant(token.into()), pool: Pool::default(), ..self }
    }

    /// The same for the owner of the machine, who asks in the place of a grant: no more is allowed than the grant allows.
    pub fn for_grant(self, id: &str) -> Client {
        Client { access: Access::For(id.into()), pool: Pool::default(), ..self }
    }

    /// Of a daemon that listens at this address (`127.0.0.1:7070`), with a grant's token.
    pub fn tcp(address: impl Into<String>, token: &str) -> Client {
        Client::new(Target::Tcp(address.into()), Access::Grant(token.into()))
    }

    /// Of this user's daemon on this machine, started by `start` where none listens. `start` need not wait for it, and may be called
    /// by several at the same time: the daemons agree on one.
    pub fn local(start: impl Fn() -> io::Result<Child> + Send + Sync + 'static) -> Client {
        Client::local_if_running().starting(start)
    }

    /// The same, where none is started.
    pub fn local_if_running() -> Client {
        Client::unix(crate::socket_path_here(belljar_sys::rustix::process::getuid().as_raw()))
    }

    /// The same, where `start` starts a daemon if none listens.
    pub fn starting(mut self, start: impl Fn() -> io::Result<Child> + Send + Sync + 'static) -> Client {
        self.starter = Some(Starter::new(start));
        self
    }

    /// Of the shim that listens at this abstract address, with its token, for commands, files and ports of its one sandbox: as a daemon of
    /// this user would pass them on.
    pub fn shim(address: impl Into<String>, token: &str) -> Client {
        Client::new(Target::Shim(address.into()), Access::Shim(token.into()))
    }

    /// Connects now, for the next request.
    pub async fn connect(&self) -> Result<(), ClientError> {
        let line = self.target.connect().await.map_err(|error| self.target.unanswered(error))?;
        self.pool.give_back(line);
        Ok(())
    }

    /// How long it waits for a daemon that ended while the client followed something. Two minutes by default.
    pub fn with_reconnect_timeout(mut self, time_limit: Duration) -> Client {
        self.time_limit = time_limit;
        self
    }

    /// A sandbox by its name. Nothing is asked yet.
    pub fn sandbox(&self, name: &str) -> Sandbox {
        Sandbox { client: self.clone(), name: name.into(), lease: None }
    }

    fn new(target: Target, access: Access) -> Client {
        Client { target, access, starter: None, pool: Pool::default(), time_limit: RECONNECT_TIMEOUT }
    }
}

/// A machine that restarts its services is back by then.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(120);

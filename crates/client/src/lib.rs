//! A typed client of the HTTP API, over the daemon's unix socket or over TCP with a token. What our own command line uses.
//!
//! ```no_run
//! # async fn example() -> Result<(), belljar_client::ClientError> {
//! use belljar_api::{CreateSandbox, StartCommand};
//! let client = belljar_client::Client::unix("/run/belljar/daemon.sock");
//! let created = client.create(&CreateSandbox { key: Some("web".into()), ..CreateSandbox::default() }).await?;
//! let sandbox = client.sandbox(&created.sandbox.name).holding(&created.lease.id);
//! let command = StartCommand { argv: vec!["make".into(), "test".into()], ..StartCommand::default() };
//! let ended = sandbox.run(&command).await?;
//! println!("{:?}", ended.result);
//! # Ok(())
//! # }
//! ```
//! What follows a command goes on where it was when the daemon comes back: the command did not notice.

mod agents;
mod attach;
mod body;
mod bytes;
mod call;
mod client;
mod commands;
mod connect;
mod error;
mod events;
mod files;
mod follow;
mod grants;
mod once;
mod pool;
mod ports;
mod records;
mod sandbox;
mod sandboxes;
mod sse;
mod start;

pub use attach::{AttachEvent, AttachInput, Attachment};
pub use body::Download;
pub use bytes::{base64, output_bytes};
pub use client::Client;
pub use error::ClientError;
pub use events::Events;
pub use follow::CommandEvents;
pub use ports::PortStream;
pub use sandbox::Sandbox;
pub use sandboxes::SandboxFilter;

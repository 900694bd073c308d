//! The audit log of the decisions for a sandbox: typed events, one JSON line each, chained by hash, written by the host outside of
//! the sandbox. Also a reader, and a verifier that finds tampering.
//!
//! A log belongs to one sandbox. A ledger in the same directory lists all logs and how each one ended, so that a truncated or
//! deleted log is noticed. `docs/audit.md` describes the formats and what they prove.
//!
//! ```no_run
//! use belljar_audit::{Event, Log};
//! # fn main() -> Result<(), belljar_audit::AuditError> {
//! # let sandbox = belljar_spec::SandboxId::from_random([1; 8]);
//! let log = Log::create(&belljar_audit::directory()?, sandbox)?;
//! log.append(&Event::RecordsSuppressed { count: 3 })?;
//! log.end(&Event::SandboxEnded {})?;
//! # Ok(())
//! # }
//! ```

mod append;
mod chain;
mod error;
mod event;
mod ledger;
mod log;
mod log_path;
mod prune;
mod read;
mod time;
mod verify;

pub use chain::{Hash, NotAHash};
pub use error::AuditError;
pub use event::{Approval, CallEnding, CostSource, Ending, Event, PolicyChange};
pub use log::Log;
pub use log_path::directory;
pub use prune::{Pruned, Pruning, prune};
pub use read::{LogFile, Logged, Reader, Record, find, list};
pub use time::Stamp;
pub use verify::{Finding, LogState, Problem, Progress, Report, Severity, Verified, verify};

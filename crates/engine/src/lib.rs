//! From a request to a running sandbox.
//!
//! ```no_run
//! # async fn example() -> Result<(), belljar_spec::SandboxError> {
//! use belljar_engine::Engine;
//! use belljar_spec::{Command, SandboxSpec};
//!
//! let engine = Engine::new();
//! let sandbox = engine.create(SandboxSpec { workspace: Some("/srv/project".into()), ..Default::default() }).await?;
//! let result = sandbox.exec(&Command::new(["make", "test"]).expect("not empty")).await?;
//! println!("{}", String::from_utf8_lossy(&result.stdout));
//! sandbox.dispose().await;
//! # Ok(())
//! # }
//! ```
//!
//! Knows nothing of HTTP and prints nothing. One [`Sandbox`] has one owner; operations on it may run at the same
//! time, each over a stream of its own.

mod connect;
mod credentials;
mod drive;
mod egress_reach;
mod engine;
mod exec;
mod explain;
mod faults;
mod files;
mod forwarding;
mod git_session;
mod golden;
mod held;
mod host;
mod layers;
mod listening;
mod liveness;
mod llm;
mod logged_words;
mod neighbours;
mod observe;
mod once;
mod pause;
mod pending;
mod persistent;
mod publish;
mod pushes;
mod record;
mod relay;
mod remote;
mod report;
mod roots;
mod sandbox;
mod snapshots;
mod spend;
mod steering;
mod stream;
mod sweep;
mod transfer;
mod wait;
mod watch;
mod window;
mod workspace;

pub use drive::{Cap, Drive, Grace, InputFilter, OutputStream, Sink, Source};
pub use egress_reach::EgressReach;
pub use engine::{BackendReport, Description, Engine, Stage, Watcher, describe};
pub use exec::{Events, ExecResult, FixedInput, Input, Inputs, Output, Running};
pub use explain::{Addresses, Explanation, Grant, Outcome, Resolve, explain, resolve};
pub use files::{EntryKind, FileEntry, FileStat, Listing};
pub use forwarding::{Forwarding, IfTaken, listen};
pub use golden::{BuildOptions, BuildProgress, GOLDEN_RELEASE, Golden, GoldenStatus, MIRROR};
pub use host::{
    LimitsHeld, container_around_us, fetch_docker_image, host_shell, landlock_is_filtered, limits_held,
    load_for_shims,
};
pub use layers::{apply_layer, commits_of_layer, discard_layer};
pub use observe::{Observed, Observer};
pub use once::{Run, RunError};
pub use pending::{PendingLayer, layer_of_worktree};
pub use persistent::id_of as persistent_work_id;
pub use publish::{Publication, Published, publish};
pub use remote::{RemoteService, service_at};
pub use report::{RefusedReport, git_report};
pub use sandbox::{Sandbox, Snapshotted, Suspended};
pub use snapshots::{Keeps, must_have_layers, pin_like, root_directory_of};
pub use spend::{Comparison, Matched, Recorded, spend};
pub use steering::{Notices, Order, Reply, Steered, WatchEnd, Watching, policy_report, steered};
pub use sweep::{prune_prepared_roots, sweep_leftovers};
pub use transfer::{FileReader, FileWriter};
pub use watch::{ChangeKind, FileChange, Watch};
pub use workspace::Changes;

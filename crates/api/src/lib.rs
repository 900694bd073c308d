//! The words of the HTTP API: what is asked and what is answered. Plain data, the same for the server, the client and the
//! description that is served at `/v1/openapi.json`. What a sandbox may be asked for is `spec`'s; [`read`] reads a request's body.
//!
//! Times are milliseconds since 1970 (`…_ms`) or lengths in seconds (`…_s`). Sizes are text as on the command line (`512m`) where
//! they are asked for, and bytes where they are told.

mod agent;
mod capability;
#[cfg(feature = "client")]
pub mod client;
mod command;
mod error;
mod fetch;
mod file;
mod grant;
mod once;
mod page;
mod policy;
mod profile;
mod read;
mod refusal;
mod sandbox;
mod snapshot;
mod socket;
mod strict;
mod text;

pub use agent::{AgentInfo, AgentMessage, AgentRun, MessageRole, RunBill, RunEvent, RunInfo, RunUsage};
pub use belljar_spec::request::{
    EgressRequest, GitHubRequest, GrantRules, LimitsRequest, LlmRequest, SandboxRequest, WorkspaceRequest,
};
pub use capability::{BackendInfo, Capabilities};
pub use command::{
    Attached, CommandEvent, CommandInfo, CommandResult, CommandState, Control, Resize, SendSignal,
    StartCommand, StreamName, Terminal,
};
pub use error::{ApiCode, ApiError, ErrorBody};
pub use fetch::{Fetch, Fetched, Header};
pub use file::{FileEntry, FileKind, FileStat, MakeFolder, MoveFile, SetAttributes, WatchEvent, WatchKind};
pub use grant::{GrantInfo, NewGrant, NewToken};
pub use once::{RunOnce, RunResult};
pub use page::{AuditRecord, Page};
pub use policy::{AnswerQuestion, ChangePolicy, PolicyChanged, SandboxNotice, SandboxQuestion};
pub use profile::ProfileInfo;
pub use read::read;
pub use refusal::RefusedInfo;
pub use sandbox::{
    CreateSandbox, Created, LeaseInfo, OpenPort, RenewLease, SandboxInfo, Scope, State, Sweep, SweptSandbox,
};
pub use snapshot::{
    AutomaticSnapshot, ForkSandbox, Forked, RestoreSandbox, Restored, SnapshotInfo, SnapshotMethod,
    SnapshotPart, TakeSnapshot, UndoSandbox,
};
pub use socket::{SOCKET_VARIABLE, socket_path, socket_path_here};
pub use text::text_and_base64;

/// Where a request to a shim shows its token.
pub const SHIM_TOKEN_HEADER: &str = "x-belljar-keeper";
/// The grant that the owner of this machine asks for, instead of for itself: a request with it may do what that grant may.
pub const FOR_GRANT_HEADER: &str = "x-belljar-for-grant";
/// A token is this, the grant's id, `_` and a secret; the id and the secret are hexadecimal digits.
pub const TOKEN_PREFIX: &str = "bjt_";
/// The digits of a grant's id in its token.
pub const TOKEN_ID_DIGITS: usize = 12;
/// Where the current version of the API begins.
pub const PREFIX: &str = "/v1";

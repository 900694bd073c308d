//! The nouns of belljar, valid by construction. No I/O: what depends on the machine is passed in.
//!
//! What a person or a file wrote is parsed once, here; a value of one of these types needs no further check.

mod age;
mod assurance;
mod backend;
mod command;
mod context;
pub mod egress;
mod ended;
mod error;
mod error_code;
pub mod exit_code;
mod fetch;
mod forwarded_port;
pub mod git;
mod glob;
mod golden;
mod hint;
mod id;
mod limits;
pub mod llm;
mod persistent;
mod quantity;
mod regional;
pub mod request;
mod root;
mod sandbox;
pub mod secret;
mod signal;
mod text;
mod user;
pub mod workspace;

pub use age::parse_age;
pub use assurance::{Assurance, UnknownAssurance};
pub use backend::{BackendChoice, BackendName, Runtime, UnknownBackend, UnknownRuntime};
pub use command::{Command, CommandError, Stdin, WindowSize};
pub use context::AgentContext;
pub use egress::{
    Destination, EgressLimits, EgressPolicy, ExampleError, Group, GroupName, HostName, HostNameError,
    HostPattern, HostPatternError, Mode, Opening, PortRange, PortRangeError, Printable, Protocol,
    ProtocolSet, Reason, Refusal, Rule, RuleError, RuleLabel, RuleSource,
};
pub use ended::Ended;
pub use error::{ErrorKind, SandboxError};
pub use error_code::{ErrorCode, UnknownErrorCode};
pub use fetch::{FetchRequest, FetchResponse};
pub use forwarded_port::{ForwardedAt, ForwardedPort, ForwardedPortError};
pub use golden::GoldenTier;
pub use hint::{CommandLine, Hint, Piece, Term};
pub use id::SandboxId;
pub use limits::{Limit, LimitHit, Limits, Machine, Origin};
pub use persistent::{
    Admin, PersistentIdentity, SnapshotName, SnapshotNameError, Volume, VolumeName, VolumeNameError,
    VolumePath, VolumePathError,
};
pub use quantity::{ByteSize, Cpus, ParseQuantityError, parse_time};
pub use regional::{REGIONAL_VARIABLES, TIME_ZONE_VARIABLE, is_regional_variable};
pub use request::{LimitsRequest, SandboxRequest};
pub use root::{ImageName, ImageNameError, Root, RootError};
pub use sandbox::{
    Compare, EnvName, EnvNameError, Nesting, Permission, SandboxSpec, SharedPath, WorkspacePath,
};
pub use signal::{signal_name, signal_number};
pub use text::OsText;
pub use user::{UserName, UserNameError};

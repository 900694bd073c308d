//! The gateway: every byte that leaves a sandbox passes here, or does not leave.
//!
//! ```text
//! egress sockets ──> dns ──────> names: a fake address for each name that policy allows
//!       │
//!       └─────────> connection ─> decide (pure) ─> resolve ─> decide ─> dial(Permit) ─> relay
//!                       │                                                   │
//!                       └──────────────────── record ───────────────────────┘
//! ```
//!
//! Each connection is decided by one version of the policy ([`LivePolicy`]), which a person outside can change while the sandbox lives.
//! [`decide`] is the only maker of a [`decide::Permit`], and [`dial`] takes nothing else. What a program inside chose
//! (addresses, names, bytes) is judged before anything is done with it. Called by the engine only.

mod asking;
mod bytes;
mod connection;
mod connection_limits;
mod credentials;
pub mod decide;
mod dial;
mod dialogue;
pub mod dns;
mod egress_sockets;
mod fetch;
pub mod first_bytes;
mod gateway;
mod github;
#[cfg(test)]
mod guessing;
pub mod hello;
mod hello_retry;
mod host_request;
mod hosts;
mod http;
mod live;
pub mod llm;
mod names;
mod outbound;
mod plain_http;
mod pushes;
mod record;
mod relay;
mod resolve;
mod sandbox_ca;
mod serving;
mod stream;
mod tally;
mod tls_interception;
mod trust;
mod unresolved;
mod upstream_proxy;

pub use credentials::{Credentials, EnvFault, EnvFileError, InEnvFileError, Known, Redact, danger_forward};
pub use dial::judge_first;
pub use egress_sockets::{DNS_ADDRESS, EgressSockets, IPV4, IPV6, LOOPBACK, PORT, left_out, ports};
pub use fetch::FetchError;
pub use gateway::{Gateway, Served, Terms};
pub use host_request::post_json;
pub use live::{
    ANSWER_TIMEOUT, Change, ChangeRefused, Changed, LiveEvent, LivePolicy, LiveRule, LiveState, PolicyDigest,
    PolicyVersion, Question, Until,
};
pub use pushes::Pushes;
pub use record::{Counted, Counter, Recorder};
pub use resolve::resolve;
pub use sandbox_ca::{Authority, AuthorityError};
pub use trust::check_authorities;
pub use upstream_proxy::Proxy;

//! The route to a model: what a program says to a port of loopback goes to one upstream, that the person who runs the
//! sandbox chose.
//!
//! ```text
//! listener ─> route: path (which API) ─> body (which model) ─> ledger (is there budget) ─> headers (key, billing)
//!                                                                  ^                            │
//!          inside <─ answer (redacted, as it comes) <─ usage <─────┴──────── upstream <─────────┘
//! ```
//!
//! Nothing that decides where a call goes, who pays for it or what it costs comes from inside: the path and the
//! model are held against lists, headers pass only if they are known to be harmless, and tokens and money are read from
//! the upstream's answer. What cannot be recorded is not sent.

mod answer;
mod body;
mod call;
mod fields;
mod headers;
mod ledger;
mod paths;
mod refusal;
mod route;
pub mod spend;
mod stored_context;
pub mod usage;

pub use route::{Route, RouteError};

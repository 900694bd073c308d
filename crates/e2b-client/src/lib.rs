//! An E2B-compatible service, spoken to: E2B itself, or another belljar. The other side of that protocol, `belljar-e2b`, is a server,
//! and shares no code with this crate.
//!
//! | module | owns |
//! | --- | --- |
//! | `address` | where a service and its sandboxes are |
//! | `http` | connections and requests |
//! | `service` | the control API: sandboxes are made, found, paused and ended |
//! | `headers` | the headers that hold the key and the tokens |
//! | `rpc` | calls of the data plane, whole and streamed |
//! | `process`, `filesystem` | what those calls are about |
//! | `guest` | the guest protocol, served on the host in the place of a guest: each request becomes calls of the data plane |
//!
//! Called by the backend `e2b` alone. A service is trusted with what runs in its sandboxes and with nothing else: each byte of it is
//! parsed as foreign.

mod address;
mod error;
mod filesystem;
mod guest;
mod headers;
mod http;
mod process;
mod rpc;
mod service;

pub use address::{Addresses, Named};
pub use guest::{HOME, Serving, USER, WORKSPACE};
pub use service::{Lifetime, Listed, Network, NetworkRules, NewSandbox, RemoteSandbox, Service};

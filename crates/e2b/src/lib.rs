//! The E2B-compatible server: programs that use E2B's SDKs drive this machine's sandboxes. A translation onto the daemon's own HTTP API,
//! which it calls as any client does: it starts no sandbox, runs no command and reaches no port in a way of its own.
//!
//! ```text
//!   SDK ──> listen: TLS, connections ──> place: by name or by headers ─┬─> api: control, by API key ──> lifecycle ─┐
//!                                                                      ├─> envd: commands, files, by access token ─┤
//!                                                                      └─> ports: servers inside ──────────────────┤
//!   template: what clients build, kept as snapshots                                                               │
//!   book: what the protocol knows of a sandbox, on disk; expiry: its time                                          v
//!                                                                                          the daemon's unix socket
//! ```
//! Every sandbox is used in the name of the grant that made it, so that the daemon's ceilings hold. Called by `belljar serve`.

mod api;
mod book;
mod connect;
mod connections;
mod envd;
mod expiry;
mod facts;
mod fault;
mod http;
mod key;
mod lifecycle;
mod listen;
mod metrics;
mod network;
mod pieces;
mod place;
mod ports;
mod serve;
mod server;
mod signature;
mod template;
mod tls;
mod token;

pub use connect::{Frame, FrameError, FrameReader};
pub use envd::multipart::{FormError, FormReader, Piece};
pub use key::key_of_token;
pub use serve::{Bound, Serving, Settings};
pub use tls::{Certificate, certificate_authority};

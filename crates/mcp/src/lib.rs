//! The MCP server: an agent that runs outside works in a sandbox by tools. A translation onto the daemon's own HTTP API, which it calls
//! as any client does: it starts no sandbox, runs no command and opens no file in a way of its own.
//!
//! ```text
//!   MCP client ──> lines: one message a line ──> server: methods ──> tools: arguments ──> conversation ──> the daemon
//!                     |                            |
//!                     +- protocol: JSON-RPC        +- running: requests that can be cancelled
//! ```
//! A conversation has one sandbox, which is found or made at its first use and held until the client has gone. The protocol is
//! written by hand: see docs/decisions/0037-mcp.md. Called by `belljar mcp`, and by the daemon for clients over HTTP.

mod commands;
mod conversation;
mod files;
mod hosts;
mod lines;
mod output;
mod protocol;
mod running;
mod server;
mod snapshots;
mod tools;

pub use conversation::{Conversation, LEASE, Opened, Opening, opening};
pub use lines::serve;
pub use server::Server;

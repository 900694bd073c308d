//! A registry: the OCI distribution specification, as far as pulling goes.
//!
//! Our own client, because a registry may be hostile: no answer is read without a bound, no redirect and no token server
//! leads from TLS to the clear, and a password goes only to the registry that it belongs to and to the token server that
//! this one names over TLS. It fetches; whether bytes are what a digest says is decided by the caller.

mod auth;
mod blob;
mod client;
mod credentials;
mod endpoint;

pub(crate) use blob::fetch as fetch_blob;
pub(crate) use client::Client;
pub(crate) use endpoint::endpoints;

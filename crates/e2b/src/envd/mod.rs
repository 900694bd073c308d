//! The data plane of a sandbox: commands, files, and what is asked about them.

pub(crate) mod compression;
pub(crate) mod files;
pub(crate) mod filesystem;
pub(crate) mod multipart;
pub(crate) mod paths;
pub(crate) mod process;
mod route;
mod rpc;
pub(crate) mod watch;

pub(crate) use route::{USER, answer, files_by_signature, is_open};

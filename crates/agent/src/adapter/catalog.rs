//! Which agents there are, and which of them work here.

use super::{ALL, Adapter, Found, find};
use belljar_spec::SandboxError;
use std::ffi::OsStr;

/// An agent, and where it is or what is missing.
pub struct Listed {
    pub adapter: &'static Adapter,
    pub found: Result<Found, SandboxError>,
}

/// All of them, looked for in the folders of a search path.
pub fn catalog(path: &OsStr) -> Vec<Listed> {
    ALL.into_iter().map(|adapter| Listed { adapter, found: find(adapter, path) }).collect()
}

//! How an image is obtained.

use crate::limits::Limits;
use std::path::PathBuf;
use std::time::Duration;

/// When a registry is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PullPolicy {
    /// If the image is not here.
    #[default]
    Missing,
    /// Always: a tag may mean something else by now. What is here already is not fetched again.
    Always,
    /// Never: an image that is not here is an error.
    Never,
}

/// How an image is obtained, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullOptions {
    pub policy: PullPolicy,
    /// Registries (`host:port`) that are spoken to without TLS. Those of this machine's loopback always may be.
    pub plain_http: Vec<String>,
    /// Mirrors, which are asked before the registry, in this order.
    pub mirrors: Vec<Mirror>,
    /// Docker's file with passwords of registries, if there is one: its `auths`, and never the programs that it names.
    pub credentials: Option<PathBuf>,
    /// Authorities to trust besides the system's: files of PEM.
    pub authorities: Vec<PathBuf>,
    pub limits: Limits,
}

/// Another place that has what a registry has, asked first. Digests say whether it is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Whose images: `docker.io`, `ghcr.io`.
    pub registry: String,
    /// `host[:port][/path]`; the path stands before the repository's name.
    pub place: String,
    pub transport: Transport,
}

/// How a registry is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// In the clear on this machine's loopback and where that was allowed, else with TLS.
    #[default]
    Usual,
    /// With TLS, wherever it is.
    Tls,
}

/// What is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcOptions {
    /// Say what would be, and remove nothing.
    pub dry_run: bool,
    /// Also images that no sandbox started from for so long.
    pub unused_for: Option<Duration>,
}

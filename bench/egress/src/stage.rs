//! Everything that stands while the benchmark runs: the server, the sandbox, and the peers that are installed.

use crate::Outcome;
use crate::children::{Mitmproxy, Nginx, Server};
use crate::roles;
use crate::way::{Way, Whence};
use belljar_engine::{Engine, Sandbox};
use belljar_spec::egress::EgressPolicy;
use belljar_spec::{BackendChoice, BackendName, Permission, SandboxSpec, SharedPath};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tempfile::TempDir;

pub(crate) struct Stage {
    directory: TempDir,
    server: Server,
    pub(crate) sandbox: Sandbox,
    nginx: Option<Nginx>,
    mitmproxy: Option<Mitmproxy>,
}

/// Where the server listens, on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Without cryptography.
    pub(crate) plain: u16,
    /// With it.
    pub(crate) secure: u16,
    /// For names.
    pub(crate) names: u16,
}

impl Stage {
    pub(crate) async fn set() -> Outcome<Stage> {
        let directory = tempfile::Builder::new().prefix("belljar-bench-").tempdir()?;
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([NAME.to_string(), "127.0.0.1".into()])?;
        fs::write(directory.path().join(roles::CERTIFICATE), cert.pem())?;
        fs::write(directory.path().join(roles::KEY), signing_key.serialize_pem())?;
        let server = Server::start(directory.path())?;
        let mut spec = SandboxSpec { egress: Some(policy(server.ports)?), ..inside()? };
        spec.shared.push(readable(directory.path().join(roles::CERTIFICATE)));
        let sandbox = Engine::new().with_records(directory.path().join("records")).create(spec).await?;
        let nginx = Nginx::start(directory.path(), server.ports)?;
        let mitmproxy = Mitmproxy::start(directory.path())?;
        Ok(Stage { directory, server, sandbox, nginx, mitmproxy })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn certificate(&self) -> String {
        self.directory().join(roles::CERTIFICATE).display().to_string()
    }

    pub(crate) fn ports(&self) -> Ports {
        self.server.ports
    }

    /// Every way to the server; the first is the limit, and has no proxy between.
    pub(crate) fn ways(&self) -> Vec<Way<'_>> {
        let ports = self.ports();
        let direct = Way::at(DIRECT, loopback(ports.plain), loopback(ports.secure));
        let nginx =
            self.nginx.as_ref().map(|nginx| Way::at(NGINX, loopback(nginx.plain), loopback(nginx.secure)));
        let mitmproxy =
            self.mitmproxy.as_ref().map(|proxy| Way::through(MITMPROXY, loopback(proxy.port), ports));
        let belljar = Way::named(BELLJAR, Whence::Inside(&self.sandbox), ports);
        [Some(direct), nginx, mitmproxy, Some(belljar)].into_iter().flatten().collect()
    }

    /// What was refused was not measured.
    pub(crate) async fn clear(self) {
        for refused in self.sandbox.refused() {
            println!("warning: refused {} times: {}", refused.times, refused.refusal);
        }
        self.sandbox.dispose().await;
    }
}

/// A sandbox that sees this executable.
pub(crate) fn inside() -> Outcome<SandboxSpec> {
    Ok(SandboxSpec {
        backend: BackendChoice::Named(BackendName::Native),
        shared: vec![readable(std::env::current_exe()?)],
        ..SandboxSpec::default()
    })
}

/// Lets out to the server, and only there.
pub(crate) fn policy(ports: Ports) -> Outcome<EgressPolicy> {
    let mut policy = EgressPolicy::strict()
        .allow(format!("{NAME}:{}/tls", ports.plain).parse()?)
        .allow(format!("{NAME}:{}/tls", ports.secure).parse()?);
    policy.private = vec!["127.0.0.0/8".parse()?];
    policy.resolvers = vec![loopback(ports.names)];
    Ok(policy)
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn readable(path: PathBuf) -> SharedPath {
    SharedPath { path, permission: Permission::Read }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.plain, self.secure, self.names)
    }
}

impl FromStr for Ports {
    type Err = Box<dyn std::error::Error>;

    fn from_str(text: &str) -> Result<Ports, Self::Err> {
        let ports: Vec<u16> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let &[plain, secure, names] = ports.as_slice() else { return Err("a server has three ports".into()) };
        Ok(Ports { plain, secure, names })
    }
}

/// The server's name, which only its own resolver knows.
pub(crate) const NAME: &str = "far.test";
pub(crate) const DIRECT: &str = "direct loopback";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const MITMPROXY: &str = "mitmproxy";
pub(crate) const BELLJAR: &str = "belljar";

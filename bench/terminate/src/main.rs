//! What it costs to look into TLS: a download, an upload and many small requests over one connection each, by curl, through the gateway that
//! ends TLS, beside nginx as a reverse proxy (one process, the same verified server behind it) and mitmproxy, in the same
//! run and in turn, so that a busy moment hits all of them alike. Prints medians and ratios.
//!
//! `./dev bench terminate [ROUNDS]`; shows the peers that are installed (nginx, mitmdump). `docs/benchmarks.md` says how to
//! read it.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod peers;
mod server;
mod table;

use belljar_engine::{Engine, Sandbox};
use belljar_spec::egress::{EgressPolicy, RequestFilter, Rule};
use belljar_spec::{BackendChoice, BackendName, Command, Permission, SandboxSpec, SharedPath};
use belljar_tests_hosts::{Authority, Dns};
use peers::{Mitmproxy, Nginx};
use std::error::Error;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use table::Table;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A way to the server.
struct Way<'s> {
    name: &'static str,
    inside: Option<&'s Sandbox>,
    port: u16,
    /// What curl trusts there; inside it knows.
    trusts: Option<String>,
}

fn main() -> Outcome<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |word| word.parse())?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average at the start: {}", load.split(' ').next().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(rounds))
}

async fn run(rounds: usize) -> Outcome<()> {
    let directory = tempfile::Builder::new().prefix("belljar-bench-").tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let authority = Authority::new();
    let leaf = authority.leaf([NAME, "127.0.0.1"]);
    std::fs::write(path("ca.pem"), authority.pem())?;
    File::create(path("body"))?.set_len(BYTES)?;
    let server = server::start(&leaf);
    let dns = Dns::of([(NAME, IpAddr::V4(Ipv4Addr::LOCALHOST))]);
    let sandbox = sandbox(&dns, &authority, server.port(), directory.path()).await?;
    let nginx = Nginx::start(directory.path(), &leaf, server.port())?;
    let mitmproxy = Mitmproxy::start(directory.path(), server.port())?;
    let ca = path("ca.pem").display().to_string();
    let on_host = |name, port, trusts| Way { name, inside: None, port, trusts };
    let mut ways = vec![on_host("direct", server.port(), Some(ca.clone()))];
    ways.extend(nginx.iter().map(|nginx| on_host(NGINX, nginx.port, Some(ca.clone()))));
    ways.extend(mitmproxy.iter().map(|proxy| on_host(MITMPROXY, proxy.port, None)));
    ways.push(Way { name: BELLJAR, inside: Some(&sandbox), port: server.port(), trusts: None });

    let mut table = Table::new(&[DOWNLOAD, UPLOAD, REQUESTS]);
    for round in 0..=rounds {
        for way in &ways {
            // An eighth is enough to see how slow an interpreter is.
            let bytes = if way.name == MITMPROXY { BYTES / 8 } else { BYTES };
            let download = way.curl(&["-o", "/dev/null"], &format!("/{bytes}")).await?;
            let body = path("body").display().to_string();
            let small = path("small").display().to_string();
            File::create(&small)?.set_len(bytes)?;
            let file = if bytes == BYTES { &body } else { &small };
            let upload = way.curl(&["-o", "/dev/null", "-H", "expect:", "-T", file], "/").await?;
            let requests = way.requests().await?;
            // The first round warms up every way.
            if round > 0 {
                table.add(way.name, DOWNLOAD, download[1] / 1e6);
                table.add(way.name, UPLOAD, upload[2] / 1e6);
                table.add(way.name, REQUESTS, requests);
            }
        }
    }
    table.print(NGINX);
    for column in [DOWNLOAD, UPLOAD, REQUESTS] {
        table.judge(BELLJAR, NGINX, column, 0.8);
        table.judge(BELLJAR, MITMPROXY, column, 10.0);
    }
    for refused in sandbox.refused() {
        println!("warning: refused {} times: {}", refused.times, refused.refusal);
    }
    sandbox.dispose().await;
    Ok(())
}

/// Looks into everything that goes to the server, and allows what is measured.
async fn sandbox(dns: &Dns, authority: &Authority, port: u16, directory: &Path) -> Outcome<Sandbox> {
    let filter = RequestFilter {
        methods: vec!["GET".parse()?, "PUT".parse()?],
        paths: vec!["/".parse()?, "/*".parse()?],
    };
    let rule: Rule = format!("{NAME}:{port}/tls").parse()?;
    let mut policy = EgressPolicy::strict().allow(rule.requests(filter));
    policy.private = vec!["127.0.0.0/8".parse()?];
    policy.resolvers = vec![dns.address()];
    policy.authorities = authority.pem().into_bytes();
    let spec = SandboxSpec {
        backend: BackendChoice::Named(BackendName::Native),
        shared: vec![SharedPath { path: directory.join("body"), permission: Permission::Read }],
        egress: Some(policy),
        ..SandboxSpec::default()
    };
    Ok(Engine::new().with_records(directory.join("records")).create(spec).await?)
}

impl Way<'_> {
    /// Status, and bytes a second down and up.
    async fn curl(&self, words: &[&str], path: &str) -> Outcome<[f64; 3]> {
        let measured = self.measured("%{http_code} %{speed_download} %{speed_upload}", words, path).await?;
        match measured.as_slice() {
            &[200.0, down, up] => Ok([200.0, down, up]),
            _ => Err(format!("{}: {measured:?}", self.name).into()),
        }
    }

    /// Small requests a second, one after the other over one connection.
    async fn requests(&self) -> Outcome<f64> {
        let path = format!("/1?[1-{MANY}]");
        let times = self.measured("%{time_total} ", &["-o", "/dev/null"], &path).await?;
        if times.len() != MANY {
            return Err(format!("{}: {} of {MANY} requests", self.name, times.len()).into());
        }
        // Without the first, which shakes hands.
        Ok((MANY - 1) as f64 / times[1..].iter().sum::<f64>())
    }

    /// What curl writes, in figures.
    async fn measured(&self, write_out: &str, words: &[&str], path: &str) -> Outcome<Vec<f64>> {
        let mut all =
            vec!["curl".to_string(), "-sS".into(), "--http1.1".into(), "--noproxy".into(), "*".into()];
        all.extend(["-w".into(), write_out.into()]);
        match (&self.trusts, self.inside) {
            (Some(file), _) => all.extend(["--cacert".into(), file.clone()]),
            (None, None) => all.push("-k".into()),
            (None, Some(_)) => {}
        }
        if self.inside.is_none() {
            all.extend(["--resolve".into(), format!("{NAME}:{}:127.0.0.1", self.port)]);
        }
        all.extend(words.iter().map(ToString::to_string));
        all.push(format!("https://{NAME}:{}{path}", self.port));
        let printed = match self.inside {
            None => peers::output(&all)?,
            Some(sandbox) => {
                let result = sandbox.exec(&Command::new(all)?).await?;
                if result.exit_code != Some(0) {
                    return Err(String::from_utf8_lossy(&result.stderr).into_owned().into());
                }
                String::from_utf8(result.stdout)?
            }
        };
        Ok(printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }
}

/// The server's name, which only its own resolver knows.
pub(crate) const NAME: &str = "far.test";
const NGINX: &str = "nginx";
const MITMPROXY: &str = "mitmproxy";
const BELLJAR: &str = "belljar";
const DOWNLOAD: &str = "download MB/s";
const UPLOAD: &str = "upload MB/s";
const REQUESTS: &str = "requests/s";
const MANY: usize = 2000;
const BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;

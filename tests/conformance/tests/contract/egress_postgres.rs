//! PostgreSQL, with its own client and a real server: the client asks in the clear whether to continue in TLS.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Child, have, own_address};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

for_every_isolated_backend! {
    each_kernel:
        psql_asks_a_server_by_name;
    once:
        psql_checks_the_servers_certificate,
        another_name_in_tls_is_refused,
        only_postgres_is_spoken_where_only_postgres_is_allowed,
        psql_fails_fast_when_not_allowed;
}

async fn psql_asks_a_server_by_name(backend: BackendName) {
    let Some(server) = Postgres::start() else { return };
    let fixture = server.fixture(backend).await;
    for mode in ["disable", "prefer", "require"] {
        let printed = fixture.answer(&server.psql("db.test", mode, "select 6 * 7")).await;
        assert_eq!(printed, "42", "{mode}");
    }
    let printed = fixture.answer(&server.psql("db.test", "require", "select repeat('x', 3000000)")).await;
    assert_eq!(printed.len(), 3_000_000);
    assert_eq!(fixture.refusals(), []);
    fixture.dispose().await;
    let connections = server.world.connections(&fixture);
    assert!(connections.iter().all(|connection| connection.protocol == "postgres"), "{connections:?}");
    assert!(connections.last().unwrap().received > 3_000_000, "{connections:?}");
}

async fn psql_checks_the_servers_certificate(backend: BackendName) {
    let Some(server) = Postgres::start() else { return };
    let fixture = server.fixture(backend).await;
    let encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    assert_eq!(fixture.answer(&server.psql("db.test", "verify-full", encrypted)).await, "t");
}

async fn psql_fails_fast_when_not_allowed(backend: BackendName) {
    let Some(server) = Postgres::start() else { return };
    let world = &server.world;
    let fixture = world.fixture(backend, world.policy(["db.test:5432/postgres".into()])).await;
    for name in ["other.test", "db.test", "192.0.2.1"] {
        let start = Instant::now();
        let result = fixture.sh(&server.psql(name, "prefer", "select 1")).await;
        assert_eq!(result.exit_code, Some(2), "{name}: {}", text(&result.stderr));
        assert!(start.elapsed() < FAST, "{name}: {:?}", start.elapsed());
    }
    let reasons: Vec<Reason> = fixture.refusals().into_iter().map(|(_, _, reason)| reason).collect();
    let mut expected = vec![Reason::NameNotAllowed, Reason::PortNotAllowed, Reason::DirectAddress];
    expected.retain(|reason| is_recorded(backend, *reason));
    assert_eq!(reasons, expected);
}

async fn another_name_in_tls_is_refused(backend: BackendName) {
    let Some(server) = Postgres::start() else { return };
    let fixture = server.fixture(backend).await;
    let script = format!(
        "
s = dial('db.test', {})
s.sendall(struct.pack('>II', 8, 80877103))
print(s.recv(1).decode())
try:
    ssl._create_unverified_context().wrap_socket(s, server_hostname='evil.test')
    print('agreed')
except OSError:
    print('refused')",
        server.port
    );
    assert_eq!(fixture.python(&script).await, "S\nrefused");
    assert_eq!(fixture.refusals(), [("db.test".into(), Some(server.port), Reason::ServerNameDiffers)]);
}

async fn only_postgres_is_spoken_where_only_postgres_is_allowed(backend: BackendName) {
    let Some(server) = Postgres::start() else { return };
    let fixture = server.fixture(backend).await;
    let script = format!(
        "
s = dial('db.test', {})
s.sendall(b'GET / HTTP/1.1\\r\\nHost: db.test\\r\\n\\r\\n')
try: print(everything(s).split(b'\\r\\n')[0].decode())
except ConnectionError: print('reset')",
        server.port
    );
    let printed = fixture.python(&script).await;
    assert!(printed == "reset" || printed.starts_with("HTTP/1.1 403"), "{printed}");
    assert_eq!(fixture.refusals(), [("db.test".into(), Some(server.port), Reason::ProtocolNotAllowed)]);
}

/// A real server with a certificate.
struct Postgres {
    world: World,
    port: u16,
    // Dropped in this order.
    _child: Child,
    _folder: TempDir,
}

impl Postgres {
    fn start() -> Option<Postgres> {
        let Some(programs) = programs().filter(|_| have(["psql"])) else {
            have(["initdb"]);
            return None;
        };
        let address = own_address();
        let (host, port) = (address.ip().to_string(), address.port());
        let world = World::new([("db.test", &host)]);
        let leaf = world.authority.leaf(["db.test"]);
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(folder.path().join("server.crt"), leaf.certificate_pem()).unwrap();
        fs::write(folder.path().join("server.key"), leaf.key_pem()).unwrap();
        // It refuses to run as root, and its key must be its own.
        run(Command::new("chmod").arg("0600").arg(folder.path().join("server.key")));
        if is_root() {
            run(Command::new("chown").args(["-R", "nobody:"]).arg(folder.path()));
        }
        let mut initdb = as_ordinary_user(&programs.join("initdb"));
        initdb
            .args(["-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data);
        run(initdb.stdout(Stdio::null()));
        let mut command = as_ordinary_user(&programs.join("postgres"));
        command
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-h", &host, "-F", "-k"])
            .arg(folder.path());
        for setting in
            ["ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key", "shared_buffers=1MB"]
        {
            command.args(["-c", setting]);
        }
        let child = Child::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        wait_until("the server to answer", || {
            let mut ready = Command::new(programs.join("pg_isready"));
            ready.args(["-q", "-h", &host, "-p", &port.to_string()]);
            ready.status().is_ok_and(|status| status.success())
        });
        Some(Postgres { world, port, _child: child, _folder: folder })
    }

    async fn fixture(&self, backend: BackendName) -> SandboxFixture {
        self.world.fixture(backend, self.world.policy([format!("db.test:{}/postgres", self.port)])).await
    }

    fn psql(&self, host: &str, mode: &str, query: &str) -> String {
        format!(
            "psql -X -At -c \"{query}\" 'host={host} port={} user=tester dbname=postgres sslmode={mode} sslrootcert=ca.pem'",
            self.port
        )
    }
}

/// Debian keeps them away from PATH.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let elsewhere = std::env::split_paths(&path).collect::<Vec<_>>();
    debian
        .chain(elsewhere)
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

fn as_ordinary_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let words = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"];
    command.args(words.map(OsStr::new)).arg(program).env_remove("HOME");
    command
}

fn run(command: &mut Command) {
    let output = command.stderr(Stdio::piped()).spawn().and_then(|child| child.wait_with_output());
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

const FAST: Duration = Duration::from_secs(30);

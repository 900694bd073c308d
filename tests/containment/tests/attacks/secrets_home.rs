//! The value behind a credential is nowhere to be found: not inside, not in what belljar writes, not in what a crash
//! leaves. A decoy that a sandbox was given shows that the eyes are open.

use belljar_engine::Engine;
use belljar_spec::egress::{PortRange, RequestFilter};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, GitHubApp, GitHubGrant, GitHubProfile, Inject,
    SecretRef, SecretSource,
};
use belljar_spec::{BackendChoice, BackendName, SandboxSpec};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::looking::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Authority, Dns, GitHub, HttpServer, Response};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

/// A credential whose value lies in a file that no sandbox is given.
fn credential(file: PathBuf, port: u16) -> Credential {
    Credential {
        name: "canary".parse().unwrap(),
        source: SecretSource::Stored(SecretRef::File(file)),
        bindings: vec![CredentialBinding {
            host: "=api.test".parse().unwrap(),
            ports: PortRange::only(port).unwrap(),
            requests: RequestFilter::default(),
            locations: vec![CredentialLocation::Bearer],
            inject: Inject::Placeholder,
        }],
        variables: vec!["CANARY_TOKEN".parse().unwrap()],
        bodies: Bodies::Watched,
    }
}

/// Something like a real token: a prefix, and then characters that cannot be guessed.
fn token() -> String {
    format!("tok_{}", canary("value").replace('-', ""))
}

fn keep(folder: &Path, value: &str) -> PathBuf {
    let file = folder.join("value");
    fs::write(&file, format!("{value}\n")).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

/// Where the value belongs: a host that sends back, in every way, what it got.
struct Fixture {
    dns: Dns,
    authority: Authority,
    server: HttpServer,
}

impl Fixture {
    fn start() -> Fixture {
        let dns =
            Dns::start(|query| if query.name == "api.test" { vec![at("127.66.9.1")] } else { Vec::new() });
        let authority = Authority::new();
        let server = HttpServer::start_tls(at("127.66.9.1"), &authority.leaf(["api.test"]), |request| {
            let key = request.header("authorization").unwrap_or_default().to_string();
            let mut answer = Response::ok(format!("you sent {key}"));
            answer.headers.push(("x-echo".into(), key));
            answer
        });
        Fixture { dns, authority, server }
    }

    fn spec(&self, backend: BackendName, workspace: &Path, value: PathBuf) -> SandboxSpec {
        let port = self.server.port();
        let mut policy = policy(&self.dns, &[&format!("=api.test:{port}/tls")]);
        policy.authorities = self.authority.pem().into_bytes();
        SandboxSpec {
            backend: BackendChoice::Named(backend),
            workspace: Some(workspace.to_path_buf()),
            egress: Some(policy),
            credentials: vec![credential(value, port)],
            ..SandboxSpec::default()
        }
    }

    /// What a sandbox runs to use the secret and to keep all that comes of it.
    fn use_it(&self) -> String {
        let url = format!("https://api.test:{}/", self.server.port());
        format!(
            "curl -sS -i -H \"authorization: Bearer $CANARY_TOKEN\" {url} > /tmp/answer; \
             curl -sS -v -H \"authorization: Bearer $CANARY_TOKEN\" {url} > /workspace/answer 2>&1"
        )
    }

    /// Whether the value arrived, in place of its placeholder.
    fn got(&self, value: &str) -> bool {
        let sent = format!("Bearer {value}");
        let requests = self.server.requests();
        let right = requests.iter().filter(|request| request.header("authorization") == Some(&sent));
        right.count() == requests.len() && requests.len() >= 2
    }
}

#[test]
fn a_real_value_is_nowhere_in_a_sandbox_nor_in_its_record() {
    for backend in backends() {
        let fixture = Fixture::start();
        let (home, records, workspace) = (folder(), folder(), folder());
        let (value, decoy) = (token(), token());
        let mut spec = fixture.spec(*backend, workspace.path(), keep(home.path(), &value));
        spec.env = vec![("DECOY".parse().unwrap(), decoy.clone().into())];
        let engine = Engine::new().with_records(records.path());
        let jail = Jail { sandbox: engine.create_blocking(&spec).unwrap(), workspace };
        jail.sh(&fixture.use_it());
        assert!(fixture.got(&value), "{backend}: {:?}", fixture.server.requests());
        assert!(!jail.sh("grep 'you sent Bearer tok_' /tmp/answer /workspace/answer").stdout.is_empty());
        let held = HeldCommand::run(&jail, &canary("held"), "echo $DECOY > /tmp/decoy; sleep 1000");
        assert!(eventually(|| !jail.sh("cat /tmp/decoy").stdout.is_empty()));

        let seen = found_inside(&jail, &decoy);
        assert!(
            ["os.environ", "/tmp/decoy"].iter().all(|fixture| seen.iter().any(|line| line == fixture)),
            "{seen:?}"
        );
        assert_eq!(found_inside(&jail, &value), Vec::<String>::new(), "{backend}");
        // Who is not root may not look into a process that changed its user id.
        assert!(!is_root() || found_from_outside(&held, &decoy).len() > 2, "{backend}");
        assert_eq!(found_from_outside(&held, &value), Vec::<String>::new(), "{backend}");

        drop(held);
        jail.sandbox.dispose_blocking();
        assert!(fs::read_dir(records.path()).unwrap().count() > 0, "{backend}: there is no record");
        assert_eq!(found_in_folder(records.path(), &value), Vec::<PathBuf>::new(), "{backend}");
        assert_eq!(found_in_folder(jail.workspace.path(), &value), Vec::<PathBuf>::new(), "{backend}");
    }
}

/// A token that is stored nowhere, and the key that it was requested with.
#[test]
fn a_minted_token_and_the_apps_key_are_nowhere() {
    // Where a value comes from makes no difference to a backend: the test above looks for one with all of them.
    for backend in gateway_backends() {
        let fixture = Fixture::start();
        let (home, records, workspace) = (folder(), folder(), folder());
        let github = GitHub::start(3600);
        let mut spec = fixture.spec(*backend, workspace.path(), PathBuf::new());
        spec.credentials[0].source = SecretSource::GitHubApp;
        spec.github = Some(GitHubGrant {
            app: GitHubApp {
                app: GitHub::APP,
                installation: GitHub::INSTALLATION,
                key: SecretRef::File(keep(home.path(), github.key_pem())),
                api: github.url(),
                host: "github.com".parse().unwrap(),
            },
            profile: GitHubProfile::RepoWrite,
            repositories: vec!["acme/widgets".parse().unwrap()],
            danger_forward_key: false,
        });
        let engine = Engine::new().with_records(records.path());
        let jail = Jail { sandbox: engine.create_blocking(&spec).unwrap(), workspace };
        let token = github.tokens().pop().unwrap().text;
        jail.sh(&fixture.use_it());
        assert!(fixture.got(&token), "{backend}: {:?}", fixture.server.requests());
        let held = HeldCommand::run(&jail, &canary("held"), "sleep 1000");
        // As much of its middle as a line of PEM usually has.
        let line = github.key_pem().lines().nth(1).unwrap()[100..164].to_string();
        for value in [&token, &line] {
            assert_eq!(found_inside(&jail, value), Vec::<String>::new(), "{backend}");
            assert_eq!(found_from_outside(&held, value), Vec::<String>::new(), "{backend}");
        }
        drop(held);
        jail.sandbox.dispose_blocking();
        for value in [&token, &line] {
            assert_eq!(found_in_folder(records.path(), value), Vec::<PathBuf>::new(), "{backend}");
            assert_eq!(found_in_folder(jail.workspace.path(), value), Vec::<PathBuf>::new(), "{backend}");
        }
        assert!(github.tokens().pop().unwrap().revoked, "{backend}");
    }
}

/// Tells a child process to hold a sandbox with a credential; the value is its backend.
const HOLDER: &str = "BELLJAR_TEST_HOLDER";

#[test]
fn a_crash_of_the_host_side_leaves_no_real_value() {
    if let Ok(backend) = std::env::var(HOLDER) {
        return hold(&backend);
    }
    a_crash_leaves_what_a_process_held();
    for backend in backends() {
        let (home, fixture) = (folder(), folder());
        let value = token();
        let file = keep(home.path(), &value);
        let mut holder = crashing(fixture.path())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "secrets_home::a_crash_of_the_host_side_leaves_no_real_value", "--nocapture"])
            .env(HOLDER, backend.as_str())
            .env("BELLJAR_TEST_VALUE", file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("holding")), "{backend}: no sandbox");
        kill_process(Pid::from_child(&holder), Signal::ABORT).unwrap();
        assert_eq!(holder.wait().unwrap().signal(), Some(6), "{backend}");
        assert_eq!(found_in_folder(fixture.path(), &value), Vec::<PathBuf>::new(), "{backend}");
    }
}

/// Otherwise nothing would be shown by finding nothing.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what was not shown")]
fn a_crash_leaves_what_a_process_held() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let limit = process::Command::new("sh").args(["-c", "ulimit -H -c"]).output().unwrap();
    if pattern.trim().is_empty() || pattern.contains(['|', '/', '@']) || limit.stdout == b"0\n" {
        eprintln!("not shown: a crash leaves nothing here (`{}`)", pattern.trim());
        return;
    }
    let (fixture, decoy) = (folder(), token());
    let mut holder = crashing(fixture.path()).args(["sleep", "60"]).env("DECOY", &decoy).spawn().unwrap();
    // Once it is what it is to be.
    assert!(eventually(|| fs::read_to_string(format!("/proc/{}/comm", holder.id())).unwrap() == "sleep\n"));
    kill_process(Pid::from_child(&holder), Signal::ABORT).unwrap();
    assert_eq!(holder.wait().unwrap().signal(), Some(6));
    assert_eq!(found_in_folder(fixture.path(), &decoy).len(), 1);
}

/// Runs what is added to it there, and lets it leave as large a core as we may ask for.
fn crashing(fixture: &Path) -> process::Command {
    let mut command = process::Command::new("sh");
    let largest = "ulimit -c unlimited 2>/dev/null || ulimit -c \"$(ulimit -H -c)\"; exec \"$@\"";
    command.args(["-c", largest, "sh"]).current_dir(fixture).stdin(Stdio::null());
    command
}

/// Holds a sandbox with a credential until it is killed.
#[expect(clippy::print_stdout, reason = "the other process waits for it")]
fn hold(backend: &str) {
    let fixture = Fixture::start();
    let backend = backends().iter().find(|name| name.as_str() == backend).unwrap();
    let here = std::env::current_dir().unwrap();
    let workspace = here.join("workspace");
    fs::create_dir(&workspace).unwrap();
    let value = std::env::var_os("BELLJAR_TEST_VALUE").unwrap();
    let engine = Engine::new().with_records(here.join("records"));
    let token = fs::read_to_string(&value).unwrap();
    let sandbox = engine.create_blocking(&fixture.spec(*backend, &workspace, value.into())).unwrap();
    // Held in memory by now, as a request's head and as what is looked for in answers.
    let jail = Jail { sandbox, workspace: folder() };
    jail.sh(&fixture.use_it());
    assert!(fixture.got(token.trim()));
    drop(token);
    println!("holding");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

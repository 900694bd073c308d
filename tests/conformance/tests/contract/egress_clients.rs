//! The programs that people use, by host name and with nothing configured: they work where policy allows it, and fail
//! at once where it does not.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{HttpServer, Request, Response, have, http_backend};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

for_every_isolated_backend! {
    everywhere:
        curl_reaches_an_allowed_name,
        curl_over_ipv6_alone,
        curl_fails_fast_when_not_allowed;
    each_launcher:
        nothing_inside_says_proxy;
    each_kernel:
        git_clones_and_pushes_over_https,
        node_fetch_reaches_an_allowed_name;
    once:
        curl_over_plain_http_too,
        git_fails_fast_when_not_allowed,
        python_urllib_fails_fast_when_not_allowed,
        python_requests_reaches_an_allowed_name,
        python_requests_fails_fast_when_not_allowed,
        a_name_may_be_written_in_any_case,
        a_subdomain_is_allowed_with_its_parent,
        a_denied_name_wins_over_an_allowed_one,
        python_urllib_reaches_an_allowed_name,
        node_fetch_fails_fast_when_not_allowed;
}

async fn nothing_inside_says_proxy(backend: BackendName) {
    let (world, web) = web("api.test");
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", web.port())])).await;
    assert_eq!(fixture.answer("env | grep -i proxy || true").await, "");
}

async fn curl_reaches_an_allowed_name(backend: BackendName) {
    works(backend, "curl", CURL).await;
}

async fn curl_over_plain_http_too(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let web = HttpServer::start(LOOPBACK, answer);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", web.port())])).await;
    let printed = fixture.answer(&format!("curl -sS http://api.test:{}/x", web.port())).await;
    assert_eq!(printed, "hello /x");
    assert_eq!(web.requests()[0].header("host"), Some(format!("api.test:{}", web.port()).as_str()));
}

async fn curl_over_ipv6_alone(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, web) = web("api.test");
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", web.port())])).await;
    let script = format!("curl -6 -sS --cacert ca.pem https://api.test:{}/x", web.port());
    if has_ipv6(backend) {
        assert_eq!(fixture.answer(&script).await, "hello /x");
    } else {
        let result = fixture.sh(&script).await;
        assert!(!result.timed_out && result.exit_code != Some(0), "{result:?}");
    }
}

async fn curl_fails_fast_when_not_allowed(backend: BackendName) {
    fails_fast(backend, "curl", CURL).await;
}

async fn git_clones_and_pushes_over_https(backend: BackendName) {
    if !have(["git"]) {
        return;
    }
    let world = World::new([("git.test", "127.0.0.1")]);
    let folder = tempfile::TempDir::new().unwrap();
    let repository = folder.path().join("project.git");
    let made = Command::new("git").args(["init", "--quiet", "--bare"]).arg(&repository).status().unwrap();
    assert!(made.success());
    git(&repository, &["config", "http.receivepack", "true"]);
    let root = folder.path().to_path_buf();
    let leaf = world.authority.leaf(["git.test"]);
    let web = HttpServer::start_tls(LOOPBACK, &leaf, move |request| http_backend(&root, request));
    let fixture = world.fixture(backend, world.policy([format!("git.test:{}", web.port())])).await;
    let url = format!("https://git.test:{}/project.git", web.port());
    let script = format!(
        "export GIT_SSL_CAINFO=$PWD/ca.pem HOME=$PWD
         git config --global user.email a@b.c && git config --global user.name a
         git init --quiet one && cd one && seq 200000 > numbers && git add . && git commit --quiet -m first
         git push --quiet {url} HEAD:refs/heads/main && cd ..
         git clone --quiet --branch main {url} two && cmp one/numbers two/numbers && git -C two log --format=%s"
    );
    assert_eq!(fixture.answer(&script).await, "first");
    git(&repository, &["fsck", "--strict"]);
}

async fn git_fails_fast_when_not_allowed(backend: BackendName) {
    fails_fast(backend, "git", "GIT_TERMINAL_PROMPT=0 git -c http.sslCAInfo=ca.pem clone --quiet URL").await;
}

async fn python_urllib_reaches_an_allowed_name(backend: BackendName) {
    works(backend, "/usr/bin/python3", URLLIB).await;
}

async fn python_urllib_fails_fast_when_not_allowed(backend: BackendName) {
    fails_fast(backend, "/usr/bin/python3", URLLIB).await;
}

async fn python_requests_reaches_an_allowed_name(backend: BackendName) {
    if have_requests() {
        works(backend, "/usr/bin/python3", REQUESTS).await;
    }
}

async fn python_requests_fails_fast_when_not_allowed(backend: BackendName) {
    if have_requests() {
        fails_fast(backend, "/usr/bin/python3", REQUESTS).await;
    }
}

async fn node_fetch_reaches_an_allowed_name(backend: BackendName) {
    works(backend, "node", NODE).await;
}

async fn node_fetch_fails_fast_when_not_allowed(backend: BackendName) {
    fails_fast(backend, "node", NODE).await;
}

async fn a_name_may_be_written_in_any_case(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, web) = web("api.test");
    let fixture = world.fixture(backend, world.policy([format!("aPi.TesT.:{}", web.port())])).await;
    for name in ["API.test", "api.TEST", "api.test."] {
        let printed =
            fixture.answer(&format!("curl -sS --cacert ca.pem https://{name}:{}/x", web.port())).await;
        assert_eq!(printed, "hello /x", "{name}");
    }
}

async fn a_subdomain_is_allowed_with_its_parent(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("a.b.api.test", "127.0.0.1"), ("b.exact.test", "127.0.0.1")]);
    let web = HttpServer::start(LOOPBACK, answer);
    let port = web.port();
    let fixture = world
        .fixture(backend, world.policy([format!("api.test:{port}"), format!("=exact.test:{port}")]))
        .await;
    assert_eq!(fixture.answer(&format!("curl -sS http://a.b.api.test:{port}/x")).await, "hello /x");
    assert_eq!(
        fixture.sh(&format!("curl -sS http://b.exact.test:{port}/x")).await.exit_code,
        Some(NO_SUCH_NAME)
    );
    assert_eq!(fixture.refusals(), [("b.exact.test".into(), None, Reason::NameNotAllowed)]);
}

async fn a_denied_name_wins_over_an_allowed_one(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1"), ("bad.api.test", "127.0.0.1")]);
    let web = HttpServer::start(LOOPBACK, answer);
    let port = web.port();
    let source = belljar_spec::egress::RuleSource::Program;
    let deny = belljar_spec::egress::Rule::deny("bad.api.test", source).unwrap();
    let policy = world.policy([format!("api.test:{port}")]).deny(deny);
    let fixture = world.fixture(backend, policy).await;
    assert_eq!(fixture.answer(&format!("curl -sS http://api.test:{port}/x")).await, "hello /x");
    assert_eq!(
        fixture.sh(&format!("curl -sS http://bad.api.test:{port}/x")).await.exit_code,
        Some(NO_SUCH_NAME)
    );
    assert_eq!(fixture.refusals(), [("bad.api.test".into(), None, Reason::NameDenied)]);
}

/// A script that gets `URL` and says what came.
async fn works(backend: BackendName, program: &'static str, script: &str) {
    if !have([program]) {
        return;
    }
    let (world, web) = web("api.test");
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tls", web.port())])).await;
    let printed = fixture.answer(&script.replace("URL", &format!("https://api.test:{}/x", web.port()))).await;
    assert_eq!(printed, "hello /x");
    assert_eq!(fixture.refusals(), []);
}

/// The same script where the name, and then the port, is not allowed.
async fn fails_fast(backend: BackendName, program: &'static str, script: &str) {
    if !have([program]) {
        return;
    }
    let (world, web) = web("other.test");
    let port = web.port();
    let fixture = world.fixture(backend, world.policy(["api.test".into(), "other.test:1/tls".into()])).await;
    for (name, port, expected) in [
        ("unknown.test", port, ("unknown.test".to_string(), None, Reason::NameNotAllowed)),
        ("other.test", port, ("other.test".to_string(), Some(port), Reason::PortNotAllowed)),
        ("127.0.0.2", port, ("127.0.0.2".to_string(), Some(port), Reason::DirectAddress)),
        ("192.0.2.1", port, ("192.0.2.1".to_string(), Some(port), Reason::DirectAddress)),
    ] {
        let start = Instant::now();
        let result = fixture.sh(&script.replace("URL", &format!("https://{name}:{port}/x"))).await;
        assert_ne!(result.exit_code, Some(0), "{name}: {}", text(&result.stdout));
        assert!(!result.timed_out && start.elapsed() < FAST, "{name}: {:?}", start.elapsed());
        // Loopback inside belongs to the sandbox alone, and no process listens there.
        if !name.starts_with("127.") && is_recorded(backend, expected.2) {
            assert!(fixture.refusals().contains(&expected), "{name}: {:?}", fixture.refusals());
        }
    }
    assert_eq!(web.accepted(), 0);
    assert_eq!(world.dns.queries(), [], "no resolver is asked for a refused name");
}

fn web(name: &str) -> (World, HttpServer) {
    let world = World::new([(name, "127.0.0.1")]);
    let server = HttpServer::start_tls(LOOPBACK, &world.authority.leaf([name]), answer);
    (world, server)
}

fn answer(request: &Request) -> Response {
    Response::ok(format!("hello {}", request.target))
}

fn have_requests() -> bool {
    let found =
        Command::new("/usr/bin/python3").args(["-c", "import requests"]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()) || have(["python3-requests"])
}

pub(crate) fn git(repository: &Path, words: &[&str]) {
    let output = Command::new("git").arg("-C").arg(repository).args(words).output().unwrap();
    assert!(output.status.success(), "git {words:?}: {}", text(&output.stderr));
}

const CURL: &str = "curl -sS --cacert ca.pem URL";
const URLLIB: &str = "SSL_CERT_FILE=ca.pem /usr/bin/python3 -c \"
import urllib.request
print(urllib.request.urlopen('URL').read().decode())\"";
const REQUESTS: &str = "/usr/bin/python3 -c \"
import requests
print(requests.get('URL', verify='ca.pem').text)\"";
const NODE: &str = "NODE_EXTRA_CA_CERTS=ca.pem node -e \"
fetch('URL').then(r => r.text()).then(console.log, e => { console.error(e); process.exitCode = 1 })\"";
/// What curl says when a name does not resolve.
const NO_SUCH_NAME: i32 = 6;
/// Far less than any client's own time limit, far more than a busy machine needs.
const FAST: Duration = Duration::from_secs(30);

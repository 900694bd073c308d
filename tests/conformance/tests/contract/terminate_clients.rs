//! The programs that people use, where the gateway looks into their TLS: they trust the sandbox's authority with nothing
//! configured, get what a rule allows, and are told what it does not.

use crate::egress_clients::git;
use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{HttpServer, Request, Response, have, http_backend};
use std::process::{Command, Stdio};

for_every_isolated_backend! {
    everywhere:
        curl_trusts_the_authority,
        openssl_trusts_the_authority,
        java_trusts_the_authority,
        a_tool_that_reads_the_systems_bundle_trusts_the_authority,
        a_refused_request_is_answered_with_rule_and_remedy,
        without_rules_about_requests_there_is_no_authority;
    once:
        git_clones_and_pushes,
        python_urllib_trusts_the_authority,
        python_requests_trusts_the_authority,
        python_httpx_trusts_the_authority,
        a_go_program_trusts_the_authority,
        cargo_trusts_the_authority,
        node_fetch_trusts_the_authority,
        plain_http_is_held_to_the_same_rules,
        a_client_that_distrusts_the_authority_is_recorded,
        variables_that_the_caller_set_stay,
        a_host_that_no_rule_is_about_stays_unseen;
}

async fn curl_trusts_the_authority(backend: BackendName) {
    works(backend, "curl", "curl -sS URL").await;
}

async fn openssl_trusts_the_authority(backend: BackendName) {
    let script = "printf 'GET /x HTTP/1.1\\r\\nhost: api.test:PORT\\r\\nconnection: close\\r\\n\\r\\n' |
        openssl s_client -quiet -verify_return_error -connect api.test:PORT 2>/dev/null | tail -n 1";
    works(backend, "openssl", script).await;
}

async fn python_urllib_trusts_the_authority(backend: BackendName) {
    let script = "/usr/bin/python3 -c \"
import urllib.request
print(urllib.request.urlopen('URL').read().decode())\"";
    works(backend, "/usr/bin/python3", script).await;
}

async fn python_requests_trusts_the_authority(backend: BackendName) {
    a_python_package_gets(backend, "requests").await;
}

async fn python_httpx_trusts_the_authority(backend: BackendName) {
    a_python_package_gets(backend, "httpx").await;
}

async fn a_python_package_gets(backend: BackendName, package: &'static str) {
    let found = Command::new("/usr/bin/python3")
        .args(["-c", &format!("import {package}")])
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) || have([&format!("python3-{package}")]) {
        let script = format!("/usr/bin/python3 -c \"import {package}; print({package}.get('URL').text)\"");
        works(backend, "/usr/bin/python3", &script).await;
    }
}

/// Docker's command line asks a registry itself, with Go's own TLS library. It trusts any server at 127.0.0.0/8, where names lead
/// on gVisor's kernel.
async fn a_go_program_trusts_the_authority(backend: BackendName) {
    if !have(["docker"]) || names_begin_with(backend).starts_with("127.") {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["api.test"]), |request| {
        let is_manifest = request.target.contains("/manifests/");
        let kind = if is_manifest { MANIFEST_TYPE } else { "application/json" };
        let body = if is_manifest { MANIFEST } else { IMAGE_CONFIG };
        Response::ok(body).with("content-type", kind).with("docker-distribution-api-version", "registry/2.0")
    });
    let rule = format!("api.test:{}/tls", server.port());
    let fixture = world.fixture(backend, world.inspecting(&rule, &["GET", "HEAD"], &["/v2/**"])).await;
    let script = format!(
        "DOCKER_CLI_EXPERIMENTAL=enabled docker manifest inspect api.test:{}/some/image:1",
        server.port()
    );
    assert!(fixture.answer(&script).await.contains(MANIFEST_TYPE));
    let without_trust = fixture.sh(&format!("SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/nowhere {script}")).await;
    assert_ne!(without_trust.exit_code, Some(0), "{}", text(&without_trust.stdout));
    assert!(server.requests().iter().any(|request| request.target == "/v2/some/image/manifests/1"));
}

/// A tool of Rust: it carries a library of TLS, and no authorities.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
async fn cargo_trusts_the_authority(backend: BackendName) {
    // The toolchain of the user who builds the tests: another user's, where they run as an ordinary one.
    let cargo = std::env::var("CARGO").ok().filter(|cargo| std::fs::File::open(cargo).is_ok());
    let Some(cargo) = cargo else { return eprintln!("skipped: no `cargo` that can be read here") };
    let world = World::new([("api.test", "127.0.0.1")]);
    let leaf = world.authority.leaf(["api.test"]);
    let server = HttpServer::start_tls(LOOPBACK, &leaf, |request| {
        let here = request.header("host").expect("a host");
        Response::ok(if request.target == "/index/config.json" {
            format!(r#"{{"dl": "https://{here}/dl", "api": "https://{here}"}}"#)
        } else {
            r#"{"crates": [{"name": "hello", "max_version": "1.2.3"}], "meta": {"total": 1}}"#.into()
        })
    });
    let policy = world.inspecting(&format!("api.test:{}/tls", server.port()), &["GET"], &[]);
    let fixture = world.fixture(backend, policy).await;
    std::fs::copy(cargo, fixture.host("cargo")).unwrap();
    let index = format!("sparse+https://api.test:{}/index/", server.port());
    let printed = fixture.answer(&format!("./cargo search hello --index {index}")).await;
    assert!(printed.contains(r#"hello = "1.2.3""#), "{printed}");
    assert_eq!(fixture.refusals(), []);
}

async fn node_fetch_trusts_the_authority(backend: BackendName) {
    let script = "node -e \"
fetch('URL').then(r => r.text()).then(console.log, e => { console.error(e); process.exitCode = 1 })\"";
    works(backend, "node", script).await;
}

async fn java_trusts_the_authority(backend: BackendName) {
    if !have(["java", "javac"]) {
        return;
    }
    let (world, server) = served();
    let fixture = world.fixture(backend, gets(&world, &server)).await;
    std::fs::write(fixture.host("Get.java"), JAVA).unwrap();
    let url = format!("https://api.test:{}/x", server.port());
    assert_eq!(fixture.answer(&format!("java Get.java {url}")).await, "hello /x");
    assert_eq!(fixture.refusals(), []);
}

/// Go, curl without variables, and whatever else looks where the system keeps its authorities.
async fn a_tool_that_reads_the_systems_bundle_trusts_the_authority(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served();
    let fixture = world.fixture(backend, gets(&world, &server)).await;
    let bundle = fixture.answer("echo $SSL_CERT_FILE").await;
    let own = fixture.answer(&format!("cat {}/authority.pem", own_files(backend))).await;
    assert!(own.starts_with("-----BEGIN CERTIFICATE-----"), "{own}");
    let all = fixture.answer(&format!("cat {bundle}")).await;
    assert!(all.contains(own.trim()), "{bundle} has the authority");
    let of_host = if has_own_etc(backend) { &*bundle } else { "/etc/ssl/certs/ca-certificates.crt" };
    let host = std::fs::read_to_string(of_host).unwrap_or_default();
    assert!(all.contains(host.trim()), "{bundle} has every authority that the host trusts");
    assert!(!host.contains(own.trim()), "the host's own store is not touched");
    let printed = fixture
        .answer(&format!("env -i curl -sS --cacert {bundle} https://api.test:{}/x", server.port()))
        .await;
    assert_eq!(printed, "hello /x");
    let others = fixture.answer("(cd /etc/ssl/certs 2>/dev/null && ls) | wc -l").await;
    let here = std::fs::read_dir("/etc/ssl/certs").map_or(0, Iterator::count);
    assert_eq!(others, here.to_string(), "the rest of the directory is as it was");
}

async fn git_clones_and_pushes(backend: BackendName) {
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
    let policy =
        world.inspecting(&format!("git.test:{}/tls", web.port()), &["GET", "POST"], &["/project.git/**"]);
    let fixture = world.fixture(backend, policy).await;
    let url = format!("https://git.test:{}", web.port());
    let script = format!(
        "export HOME=$PWD GIT_TERMINAL_PROMPT=0
         git config --global user.email a@b.c && git config --global user.name a
         git init --quiet one && cd one && seq 200000 > numbers && git add . && git commit --quiet -m first
         git push --quiet {url}/project.git HEAD:refs/heads/work && cd ..
         git clone --quiet --branch work {url}/project.git two && cmp one/numbers two/numbers
         git -C two log --format=%s; git clone --quiet {url}/other.git three 2>&1 | grep -c 403"
    );
    assert_eq!(fixture.answer(&script).await, "first\n1");
    git(&repository, &["fsck", "--strict"]);
    assert!(web.requests().iter().all(|request| request.target.starts_with("/project.git/")));
}

async fn a_refused_request_is_answered_with_rule_and_remedy(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served();
    let fixture = world.fixture(backend, gets(&world, &server)).await;
    let url = format!("https://api.test:{}", server.port());
    for options in ["", "--http2", "-d '@/bin/sh'"] {
        let script = format!("curl -sS {options} -o body -w '%{{http_code}} %{{content_type}}' {url}/secret");
        assert_eq!(fixture.answer(&script).await, "403 application/json", "{options}");
        let body = std::fs::read(fixture.host("body")).unwrap();
        let printed: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let error = &printed["error"];
        assert_eq!(error["code"], "request_not_allowed");
        assert!(error["message"].as_str().unwrap().contains("the host is allowed, but not this request"));
        assert!(error["rule"].as_str().unwrap().contains("api.test"), "{error}");
        assert!(error["remedy"].as_str().unwrap().contains("paths = [\"/secret\"]"), "{error}");
    }
    assert_eq!(server.requests(), [], "nothing of it was sent");
    fixture.dispose().await;
    let events = world.events(&fixture);
    let refused: Vec<_> = events.iter().filter(|event| event["kind"] == "request_refused").collect();
    assert_eq!(refused.len(), 2, "{events:?}");
    assert_eq!((&refused[0]["method"], &refused[0]["path"]), (&"GET".into(), &"/secret".into()));
    assert_eq!(refused[1]["method"], "POST");
}

async fn plain_http_is_held_to_the_same_rules(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = HttpServer::start(LOOPBACK, answer);
    let port = server.port();
    let policy = world.inspecting(&format!("api.test:{port}/http"), &["GET"], &["/x/**"]);
    let fixture = world.fixture(backend, policy).await;
    let url = format!("http://api.test:{port}");
    assert_eq!(fixture.answer(&format!("curl -sS {url}/x/y")).await, "hello /x/y");
    let printed =
        fixture.answer(&format!("curl -sS --path-as-is {url}/x/../y; curl -sS -X PUT {url}/x")).await;
    assert_eq!(printed.matches("but not this request").count(), 2, "{printed}");
    assert_eq!(server.requests().len(), 1);
}

async fn a_client_that_distrusts_the_authority_is_recorded(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served();
    let fixture = world.fixture(backend, gets(&world, &server)).await;
    // A client with authorities of its own, as one that pins them.
    let script = format!("curl -sS --cacert ca.pem https://api.test:{}/x", server.port());
    assert_eq!(
        fixture.sh(&script).await.exit_code,
        Some(60),
        "curl's word for a certificate it does not know"
    );
    wait_until("the refusal", || !fixture.refusals().is_empty());
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(server.port()), Reason::ClientDistrusts)]);
    let remedy = fixture.refused()[0].refusal.remedy().unwrap();
    assert!(remedy.contains("/etc/belljar/authority.pem") && remedy.contains("unseen"), "{remedy}");
    assert_eq!(server.requests(), []);
}

async fn variables_that_the_caller_set_stay(backend: BackendName) {
    let (world, server) = served();
    let policy = gets(&world, &server);
    let engine = belljar_engine::Engine::new().with_records(world.records());
    let fixture = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(policy);
        spec.env = vec![("SSL_CERT_FILE".parse().unwrap(), "/mine".into())];
    })
    .await
    .unwrap();
    assert_eq!(fixture.answer("echo $SSL_CERT_FILE").await, "/mine");
    assert_eq!(fixture.answer("echo $NODE_EXTRA_CA_CERTS").await, "/etc/belljar/authority.pem");
    assert_eq!(fixture.answer("echo $SSL_CERT_DIR").await, "");
}

async fn without_rules_about_requests_there_is_no_authority(backend: BackendName) {
    let (world, server) = served();
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tls", server.port())])).await;
    let printed = fixture
        .answer(&format!(
            "cd {} && ls; env | grep -c -e CERT -e CA_BUNDLE -e CAINFO || true",
            own_files(backend)
        ))
        .await;
    assert_eq!(printed, "gitconfig\nnetwork.txt\n0");
}

async fn a_host_that_no_rule_is_about_stays_unseen(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1"), ("unseen.test", "127.0.0.1")]);
    let leaf = world.authority.leaf(["unseen.test"]);
    let server = HttpServer::start_tls(LOOPBACK, &leaf, answer);
    let rule = format!("unseen.test:{}/tls", server.port());
    let policy = world.inspecting("api.test", &["GET"], &[]).allow(rule.parse().unwrap());
    let fixture = world.fixture(backend, policy).await;
    // The server's own certificate, not the sandbox's.
    let url = format!("https://unseen.test:{}/x", server.port());
    assert_eq!(fixture.answer(&format!("curl -sS --cacert ca.pem {url}")).await, "hello /x");
    assert_eq!(fixture.sh(&format!("curl -sS {url}")).await.exit_code, Some(60));
}

/// A script that gets `URL`, or dials `PORT`, and says what came.
async fn works(backend: BackendName, program: &'static str, script: &str) {
    if !have([program]) {
        return;
    }
    let (world, server) = served();
    let fixture = world.fixture(backend, gets(&world, &server)).await;
    let port = server.port().to_string();
    let script = script.replace("URL", "https://api.test:PORT/x").replace("PORT", &port);
    assert_eq!(fixture.answer(&script).await, "hello /x");
    assert_eq!(fixture.refusals(), []);
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 1, "{connections:?}");
    assert_eq!((connections[0].name.as_str(), connections[0].protocol.as_str()), ("api.test", "tls"));
    assert!(connections[0].sent > 0 && connections[0].received > 0);
}

fn served() -> (World, HttpServer) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["api.test"]), answer);
    (world, server)
}

fn gets(world: &World, server: &HttpServer) -> belljar_spec::egress::EgressPolicy {
    world.inspecting(&format!("api.test:{}/tls", server.port()), &["GET"], &["/x"])
}

fn answer(request: &Request) -> Response {
    Response::ok(format!("hello {}", request.target))
}

const MANIFEST_TYPE: &str = "application/vnd.docker.distribution.manifest.v2+json";
const IMAGE_CONFIG: &str =
    r#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
/// Of an image without layers.
const MANIFEST: &str = r#"{
    "schemaVersion": 2,
    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    "config": {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "size": 78,
        "digest": "sha256:c5b1d63604f273462ef36fadac3182d43ae6a6138731cf594b314835cf1c034f"
    },
    "layers": []
}"#;

const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;
public class Get {
    public static void main(String[] args) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(args[0])).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"#;

//! Pushes to a git host are held to the rules on the wire: real git and hand-written requests inside, a real
//! `git http-backend` outside, judged by where its refs are afterwards.

use belljar_spec::egress::{EgressPolicy, Reason, RequestFilter, Rule, RuleSource};
use belljar_spec::git::PushRules;
use belljar_spec::{BackendName, ByteSize};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper;
use belljar_tests_hosts::{
    Authority, Dns, HttpServer, MODERN, Request, Response, WebServer, http_backend, whole,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A git host with one repository: `main` and `topic`, with a workflow.
struct Forge {
    dns: Dns,
    authority: Authority,
    server: Host,
    repositories: TempDir,
}

enum Host {
    /// HTTP/1.1.
    Old(HttpServer),
    /// HTTP/2, and how many pushes came.
    New(WebServer, Arc<AtomicUsize>),
}

impl Forge {
    fn old() -> Forge {
        Forge::with(|root, authority| {
            let leaf = authority.leaf(["good.test"]);
            Host::Old(HttpServer::start_tls(at("127.66.9.7"), &leaf, move |request| obliging(&root, request)))
        })
    }

    fn new() -> Forge {
        Forge::with(|root, authority| {
            let leaf = authority.leaf(["good.test"]);
            let pushes = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&pushes);
            let server = WebServer::start(at("127.66.9.7"), &leaf, MODERN, move |request| {
                let (root, count) = (root.clone(), Arc::clone(&count));
                async move { over_http2(&root, request, &count).await }
            });
            Host::New(server, pushes)
        })
    }

    fn with(server: impl FnOnce(PathBuf, &Authority) -> Host) -> Forge {
        let dns =
            Dns::start(|query| if query.name == "good.test" { vec![at("127.66.9.7")] } else { Vec::new() });
        let (repositories, authority) = (folder(), Authority::new());
        let forge = {
            let server = server(repositories.path().to_path_buf(), &authority);
            Forge { dns, authority, server, repositories }
        };
        let work = folder();
        let git = |folder: &Path, words: &[&str]| host_git(folder, words);
        git(forge.repositories.path(), &["init", "-q", "--bare", "-b", "main", "acme/widgets"]);
        git(&forge.repository(), &["config", "http.receivepack", "true"]);
        git(&forge.repository(), &["config", "uploadpack.allowFilter", "true"]);
        git(work.path(), &["init", "-q", "-b", "main"]);
        for (name, text) in
            [("src/a", "a\n"), (".github/workflows/ci.yml", "on: push\n"), (".github/x", "x\n")]
        {
            let path = work.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text.repeat(200)).unwrap();
        }
        git(work.path(), &["add", "-A"]);
        git(work.path(), &["commit", "-q", "-m", "first"]);
        git(work.path(), &["commit", "-q", "--allow-empty", "-m", "second"]);
        let to = forge.repository();
        let to = to.to_str().unwrap();
        git(work.path(), &["push", "-q", to, "main", "main:topic", "main~1:refs/tags/v1"]);
        forge
    }

    fn repository(&self) -> PathBuf {
        self.repositories.path().join("acme/widgets")
    }

    fn port(&self) -> u16 {
        match &self.server {
            Host::Old(server) => server.port(),
            Host::New(server, _) => server.port(),
        }
    }

    fn url(&self) -> String {
        format!("https://good.test:{}/acme/widgets", self.port())
    }

    /// Every ref and where it is.
    fn refs(&self) -> String {
        host_git(&self.repository(), &["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    fn subject(&self, name: &str) -> String {
        host_git(&self.repository(), &["log", "-1", "--format=%s", name])
    }

    /// Requests to push that arrived, but for those that only try the connection.
    fn arrived(&self) -> usize {
        match &self.server {
            Host::Old(server) => {
                let requests = server.requests().into_iter();
                let posts = requests.filter(|request| request.method == "POST" && request.body.len() > 4);
                posts.filter(|request| request.target.contains("receive")).count()
            }
            Host::New(_, pushes) => pushes.load(Ordering::SeqCst),
        }
    }

    fn egress(&self) -> EgressPolicy {
        let rule = Rule::allow(&format!("=good.test:{}/tls", self.port()), RuleSource::Program).unwrap();
        let filter = RequestFilter { methods: Vec::new(), paths: vec!["/**".parse().unwrap()] };
        EgressPolicy { authorities: self.authority.pem().into_bytes(), ..policy(&self.dns, &[]) }
            .allow(rule.requests(filter))
    }

    /// A cage with a clone of the repository in `w`.
    fn cage(&self, backend: BackendName, pushes: PushRules) -> Cage {
        let cage = cage_with(backend, &self.egress(), |spec, _| spec.pushes = pushes);
        let printed = cage
            .sh(&format!("{GIT}\nrm -rf w; git clone -q {} w 2>&1; git -C w log --format=%s", self.url()));
        assert_eq!(text(&printed.stdout), "second\nfirst\n", "{backend}");
        cage
    }
}

/// Runs a script in the clone; gives what it said.
fn inside(cage: &Cage, script: &str) -> String {
    let result = cage.sh(&format!("{GIT}\ncd w || exit 9\n{{ {script}\n}} 2>&1; echo code $?"));
    text(&result.stdout)
}

/// The guard in front of git only explains: what holds is held elsewhere.
const GIT: &str = "PATH=${PATH#/run/belljar/bin:} GIT_TERMINAL_PROMPT=0; export PATH GIT_TERMINAL_PROMPT HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";

fn host_git(folder: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"])
        .args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A server that understands every spelling: encoded, doubled, with a slash or a parameter at the end.
fn obliging(root: &Path, request: &Request) -> Response {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let mut path = path.to_string();
    for _ in 0..3 {
        for (from, to) in
            [("%67", "g"), ("%2d", "-"), ("%2f", "/"), ("%25", "%"), ("%5c", "/"), ("\\", "/"), ("%6b", "k")]
        {
            path = path.replace(from, to);
        }
    }
    let path = path.split(';').next().unwrap_or_default().replace("//", "/").to_ascii_lowercase();
    let mut request = request.clone();
    request.target = format!("{}?{query}", path.trim_end_matches('/').trim_end_matches(".json"));
    if request.target.contains("git-receive-pack") && request.method != "GET" {
        request.method = "POST".into();
        request.headers.retain(|(name, _)| name != "content-type");
        request.headers.push(("content-type".into(), "application/x-git-receive-pack-request".into()));
    }
    http_backend(root, &request)
}

async fn over_http2(
    root: &Path,
    request: hyper::Request<hyper::body::Incoming>,
    pushes: &AtomicUsize,
) -> hyper::Response<belljar_tests_hosts::WebBody> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let request = Request { method: head.method.to_string(), target, headers: headers.collect(), body };
    if request.target.ends_with("git-receive-pack") && request.body.len() > 4 {
        pushes.fetch_add(1, Ordering::SeqCst);
    }
    let answer = http_backend(root, &request);
    let mut response = hyper::Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(whole(answer.body)).unwrap()
}

#[test]
fn a_push_that_the_rules_allow_arrives() {
    for (forge, backends) in [(Forge::old(), gateway_backends()), (Forge::new(), linux_backends())] {
        for backend in backends.iter().copied() {
            let cage = forge.cage(backend, PushRules::default());
            let branch = format!("agent/{backend}");
            // Small and in one piece; large, after a probe, in chunks; and on to a branch that is there.
            let printed = inside(
                &cage,
                &format!(
                    "git checkout -q -b {branch} && echo b > b && git add b && git commit -q -m small && git push origin {branch} &&
                     head -c 3000000 /dev/urandom > large && git add large && git commit -q -m large && git push origin {branch} &&
                     git commit -q --allow-empty -m last && git push origin {branch} HEAD:refs/heads/{branch}2"
                ),
            );
            assert!(printed.ends_with("code 0\n"), "{backend}: {printed}");
            assert_eq!(forge.subject(&branch), "last\n");
            assert_eq!(forge.subject(&format!("{branch}2")), "last\n");
            let sent = cage.lines().iter().filter(|line| line.contains(r#""kind":"push_sent""#)).count();
            assert_eq!(sent, 4, "{backend}: {:?}", cage.lines());
        }
        if let Host::New(server, _) = &forge.server {
            assert!(
                server.lines().iter().any(|line| line.starts_with("HTTP/2.0 POST")),
                "{:?}",
                server.lines()
            );
        }
    }
}

#[test]
fn main_is_refused_with_the_reason_at_the_prompt() {
    for forge in [Forge::old(), Forge::new()] {
        let refs = forge.refs();
        for backend in gateway_backends().iter().copied() {
            let cage = forge.cage(backend, PushRules::default());
            let printed = inside(
                &cage,
                "git commit -q --allow-empty -m evil && head -c 3000000 /dev/urandom > l && git add l && git commit -q -m l;
                 git push origin main",
            );
            assert!(printed.contains("! [remote rejected] main -> main (branch main may not be pushed from a sandbox; allowed: *, !main, !master ([git] push in belljar.toml))"), "{backend}: {printed}");
            assert!(
                printed.contains("remote: belljar refused this push; nothing of it was sent to good.test"),
                "{printed}"
            );
            assert!(printed.ends_with("code 1\n"), "{backend}: {printed}");
            assert!(cage.lines().iter().any(|line| {
                line.contains(r#""kind":"push_refused""#)
                    && line.contains(
                        r#""repository":"/acme/widgets","ref":"refs/heads/main","reason":"push_branch""#,
                    )
            }));
            assert_eq!(cage.refused_for(Reason::PushRefused), ["good.test"]);
        }
        assert_eq!(forge.refs(), refs);
        assert_eq!(forge.arrived(), 0);
    }
}

/// What the pack does not show is asked of the server: where the new place of a branch comes from.
#[test]
fn a_branch_goes_forward_over_what_the_server_has() {
    for filters in ["true", "false"] {
        let forge = Forge::old();
        host_git(&forge.repository(), &["config", "uploadpack.allowFilter", filters]);
        host_git(&forge.repository(), &["update-ref", "refs/heads/topic", "main~1"]);
        for backend in gateway_backends().iter().copied() {
            host_git(&forge.repository(), &["update-ref", "refs/heads/topic", "main~1"]);
            let cage = forge.cage(backend, PushRules { workflows: Some(true), ..PushRules::default() });
            let back = inside(&cage, "git push -f origin main:aside && git push -f origin main~1:aside");
            assert!(back.contains("fast-forward") && back.ends_with("code 1\n"), "{backend}: {back}");
            let printed = inside(
                &cage,
                "git checkout -q topic && git merge -q --ff-only origin/main && git push origin topic",
            );
            assert_eq!(printed.ends_with("code 0\n"), filters == "true", "{filters} {backend}: {printed}");
            let printed = inside(&cage, "git commit -q --allow-empty -m on && git push origin topic");
            assert_eq!(printed.ends_with("code 0\n"), filters == "true", "{filters} {backend}: {printed}");
            let subject = if filters == "true" { "on\n" } else { "first\n" };
            assert_eq!(forge.subject("topic"), subject, "{backend}");
            host_git(&forge.repository(), &["update-ref", "-d", "refs/heads/aside"]);
        }
    }
}

#[test]
fn nothing_is_forced_deleted_tagged_or_mirrored() {
    let forge = Forge::old();
    let refs = forge.refs();
    for backend in gateway_backends().iter().copied() {
        let cage = forge.cage(backend, PushRules::default());
        for (script, reason) in [
            (
                "git checkout -q -B topic main~1 && git commit -q --allow-empty -m aside && git push -f origin topic",
                "fast-forward",
            ),
            ("git push -f origin main~1:topic", "fast-forward"),
            ("git push origin +HEAD:topic", "fast-forward"),
            ("git push --force-with-lease origin HEAD:topic", "fast-forward"),
            ("git push origin --delete topic", "deleted"),
            ("git push origin :main", "branch main"),
            ("git tag v2 && git push origin v2", "tags may not"),
            ("git push -f origin HEAD:refs/tags/v1", "tags may not"),
            ("git push origin HEAD:refs/notes/x", "only branches"),
            ("git push origin HEAD:refs/pull/1/head", "only branches"),
            ("git push --mirror origin", "remote rejected"),
            // One that may be pushed does not take along one that may not, nor goes without it.
            ("git push origin HEAD:refs/heads/fine HEAD:refs/heads/master", "refused with another ref"),
            ("git push --atomic origin HEAD:refs/heads/fine HEAD:refs/heads/master", "branch master"),
        ] {
            let printed = inside(&cage, script);
            assert!(
                printed.contains(reason) && !printed.ends_with("code 0\n"),
                "{backend}: {script}: {printed}"
            );
            assert_eq!(forge.refs(), refs, "{backend}: {script}: {printed}");
        }
    }
    assert_eq!(forge.arrived(), 0);
}

#[test]
fn workflow_files_stay_as_they_are() {
    let policy = PushRules::default;
    for filters in ["true", "false"] {
        let forge = Forge::old();
        host_git(&forge.repository(), &["config", "uploadpack.allowFilter", filters]);
        for backend in gateway_backends().iter().copied() {
            let cage = forge.cage(backend, policy());
            let printed = inside(
                &cage,
                &format!(
                    "git checkout -q -b x-{backend} && echo b > src/b && git add src && git commit -q -m fine && git push origin HEAD &&
                     echo y > .github/x && git add .github && git commit -q -m beside && git push origin HEAD"
                ),
            );
            assert!(printed.ends_with("code 0\n"), "{filters} {backend}: {printed}");
            assert_eq!(forge.subject(&format!("x-{backend}")), "beside\n");
            let refs = forge.refs();
            for script in [
                "echo 'on: evil' > .github/workflows/ci.yml; git commit -q -a -m evil; git push origin HEAD",
                "git revert --no-edit HEAD; git push origin HEAD",
                "git checkout -q --orphan o; git commit -q -m orphan; git push origin HEAD:refs/heads/o",
            ] {
                let printed = inside(&cage, script);
                assert!(
                    printed.contains(".github/workflows") && printed.ends_with("code 1\n"),
                    "{backend}: {printed}"
                );
                assert_eq!(forge.refs(), refs, "{backend}: {printed}");
            }
        }
    }
}

#[test]
fn workflow_files_change_where_policy_lets_them() {
    let forge = Forge::old();
    for backend in gateway_backends().iter().copied() {
        let cage = forge.cage(backend, PushRules { workflows: Some(true), ..PushRules::default() });
        let script = format!(
            "git checkout -q -b x-{backend} && echo 'on: push' > .github/workflows/ci.yml && git commit -q -a -m meant && git push origin HEAD"
        );
        let printed = inside(&cage, &script);
        assert!(printed.ends_with("code 0\n"), "{backend}: {printed}");
        assert_eq!(forge.subject(&format!("x-{backend}")), "meant\n");
    }
}

/// A commit on `main` that would be a fast-forward, in a pack, sent in every way but git's.
#[test]
fn no_hand_written_push_moves_main() {
    let forge = Forge::old();
    let refs = forge.refs();
    let port = forge.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = forge.cage(backend, PushRules::default());
        inside(
            &cage,
            "git commit -q --allow-empty -m evil; git rev-parse HEAD > ../new; git rev-parse HEAD~1 > ../old;
            git pack-objects --revs --stdout -q > ../pack <<E\nHEAD\n^HEAD~1\nE\n",
        );
        // In parts: each is a command, and a command has its time.
        let (words, parts) = HAND_WRITTEN.split_once("#---\n").unwrap();
        let part = |part: &str| cage.attack(&format!("{WORDS}{words}{part}"), &[&port]);
        let worked: Vec<String> = parts.split("#---\n").flat_map(part).collect();
        assert_eq!(forge.refs(), refs, "{backend}: {worked:?}");
        assert_eq!(worked, [""; 0], "{backend}");
    }
    // A branch that may be pushed, with something else in its chunk or its options: both are what they say they are.
    assert_eq!(forge.arrived(), 2 * gateway_backends().len());
}

/// A sanity check of the attack itself: with rules that allow it, the plain one works.
#[test]
fn the_hand_written_push_works_where_main_may_be_pushed() {
    let forge = Forge::old();
    let port = forge.port().to_string();
    let backend = backends()[0];
    let cage = forge.cage(
        backend,
        PushRules { branches: vec!["*".parse().unwrap()], workflows: Some(true), ..PushRules::default() },
    );
    inside(
        &cage,
        "git commit -q --allow-empty -m evil; git rev-parse HEAD > ../new; git rev-parse HEAD~1 > ../old;
        git pack-objects --revs --stdout -q > ../pack <<E\nHEAD\n^HEAD~1\nE\n",
    );
    let worked =
        cage.attack(&format!("{WORDS}{}", HAND_WRITTEN.replace("ONLY = None", "ONLY = 'plain'")), &[&port]);
    assert_eq!(forge.subject("main"), "evil\n", "{worked:?}");
}

#[test]
fn two_pushes_on_one_connection_are_two_pushes() {
    let forge = Forge::old();
    let port = forge.port().to_string();
    let main = host_git(&forge.repository(), &["rev-parse", "main"]);
    for backend in gateway_backends().iter().copied() {
        let cage = forge.cage(backend, PushRules::default());
        inside(
            &cage,
            "git commit -q --allow-empty -m evil; git rev-parse HEAD > ../new; git rev-parse HEAD~1 > ../old;
            git pack-objects --revs --stdout -q > ../pack <<E\nHEAD\n^HEAD~1\nE\n",
        );
        let script = format!(
            "{WORDS}
s = tls()
fine = request(body(b'refs/heads/{backend}', old=ZERO), last=False)
s.sendall(fine + request(body(b'refs/heads/main')))
said = reply(s, 8)
print(said.count(b'HTTP/1.1 200'), said.count(b'unpack ok'), said.count(b'ok refs/heads/{backend}'), said.count(b'ng refs/heads/main'))
"
        );
        let printed = cage.attack(&script, &[&port]);
        assert_eq!(printed, ["2 2 1 1"], "{backend}");
        assert_eq!(forge.subject(&backend.to_string()), "evil\n");
        assert_eq!(host_git(&forge.repository(), &["rev-parse", "main"]), main);
    }
}

#[test]
fn a_push_is_not_larger_than_allowed() {
    let forge = Forge::old();
    let refs = forge.refs();
    let small =
        || PushRules { bytes: Some(ByteSize::mebibytes(1)), objects: Some(20), ..PushRules::default() };
    for backend in gateway_backends().iter().copied() {
        let cage = forge.cage(backend, small());
        let printed = inside(
            &cage,
            "git checkout -q -b x; head -c 3000000 /dev/urandom > l; git add l; git commit -q -m l; git push origin x",
        );
        assert!(printed.contains("larger than 1m") && printed.ends_with("code 1\n"), "{backend}: {printed}");
        let printed = inside(
            &cage,
            "git checkout -q -b y main; for n in $(seq 30); do echo $n > $n; done; git add .; git commit -q -m m; git push origin y",
        );
        assert!(
            printed.contains("more than 20 objects") && printed.ends_with("code 1\n"),
            "{backend}: {printed}"
        );
    }
    assert_eq!(forge.refs(), refs);
    assert_eq!(forge.arrived(), 0);
}

const WORDS: &str = r#"
import gzip, ssl
port = sys.argv[1]
old, new = (open('/workspace/' + name, 'rb').read().strip() for name in ('old', 'new'))
pack = open('/workspace/pack', 'rb').read()
ZERO = b'0' * 40
PATH = b'/acme/widgets/git-receive-pack'
def pkt(data):
    return b'%04x' % (len(data) + 4) + data
def body(ref=b'refs/heads/main', old=old, caps=b' report-status', more=b''):
    return pkt(old + b' ' + new + b' ' + ref + b'\0' + caps) + more + b'0000' + pack
def request(data, path=PATH, method=b'POST', headers=(), length=True, last=True):
    lines = [b'connection: close'] if last else []
    lines = [method + b' ' + path + b' HTTP/1.1', b'host: good.test:' + port.encode()] + lines
    lines += [b'content-type: application/x-git-receive-pack-request'] if not any(b'content-type' in h for h in headers) else []
    lines += [b'content-length: %d' % len(data)] if length else []
    return b'\r\n'.join(lines + list(headers)) + b'\r\n\r\n' + data
def tls():
    return ssl.create_default_context().wrap_socket(dial('good.test', port), server_hostname='good.test')
"#;

const HAND_WRITTEN: &str = r#"
ONLY = None
def chunked(data, size=7, end=b'0\r\n\r\n'):
    pieces = [data[at:at + size] for at in range(0, len(data), size)]
    return b''.join(b'%x\r\n' % len(piece) + piece + b'\r\n' for piece in pieces) + end
def say(name, data):
    if ONLY and name != ONLY:
        return
    try:
        s = tls()
        s.sendall(data)
        said = reply(s, 3)
    except OSError:
        return
    if b'ok refs/heads/main' in said.replace(b'unpack ok', b''):
        print(name, said[:300])
P = b'/acme/widgets/'
CHUNKED = [b'transfer-encoding: chunked']
plain = body()
#---
say('plain', request(plain))
for path in [P + b'%67it-receive-pack', P + b'git%2dreceive-pack', P + b'git-receive-pac%6b', P + b'git-receive-pac%256b',
    P + b'git-receive-pack/', P + b'/git-receive-pack', P + b'git-receive-pack;x', P + b'Git-Receive-Pack',
    b'/acme/widgets%2fgit-receive-pack', b'/acme/widgets%5cgit-receive-pack', b'/acme\\widgets\\git-receive-pack', P + b'git-receive-pack.json',
    P + b'git-receive-pack?x=y', P + b'git-receive-pack?service=git-upload-pack', b'https://good.test:' + port.encode() + P + b'git-receive-pack',
    P + b'x/../git-receive-pack', P + b'./git-receive-pack']:
    say(path, request(plain, path))
for kind in [b'text/plain', b'application/x-git-upload-pack-request', b'application/json', b'']:
    say(kind, request(plain, headers=[b'content-type: ' + kind]))
for method in [b'PUT', b'PATCH', b'post', b'Post', b'REPORT']:
    say(method, request(plain, method=method))
#---
say('gzip', request(gzip.compress(plain), headers=[b'content-encoding: gzip']))
say('x-gzip', request(gzip.compress(plain), headers=[b'content-encoding: x-gzip']))
say('gzip, said twice', request(gzip.compress(plain), headers=[b'content-encoding: identity', b'content-encoding: gzip']))
say('chunked', request(chunked(plain), headers=CHUNKED, length=False))
say('chunked in bytes', request(chunked(plain, 1), headers=CHUNKED, length=False))
say('chunked with a length', request(chunked(plain), headers=CHUNKED))
say('chunked with a trailer', request(chunked(plain, end=b'0\r\ncontent-encoding: gzip\r\n\r\n'), headers=CHUNKED, length=False))
say('chunked, cut off', request(chunked(plain, end=b''), headers=CHUNKED, length=False))
say('in another one', request(chunked(body(b'refs/heads/x')) + request(plain), headers=CHUNKED, length=False))
say('length of the first only', request(body(b'refs/heads/x')[:60] , headers=[]) + plain)
say('expects', request(plain, headers=[b'expect: 100-continue']))
#---
say('behind a fine one', request(body(b'refs/heads/fine', more=pkt(old + b' ' + new + b' refs/heads/main'))))
say('capabilities twice', request(body(b'refs/heads/fine', more=pkt(old + b' ' + new + b' refs/heads/main\0 report-status'))))
say('behind a NUL', request(body(b'refs/heads/fine\0 report-status\0' + old + b' ' + new + b' refs/heads/main')))
say('behind a newline', request(body(b'refs/heads/fine\n' + old + b' ' + new + b' refs/heads/main')))
say('without a report', request(body(caps=b' agent=x')))
say('without capabilities', request(pkt(old + b' ' + new + b' refs/heads/main') + b'0000' + pack))
say('an id in capitals', request(pkt(old.upper() + b' ' + new.upper() + b' refs/heads/main\0 report-status') + b'0000' + pack))
say('a length in capitals', request(plain[:4].upper() + plain[4:]))
say('a certificate', request(pkt(b'push-cert\0 report-status') + pkt(b'certificate version 0.1\n') + pkt(b'\n')
    + pkt(old + b' ' + new + b' refs/heads/main\n') + pkt(b'push-cert-end\n') + b'0000' + pack))
say('options that are commands', request(pkt(ZERO + b' ' + new + b' refs/heads/fine\0 report-status push-options') + b'0000'
    + pkt(old + b' ' + new + b' refs/heads/main') + b'0000' + pack))
say('after an empty list', request(b'0000' + plain))
say('after a delimiter', request(b'0001' + plain))
say('after an empty packet', request(b'0004' + plain))
#---
for ref in [b'refs/heads/../heads/main', b'refs/heads//main', b'refs/heads/main ', b'refs/heads/main\r', b'HEAD', b'refs/heads/./main',
    b'heads/main', b'main', b'refs/heads/main.lock', b'refs/heads/Main/../main', b'refs/heads/main\n', b'refs/heads/main\t']:
    say(ref, request(body(ref)))
for method, path in [(b'PUT', b'refs/heads/main'), (b'LOCK', b'refs/heads/main'), (b'PUT', b'objects/ab/cd'), (b'MKCOL', b'objects/ab')]:
    say(method + path, request(new + b'\n', P + path, method, headers=[b'content-type: text/plain']))
"#;

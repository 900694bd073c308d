//! The policy of a sandbox that lives is changed, and its questions are answered, from outside alone.

use belljar_engine::{Engine, Order, Reply, Steered, steered};
use belljar_spec::egress::{Mode, Reason, RuleEffect, RuleLasting, Verdict};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Dns, Server};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn names() -> Dns {
    Dns::start(|query| if query.name.ends_with(".test") { vec![at("127.66.12.1")] } else { Vec::new() })
}

/// Echoes, and counts who is there.
fn echoing() -> (Server, Arc<AtomicUsize>) {
    let present = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&present);
    let server = Server::start(at("127.66.12.1"), move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        count.fetch_sub(1, Ordering::SeqCst);
    });
    (server, present)
}

fn only(state: &Path) -> Steered {
    let mut all = steered(state);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn change(effect: RuleEffect, rule: &str, lasting: RuleLasting) -> Order {
    Order::Change { effect, rule: rule.into(), lasting, by: "test".into() }
}

const REACH: &str = r#"
def reach(name, port):
    s = socket.create_connection((name, int(port)), 90)
    s.sendall(b'hello')
    s.settimeout(90)
    if s.recv(5) != b'hello':
        raise OSError('closed')
    return s
"#;

#[test]
fn a_host_is_allowed_and_denied_while_the_sandbox_lives() {
    let (dns, (server, present)) = (names(), echoing());
    let port = server.port();
    for backend in backends() {
        let state = folder();
        let engine = Engine::new().with_state(state.path());
        let cage = cage_by(engine, *backend, &policy(&dns, &[&format!("other.test:{port}/tcp")]), |_, _| {});
        let attempt = |name: &str| {
            let script = format!("{REACH}\nattack('reached', lambda: reach('{name}', {port}))");
            !cage.attack(&script, &[]).is_empty()
        };
        let one = only(state.path());
        let order = |order: &Order| one.order(state.path(), order);
        assert!(!attempt("good.test"), "{backend}");
        let rule = format!("=good.test:{port}/tcp");
        order(&change(RuleEffect::Allow, &rule, RuleLasting::Life)).unwrap();
        assert!(attempt("good.test") && !attempt("bad.test"), "{backend}");
        thread::scope(|scope| {
            let held = scope.spawn(|| {
                let script = format!(
                    "{REACH}\ns = reach('good.test', {port})\nopen('/workspace/open', 'w')\n\
                     attack('still open', lambda: s.recv(1) or (_ for _ in ()).throw(OSError()))"
                );
                cage.attack(&script, &[])
            });
            assert!(eventually(|| cage.outside("open").exists()), "{backend}");
            let reported = order(&change(RuleEffect::Deny, "good.test", RuleLasting::Life)).unwrap();
            assert!(matches!(reported, Reply::Changed { ended: 1, .. }), "{backend}: {reported:?}");
            assert_eq!(held.join().unwrap(), [] as [&str; 0], "{backend}: the connection ended");
        });
        assert!(eventually(|| present.load(Ordering::SeqCst) == 0), "{backend}");
        assert!(!attempt("good.test") && attempt("other.test"), "{backend}");
        order(&change(RuleEffect::Allow, &rule, RuleLasting::Once)).unwrap_err();
        // What the start closes no order opens.
        let reserved = order(&change(RuleEffect::Allow, "localhost:1-65535/tcp", RuleLasting::Life));
        assert!(reserved.is_err() || !attempt("localhost"), "{backend}");
        let lines = cage.lines();
        let has = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
        assert!(has(r#""ending":"policy_changed""#) == 1, "{backend}: {lines:?}");
        assert!(has(r#""kind":"policy_changed""#) >= 3 && has(r#""by":"test""#) >= 3, "{backend}: {lines:?}");
        let id = cage.sandbox.id();
        drop(cage);
        assert_eq!(steered(state.path()), [], "{backend}");
        assert!(!state.path().join(format!("steering/{id}.sock")).exists(), "{backend}: nothing is left");
    }
}

#[test]
fn no_program_inside_gives_orders_also_where_the_socket_is_shown() {
    let dns = names();
    for backend in backends() {
        let state = folder();
        let sockets = state.path().join("steering");
        let engine = Engine::new().with_state(state.path());
        let asks = belljar_spec::egress::EgressPolicy { mode: Mode::Ask, ..policy(&dns, &[]) };
        let cage = cage_by(engine, *backend, &asks, |_, _| {});
        let one = only(state.path());
        // No directory of belljar's own is shown to a sandbox. As if it were: the socket has a second name in the workspace.
        let shown = cage.outside("shown.sock");
        fs::hard_link(sockets.join(format!("{}.sock", one.id)), &shown).unwrap();
        fs::set_permissions(&shown, fs::Permissions::from_mode(0o777)).unwrap();
        let worked = cage.attack(
            r#"
import glob, json
found = set(glob.glob(sys.argv[1] + '/*')) | {'/workspace/shown.sock'} | {path for top in ['/run', '/tmp', '/home', '/workspace'] for path in glob.glob(top + '/**/*.sock', recursive=True)}
for line in open('/proc/net/unix'):
    path = line.split()[-1]
    if path.startswith(('/', '@')):
        found.add(path.replace('@', '\0'))
def order(path, what):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(2)
    s.connect(path)
    s.sendall(json.dumps(what).encode() + b'\n')
    answer = s.recv(65536)
    if not answer:
        raise OSError('nothing')
    return answer
threading.Thread(target=lambda: attack('reached', lambda: socket.create_connection(('evil.test', 443), 5)), daemon=True).start()
time.sleep(1)
for path in found:
    for what in [dict(order='show'), dict(order='change', effect='allow', rule='evil.test', lasting='life', by='me'),
            dict(order='answer', question=1, verdict='sandbox', by='me')]:
        attack('ordered', lambda: order(path, what))
"#,
            &[sockets.to_str().unwrap()],
        );
        // Judged from outside: what the program printed is only what it believes.
        assert_eq!(one.policy(state.path()).unwrap().version, 0, "{backend}: {worked:?}");
        assert!(!cage.lines().iter().any(|line| line.contains("policy_changed")), "{backend}: {worked:?}");
        assert!(
            !worked.iter().any(|line| line.starts_with("ordered") && line.contains("reply")),
            "{worked:?}"
        );
    }
}

#[test]
fn a_question_waits_for_a_person_outside() {
    let (dns, (server, _)) = (names(), echoing());
    for backend in gateway_backends() {
        let state = folder();
        let engine = Engine::new().with_state(state.path());
        // A web server's port, so that the rule of an answer is the usual one.
        let asks = belljar_spec::egress::EgressPolicy {
            mode: Mode::Ask,
            ..policy(&dns, &[&format!("known.test:{}/tcp", server.port())])
        };
        let cage = cage_by(engine, *backend, &asks, |_, _| {});
        let one = only(state.path());
        let questions = || one.policy(state.path()).unwrap().questions;
        thread::scope(|scope| {
            let requested = scope.spawn(|| {
                let script = format!(
                    r#"{REACH}
def one(name):
    s = socket.create_connection((name, 80), 90)
    s.sendall(b'GET / HTTP/1.1\r\nHost: ' + name.encode() + b'\r\n\r\n')
    s.settimeout(90)
    return s.recv(4096)
attack('known', lambda: reach('known.test', {}))
for name in ['yes.test', 'no.test']:
    attack(name, lambda: one(name))
"#,
                    server.port()
                );
                cage.attack(&script, &[])
            });
            for (name, verdict) in [("yes.test", Verdict::Once), ("no.test", Verdict::Deny)] {
                assert!(
                    eventually(|| questions().iter().any(|question| question.name == name)),
                    "{backend}: {name}"
                );
                let question = questions().remove(0);
                assert_eq!((question.name.as_str(), question.port), (name, 80), "{backend}");
                one.order(
                    state.path(),
                    &Order::Answer {
                        question: question.id,
                        rule: question.rule.clone(),
                        verdict,
                        by: "test".into(),
                    },
                )
                .unwrap();
            }
            let printed = requested.join().unwrap();
            assert!(printed.iter().any(|line| line.starts_with("known")), "{backend}: {printed:?}");
            // Nobody listens at port 80 there: the gateway says so, and not that it may not be.
            let no = printed.iter().find(|line| line.starts_with("no.test")).cloned().unwrap_or_default();
            assert!(no.contains("no person outside"), "{backend}: {printed:?}");
        });
        assert_eq!(cage.refused_for(Reason::NotApproved), ["no.test"], "{backend}");
        assert_eq!(cage.refused_for(Reason::DialFailed), ["yes.test"], "{backend}: once it was allowed");
        // A program that asks for everything at once leaves few questions.
        let flood = "
for number in range(200):
    s = socket.socket(); s.setblocking(False)
    try: s.connect((socket.gethostbyname(f'n{number}.test'), 443))
    except BlockingIOError: pass
    globals().setdefault('kept', []).append(s)
time.sleep(1)
open('/workspace/flooded', 'w')
";
        cage.attack(flood, &[]);
        assert!(cage.outside("flooded").exists());
        let left = questions();
        assert!(left.len() <= 32, "{backend}: {} questions", left.len());
        assert!(dns.queries().iter().all(|query| !query.name.starts_with('n') || query.name == "no.test"));
    }
}

#[test]
fn a_program_asks_for_a_name_and_only_a_person_outside_answers() {
    let (dns, (server, _)) = (names(), echoing());
    let port = server.port();
    for backend in gateway_backends() {
        let state = folder();
        let engine = Engine::new().with_state(state.path());
        let cage = cage_by(engine, *backend, &policy(&dns, &[&format!("known.test:{port}/tcp")]), |_, _| {});
        assert!(!only(state.path()).asks, "{backend}: it has no question yet");
        let questions = || only(state.path()).policy(state.path()).unwrap().questions;
        let script = format!(
            r#"{REACH}
import urllib.request
def ask(name, body=b'to test\x1b[2J'):
    request = urllib.request.Request('http://ask.belljar.internal/' + name, data=body, method='POST')
    return urllib.request.urlopen(request, timeout=90).read().decode()
attack('known', lambda: ask('known.test:{port}'))
# None of these is a question that a person could be led to answer.
for name in ['host.belljar.internal:{port}', 'localhost:{port}', '127.0.0.1:{port}', '169.254.169.254', '', 'a..b', 'x' * 300]:
    attack(f'unasked {{name[:20]}}', lambda: ask(name))
attack('before', lambda: socket.gethostbyname('yes.test'))
attack('allowed', lambda: ask('yes.test:{port}'))
attack('after', lambda: socket.gethostbyname('yes.test'))
attack('denied', lambda: ask('no.test:{port}'))
attack('denied', lambda: socket.gethostbyname('no.test'))
"#
        );
        thread::scope(|scope| {
            let attack = scope.spawn(|| cage.attack(&script, &[]));
            for (name, verdict) in [("yes.test", Verdict::Sandbox), ("no.test", Verdict::Deny)] {
                assert!(eventually(|| !questions().is_empty()), "{backend}: {name}");
                let question = questions().remove(0);
                assert_eq!((question.name.as_str(), question.port), (name, port), "{backend}");
                assert_eq!(question.why.as_deref(), Some(r"to test\u{1b}[2J"), "{backend}");
                assert!(only(state.path()).asks, "{backend}");
                let order =
                    Order::Answer { question: question.id, rule: question.rule, verdict, by: "test".into() };
                only(state.path()).order(state.path(), &order).unwrap();
            }
            let printed = attack.join().unwrap();
            let words: Vec<_> = printed.iter().filter_map(|line| line.split(' ').next()).collect();
            assert_eq!(words, ["known", "allowed", "after"], "{backend}: {printed:?}");
        });
    }
}

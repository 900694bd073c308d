//! However much is begun inside of TLS that the gateway ends, and however slowly it is read, the host's memory stays small.
//!
//! What is measured is all that serves the sandboxes of a test, so such a test has a process of its own.

use belljar_spec::egress::{EgressPolicy, RequestFilter, Rule, RuleSource};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::hyper::{Request, Response as WebResponse, body::Incoming};
use belljar_tests_hosts::{Authority, Dns, MODERN, WebServer, whole};
use std::future::pending;
use std::thread::sleep;
use std::time::Duration;

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.9.1")] } else { Vec::new() })
}

fn inspected(dns: &Dns, authority: &Authority, port: u16) -> EgressPolicy {
    let rule = Rule::allow(&format!("=good.test:{port}/tls"), RuleSource::Program).unwrap();
    EgressPolicy { authorities: authority.pem().into_bytes(), ..policy(dns, &[]) }
        .allow(rule.requests(RequestFilter::ANY))
}

/// Sessions of HTTP/2, with windows as wide as they can be.
const SESSIONS: &str = r#"
import ssl
WIDE = 2 ** 31 - 1
def frame(kind, flags, stream, payload=b''):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload
def head(*fields):
    return b''.join(b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
def fields(method, path=b'/'):
    return head((b':method', method), (b':scheme', b'https'), (b':path', path), (b':authority', b'good.test'))
def session(port):
    context = ssl.create_default_context()
    context.set_alpn_protocols(['h2'])
    s = context.wrap_socket(dial('good.test', port), server_hostname='good.test')
    assert s.selected_alpn_protocol() == 'h2'
    settings = b'\0\4' + WIDE.to_bytes(4, 'big')
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, settings) + frame(8, 0, 0, (WIDE - 65535).to_bytes(4, 'big')))
    return s
"#;

#[test]
fn unread_answers_take_little_room() {
    alone("terminate_floods::unread_answers_take_little_room", &[], || {
        let (dns, authority) = (names(), Authority::new());
        let leaf = authority.leaf(["good.test"]);
        static LONG: [u8; 4 << 20] = [b'x'; 4 << 20];
        let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |_: Request<Incoming>| async {
            WebResponse::new(whole(&LONG[..]))
        });
        for backend in gateway_backends().iter().copied() {
            let cage = cage(backend, &inspected(&dns, &authority, server.port()));
            let script = r#"
sessions = []
for _ in range(40):
    s = session(sys.argv[1])
    s.sendall(b''.join(frame(1, 5, 1 + 2 * n, fields(b'GET')) for n in range(128)))
    sessions.append(s)
time.sleep(4)
print(len(sessions))
"#;
            let mut lines = Vec::new();
            let port = server.port().to_string();
            let grown = growth(|| lines = cage.attack(&format!("{SESSIONS}{script}"), &[&port]));
            assert_eq!(lines, ["40"], "{backend}");
            assert!(grown < 320 << 10, "{backend}: {grown} KiB");
        }
    });
}

#[test]
fn bodies_that_no_server_reads_take_little_room() {
    alone("terminate_floods::bodies_that_no_server_reads_take_little_room", &[], || {
        let (dns, authority) = (names(), Authority::new());
        let leaf = authority.leaf(["good.test"]);
        let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |request: Request<Incoming>| async {
            let _unread = request;
            pending::<()>().await;
            WebResponse::new(whole("never"))
        });
        for backend in gateway_backends().iter().copied() {
            let cage = cage(backend, &inspected(&dns, &authority, server.port()));
            let script = r#"
sessions = []
for _ in range(40):
    s = session(sys.argv[1])
    s.settimeout(1)
    try:
        for n in range(128):
            s.sendall(frame(1, 4, 1 + 2 * n, fields(b'POST')))
        for turn in range(4):
            for n in range(128):
                s.sendall(frame(0, 0, 1 + 2 * n, bytes(8192)))
    except OSError:
        pass
    sessions.append(s)
time.sleep(2)
print(len(sessions))
"#;
            let mut lines = Vec::new();
            let port = server.port().to_string();
            let grown = growth(|| lines = cage.attack(&format!("{SESSIONS}{script}"), &[&port]));
            assert_eq!(lines, ["40"], "{backend}");
            assert!(grown < 320 << 10, "{backend}: {grown} KiB");
        }
    });
}

#[test]
fn heads_without_end_and_frames_without_number_take_little_room() {
    alone("terminate_floods::heads_without_end_and_frames_without_number_take_little_room", &[], || {
        let (dns, authority) = (names(), Authority::new());
        let leaf = authority.leaf(["good.test"]);
        let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |_: Request<Incoming>| async {
            WebResponse::new(whole("here"))
        });
        for backend in gateway_backends().iter().copied() {
            let cage = cage(backend, &inspected(&dns, &authority, server.port()));
            let script = r#"
LINE = b'\0\4long\x7f\x81\x7e' + bytes([97] * 16382 + [97, 97, 97])[:16383]
def flood(*frames, first=b'', times=20000):
    try:
        s = session(sys.argv[1])
        s.settimeout(2)
        s.sendall(first)
        for _ in range(times // 100):
            s.sendall(b''.join(frames) * 100)
    except OSError:
        return
flood(frame(9, 0, 1, b'\0\1x\1y' * 3000), first=frame(1, 1, 1, fields(b'GET')), times=10000)
flood(frame(9, 0, 1), first=frame(1, 1, 1, fields(b'GET')), times=200000)
flood(frame(4, 0, 0, b'\0\4\0\1\0\0'), times=100000)
flood(frame(6, 0, 0, bytes(8)), times=100000)
flood(frame(8, 0, 0, (1).to_bytes(4, 'big')), times=100000)
flood(frame(2, 0, 5, bytes(5)), times=100000)
big = b'\x40\1a\x7f\xe1\x1e' + b'v' * 4000
flood(frame(1, 5, 1, fields(b'GET') + big[:0] + head((b'b', b'v' * 100)) + b'\x40\1c\x64' + b'w' * 100 + b'\xbe' * 12000), times=100)
s = session(sys.argv[1])
s.sendall(frame(1, 5, 1, fields(b'GET')))
print('still there' if b'here' in reply(s, 3) else 'gone')
"#;
            let mut lines = Vec::new();
            let port = server.port().to_string();
            let grown = growth(|| lines = cage.attack(&format!("{SESSIONS}{script}"), &[&port]));
            assert_eq!(lines, ["still there"], "{backend}");
            assert!(grown < 100 << 10, "{backend}: {grown} KiB");
        }
    });
}

#[test]
fn a_client_that_goes_away_takes_its_connection_along() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |request: Request<Incoming>| async {
        let _unanswered = request;
        pending::<()>().await;
        WebResponse::new(whole("never"))
    });
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inspected(&dns, &authority, server.port()));
        let script = r#"
def begin(number):
    if number % 2:
        s = session(sys.argv[1])
        s.sendall(frame(1, 5, 1, fields(b'GET')))
    else:
        s = ssl.create_default_context().wrap_socket(dial('good.test', sys.argv[1]), server_hostname='good.test')
        s.sendall(b'GET / HTTP/1.1\r\nhost: good.test:%s\r\n\r\n' % sys.argv[1].encode())
    time.sleep(0.05)
    return s
for number in range(6):
    s = begin(number)
    if number % 3 == 0:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
"#;
        cage.attack(&format!("{SESSIONS}{script}"), &[&server.port().to_string()]);
        let closed =
            || cage.lines().iter().filter(|line| line.contains(r#""kind":"connection_closed""#)).count();
        let mut time_limit = 100;
        while closed() < 6 && time_limit > 0 {
            sleep(Duration::from_millis(100));
            time_limit -= 1;
        }
        assert_eq!((cage.opened(), closed()), (6, 6), "{backend}");
    }
}

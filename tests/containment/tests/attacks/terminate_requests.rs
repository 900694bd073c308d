//! Where rules are about requests, no other request arrives: not by another spelling of its path, not hidden in the body
//! of an allowed one, not by saying one host to us and another to the server.

use belljar_spec::egress::{EgressPolicy, Reason, RequestFilter, Rule, RuleSource};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::hyper::{Request, Response as WebResponse, body::Incoming};
use belljar_tests_hosts::{Authority, Dns, HttpServer, MODERN, Response, WebServer, whole};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.9.1")] } else { Vec::new() })
}

/// GET and POST below `/in`, and nothing else.
fn inside_only(dns: &Dns, authority: &Authority, port: u16) -> EgressPolicy {
    let filter = RequestFilter {
        methods: ["GET", "POST"].map(|method| method.parse().unwrap()).into(),
        paths: vec!["/in/**".parse().unwrap()],
    };
    let rule = Rule::allow(&format!("=good.test:{port}/tls"), RuleSource::Program).unwrap();
    EgressPolicy { authorities: authority.pem().into_bytes(), ..policy(dns, &[]) }
        .allow(rule.requests(filter))
}

const TLS: &str = r#"
import ssl
def tls(port, alpn=None, context=None):
    context = context or ssl.create_default_context()
    if alpn:
        context.set_alpn_protocols(alpn)
    return context.wrap_socket(dial('good.test', port), server_hostname='good.test')
def say(port, *pieces, timeout=0.6):
    try:
        s = tls(port)
        for piece in pieces:
            s.sendall(piece.replace(b'PORT', port.encode()))
        return reply(s, timeout)
    except OSError:
        return b''
"#;

#[test]
fn no_spelling_of_a_path_leads_outside_of_a_rule() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = HttpServer::start_tls(at("127.66.9.1"), &leaf, |_| Response::ok("here"));
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
TRICKS = [b'/', b'/out', b'/in/../out', b'/in/..', b'/in/../', b'/in/./../out', b'/in/%2e%2e/out', b'/in/%2E%2e/out',
    b'/in/.%2e/out', b'/in/..%2fout', b'/in/..%2Fout', b'/in%2f..%2fout', b'/in/..%5cout', b'/in/..\\out', b'/in\\..\\out',
    b'/in/%252e%252e/out', b'/in/%252e%252e%252fout', b'/in/..%252fout', b'/in/%25252e%25252e/out', b'/in/..;/out',
    b'/in/..;x=y/out', b'/in/..%3b/out', b'/in/..%3fx', b'/in/..%23x', b'/in/x/../../out', b'/in//../../out', b'//out', b'//in/x', b'/IN/x', b'/inn',
    b'/in/%2e%2e;/out', b'/in/%c0%ae%c0%ae/out', b'/in/%c0%af../out', b'/in/%00', b'/in/x%0d%0aout', b'/in/%', b'/in/%2',
    b'/in/%zz', b'/in/%u002e%u002e/out', b'/out/../in', b'/out?/in/', b'/out#/in/', b'/out;/in/', b'in/x', b'*',
    b'https://good.test:PORT/out', b'https://good.test:PORT/in/../out', b'https://good.test:PORT', b'/in/.../../../out']
for trick in TRICKS:
    said = say(port, b'GET ' + trick + b' HTTP/1.1\r\nhost: good.test:PORT\r\nconnection: close\r\n\r\n')
    if b' 200 ' in said.split(b'\r\n')[0]:
        print(trick)
for method in [b'PUT', b'DELETE', b'get', b'TRACE', b'CONNECT', b'GETX', b'OPTIONS']:
    said = say(port, method + b' /in/x HTTP/1.1\r\nhost: good.test:PORT\r\nconnection: close\r\n\r\n')
    if b' 200 ' in said.split(b'\r\n')[0]:
        print(method)
"#;
        assert_eq!(cage.attack(&format!("{TLS}{script}"), &[&port]), [""; 0], "{backend}");
        assert_eq!(server.requests(), [], "{backend}: nothing of them arrives");
        assert!(!cage.refused_for(Reason::RequestNotAllowed).is_empty());
        assert!(!cage.refused_for(Reason::RequestMalformed).is_empty());
    }
}

#[test]
fn what_is_allowed_arrives_as_it_was_written() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = HttpServer::start_tls(at("127.66.9.1"), &leaf, |_| Response::ok("here"));
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let before = server.requests().len();
        let targets =
            ["/in", "/in/", "/in/x%20y", "/in/a%2Fb", "/in/x;v=1?q=/../out", "/in/%C3%BC", "/in/./x"];
        let script = r#"
for target in sys.argv[2:]:
    say(sys.argv[1], b'GET ' + target.encode() + b' HTTP/1.1\r\nhost: good.test:PORT\r\nconnection: close\r\n\r\n')
"#;
        let arguments: Vec<&str> = [port.as_str()].into_iter().chain(targets).collect();
        cage.attack(&format!("{TLS}{script}"), &arguments);
        let arrived: Vec<String> = server.requests()[before..].iter().map(|it| it.target.clone()).collect();
        assert_eq!(arrived, targets, "{backend}");
    }
}

#[test]
fn no_request_hides_in_another() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = HttpServer::start_tls(at("127.66.9.1"), &leaf, |_| Response::ok("here"));
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
HOST = b'host: good.test:PORT\r\n'
HIDDEN = b'GET /out HTTP/1.1\r\nhost: good.test\r\n\r\n'
LENGTH = b'content-length: %d\r\n' % len(HIDDEN)
CHUNK = b'%x\r\n' % len(HIDDEN) + HIDDEN + b'\r\n0\r\n\r\n'
for head, body in [
    (b'content-length: 5\r\ntransfer-encoding: chunked\r\n', b'0\r\n\r\n' + HIDDEN),
    (b'transfer-encoding: chunked\r\ncontent-length: 5\r\n', b'0\r\n\r\n' + HIDDEN),
    (b'content-length: 0\r\n' + LENGTH, HIDDEN),
    (LENGTH + b'content-length: 0\r\n', HIDDEN),
    (b'content-length: 0, %d\r\n' % len(HIDDEN), HIDDEN),
    (b'transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n', CHUNK + HIDDEN),
    (b'transfer-encoding: xchunked\r\n', b'0\r\n\r\n' + HIDDEN),
    (b'transfer-encoding : chunked\r\n' + LENGTH, HIDDEN),
    (b'transfer-encoding:\x0bchunked\r\n' + LENGTH, HIDDEN),
    (b'transfer-encoding: chunked\r\n', b'0;\n\r\n' + HIDDEN),
    (b'transfer-encoding: chunked\r\n', b'0x0\r\n\r\n' + HIDDEN),
    (b'content-length: +5\r\n', b'12345' + HIDDEN),
    (b'x: y\n\n', HIDDEN),
    (b'x: y\r\n\r\n\r\n', HIDDEN),
    (b'connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n', HIDDEN),
    (b'connection: upgrade\r\nupgrade: tls/1.0\r\n', HIDDEN),
]:
    say(port, b'POST /in/x HTTP/1.1\r\n' + HOST + head + b'\r\n' + body, timeout=0.4)
"#;
        cage.attack(&format!("{TLS}{script}"), &[&port]);
        let hidden: Vec<String> = server.requests().iter().map(|it| it.target.clone()).collect();
        assert!(hidden.iter().all(|target| target == "/in/x"), "{backend}: {hidden:?}");
    }
}

#[test]
fn no_client_says_which_headers_are_dropped_on_the_way() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = HttpServer::start_tls(at("127.66.9.1"), &leaf, |_| Response::ok("here"));
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let before = server.requests().len();
        let script = r#"
KEY = b'sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
for more in (b'', b'upgrade: websocket\r\n' + KEY, b'upgrade: h2c\r\n', b'upgrade: websocket\r\n', b'upgrade: tcp\r\n'):
    say(sys.argv[1], b'GET /in/x HTTP/1.1\r\nhost: good.test:PORT\r\nconnection: upgrade, x-forwarded-for\r\n' + more + b'\r\n')
"#;
        cage.attack(&format!("{TLS}{script}"), &[&port]);
        let arrived: Vec<Option<String>> = server.requests()[before..]
            .iter()
            .map(|request| request.header("connection").map(str::to_string))
            .collect();
        assert_eq!(arrived, [None, Some("upgrade".into()), None], "{backend}");
    }
}

#[test]
fn a_request_for_another_host_does_not_arrive() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = HttpServer::start_tls(at("127.66.9.1"), &leaf, |_| Response::ok("here"));
    let port = server.port().to_string();
    for backend in backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
for line, hosts in [
    (b'/in/x', [b'evil.test']),
    (b'/in/x', [b'good.test:PORT', b'evil.test']),
    (b'/in/x', [b'evil.test', b'good.test:PORT']),
    (b'/in/x', [b'good.test, evil.test']),
    (b'/in/x', [b'evil.test@good.test']),
    (b'/in/x', [b'good.test:1']),
    (b'/in/x', []),
    (b'https://evil.test/in/x', [b'good.test:PORT']),
    (b'https://evil.test@good.test:PORT/in/x', [b'good.test:PORT']),
    (b'http://good.test:PORT/in/x', [b'good.test:PORT']),
    (b'https://good.test:PORT/in/x', [b'evil.test']),
]:
    head = b''.join(b'host: ' + host + b'\r\n' for host in hosts)
    say(port, b'GET ' + line + b' HTTP/1.1\r\n' + head + b'connection: close\r\n\r\n')
"#;
        cage.attack(&format!("{TLS}{script}"), &[&port]);
        assert_eq!(server.requests(), [], "{backend}");
    }
}

/// Frames of HTTP/2 by hand, with heads that no library would write.
const FRAMES: &str = r#"
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
def frame(kind, flags, stream, payload=b''):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload
def head(*fields):
    return b''.join(b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
def open_session(port):
    s = tls(port, ['h2'])
    assert s.selected_alpn_protocol() == 'h2'
    s.sendall(PREFACE + frame(4, 0, 0))
    return s
"#;

#[test]
fn no_head_of_http2_says_one_thing_to_us_and_another_to_the_server() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |_: Request<Incoming>| async {
        WebResponse::new(whole("here"))
    });
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
M, S, P, A = (b':method', b'GET'), (b':scheme', b'https'), (b':path', b'/in/x'), (b':authority', b'good.test:' + port.encode())
HEADS = [
    [M, S, P, A, (b':authority', b'evil.test')],
    [M, S, P, (b':authority', b'evil.test'), A],
    [M, S, P, (b':authority', b'evil.test')],
    [M, S, P, A, (b'host', b'evil.test')],
    [M, S, P, A, (b'host', A[1]), (b'host', b'evil.test')],
    [M, S, P, (b':authority', b'x@good.test')],
    [M, S, P],
    [M, S, A, (b':path', b'/out')],
    [M, S, A, P, (b':path', b'/out')],
    [M, S, A, (b':path', b'https://good.test/in/x')],
    [M, S, A, (b':path', b'https://evil.test/in/x')],
    [M, S, A, (b':path', b'in/x')],
    [M, S, A, (b':path', b'/in/../out')],
    [M, S, A, (b':path', b'/in/%2e%2e/out')],
    [M, S, A, (b':path', b'/in/x HTTP/1.1\r\nhost: evil.test\r\n\r\nGET /out')],
    [M, S, A, (b':path', b'')],
    [M, S, A],
    [M, P, A, (b':scheme', b'http')],
    [(b':method', b'GET /out HTTP/1.1\r\nx:'), S, P, A],
    [(b':method', b'PUT'), S, P, A],
    [(b':method', b'CONNECT'), A],
    [(b':method', b'CONNECT'), S, P, A, (b':protocol', b'websocket')],
    [M, S, P, A, (b'transfer-encoding', b'chunked')],
    [M, S, P, A, (b'connection', b'upgrade')],
    [M, S, P, A, (b'X-Upper', b'1')],
    [M, S, P, A, (b'x', b'1\r\ny: 2')],
    [M, S, P, A, (b'x:y', b'1')],
    [M, S, P, A, (b':extra', b'1')],
    [(b'x', b'1'), M, S, P, A],
]
for number, fields in enumerate(HEADS):
    try:
        s = open_session(port)
        s.sendall(frame(1, 5, 1, head(*fields)))
        reply(s, 0.3)
    except OSError:
        pass
"#;
        let before = server.lines().len();
        cage.attack(&format!("{TLS}{FRAMES}{script}"), &[&port]);
        assert_eq!(server.lines()[before..], [""; 0], "{backend}");
        // The same by a head that is fine, so that the frames are known to be.
        let fine = "s = open_session(sys.argv[1])
s.sendall(frame(1, 5, 1, head((b':method', b'GET'), (b':scheme', b'https'), (b':path', b'/in/x'), (b':authority', b'good.test'))))
if b'here' in reply(s, 0.8):
    print('fine')";
        assert_eq!(cage.attack(&format!("{TLS}{FRAMES}{fine}"), &[&port]), ["fine"], "{backend}");
    }
}

#[test]
fn streams_that_are_reset_over_and_over_end_the_connection_and_nothing_else() {
    let (dns, authority) = (names(), Authority::new());
    let leaf = authority.leaf(["good.test"]);
    let server = WebServer::start(at("127.66.9.1"), &leaf, MODERN, |_: Request<Incoming>| async {
        WebResponse::new(whole("here"))
    });
    let port = server.port().to_string();
    for backend in gateway_backends().iter().copied() {
        let cage = cage(backend, &inside_only(&dns, &authority, server.port()));
        let script = r#"
port = sys.argv[1]
fields = head((b':method', b'GET'), (b':scheme', b'https'), (b':path', b'/in/x'), (b':authority', b'good.test'))
def flood():
    s = open_session(port)
    burst = b''
    for number in range(20000):
        stream = 1 + 2 * number
        burst += frame(1, 5, stream, fields) + frame(3, 0, stream, (8).to_bytes(4, 'big'))
    try:
        s.sendall(burst)
        while s.recv(65536):
            pass
    except OSError:
        pass
flood()
s = open_session(port)
s.sendall(frame(1, 5, 1, fields))
if b'here' in reply(s, 1.5):
    print('still there')
"#;
        let mut lines = Vec::new();
        let grown = growth(|| lines = cage.attack(&format!("{TLS}{FRAMES}{script}"), &[&port]));
        assert_eq!(lines, ["still there"], "{backend}");
        assert!(grown < 100 * 1024, "{backend}: {grown} KiB");
    }
}

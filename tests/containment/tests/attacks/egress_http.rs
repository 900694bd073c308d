//! In the clear, every request wants the host that the connection is for: the first, the second, and what hides between
//! them.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns, HttpServer, Response, Server};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.2.1")] } else { Vec::new() })
}

fn web() -> HttpServer {
    HttpServer::start(at("127.66.2.1"), |_| Response::ok("here"))
}

fn caged(backend: BackendName, dns: &Dns, port: u16) -> Cage {
    cage(backend, &policy(dns, &[&format!("=good.test:{port}/http")]))
}

/// Sends each of these to the allowed name, on a connection of its own.
const SEND_ALL: &str = r#"
for request in REQUESTS:
    attack('x', lambda: send('good.test', sys.argv[1], request.replace(b'PORT', sys.argv[1].encode()), timeout=0.4) and None)
"#;

#[test]
fn no_request_for_another_host_arrives() {
    let (dns, server) = (names(), Capture::start(at("127.66.2.1")));
    let requests = r#"
REQUESTS = [head + b'\r\n\r\n' for head in [
    b'GET /a HTTP/1.1\r\nHost: evil.test',
    b'GET /a HTTP/1.1\r\nHost: evil.test:PORT',
    b'GET /a HTTP/1.1\r\nHost: good.test.evil.test',
    b'GET /a HTTP/1.1\r\nHost: evilgood.test',
    b'GET /a HTTP/1.1\r\nHost: x.good.test',
    b'GET /a HTTP/1.1\r\nHost: good.test:1',
    b'GET /a HTTP/1.1\r\nHost: good.test:',
    b'GET /a HTTP/1.1\r\nHost: good.test:+PORT',
    b'GET /a HTTP/1.1\r\nHost: good.test:0PORT',
    b'GET /a HTTP/1.1\r\nHost: good.test:PORT:PORT',
    b'GET /a HTTP/1.1\r\nHost: good.test:PORT, evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test, evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test#evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test/evil.test',
    b'GET /a HTTP/1.1\r\nHost: evil.test@good.test',
    b'GET /a HTTP/1.1\r\nHost: good.test@evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\\evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\x00evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\x0bevil.test',
    b'GET /a HTTP/1.1\r\nHost: good.te\xc2\xadst',
    b'GET /a HTTP/1.1\r\nHost: \xef\xbd\x87ood.test',
    b'GET /a HTTP/1.1\r\nHost: good\xe3\x80\x82test',
    b'GET /a HTTP/1.1\r\nHost: [::1]',
    b'GET /a HTTP/1.1\r\nHost: 127.66.2.1',
    b'GET /a HTTP/1.1\r\nHost: 127.66.2.1:PORT',
    b'GET /a HTTP/1.1\r\nHost:',
    b'GET /a HTTP/1.1\r\nHost: .',
    b'GET /a HTTP/1.1\r\nX: y',
    b'GET /a',
    b'GET /a HTTP/1.1\r\nHost: good.test\r\nHost: evil.test',
    b'GET /a HTTP/1.1\r\nHost: evil.test\r\nHost: good.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\r\nhost: good.test',
    b'GET /a HTTP/1.1\r\nHost : evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\r\nHost : evil.test',
    b'GET /a HTTP/1.1\r\n Host: good.test\r\nHost: evil.test',
    b'GET /a HTTP/1.1\r\nHost: good.test\r\n evil.test',
    b'GET /a HTTP/1.1\r\nHost:\r\n good.test',
    b'GET /a HTTP/1.1\r\nX: y\r\n Host: evil.test\r\nHost: good.test',
    b'GET /a HTTP/1.1\rHost: evil.test\r\nHost: good.test',
    b'GET http://evil.test/a HTTP/1.1\r\nHost: good.test',
    b'GET http://evil.test:PORT/a HTTP/1.1\r\nHost: good.test',
    b'GET http://good.test@evil.test/a HTTP/1.1\r\nHost: good.test',
    b'GET http://evil.test@good.test/a HTTP/1.1\r\nHost: good.test',
    b'GET http://good.test/a HTTP/1.1\r\nHost: evil.test',
    b'GET http://good.test:1/a HTTP/1.1\r\nHost: good.test',
    b'GET https://evil.test/a HTTP/1.1\r\nHost: good.test',
    b'GET evil.test:80 HTTP/1.1\r\nHost: good.test',
    b'GET //evil.test@/a b HTTP/1.1\r\nHost: good.test',
    b'CONNECT good.test:PORT HTTP/1.1\r\nHost: good.test:PORT',
    b'CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test',
    b'CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443',
    b'CONNECT 127.0.0.1:22 HTTP/1.0',
    b'connect good.test:PORT HTTP/1.1\r\nHost: good.test',
    b'GET /a HTTP/2.0\r\nHost: good.test',
    b'GET /a HTTP/1.1 \r\nHost: evil.test',
    b'GET\t/a\tHTTP/1.1\r\nHost: good.test',
    b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes(9),
    b'HELO good.test',
    b'SSH-2.0-x',
    b'\0\0\0\x08\x04\xd2\x16\x2f',
    record(hello(sni(b'good.test'))),
    b'\x05\x01\x00\x03\tevil.test\0\x50',
    b'\x04\x01\x00\x50\x7f\x00\x00\x01\x00',
]]
"#;
    for backend in backends() {
        let cage = caged(*backend, &dns, server.port());
        cage.attack(&format!("{requests}{SEND_ALL}"), &[&server.port().to_string()]);
        let arrived: Vec<String> = server.connections().iter().map(|bytes| text(bytes)).collect();
        assert_eq!(arrived, Vec::<String>::new(), "{backend}");
        server.assert_nothing_arrived();
        assert_eq!(cage.opened(), 0, "{backend}");
        assert_eq!(dns.queries(), [], "{backend}: no resolver was needed");
        assert!(!cage.refused_for(Reason::HostDiffers).is_empty(), "{backend}");
    }
    let cage = caged(backends()[0], &dns, server.port());
    let fine =
        "send('good.test', sys.argv[1], b'GET /fine HTTP/1.1\\r\\nHost: GOOD.test\\r\\n\\r\\n', timeout=0.3)";
    cage.attack(fine, &[&server.port().to_string()]);
    assert!(eventually(|| text(&server.connections().concat()).starts_with("GET /fine")), "it would arrive");
}

#[test]
fn a_later_request_on_a_connection_is_looked_at_as_the_first_one() {
    let (dns, server) = (names(), web());
    let port = server.port().to_string();
    for backend in gateway_backends() {
        caged(*backend, &dns, server.port()).attack(
            r#"
FIRST = b'GET /first HTTP/1.1\r\nHost: good.test\r\n\r\n'
for second in (b'GET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n', b'GET http://evil.test/second HTTP/1.1\r\nHost: good.test\r\n\r\n',
        b'CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes(9) + b'/second',
        b'GET /second HTTP/1.1\r\n\r\n', record(hello(sni(b'evil.test'))) + b'/second'):
    # Together, after the answer, and in small pieces.
    send('good.test', sys.argv[1], FIRST + second, timeout=0.3)
    s = dial('good.test', sys.argv[1])
    s.sendall(FIRST)
    answer = b''
    while b'here' not in answer:
        answer += s.recv(4096) or sys.exit('no answer')
    s.sendall(second)
    reply(s, 0.3)
    send('good.test', sys.argv[1], *[bytes([byte]) for byte in FIRST + second], timeout=0.3)
"#,
            &[&port],
        );
    }
    let requests = server.requests();
    assert!(requests.len() >= 6 * 3, "the first ones arrive");
    let others: Vec<_> = requests.iter().filter(|request| request.target != "/first").collect();
    assert!(others.is_empty(), "{others:?}");
}

/// A server that answers whatever comes and keeps its bytes, each connection's apart.
struct Raw {
    server: Server,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn raw(answer: &'static [u8]) -> Raw {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let server = Server::start(at("127.66.2.1"), move |mut stream| {
        let number = {
            let mut kept = kept.lock().unwrap();
            kept.push(Vec::new());
            kept.len() - 1
        };
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            kept.lock().unwrap()[number].extend_from_slice(&buffer[..length]);
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    Raw { server, seen }
}

#[test]
fn what_is_smuggled_between_two_requests_is_never_the_head_of_one() {
    let dns = names();
    let cases: &[(&str, &str)] = &[
        ("CL.TE", r"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("TE.CL", r"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n"),
        ("two lengths", r"Content-Length: 0\r\nContent-Length: 60\r\n\r\n"),
        ("a length said twice", r"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345"),
        ("a list of lengths", r"Content-Length: 0, 60\r\n\r\n"),
        ("a length with a sign", r"Content-Length: +0\r\n\r\n"),
        ("a length in another base", r"Content-Length: 0x00\r\n\r\n"),
        ("a tab before the encoding", r"Content-Length: 60\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n"),
        ("an unknown encoding", r"Content-Length: 60\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("one that is undone", r"Transfer-Encoding: chunked, identity\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"),
        ("two encodings", r"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("a folded line", r"Transfer-Encoding:\r\n chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n"),
        ("a space before the colon", r"Transfer-Encoding : chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n"),
        ("a chunk with an extension", r"Transfer-Encoding: chunked\r\n\r\n0;a=\r\nb\r\n\r\n"),
        ("a chunk that overflows", r"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n"),
        ("a chunk with a bare line end", r"Transfer-Encoding: chunked\r\n\r\n0\n\n"),
        ("a trailer", r"Trailer: host\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.test\r\n\r\n"),
        ("hops", r"Connection: host, content-length\r\nContent-Length: 5\r\n\r\n12345"),
    ];
    for backend in gateway_backends() {
        for (what, tail) in cases {
            let raw = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            let port = raw.server.port().to_string();
            let script = format!(
                r#"
smuggled = b'GET /smuggled HTTP/1.1\r\nHost: evil.test\r\nX: y\r\n\r\n'
for version in (b'1.1', b'1.0'):
    send('good.test', sys.argv[1], b'POST /first HTTP/' + version + b'\r\nHost: good.test\r\n{tail}' + smuggled, timeout=0.3)
"#
            );
            caged(*backend, &dns, raw.server.port()).attack(&script, &[&port]);
            for seen in raw.seen.lock().unwrap().iter() {
                let whole = text(seen);
                let mut rest = whole.as_str();
                while !rest.is_empty() {
                    rest =
                        after_first(rest).unwrap_or_else(|why| panic!("{backend}: {what}: {why}: {whole}"));
                }
            }
        }
    }
}

/// What follows a request whose host and length are unambiguous.
fn after_first(seen: &str) -> Result<&str, &'static str> {
    let (head, rest) = seen.split_once("\r\n\r\n").ok_or("no head")?;
    let headers: Vec<String> = head.lines().skip(1).map(str::to_lowercase).collect();
    let values = |name: &str| -> Vec<&str> {
        headers.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
    };
    if values("host") != ["good.test"] || values("connection").iter().any(|value| value.contains("host")) {
        return Err("for somebody else");
    }
    match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => Ok(rest),
        ([length], []) => {
            let length: usize = length.parse().map_err(|_| "not a length")?;
            Ok(&rest[length.min(rest.len())..])
        }
        ([], ["chunked"]) => {
            let mut rest = rest;
            while let Some((size, chunk)) = rest.split_once("\r\n") {
                let size = usize::from_str_radix(size, 16).map_err(|_| "not a chunk")?;
                rest = chunk.get(size + 2..).unwrap_or_default();
                if size == 0 {
                    break;
                }
            }
            Ok(rest)
        }
        _ => Err("of two lengths"),
    }
}

/// HTTP/2 in the clear, or TLS, on a connection that began as HTTP/1: what follows names its host where the gateway does not look.
#[test]
fn an_upgrade_to_what_cannot_be_looked_into_is_not_passed_on() {
    let dns = names();
    for backend in gateway_backends() {
        for upgrade in
            ["h2c", "TLS/1.2", "HTTP/2.0", "websocket, h2c", "H2C", "foo", "connect-udp", "connect-ip"]
        {
            let raw = raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n");
            let port = raw.server.port().to_string();
            caged(*backend, &dns, raw.server.port()).attack(
                r#"
s = dial('good.test', sys.argv[1])
s.sendall(b'GET /first HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n' % sys.argv[2].encode())
try:
    s.settimeout(0.5)
    s.recv(1000)
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n:authority evil.test')
    reply(s, 0.3)
except OSError:
    pass
"#,
                &[&port, upgrade],
            );
            let seen = text(&raw.seen.lock().unwrap().concat());
            assert!(!seen.contains("evil.test"), "{backend}: {upgrade}: {seen}");
        }
    }
}

#[test]
fn tls_at_a_port_for_http_does_not_arrive() {
    let (dns, server) = (names(), Capture::start(at("127.66.2.1")));
    let port = server.port().to_string();
    for backend in gateway_backends() {
        let cage = caged(*backend, &dns, server.port());
        cage.attack(
            r#"
for name in (b'good.test', b'evil.test'):
    send('good.test', sys.argv[1], record(hello(sni(name))), timeout=0.3)
send('good.test', sys.argv[1], b'\x16', b'\x03', b'\x01', record(hello())[3:], pause=0.05, timeout=0.3)
"#,
            &[&port],
        );
        server.assert_nothing_arrived();
        assert!(!cage.refused_for(Reason::ProtocolNotAllowed).is_empty(), "{backend}");
    }
}

#[test]
fn a_malformed_request_does_not_arrive_and_is_recorded() {
    let (dns, server) = (names(), Capture::start(at("127.66.2.1")));
    let port = server.port().to_string();
    for backend in gateway_backends() {
        let cage = caged(*backend, &dns, server.port());
        cage.attack(
            r#"
send('good.test', sys.argv[1], b'GET / HTTP/1.1\r\nHost: good.test\r\nno colon\r\n\r\n', timeout=0.5)
"#,
            &[&port],
        );
        server.assert_nothing_arrived();
        assert!(!cage.refused_for(Reason::ProtocolNotAllowed).is_empty(), "{backend}");
    }
}

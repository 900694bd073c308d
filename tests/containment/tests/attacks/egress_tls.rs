//! A TLS client says in the clear whom it wants, and that is whom it asked for: once, in whatever pieces, and again when
//! the server has it begin anew.

use belljar_spec::egress::Reason;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Authority, Capture, Child, Dns, Server, have};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.4.1")] } else { Vec::new() })
}

#[test]
fn no_hello_for_another_server_arrives() {
    let (dns, server) = (names(), Capture::start(at("127.66.4.1")));
    let port = server.port().to_string();
    for backend in backends() {
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/tls")]));
        cage.attack(
            r#"
def attempt(*pieces, pause=0.0):
    send('good.test', sys.argv[1], *pieces, pause=pause, timeout=0.2)
GOOD, EVIL = sni(b'good.test'), sni(b'evil.test')
whole = record(hello(EVIL))
attempt(whole)
attempt(whole[:20], whole[20:], pause=0.05)
attempt(*[bytes([byte]) for byte in whole])
message = hello(EVIL)
attempt(*[record(message[i:i + 1]) for i in range(len(message))])
attempt(b''.join(record(message[i:i + 7]) for i in range(0, len(message), 7)))
# Whatever one reader may take for good.test and another for evil.test.
for extensions in ([], [sni(b'good.test', b'evil.test')], [sni(b'evil.test', b'good.test')], [GOOD, EVIL], [EVIL, GOOD],
        [ext(0, vec(2, b'\1' + vec(2, b'good.test')))], [ext(0, b'')], [ext(0, b'\0\0')], [sni(b'')],
        [ext(0, vec(2, b'\0' + vec(2, b'good.test')) + b'x')], [ext(0, vec(2, b'\1' + vec(2, b'x') + b'\0' + vec(2, b'good.test')))],
        [sni(b'good.test\0.evil.test')], [sni(b'good.test\0')], [sni(b'evil.test\0good.test')], [sni(b'good.test.evil.test')],
        [sni(b'evilgood.test')], [sni(b'sub.good.test')], [sni(b'good.test:443')], [sni(b' good.test')], [sni(b'good.test ')],
        [sni(b'*.test')], [sni(b'127.66.4.1')], [sni('g\u00f6od.test'.encode())], [sni(b'xn--good-.test')], [sni(b'.good.test')],
        [sni(b'good..test')], [sni(b'good.test..')], [sni('\uff47ood.test'.encode())],
        [GOOD, ext(0xfe0d, b'\0\0\1\0\1\x2a' + vec(2, bytes(32)) + vec(2, bytes(144)))], [GOOD, ext(0xfe0d, b'')], [GOOD, ext(0xffce, b'x')],
        [GOOD, ext(0xfe09, b'')], [EVIL, ext(0xfe0d, b'\1')], [GOOD, ext(10, b''), ext(10, b'')]):
    attempt(record(hello(*extensions)))
# Messages and records that are not what they seem.
attempt(record(hello(GOOD) + hello(EVIL)))
attempt(record(b'') + record(hello(EVIL)))
attempt(record(hello(EVIL)[:9]) + record(b'\1\0', kind=21) + record(hello(EVIL)[9:]))
attempt(record(b'\1', kind=20) + record(hello(EVIL)))
attempt(record(hello(EVIL), version=b'\x03\x04'))
attempt(b'\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10' + b'\0' * 37 + record(hello(EVIL)))
attempt(record(b'\1' + (70000).to_bytes(3, 'big') + bytes(60)))
attempt(b'\x16\x03\x01\xff\xff' + bytes(70000))
attempt(record(b'\2' + hello(GOOD)[1:]))
# Other protocols than the one that is allowed.
for other in (b'GET / HTTP/1.1\r\nHost: good.test\r\n\r\n', b'SSH-2.0-x\r\n', b'\0\0\0\x08\x04\xd2\x16\x2f', b'EHLO x\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
        b'\x05\1\0', b'\x17\x03\x03\0\x05hello', b'\x14\x03\x03\0\1\1', b'\x15\x03\x03\0\2\1\0', b'\0', b'x' * 5000):
    attempt(other)
"#,
            &[&port],
        );
        server.assert_nothing_arrived();
        assert_eq!(cage.opened(), 0, "{backend}");
        assert_eq!(dns.queries(), [], "{backend}: no resolver was needed");
        for reason in [
            Reason::ServerNameDiffers,
            Reason::ServerNameMissing,
            Reason::EncryptedHello,
            Reason::MalformedStart,
            Reason::ProtocolNotAllowed,
        ] {
            assert_eq!(cage.refused_for(reason), ["good.test"], "{backend}: {reason:?}");
        }
    }
    let cage = cage(backends()[0], &policy(&dns, &[&format!("=good.test:{port}/tls")]));
    cage.attack("send('good.test', sys.argv[1], record(hello(sni(b'GOOD.test'))), timeout=0.3)", &[&port]);
    assert!(eventually(|| server.connections().concat().starts_with(b"\x16\x03\x01")), "it would arrive");
}

/// The second hello of a client that was asked to begin again, as servers read it.
const AGAIN: &str = r#"
BASE = ext(43, vec(1, b'\x03\x04')) + ext(10, vec(2, b'\x00\x1d')) + ext(13, vec(2, b'\x08\x04\x04\x03\x08\x07'))
def first(name):
    return record(hello(sni(name), BASE, ext(51, vec(2, b''))))
def second(name):
    return record(hello(*([sni(name)] if name else []), BASE, ext(51, vec(2, b'\x00\x1d' + vec(2, bytes(range(9, 41)))))))
CHANGE, EARLY = record(b'\1', kind=20), record(b'x' * 50, kind=23)
"#;

/// A server that has every client begin again and keeps what it hears: real ones choose the site by the second hello.
fn asking_again(prelude: &'static [u8]) -> (Server, Arc<Mutex<Vec<u8>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&received);
    let again = again();
    let server = Server::start(at("127.66.4.1"), move |mut stream: TcpStream| {
        let mut buffer = [0; 65536];
        if !prelude.is_empty() {
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(prelude);
        }
        let mut requested = false;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            kept.lock().unwrap().extend_from_slice(&buffer[..length]);
            if !std::mem::replace(&mut requested, true) {
                // In two pieces, and late: the gateway must not pass on what is waiting after some time.
                std::thread::sleep(Duration::from_millis(100));
                let _ = stream.write_all(&again[..20]);
                std::thread::sleep(Duration::from_millis(50));
                let _ = stream.write_all(&again[20..]);
            }
        }
    });
    (server, received)
}

/// A server's wish to have another hello (RFC 8446 §4.1.4): its own, with the number that says so.
fn again() -> Vec<u8> {
    let random = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    let tail = [0, 0x13, 1, 0, 0, 12, 0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d];
    [&[22, 3, 3, 0, 56, 2, 0, 0, 52, 3, 3][..], &random, &tail].concat()
}

#[test]
fn a_client_that_is_asked_again_cannot_want_another_server() {
    let dns = names();
    for backend in gateway_backends() {
        for (protocol, prelude, begin) in
            [("tls", &b""[..], ""), ("postgres", b"S", r"\0\0\0\x08\x04\xd2\x16\x2f")]
        {
            let (server, received) = asking_again(prelude);
            let port = server.port().to_string();
            let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/{protocol}")]));
            let begin = format!(
                r#"{AGAIN}
def start():
    s = dial('good.test', sys.argv[1])
    if b'{begin}':
        s.sendall(b'{begin}')
        s.recv(1)
    return s
def attempt(*pieces, waits=True):
    s = start()
    try:
        s.sendall(pieces[0])
        if waits:
            s.settimeout(2)
            s.recv(100)
        for piece in pieces[1:]:
            s.sendall(piece)
            time.sleep(0.002)
        reply(s, 0.3)
    except OSError:
        pass
"#
            );
            cage.attack(
                &format!(
                    r#"{begin}
for waits in (True, False):
    attempt(first(b'good.test'), second(b'evil.test'), waits=waits)
    attempt(first(b'good.test'), CHANGE + second(b'evil.test'), waits=waits)
    attempt(first(b'good.test'), CHANGE, EARLY, EARLY, second(b'evil.test'), waits=waits)
    attempt(first(b'good.test'), *[bytes([byte]) for byte in second(b'evil.test')], waits=waits)
attempt(first(b'good.test') + second(b'evil.test'))
attempt(first(b'good.test') + CHANGE + EARLY + second(b'evil.test'))
attempt(first(b'good.test'), record(hello(sni(b'good.test'), BASE, ext(0xfe0d, b'x'))))
attempt(first(b'good.test'), b'evil.test in the clear')
"#
                ),
                &[&port],
            );
            let arrived = text(&received.lock().unwrap());
            assert!(!arrived.contains("evil.test"), "{backend}: {protocol}: {arrived}");
            assert!(arrived.contains("good.test"), "{backend}: {protocol}: the first one arrives");
            assert!(!cage.refused_for(Reason::ServerNameDiffers).is_empty(), "{backend}: {protocol}");
            received.lock().unwrap().clear();
            cage.attack(
                &format!("{begin}\nattempt(first(b'good.test'), CHANGE + second(b'good.test'))"),
                &[&port],
            );
            let arrived = text(&received.lock().unwrap());
            assert_eq!(
                arrived.matches("good.test").count(),
                2,
                "{backend}: {protocol}: an honest one gets through"
            );
        }
    }
}

/// The same with a server that people run, which would answer for the other site.
#[test]
fn a_real_server_is_not_made_to_answer_for_another_site() {
    if !have(["openssl"]) {
        return;
    }
    let (dns, place, authority) = (names(), folder(), Authority::new());
    for (name, leaf) in [("good", authority.leaf(["good.test"])), ("evil", authority.leaf(["evil.test"]))] {
        std::fs::write(place.path().join(format!("{name}.pem")), leaf.certificate_pem()).unwrap();
        std::fs::write(place.path().join(format!("{name}.key")), leaf.key_pem()).unwrap();
    }
    let port = TcpListener::bind("127.66.4.1:0").unwrap().local_addr().unwrap().port();
    let log = std::fs::File::create(place.path().join("log")).unwrap();
    let _server = Child::start(
        Command::new("openssl")
            .args(["s_server", "-accept", &format!("127.66.4.1:{port}"), "-tls1_3", "-www", "-tlsextdebug"])
            .args(["-cert", "good.pem", "-key", "good.key", "-servername", "evil.test"])
            .args(["-cert2", "evil.pem", "-key2", "evil.key"])
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log),
    );
    assert!(eventually(|| TcpStream::connect(("127.66.4.1", port)).is_ok()));
    for backend in gateway_backends() {
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/tls")]));
        let answers = cage.attack(
            &format!(
                r#"{AGAIN}
for name in (b'good.test', b'evil.test'):
    s = dial('good.test', sys.argv[1])
    s.sendall(first(b'good.test'))
    s.recv(1000)
    s.sendall(CHANGE + second(name))
    # A server's hello begins what would be the other site's answer; what is left is an alert.
    print(name.decode(), reply(s, 0.5)[:1].hex())
"#
            ),
            &[&port.to_string()],
        );
        assert_eq!(answers, ["good.test 16", "evil.test 15"], "{backend}");
    }
}

#[test]
fn postgres_in_tls_is_for_the_server_that_was_asked_for() {
    let dns = names();
    for backend in gateway_backends() {
        // Says yes to TLS, as many do, has every client begin again, and keeps what it hears.
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        let server = Server::start(at("127.66.4.1"), move |mut stream| {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let printed = &buffer[..length];
                kept.lock().unwrap().extend_from_slice(printed);
                let answer = if printed[0] == 0x16 { &again()[..] } else { &b"S"[..] };
                let _ = stream.write_all(answer);
            }
        });
        let port = server.port().to_string();
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/postgres")]));
        cage.attack(
            r#"
ASK = b'\0\0\0\x08\x04\xd2\x16\x2f'
EVIL = record(hello(sni(b'evil.test')))
def offer(mark, *names):
    return record(hello(sni(b'good.test'), ext(16, vec(2, b''.join(vec(1, name) for name in names))), ext(0xffaa, mark)))
def ask():
    s = dial('good.test', sys.argv[1])
    s.sendall(ASK)
    s.recv(1)
    return s
# As PostgreSQL's own clients do it: these arrive.
s = ask()
s.sendall(offer(b'after asking', b'postgresql'))
s.recv(1)
s = dial('good.test', sys.argv[1])
s.sendall(offer(b'at once', b'postgresql'))
s.recv(1)
s.sendall(offer(b'and again', b'postgresql'))
s.recv(1)
# Another protocol beside it, which the server might choose.
for names in ((b'h2', b'http/1.1', b'postgresql'), (b'postgresql', b'h2'), (b'h2',), (b'postgresql', b'postgresql2')):
    send('good.test', sys.argv[1], offer(b'evil.test', *names), timeout=0.3)
    s = ask()
    try:
        s.sendall(offer(b'evil.test', *names))
        reply(s, 0.3)
    except OSError:
        pass
    s = dial('good.test', sys.argv[1])
    s.sendall(offer(b'', b'postgresql'))
    s.recv(1)
    try:
        s.sendall(offer(b'evil.test', *names))
        reply(s, 0.3)
    except OSError:
        pass
for behind in (EVIL, record(hello(sni(b'good.test'), ext(0xfe0d, b'x'))), b'evil.test in the clear', b'\0\0\0\x29\0\x03\0\0user\0evil.test',
        record(hello(sni(b'good.test', b'evil.test'))), record(hello(sni(b'evil.test'), sni(b'good.test')))):
    s = dial('good.test', sys.argv[1])
    s.sendall(ASK)
    s.recv(1)
    try:
        s.sendall(behind)
        reply(s, 0.3)
    except OSError:
        pass
    # Everything at once, before the server could say yes.
    send('good.test', sys.argv[1], ASK + behind, timeout=0.3)
    # Not through the question at all.
    send('good.test', sys.argv[1], behind, timeout=0.3) if behind[:1] == b'\x16' else None
for alpn in (b'\x02h2', b'\x0apostgresql'):
    send('good.test', sys.argv[1], record(hello(sni(b'evil.test'), ext(16, vec(2, alpn)))), timeout=0.3)
send('good.test', sys.argv[1], record(hello(sni(b'good.test'), ext(16, vec(2, b'\x02h2')))) + b'evil.test', timeout=0.3)
"#,
            &[&port],
        );
        let arrived = text(&received.lock().unwrap());
        for control in ["after asking", "at once", "and again"] {
            assert!(arrived.contains(control), "{backend}: {control}: {arrived}");
        }
        assert!(!arrived.contains("evil.test"), "{backend}: {arrived}");
    }
}

#[test]
fn a_port_for_ssh_carries_nothing_else_however_long_the_client_waits() {
    let dns = names();
    for backend in gateway_backends() {
        // One that speaks, one that is silent, one that has said all: each may take what comes.
        for manner in ["speaks", "silent", "done"] {
            let received = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&received);
            let server = Server::start(at("127.66.4.1"), move |mut stream| {
                match manner {
                    "speaks" => drop(stream.write_all(b"SSH-2.0-test\r\n")),
                    "done" => drop(stream.shutdown(std::net::Shutdown::Write)),
                    _ => {}
                }
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    kept.lock().unwrap().extend_from_slice(&buffer[..length]);
                }
            });
            let port = server.port().to_string();
            let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/ssh")]));
            cage.attack(
                r#"
for late in (0, 0.4):
    for what in (b'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n', record(hello(sni(b'evil.test'))), b'\0\0\0\x08evil', b'SSHevil'):
        try:
            s = dial('good.test', sys.argv[1])
            time.sleep(late)
            s.sendall(what[:1])
            time.sleep(0.02)
            s.sendall(what[1:])
            reply(s, 0.1)
        except OSError:
            pass
"#,
                &[&port],
            );
            let arrived = text(&received.lock().unwrap());
            assert_eq!(arrived, "", "{backend}: {manner}");
        }
    }
}

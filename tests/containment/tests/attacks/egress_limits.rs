//! Limits hold for every protocol: connections are counted while they are open, bytes before they leave, and no traffic of a
//! sandbox continues after it has ended.

use belljar_spec::ByteSize;
use belljar_spec::egress::Reason;
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Dns, Server};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.3.1")] } else { Vec::new() })
}

/// A server that agrees to every upgrade, says something from then on, and never hangs up. Counts who is there.
fn upgrading() -> (Server, Arc<AtomicUsize>) {
    let present = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&present);
    let server = Server::start(at("127.66.3.1"), move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..length]);
        }
        // The client has said all; only when it is gone does writing fail.
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        count.fetch_sub(1, Ordering::SeqCst);
    });
    (server, present)
}

const UPGRADE: &str = r#"
ASK = b'GET /chat HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
def upgraded():
    s = dial('good.test', sys.argv[1])
    s.sendall(ASK)
    if b'101' in s.recv(1000):
        return s
    raise OSError('no')
"#;

#[test]
fn connections_that_were_upgraded_still_count() {
    let dns = names();
    for backend in gateway_backends() {
        let (server, present) = upgrading();
        let mut policy = policy(&dns, &[&format!("=good.test:{}/http", server.port())]);
        policy.limits.connections = 5;
        let cage = cage(*backend, &policy);
        cage.attack(
            &format!(
                r#"{UPGRADE}
kept = []
for _ in range(30):
    try:
        kept.append(upgraded())
    except OSError:
        pass
open('/workspace/done', 'w')
"#
            ),
            &[&server.port().to_string()],
        );
        assert!(server.accepted() >= 5, "{backend}: upgrades work");
        assert!(server.accepted() <= 5, "{backend}: {} connections where 5 are allowed", server.accepted());
        assert!(!cage.refused_for(Reason::TooManyConnections).is_empty(), "{backend}");
        drop(cage);
        assert!(eventually(|| present.load(Ordering::SeqCst) == 0), "{backend}: some outlive their sandbox");
    }
}

#[test]
fn an_upgraded_connection_is_recorded_to_its_end_and_ends_with_its_sandbox() {
    let dns = names();
    for backend in backends() {
        let (server, present) = upgrading();
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{}/http", server.port())]));
        cage.attack(
            &format!("{UPGRADE}\ns = upgraded()\ns.sendall(b'x' * 50000)\nwhile len(reply(s, 3, 50000)) < 50000: pass\n"),
            &[&server.port().to_string()],
        );
        cage.sandbox.dispose_blocking();
        assert!(
            eventually(|| present.load(Ordering::SeqCst) == 0),
            "{backend}: it goes on without its sandbox"
        );
        let closed = cage.lines().into_iter().find(|line| line.contains("connection_closed")).unwrap();
        let sent = closed.split(r#""sent":"#).nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert!(sent.parse::<u64>().unwrap() >= 50_000, "{backend}: {closed}");
    }
}

#[test]
fn no_more_bytes_leave_than_allowed_by_any_protocol() {
    let dns = names();
    for backend in gateway_backends() {
        for protocol in ["http", "tcp", "tls", "postgres", "ssh"] {
            let arrived = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&arrived);
            let server = Server::start(at("127.66.3.1"), move |mut stream| {
                let mut buffer = [0; 65536];
                let mut answer = if protocol == "tls" { &b"\x16"[..] } else { b"" };
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(length, Ordering::SeqCst);
                    // Behind a hello nothing is passed on before there is an answer.
                    let _ = stream.write_all(std::mem::take(&mut answer));
                    let _ = stream.write_all(if protocol == "tls" { b"\x02" } else { b"" });
                }
            });
            let mut policy = policy(&dns, &[&format!("=good.test:{}/{protocol}", server.port())]);
            policy.limits.bytes = Some(ByteSize::bytes(64 << 10));
            let cage = cage(*backend, &policy);
            cage.attack(
                r#"
START = dict(http=b'POST /a HTTP/1.1\r\nHost: good.test\r\nContent-Length: 30000\r\n\r\n', tcp=b'', ssh=b'SSH-2.0-x\r\n',
    tls=record(hello(sni(b'good.test'))), postgres=b'\0\0\0\x29\0\x03\0\0user\0')[sys.argv[2]]
for _ in range(40):
    send('good.test', sys.argv[1], START + b'y' * 30000, timeout=0.05)
"#,
                &[&server.port().to_string(), protocol],
            );
            std::thread::sleep(Duration::from_millis(100));
            let arrived = arrived.load(Ordering::SeqCst);
            assert!(arrived <= 64 << 10, "{backend}: {protocol}: {arrived} bytes arrived");
            assert!(arrived >= 30_000, "{backend}: {protocol}: {arrived}");
            let refused = cage.refused_for(Reason::ByteLimit);
            assert!(!refused.is_empty(), "{backend}: {protocol}: no refusal for the limit");
        }
    }
}

#[test]
fn no_more_bytes_come_in_than_allowed_while_a_client_is_silent() {
    let dns = names();
    for backend in gateway_backends() {
        for protocol in ["ssh", "tcp"] {
            // Speaks first, as such servers do, and does not stop.
            let poured = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&poured);
            let server = Server::start(at("127.66.3.1"), move |mut stream| {
                while let Ok(length) = stream.write(&[b'z'; 65536]) {
                    count.fetch_add(length, Ordering::SeqCst);
                }
            });
            let mut policy = policy(&dns, &[&format!("=good.test:{}/{protocol}", server.port())]);
            policy.limits.bytes = Some(ByteSize::mebibytes(1));
            let cage = cage(*backend, &policy);
            let got = cage.attack(
                r#"
try:
    print(len(reply(dial('good.test', sys.argv[1]), 3, 64 << 20)))
except OSError:
    # All of it came and went before anybody could read.
    print(0)
"#,
                &[&server.port().to_string()],
            );
            let got: usize = got[0].parse().unwrap();
            assert!(got <= 1 << 20, "{backend}: {protocol}: {got} bytes where a mebibyte is allowed");
            assert!(server.accepted() > 0, "{backend}: {protocol}");
        }
    }
}

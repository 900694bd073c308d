//! Connections from outside to what listens inside.

use belljar_engine::Running;
use belljar_spec::{BackendName, ErrorCode, ErrorKind};
use belljar_tests_conformance::*;
use std::net::TcpListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

for_every_backend! {
    everywhere:
        bytes_go_both_ways,
        ports_that_programs_open_are_told,
        a_port_without_a_listener_is_refused,
        a_listener_of_the_host_is_not_reached,
        without_isolation_it_is_refused_by_name,
        belljars_own_ports_are_refused,
        a_connection_ends_with_the_sandbox;
    each_kernel:
        each_direction_ends_by_itself,
        the_other_loopback_address_is_tried,
        many_connections_do_not_mix,
        much_goes_through,
        a_connection_ends_with_who_listens;
}

/// A server inside that sends back what it gets, in capitals; `None` without isolation.
async fn shouting(backend: BackendName, address: &str) -> Option<(SandboxFixture, Running, u16)> {
    let fixture = SandboxFixture::new(backend).await;
    let (running, port) = listen(&fixture, address, SHOUT).await?;
    Some((fixture, running, port))
}

async fn listen(fixture: &SandboxFixture, address: &str, serve: &str) -> Option<(Running, u16)> {
    if !is_isolated(fixture.backend()) {
        return None;
    }
    let script = format!("ADDRESS = {address:?}\n{LISTEN}{serve}");
    let mut running = fixture.spawn(&python(&script)).await.unwrap();
    let printed = read_until(&mut running, "\n").await;
    Some((running, printed.trim().parse().unwrap()))
}

const LISTEN: &str = r#"
s = socket.socket(socket.AF_INET6 if ':' in ADDRESS else socket.AF_INET)
s.bind((ADDRESS, 0))
s.listen(64)
print(s.getsockname()[1], flush=True)
"#;
const SHOUT: &str = r#"
def shout(c):
    while piece := c.recv(65536):
        c.sendall(piece.upper())
    c.sendall(b'.')
    c.close()
while True:
    threading.Thread(target=shout, args=(s.accept()[0],)).start()
"#;

async fn bytes_go_both_ways(backend: BackendName) {
    let Some((fixture, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let mut stream = fixture.connect(port).await.unwrap();
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut printed = [0; 5];
        stream.read_exact(&mut printed).await.unwrap();
        assert_eq!(text(&printed), word.to_uppercase());
    }
}

/// Not those that belljar serves, and not those of the host.
async fn ports_that_programs_open_are_told(backend: BackendName) {
    let _of_the_host = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some((place, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    match place.listening().await {
        Ok(ports) => assert_eq!(ports, [port]),
        // Its network is the host's.
        Err(error) => {
            assert_eq!((backend, error.code), (BackendName::Landlock, ErrorCode::NotSupported), "{error}");
        }
    }
}

async fn each_direction_ends_by_itself(backend: BackendName) {
    let Some((fixture, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let mut stream = fixture.connect(port).await.unwrap();
    stream.write_all(b"the end is answered").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut printed = String::new();
    stream.read_to_string(&mut printed).await.unwrap();
    assert_eq!(printed, "THE END IS ANSWERED.");
}

async fn the_other_loopback_address_is_tried(backend: BackendName) {
    for address in ["::1", "::", "0.0.0.0"] {
        let Some((fixture, _running, port)) = shouting(backend, address).await else { return };
        let mut stream = fixture.connect(port).await.unwrap();
        stream.write_all(b"six").await.unwrap();
        let mut printed = [0; 3];
        stream.read_exact(&mut printed).await.unwrap();
        assert_eq!(&printed, b"SIX", "{address}");
    }
}

async fn many_connections_do_not_mix(backend: BackendName) {
    let Some((fixture, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(fixture.connect(port).await.unwrap());
    }
    for (index, stream) in streams.iter_mut().enumerate().rev() {
        stream.write_all(format!("n{index}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    for (index, stream) in streams.iter_mut().enumerate() {
        let mut printed = String::new();
        stream.read_to_string(&mut printed).await.unwrap();
        assert_eq!(printed, format!("N{index}."));
    }
}

async fn much_goes_through(backend: BackendName) {
    let Some((fixture, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let stream = fixture.connect(port).await.unwrap();
    let sent: Vec<u8> = (b'a'..=b'z').cycle().take(8_000_000).collect();
    let (mut read, mut write) = stream.into_split();
    let mut got = Vec::new();
    let feed = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let (_, length) = tokio::join!(feed, read.read_to_end(&mut got));
    assert_eq!(length.unwrap(), sent.len() + 1);
    assert!(got[..sent.len()] == sent.to_ascii_uppercase()[..]);
}

async fn a_port_without_a_listener_is_refused(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    for port in [2, 8080, 40_000, 65_535, 0] {
        let error = fixture.connect(port).await.unwrap_err();
        assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::ConnectionFailed), "{port}");
    }
}

async fn a_listener_of_the_host_is_not_reached(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let port = listener.local_addr().unwrap().port();
        assert_eq!(fixture.connect(port).await.unwrap_err().code, ErrorCode::ConnectionFailed, "{address}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "{address}");
    }
}

async fn without_isolation_it_is_refused_by_name(backend: BackendName) {
    if isolates(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = fixture.connect(listener.local_addr().unwrap().port()).await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Unavailable, ErrorCode::NotSupported));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

/// belljar's own listeners in a sandbox would take a caller from outside for a process inside.
async fn belljars_own_ports_are_refused(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let (_world, _server, fixture) = web(backend, |_| belljar_tests_hosts::Response::ok("")).await;
    let listening = fixture.python(LISTENING).await;
    let mut ports: Vec<u16> = listening.split_whitespace().map(|port| port.parse().unwrap()).collect();
    assert!(!ports.is_empty(), "no egress socket listens");
    ports.push(53);
    for port in ports {
        let error = fixture.connect(port).await.unwrap_err();
        assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PermissionDenied), "{port}");
    }
}

/// The ports of every TCP listener (state 0A) of the namespace.
const LISTENING: &str = r#"
for name in ('/proc/net/tcp', '/proc/net/tcp6'):
    try:
        for line in open(name).readlines()[1:]:
            fields = line.split()
            if fields[3] == '0A':
                print(int(fields[1].rsplit(':', 1)[1], 16))
    except FileNotFoundError:
        pass
"#;

async fn a_connection_ends_with_who_listens(backend: BackendName) {
    let Some((fixture, running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let mut stream = fixture.connect(port).await.unwrap();
    drop(running);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    while fixture.connect(port).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn a_connection_ends_with_the_sandbox(backend: BackendName) {
    let Some((fixture, _running, port)) = shouting(backend, "127.0.0.1").await else { return };
    let mut stream = fixture.connect(port).await.unwrap();
    fixture.dispose().await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    assert_eq!(fixture.connect(port).await.unwrap_err().code, ErrorCode::SandboxNotAlive);
}

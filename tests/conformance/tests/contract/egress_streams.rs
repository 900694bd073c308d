//! Bytes that go through: all of them, in order, with the ends where they belong.

use belljar_spec::BackendName;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Echo, HttpServer, Response, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

for_every_isolated_backend! {
    everywhere:
        a_client_that_has_said_all_still_gets_its_answer,
        a_killed_client_ends_its_connection,
        a_disposed_sandbox_ends_its_connections,
        two_hundred_connections_at_once;
    each_kernel:
        a_server_that_has_said_all_still_listens,
        a_slow_reader_gets_every_byte,
        a_slow_server_gets_every_byte,
        bytes_go_both_ways_at_once,
        a_reset_by_the_server_is_seen_inside,
        a_reset_by_the_client_is_seen_outside,
        one_byte_at_a_time_is_not_held_back;
    once:
        a_connection_that_is_quiet_for_a_while_continues,
        a_hello_in_many_small_pieces_is_understood,
        a_hello_in_many_records_is_understood;
}

async fn a_client_that_has_said_all_still_gets_its_answer(backend: BackendName) {
    let server = Server::start(LOOPBACK, |mut stream| {
        let mut printed = Vec::new();
        stream.read_to_end(&mut printed).unwrap();
        stream.write_all(format!("{} bytes", printed.len()).as_bytes()).unwrap();
    });
    let (_world, fixture) = reaching(backend, server.port()).await;
    for length in [0, 1, 5, 100_000] {
        let script = format!(
            "
s = dial('api.test', {})
s.sendall(b'x' * {length})
s.shutdown(socket.SHUT_WR)
print(everything(s).decode())",
            server.port()
        );
        assert_eq!(fixture.python(&script).await, format!("{length} bytes"));
    }
}

async fn a_server_that_has_said_all_still_listens(backend: BackendName) {
    let (tell, receiver) = channel();
    let server = Server::start(LOOPBACK, move |mut stream| {
        stream.write_all(b"all I have to say").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut printed = Vec::new();
        stream.read_to_end(&mut printed).unwrap();
        tell.send(printed.len()).unwrap();
    });
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
s.sendall(b'hello')
print(everything(s).decode())
time.sleep(0.2)
s.sendall(b'x' * 1000000)
s.close()",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "all I have to say");
    assert_eq!(within(&receiver), 1_000_005);
}

async fn a_slow_reader_gets_every_byte(backend: BackendName) {
    let server = Server::start(LOOPBACK, |mut stream| {
        for number in 0..LARGE / 64 {
            stream.write_all(format!("{number:064}").as_bytes()).unwrap();
        }
    });
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
digest, total = hashlib.sha256(), 0
while piece := s.recv(300000):
    digest.update(piece)
    total += len(piece)
    if total < 4000000: time.sleep(0.05)
expected = hashlib.sha256()
for number in range({LARGE} // 64): expected.update(b'%064d' % number)
print(total, digest.hexdigest() == expected.hexdigest())",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, format!("{LARGE} True"));
}

async fn a_slow_server_gets_every_byte(backend: BackendName) {
    let (tell, receiver) = channel();
    let server = Server::start(LOOPBACK, move |mut stream| {
        let (mut buffer, mut expected, mut total) = (vec![0; 300_000], 0_u8, 0);
        loop {
            let length = stream.read(&mut buffer).unwrap();
            if length == 0 {
                break;
            }
            for byte in &buffer[..length] {
                assert_eq!(*byte, expected, "at {total}");
                expected = (expected + 1) % 251;
                total += 1;
            }
            if total < 4_000_000 {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        stream.write_all(b"got it").unwrap();
        tell.send(total).unwrap();
    });
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
s.sendall(bytes(range(251)) * ({LARGE} // 251))
s.shutdown(socket.SHUT_WR)
print(everything(s).decode())",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "got it");
    assert_eq!(within(&receiver), LARGE / 251 * 251);
}

async fn bytes_go_both_ways_at_once(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) = reaching(backend, echo.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
sent = os.urandom({LARGE})
def send():
    s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
print(everything(s) == sent)
thread.join()",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "True");
}

async fn a_reset_by_the_server_is_seen_inside(backend: BackendName) {
    let server = Server::start(LOOPBACK, |stream| {
        // Closed with something unread, which is a reset (RFC 1122, 4.2.2.13).
        stream.peek(&mut [0]).unwrap();
    });
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
s.sendall(b'hello')
try:
    print('an end after', everything(s))
except ConnectionResetError:
    print('reset')",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "reset");
}

async fn a_reset_by_the_client_is_seen_outside(backend: BackendName) {
    let (server, receiver) = listening();
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
s.sendall(b'hello')
time.sleep(0.3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close()",
        server.port()
    );
    fixture.python(&script).await;
    assert_eq!(within(&receiver), Err(ErrorKind::ConnectionReset));
}

async fn a_killed_client_ends_its_connection(backend: BackendName) {
    let (server, receiver) = listening();
    let (_world, fixture) = reaching(backend, server.port()).await;
    fixture.run(&python(&holding(server.port(), "os.kill(os.getpid(), 9)"))).await;
    assert_eq!(within(&receiver), Ok(5));
}

async fn a_disposed_sandbox_ends_its_connections(backend: BackendName) {
    let (server, receiver) = listening();
    let (_world, fixture) = reaching(backend, server.port()).await;
    let script = holding(server.port(), "print('here', flush=True); time.sleep(60)");
    let command = python(&script);
    let mut running = fixture.spawn(&command).await.unwrap();
    read_until(&mut running, "here").await;
    fixture.dispose().await;
    // By an end or by a reset; that it is over is what counts.
    let _ = within(&receiver);
}

async fn two_hundred_connections_at_once(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) = reaching(backend, echo.port()).await;
    let script = format!(
        "
def one(number):
    s = dial('api.test', {})
    s.sendall(b'%d' % number)
    all_open.wait(25)
    s.sendall(b' and %d' % number * 1000)
    s.shutdown(socket.SHUT_WR)
    right.append(everything(s) == b'%d' % number + b' and %d' % number * 1000)
all_open, right = threading.Barrier(200), []
threads = [threading.Thread(target=one, args=(number,)) for number in range(200)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(right), all(right))",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "200 True");
    assert_eq!(echo.accepted(), 200);
}

async fn a_connection_that_is_quiet_for_a_while_continues(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) = reaching(backend, echo.port()).await;
    let script = format!(
        "
s = dial('api.test', {})
for _ in range(3):
    s.sendall(b'x')
    print(s.recv(1).decode(), end='')
    time.sleep(4)",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "xxx");
}

async fn one_byte_at_a_time_is_not_held_back(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) = reaching(backend, echo.port()).await;
    // Each byte waits for the one before; held back for 40 ms each, as by Nagle's algorithm, it would take 40 s.
    let script = format!(
        "
s = dial('api.test', {})
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(1000):
    s.sendall(b'x')
    assert s.recv(1) == b'x'
print('done')",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "done");
}

async fn a_hello_in_many_small_pieces_is_understood(backend: BackendName) {
    hello(backend, "for byte in first: s.send(bytes([byte])); time.sleep(0.0005)").await;
}

async fn a_hello_in_many_records_is_understood(backend: BackendName) {
    // Each record has a header of five bytes; the handshake continues from one to the next (RFC 8446, 5.1).
    hello(
        backend,
        "
kind, handshake = first[:3], first[5:]
for at in range(0, len(handshake), 7):
    piece = handshake[at:at + 7]
    s.sendall(kind + struct.pack('>H', len(piece)) + piece)",
    )
    .await;
}

/// TLS by hand, so that the first bytes can be sent in a way of one's own.
async fn hello(backend: BackendName, send: &str) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let web = HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["api.test"]), |_| Response::ok("hello"));
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tls", web.port())])).await;
    let script = format!(
        "
context = ssl.create_default_context(cafile='ca.pem')
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(incoming, outgoing, server_hostname='api.test')
s = dial('api.test', {})
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def step(what):
    while True:
        try:
            return what()
        except ssl.SSLWantReadError:
            s.sendall(outgoing.read())
            incoming.write(s.recv(65536))
        finally:
            s.sendall(outgoing.read())
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    first = outgoing.read()
{send}
incoming.write(s.recv(65536))
step(tls.do_handshake)
step(lambda: tls.write(b'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'))
print(step(lambda: tls.read(65536)).split(b'\\r\\n')[0].decode())",
        web.port()
    );
    assert_eq!(fixture.python(&script).await, "HTTP/1.1 200 Whatever");
    assert_eq!(fixture.refusals(), []);
}

/// A sandbox that may say anything to this port.
async fn reaching(backend: BackendName, port: u16) -> (World, SandboxFixture) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{port}/tcp")])).await;
    (world, fixture)
}

/// A server that tells how a connection ended: by an end after so many bytes, or by an error.
fn listening() -> (Server, Receiver<Result<usize, ErrorKind>>) {
    let (tell, receiver) = channel();
    let server = Server::start(LOOPBACK, move |mut stream: TcpStream| {
        let outcome = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        let _ = tell.send(outcome);
    });
    (server, receiver)
}

fn holding(port: u16, then: &str) -> String {
    format!("s = dial('api.test', {port}); s.sendall(b'hello'); time.sleep(0.3); {then}")
}

fn within<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(30)).expect("the server heard the end")
}

const LARGE: usize = 32 * 1024 * 1024;

//! How much a sandbox may reach: connections at once, and bytes. What is too much is refused and said.

use belljar_spec::BackendName;
use belljar_spec::FetchRequest;
use belljar_spec::egress::{EgressPolicy, Reason};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Echo, HttpServer, Response};

for_every_isolated_backend! {
    everywhere:
        a_connection_too_many_is_refused_and_the_next_one_is_not;
    each_kernel:
        a_download_stops_at_the_byte_limit;
    once:
        connections_for_names_count_too,
        connections_of_http_count_while_they_are_open,
        bytes_are_counted_in_both_directions,
        a_download_over_http_stops_at_the_byte_limit,
        an_upload_over_http_stops_at_the_byte_limit,
        a_fetch_stops_at_the_byte_limit,
        the_limit_is_the_sandboxes_own;
}

async fn a_connection_too_many_is_refused_and_the_next_one_is_not(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) =
        limited(backend, echo.port(), "tcp", |policy| policy.limits.connections = 3).await;
    let script = format!(
        "
def talk(s=None):
    try:
        s = s or dial('api.test', {0})
        s.sendall(b'x')
        return s.recv(1) == b'x'
    except ConnectionError:
        return False
held = [dial('api.test', {0}) for _ in range(3)]
print([talk(s) for s in held])
print(talk(), talk())
print([talk(s) for s in held])
held.pop().close()
for _ in range(100):
    if last := talk(): break
    time.sleep(0.05)
print(last)",
        echo.port()
    );
    let answer = fixture.python(&script).await;
    assert_eq!(answer, "[True, True, True]\nFalse False\n[True, True, True]\nTrue");
    let refused = fixture.refused();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(echo.port()), Reason::TooManyConnections)]);
    assert!(refused[0].times >= 2, "{refused:?}");
}

async fn connections_for_names_count_too(backend: BackendName) {
    let (_world, fixture) = limited(backend, 1, "tcp", |policy| policy.limits.connections = 2).await;
    let answer = fixture
        .python(
            "
held = [socket.create_connection(('127.0.0.1', 53)) for _ in range(2)]
time.sleep(0.3)
try: print(ask('api.test', tcp=True))
except ConnectionError: print('reset')
print(ask('api.test')[0])",
        )
        .await;
    assert_eq!(answer, "reset\n0");
    assert_eq!(fixture.refusals(), [("127.0.0.1".into(), Some(53), Reason::TooManyConnections)]);
}

async fn connections_of_http_count_while_they_are_open(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok("hello"));
    let (_world, fixture) =
        limited(backend, web.port(), "http", |policy| policy.limits.connections = 2).await;
    let answer = fixture
        .python(&format!(
            "
import http.client
def get():
    client = http.client.HTTPConnection('api.test', {})
    try:
        client.request('GET', '/')
        print(client.getresponse().read().decode())
    except (ConnectionError, http.client.HTTPException):
        print('refused')
    return client
held = [get() for _ in range(2)]
get()
held.pop().close()
time.sleep(0.5)
get()",
            web.port()
        ))
        .await;
    assert_eq!(answer, "hello\nhello\nrefused\nhello");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::TooManyConnections)]);
}

async fn bytes_are_counted_in_both_directions(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_world, fixture) =
        limited(backend, echo.port(), "tcp", |policy| policy.limits.bytes = bytes("10000")).await;
    let script = format!(
        "
s = dial('api.test', {})
for _ in range(4):
    s.sendall(b'x' * 1000)
    assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
# 8000 by now: this one goes, and its echo does not
s.sendall(b'x' * 1500)
try: print(len(everything(s)))
except ConnectionError: print('reset')",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "reset");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(echo.port()), Reason::ByteLimit)]);
}

async fn a_download_stops_at_the_byte_limit(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok(vec![b'x'; 20_000_000]));
    let (world, fixture) =
        limited(backend, web.port(), "tcp", |policy| policy.limits.bytes = bytes("1M")).await;
    let received: u64 = fixture.python(&download(web.port())).await.parse().unwrap_or(u64::MAX);
    assert!(received <= MEGABYTE, "{received}");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::ByteLimit)]);
    fixture.dispose().await;
    let connection = &world.connections(&fixture)[0];
    assert_eq!(connection.ending, "byte_limit");
    assert!(connection.sent + connection.received <= MEGABYTE, "{connection:?}");
}

async fn a_download_over_http_stops_at_the_byte_limit(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok(vec![b'x'; 20_000_000]));
    let (world, fixture) =
        limited(backend, web.port(), "http", |policy| policy.limits.bytes = bytes("1M")).await;
    let received: u64 = fixture.python(&download(web.port())).await.parse().unwrap_or(u64::MAX);
    assert!(received <= MEGABYTE, "{received}");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::ByteLimit)]);
    fixture.dispose().await;
    assert_eq!(world.connections(&fixture)[0].ending, "byte_limit");
}

async fn an_upload_over_http_stops_at_the_byte_limit(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok("hello"));
    let (_world, fixture) =
        limited(backend, web.port(), "http", |policy| policy.limits.bytes = bytes("1M")).await;
    let answer = fixture
        .python(&format!(
            "
import urllib.request, urllib.error
try: print(urllib.request.urlopen('http://api.test:{}/', b'x' * 20000000).status)
except urllib.error.HTTPError as error: print(error.code)
except OSError as error: print('broken off')",
            web.port()
        ))
        .await;
    assert!(answer == "429" || answer == "broken off", "{answer}");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::ByteLimit)]);
    assert_eq!(web.requests(), []);
}

async fn a_fetch_stops_at_the_byte_limit(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok(vec![b'x'; 5_000_000]));
    let (_world, fixture) =
        limited(backend, web.port(), "http", |policy| policy.limits.bytes = bytes("1M")).await;
    let fetched = fixture.fetch(FetchRequest::get(format!("http://api.test:{}/", web.port()))).await;
    assert_eq!(fetched.err().and_then(|error| refused_for(&error)), Some(Reason::ByteLimit));
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::ByteLimit)]);
}

async fn the_limit_is_the_sandboxes_own(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let (_first_world, first) =
        limited(backend, echo.port(), "tcp", |policy| policy.limits.connections = 1).await;
    let (_second_world, second) =
        limited(backend, echo.port(), "tcp", |policy| policy.limits.connections = 1).await;
    let script =
        format!("s = dial('api.test', {}); s.sendall(b'x'); print(s.recv(1)); time.sleep(0.2)", echo.port());
    let (first, second) = tokio::join!(first.python(&script), second.python(&script));
    assert_eq!((first.as_str(), second.as_str()), ("b'x'", "b'x'"));
}

async fn limited(
    backend: BackendName,
    port: u16,
    protocol: &str,
    limit: impl FnOnce(&mut EgressPolicy),
) -> (World, SandboxFixture) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let mut policy = world.policy([format!("api.test:{port}/{protocol}")]);
    limit(&mut policy);
    let fixture = world.fixture(backend, policy).await;
    (world, fixture)
}

fn bytes(text: &str) -> Option<belljar_spec::ByteSize> {
    Some(text.parse().expect("a size"))
}

/// Says how much of a page arrived.
fn download(port: u16) -> String {
    format!(
        "
s = dial('api.test', {port})
s.sendall(b'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n')
received = 0
try:
    while piece := s.recv(65536): received += len(piece)
except ConnectionError: pass
print(received)"
    )
}

const MEGABYTE: u64 = 1 << 20;

//! HTTP/1.1 inside of TLS that the gateway intercepts: as if no gateway were in between.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper::body::Incoming;
use belljar_tests_hosts::hyper::{self, Request, Response, StatusCode};
use belljar_tests_hosts::hyper_util::rt::TokioIo;
use belljar_tests_hosts::tokio::io::{copy, split};
use belljar_tests_hosts::tokio::sync::Notify;
use belljar_tests_hosts::{
    self as hosts, Agreement, TlsServer, WebBody, WebServer, have, piece, pieces, whole,
};
use std::sync::Arc;
use std::time::Duration;

for_every_isolated_backend! {
    each_kernel:
        events_arrive_one_by_one,
        a_web_socket_passes;
    once:
        events_with_half_a_minute_between_them_arrive,
        a_body_goes_out_piece_by_piece,
        a_client_may_wait_to_be_told_to_continue,
        a_server_may_answer_before_the_body_is_over,
        answers_without_a_body_pass,
        chunks_and_trailers_pass,
        a_server_that_closed_meanwhile_is_dialled_again,
        requests_one_after_the_other_share_a_connection,
        a_server_that_wants_a_certificate_of_the_client_is_told_of,
        a_server_that_cannot_be_verified_gets_nothing;
}

const HTTP1: Agreement<'static> = Agreement { alpn: &["http/1.1"], client_certificates: None };

/// A gap as a model has that thinks. Nothing waits for this test but itself.
async fn events_with_half_a_minute_between_them_arrive(backend: BackendName) {
    let (world, server) = served(HTTP1, move |_: Request<Incoming>| async move {
        let (sender, body) = pieces();
        hosts::tokio::spawn(async move {
            sender.send(piece("data: before\n\n")).await.unwrap();
            hosts::tokio::time::sleep(Duration::from_secs(30)).await;
            sender.send(piece("data: after\n\n")).await.unwrap();
        });
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
import urllib.request
for line in urllib.request.urlopen('https://api.test:{}/events'):
    if line.strip():
        print(line.decode().strip())",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "data: before\ndata: after");
}

/// The server sends the next event only when the client has said, by another request, that it has the last.
async fn events_arrive_one_by_one(backend: BackendName) {
    let seen = Arc::new(Notify::new());
    let (world, server) = served(HTTP1, move |request: Request<Incoming>| {
        let events = next_when_seen(&request, &seen);
        async move { events }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
import urllib.request
base = 'https://api.test:{}'
with urllib.request.urlopen(base + '/events') as events:
    for line in events:
        if line.strip():
            print(line.decode().strip())
            urllib.request.urlopen(base + '/seen').read()",
        server.port()
    );
    assert_eq!(fixture.python(&script).await, "data: 0\ndata: 1\ndata: 2");
}

/// The client sends the next piece only when the server has answered with the last.
async fn a_body_goes_out_piece_by_piece(backend: BackendName) {
    let (world, server) = served(HTTP1, |request: Request<Incoming>| async move {
        let (sender, body) = pieces();
        let mut incoming = request.into_body();
        hosts::tokio::spawn(async move {
            while let Some(Ok(frame)) = incoming.frame().await {
                if let Ok(data) = frame.into_data() {
                    let _ = sender.send(piece(data)).await;
                }
            }
        });
        Response::new(body)
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
s = tls('api.test', {port})
s.sendall(b'POST /echo HTTP/1.1\\r\\nhost: api.test:{port}\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n')
said = b''
for word in [b'one', b'two', b'three']:
    s.sendall(b'%x\\r\\n%s\\r\\n' % (len(word), word))
    while word not in said:
        said += s.recv(4096)
s.sendall(b'0\\r\\n\\r\\n')
while not said.endswith(b'0\\r\\n\\r\\n'):
    said += s.recv(4096)
print('done')",
        port = server.port()
    );
    assert_eq!(fixture.python(&script).await, "done");
}

async fn a_web_socket_passes(backend: BackendName) {
    let (world, server) = served(HTTP1, |mut request: Request<Incoming>| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        hosts::tokio::spawn(async move {
            let (mut from, mut to) = split(TokioIo::new(upgrade.await.unwrap()));
            let _ = copy(&mut from, &mut to).await;
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            .body(whole(""))
            .unwrap()
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
s = tls('api.test', {port})
s.sendall(b'GET /socket HTTP/1.1\\r\\nhost: api.test:{port}\\r\\nconnection: Upgrade\\r\\nupgrade: websocket\\r\\n'
    b'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nsec-websocket-version: 13\\r\\n\\r\\n')
head = b''
while b'\\r\\n\\r\\n' not in head:
    head += s.recv(4096)
assert head.startswith(b'HTTP/1.1 101'), head
for word in [b'\\x81\\x85mask\\x05\\x04\\x1f\\x07\\x02', b'x' * 100000, b'\\x88\\x80mask']:
    s.sendall(word)
    said = b''
    while len(said) < len(word):
        said += s.recv(65536)
    assert said == word
print('echoed')",
        port = server.port()
    );
    assert_eq!(fixture.python(&script).await, "echoed");
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 1);
    assert!(connections[0].sent > 100_000 && connections[0].received > 100_000, "{connections:?}");
}

async fn a_client_may_wait_to_be_told_to_continue(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served(HTTP1, |request: Request<Incoming>| async move {
        let expects = request.headers().contains_key("expect");
        let length = request.into_body().collect().await.unwrap().to_bytes().len();
        Response::new(whole(format!("{expects} {length}")))
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "head -c 3000000 /dev/zero > body; curl -sS --expect100-timeout 600 -H 'expect: 100-continue' -T body \
         https://api.test:{}/",
        server.port()
    );
    assert_eq!(fixture.answer(&script).await, "true 3000000");
}

async fn a_server_may_answer_before_the_body_is_over(backend: BackendName) {
    let (world, server) = served(HTTP1, |request: Request<Incoming>| async move {
        // Some of it is read, the rest is not wanted; a server that says so reads on for a while.
        let mut body = request.into_body();
        let _ = body.frame().await;
        hosts::tokio::spawn(async move { while body.frame().await.is_some() {} });
        Response::builder().status(413).body(whole("too much")).unwrap()
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
s = tls('api.test', {port})
s.sendall(b'POST / HTTP/1.1\\r\\nhost: api.test:{port}\\r\\ncontent-length: 8000000\\r\\n\\r\\n' + b'x' * 100000)
said = b''
while b'too much' not in said:
    said += s.recv(4096)
print(said.split(b'\\r\\n')[0].decode())",
        port = server.port()
    );
    assert_eq!(fixture.python(&script).await, "HTTP/1.1 413 Payload Too Large");
}

async fn answers_without_a_body_pass(backend: BackendName) {
    let (world, server) = served(HTTP1, |request: Request<Incoming>| async move {
        let response = Response::builder();
        match request.uri().path() {
            "/head" => response.header("content-length", "12345").body(whole("")).unwrap(),
            "/204" => response.status(204).body(whole("")).unwrap(),
            "/304" => response.status(304).header("etag", "\"x\"").body(whole("")).unwrap(),
            _ => response.body(whole("end")).unwrap(),
        }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
import http.client
c = http.client.HTTPSConnection('api.test', {port})
for method, path in [('HEAD', '/head'), ('GET', '/204'), ('GET', '/304'), ('GET', '/end')]:
    c.request(method, path)
    r = c.getresponse()
    print(r.status, r.getheader('content-length'), r.getheader('etag'), r.read().decode())",
        port = server.port()
    );
    assert_eq!(
        fixture.python(&script).await,
        "200 12345 None \n204 None None \n304 None \"x\" \n200 3 None end"
    );
    assert_eq!(server.accepted(), 1, "all over one connection");
}

async fn chunks_and_trailers_pass(backend: BackendName) {
    let (world, server) = served(HTTP1, |_: Request<Incoming>| async move {
        let (sender, body) = pieces();
        hosts::tokio::spawn(async move {
            for word in ["one", "two"] {
                sender.send(piece(word)).await.unwrap();
            }
            sender.send(hosts::trailers([("x-sum", "7")])).await.unwrap();
        });
        Response::builder().header("trailer", "x-sum").body(body).unwrap()
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
s = tls('api.test', {port})
s.sendall(b'GET / HTTP/1.1\\r\\nhost: api.test:{port}\\r\\nte: trailers\\r\\nconnection: te\\r\\n\\r\\n')
said = b''
while not said.endswith(b'\\r\\n\\r\\n') or b'0\\r\\n' not in said:
    said += s.recv(4096)
print(said.split(b'\\r\\n\\r\\n', 1)[1])",
        port = server.port()
    );
    let printed = fixture.python(&script).await;
    let (chunks, end) = printed.split_once("0\\r\\n").expect("the last chunk");
    assert!(chunks.contains("one") && chunks.contains("two") && end.contains("x-sum: 7"), "{printed}");
}

/// The server ends its connections without a word, as servers do with idle ones.
async fn a_server_that_closed_meanwhile_is_dialled_again(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = TlsServer::start(LOOPBACK, &world.authority.leaf(["api.test"]), |stream| {
        use std::io::{Read, Write};
        let mut printed = Vec::new();
        while !printed.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            printed.push(byte[0]);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let _ = stream.flush();
    });
    let rule = format!("api.test:{}/tls", server.port());
    let fixture = world.fixture(backend, world.inspecting(&rule, &[], &[])).await;
    let script = format!(
        "{OPEN}
import http.client
c = http.client.HTTPSConnection('api.test', {port})
for _ in range(3):
    c.request('GET', '/')
    print(c.getresponse().read().decode())
    time.sleep(0.5)",
        port = server.port()
    );
    assert_eq!(fixture.python(&script).await, "ok\nok\nok");
    assert_eq!(server.accepted(), 3);
}

async fn requests_one_after_the_other_share_a_connection(backend: BackendName) {
    let (world, server) = served(HTTP1, |request: Request<Incoming>| async move {
        let _ = request.into_body().collect().await;
        Response::new(whole("ok"))
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!(
        "{OPEN}
import http.client
c = http.client.HTTPSConnection('api.test', {port})
for number in range(50):
    c.request('POST', '/%d' % number, b'x' * number)
    assert c.getresponse().read() == b'ok'
print('fine')",
        port = server.port()
    );
    assert_eq!(fixture.python(&script).await, "fine");
    assert_eq!((server.accepted(), server.lines().len()), (1, 50));
}

async fn a_server_that_wants_a_certificate_of_the_client_is_told_of(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let agreement = Agreement { client_certificates: Some(&world.authority), ..HTTP1 };
    let leaf = world.authority.leaf(["api.test"]);
    let server = WebServer::start(LOOPBACK, &leaf, agreement, |_| async { Response::new(whole("ok")) });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = format!("curl -sS -w ' %{{http_code}}' https://api.test:{}/", server.port());
    let printed = fixture.answer(&script).await;
    assert!(printed.contains("client_certificate_wanted") && printed.ends_with(" 502"), "{printed}");
    assert!(printed.contains("unseen"), "it says what to do: {printed}");
    let expected = ("api.test".to_string(), Some(server.port()), Reason::ClientCertificateRequested);
    assert_eq!(fixture.refusals(), [expected]);
}

async fn a_server_that_cannot_be_verified_gets_nothing(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served(HTTP1, |_: Request<Incoming>| async move { Response::new(whole("ok")) });
    let rule = about_requests(&format!("api.test:{}/tls", server.port()), &[], &[]);
    // The world's authority is not one of the policy's.
    let fixture = world.fixture(backend, world.policy([]).allow(rule)).await;
    let script = format!("curl -sS -w ' %{{http_code}}' https://api.test:{}/", server.port());
    let printed = fixture.answer(&script).await;
    assert!(printed.contains("upstream_untrusted") && printed.ends_with(" 502"), "{printed}");
    assert!(printed.contains("authorities"), "it says what to do: {printed}");
    assert_eq!(server.lines(), [""; 0]);
    fixture.dispose().await;
    assert_eq!(world.connections(&fixture)[0].ending, "refused");
}

pub(crate) fn served<H, F>(agreement: Agreement<'_>, handler: H) -> (World, WebServer)
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<WebBody>> + Send + 'static,
{
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = WebServer::start(LOOPBACK, &world.authority.leaf(["api.test"]), agreement, handler);
    (world, server)
}

/// Three events, each sent when the one before was seen: a request for `/seen` says so.
pub(crate) fn next_when_seen(request: &Request<Incoming>, seen: &Arc<Notify>) -> Response<WebBody> {
    if request.uri().path() == "/seen" {
        seen.notify_one();
        return Response::new(whole("ok"));
    }
    let (sender, body) = pieces();
    let seen = Arc::clone(seen);
    hosts::tokio::spawn(async move {
        for number in 0..3 {
            sender.send(piece(format!("data: {number}\n\n"))).await.unwrap();
            seen.notified().await;
        }
    });
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

pub(crate) fn any(world: &World, server: &WebServer) -> belljar_spec::egress::EgressPolicy {
    world.inspecting(&format!("api.test:{}/tls", server.port()), &[], &[])
}

const OPEN: &str = "
def tls(host, port):
    return ssl.create_default_context().wrap_socket(dial(host, port), server_hostname=host)
";

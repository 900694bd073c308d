//! HTTP in the clear: what clients do with it goes through, request by request.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Response, Server, have, serve};
use std::io::{Read, Write};

for_every_isolated_backend! {
    everywhere:
        a_large_upload_and_download_arrive_whole,
        a_refused_request_says_why_and_what_would_allow_it;
    each_kernel:
        a_stream_of_events_arrives_as_it_is_sent,
        a_websocket_is_upgraded;
    once:
        requests_share_a_connection,
        a_server_may_close_between_requests,
        requests_may_be_sent_before_their_answers,
        bodies_go_in_chunks_both_ways,
        a_client_that_waits_to_continue_is_told_to,
        head_and_no_content_have_no_body,
        headers_arrive_as_they_were_sent,
        every_request_of_a_connection_is_judged,
        a_server_that_is_not_there_is_a_bad_gateway;
}

async fn requests_share_a_connection(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| Response::ok(request.target.as_str())).await;
    let printed = fixture
        .python(&format!(
            "
import http.client
client = http.client.HTTPConnection('api.test', {})
for number in range(20):
    client.request('GET', '/%d' % number)
    assert client.getresponse().read() == b'/%d' % number
print('done')",
            web.port()
        ))
        .await;
    assert_eq!(printed, "done");
    assert_eq!((web.accepted(), web.requests().len()), (1, 20));
}

async fn a_server_may_close_between_requests(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = Server::start(LOOPBACK, |mut stream| {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonce");
    });
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/http", server.port())])).await;
    let printed = fixture
        .python(&format!(
            "
import http.client
client = http.client.HTTPConnection('api.test', {})
for number in range(5):
    client.request('GET', '/')
    print(client.getresponse().read().decode(), end=' ')
    time.sleep(0.1)",
            server.port()
        ))
        .await;
    assert_eq!(printed.trim(), "once once once once once");
    assert_eq!(server.accepted(), 5);
}

async fn requests_may_be_sent_before_their_answers(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| Response::ok(request.target.as_str())).await;
    let printed = fixture
        .python(&format!(
            "
s = dial('api.test', {0})
s.sendall(b''.join(b'GET /%d HTTP/1.1\\r\\nHost: api.test:{0}\\r\\n\\r\\n' % number for number in range(5)))
s.shutdown(socket.SHUT_WR)
print([piece.split(b'\\r\\n\\r\\n')[1].decode() for piece in everything(s).split(b'HTTP/1.1 200')[1:]])",
            web.port()
        ))
        .await;
    assert_eq!(printed, "['/0', '/1', '/2', '/3', '/4']");
}

async fn bodies_go_in_chunks_both_ways(backend: BackendName) {
    let (_world, web, fixture) =
        web(backend, |request| Response { chunks: Some(1000), ..Response::ok(request.body.clone()) }).await;
    let printed = fixture
        .python(&format!(
            "
import http.client
client = http.client.HTTPConnection('api.test', {})
body = os.urandom(1000000)
client.request('POST', '/', (body[at:at + 3000] for at in range(0, len(body), 3000)), encode_chunked=True,
    headers={{'Transfer-Encoding': 'chunked'}})
response = client.getresponse()
print(response.read() == body, response.getheader('transfer-encoding'))",
            web.port()
        ))
        .await;
    assert_eq!(printed, "True chunked");
    assert_eq!(web.requests()[0].header("transfer-encoding"), Some("chunked"));
}

async fn a_client_that_waits_to_continue_is_told_to(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (_world, web, fixture) = web(backend, |request| Response::ok(request.body.len().to_string())).await;
    let script = format!(
        "head -c 3000000 /dev/zero > big; curl -sS -T big -H 'Expect: 100-continue' http://api.test:{}/",
        web.port()
    );
    assert_eq!(fixture.answer(&script).await, "3000000");
}

async fn a_large_upload_and_download_arrive_whole(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| Response::ok(request.body.clone())).await;
    let printed = fixture
        .python(&format!(
            "
import urllib.request
body = os.urandom(20000000)
print(urllib.request.urlopen('http://api.test:{}/', body).read() == body)",
            web.port()
        ))
        .await;
    assert_eq!(printed, "True");
}

async fn head_and_no_content_have_no_body(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |request| match request.target.as_str() {
        "/nothing" => Response { headers: vec![("x".into(), "y".into())], ..Response::status(204) },
        "/same" => Response::status(304),
        _ => Response::ok("body"),
    })
    .await;
    let printed = fixture
        .python(&format!(
            "
import http.client
client = http.client.HTTPConnection('api.test', {})
for method, path in (('HEAD', '/'), ('GET', '/nothing'), ('GET', '/same'), ('GET', '/'), ('OPTIONS', '*')):
    client.request(method, path)
    response = client.getresponse()
    print(response.status, response.getheader('content-length'), response.read())",
            web.port()
        ))
        .await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "200 4 b''");
    assert!(lines[1].starts_with("204 ") && lines[1].ends_with(" b''"), "{printed}");
    assert!(lines[2].starts_with("304 ") && lines[2].ends_with(" b''"), "{printed}");
    assert_eq!(lines[3..], ["200 4 b'body'", "200 4 b'body'"]);
    assert_eq!(web.requests()[4].target, "*");
}

async fn a_stream_of_events_arrives_as_it_is_sent(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    // The next event is sent when the client has said that it has the one before, on a connection of its own.
    let (tell, receiver) = std::sync::mpsc::channel();
    let receiver = std::sync::Mutex::new(receiver);
    let server = Server::start(LOOPBACK, move |mut stream| {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        if head[..length].starts_with(b"GET /seen") {
            let _ = tell.send(());
            let _ = stream.write_all(b"HTTP/1.1 204 OK\r\n\r\n");
            return;
        }
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for number in 0..5 {
            let event = format!("data: {number}\n\n");
            let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
            let time_limit = std::time::Duration::from_secs(20);
            if receiver.lock().unwrap().recv_timeout(time_limit).is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"0\r\n\r\n");
    });
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/http", server.port())])).await;
    let printed = fixture
        .python(&format!(
            "
import urllib.request
url = 'http://api.test:{}/'
events = urllib.request.urlopen(url + 'events')
for line in events:
    if line.startswith(b'data'):
        print(line.decode().strip(), end=' ')
        urllib.request.urlopen(url + 'seen').read()",
            server.port()
        ))
        .await;
    assert_eq!(printed.trim(), "data: 0 data: 1 data: 2 data: 3 data: 4");
}

async fn a_websocket_is_upgraded(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let server = Server::start(LOOPBACK, |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let head = text(&head).to_ascii_lowercase();
        if !head.contains("upgrade: websocket")
            || !head.contains("sec-websocket-key: dghlihnhbxbszsbub25jzq==")
        {
            return;
        }
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nfirst";
        let _ = stream.write_all(answer);
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..length]);
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
    });
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/http", server.port())])).await;
    let printed = fixture
        .python(&format!(
            "
s = dial('api.test', {0})
s.sendall(b'GET /chat HTTP/1.1\\r\\nHost: api.test:{0}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')
f = s.makefile('rb')
print(f.readline().split()[1].decode())
while f.readline() != b'\\r\\n': pass
print(f.read(5).decode())
for number in range(5):
    s.sendall(b'\\x81\\x01%d' % number)
    assert f.read(3) == b'\\x81\\x01%d' % number
sent = os.urandom(1000000)
thread = threading.Thread(target=s.sendall, args=(sent,))
thread.start()
print(f.read(len(sent)) == sent)
thread.join()
s.shutdown(socket.SHUT_WR)
print(f.read())",
            server.port()
        ))
        .await;
    assert_eq!(printed, "101\nfirst\nTrue\nb''");
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 1);
    assert!(connections[0].sent > 1_000_000 && connections[0].received > 1_000_000, "{connections:?}");
}

async fn headers_arrive_as_they_were_sent(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response {
        headers: vec![("Set-Cookie".into(), "a=1".into()), ("Set-Cookie".into(), "b=2".into())],
        ..Response::ok("")
    })
    .await;
    let printed = fixture
        .python(&format!(
            "
import http.client
client = http.client.HTTPConnection('api.test', {})
client.putrequest('GET', '/p?q=%20#f', skip_accept_encoding=True)
for value in ('one', 'two'): client.putheader('X-Many', value)
client.putheader('Authorization', 'Bearer secret')
client.putheader('X-Long', 'x' * 20000)
client.endheaders()
print(client.getresponse().headers.get_all('set-cookie'))",
            web.port()
        ))
        .await;
    assert_eq!(printed, "['a=1', 'b=2']");
    let request = &web.requests()[0];
    let many: Vec<&str> =
        request.headers.iter().filter(|(name, _)| name == "x-many").map(|(_, v)| v.as_str()).collect();
    assert_eq!(many, ["one", "two"]);
    assert_eq!(request.header("authorization"), Some("Bearer secret"));
    assert_eq!(request.header("x-long").map(str::len), Some(20000));
    assert!(request.target.starts_with("/p?q=%20"), "{}", request.target);
    for added in ["via", "forwarded", "x-forwarded-for", "accept-encoding"] {
        assert_eq!(request.header(added), None, "{added}");
    }
}

async fn a_refused_request_says_why_and_what_would_allow_it(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (_world, web, fixture) = web(backend, |_| Response::ok("")).await;
    let script = format!("curl -sS -i -H 'Host: other.test' http://api.test:{}/", web.port());
    let printed = fixture.answer(&script).await;
    assert!(printed.starts_with("HTTP/1.1 403 "), "{printed}");
    assert!(printed.contains("belljar refused api.test") && printed.contains("other.test"), "{printed}");
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(web.port()), Reason::HostDiffers)]);
    assert_eq!(web.requests(), []);
}

async fn every_request_of_a_connection_is_judged(backend: BackendName) {
    let (_world, web, fixture) = web(backend, |_| Response::ok("fine")).await;
    let printed = fixture
        .python(&format!(
            "
s = dial('api.test', {0})
for host in ('api.test:{0}', 'api.test', 'evil.test'):
    s.sendall(b'GET / HTTP/1.1\\r\\nHost: ' + host.encode() + b'\\r\\n\\r\\n')
    time.sleep(0.3)
print([piece[:3].decode() for piece in everything(s).split(b'HTTP/1.1 ')[1:]])",
            web.port()
        ))
        .await;
    assert_eq!(printed, "['200', '200', '403']");
    assert_eq!(web.requests().len(), 2);
}

async fn a_server_that_is_not_there_is_a_bad_gateway(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let world = World::new([("api.test", "127.0.0.1")]);
    let gone = Server::start(LOOPBACK, |mut stream| serve(&mut stream, &|_| Response::ok(""))).port();
    let fixture =
        world.fixture(backend, world.policy([format!("api.test:{gone}"), "no.test:80".into()])).await;
    let status = "curl -sS -o page -w '%{http_code}'";
    assert_eq!(fixture.answer(&format!("{status} http://api.test:{gone}/")).await, "502");
    assert_eq!(fixture.answer(&format!("{status} http://no.test/")).await, "502");
    let reasons: Vec<Reason> = fixture.refusals().into_iter().map(|(_, _, reason)| reason).collect();
    assert_eq!(reasons, [Reason::DialFailed, Reason::NotResolved]);
}

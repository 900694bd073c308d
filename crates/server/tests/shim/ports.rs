//! Ports inside, reached from outside.

use crate::shim::started::Started;
use axum::body::Body;
use belljar_api::SandboxRequest;
use http_body_util::BodyExt;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn with_ports() -> Started {
    Started::with(SandboxRequest { ports: vec![8000, 9000, 9001], ..Default::default() })
}

/// Starts a program inside and waits until it says that it listens.
async fn serve(started: &Started, program: &str) {
    let command = started.begin(json!({"argv": ["python3", "-u", "-c", program]})).await;
    let mut events = started.events(&format!("/commands/{}/output", command.id)).await;
    let (_, event) = events.next().await.expect("it listens");
    assert!(event["text"].as_str().is_some_and(|text| text.contains("ready")), "{event}");
}

const WEB: &str = r#"
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        text = json.dumps({"method": self.command, "path": self.path, "body": body,
                           "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(418)
        self.send_header("content-length", str(len(text)))
        self.send_header("x-belljar-command", "cmd_666")
        self.send_header("set-cookie", "belljar_session=evil")
        self.send_header("x-theirs", "yes")
        self.end_headers()
        self.wfile.write(text)
    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H)
print("ready")
server.serve_forever()
"#;

#[tokio::test]
async fn a_web_server_inside_is_asked_and_learns_nothing_of_the_caller() {
    let started = with_ports();
    serve(&started, WEB).await;
    let mut request = started.request("POST", "/ports/8000/a/b%20c?q=1", "hello");
    for (name, value) in [
        ("authorization", "Bearer bjt_a_b"),
        ("x-belljar-lease", "lease"),
        ("cookie", "belljar=1; theme=dark"),
        ("x-plain", "yes"),
    ] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let response = started.send(request).await;
    assert_eq!(response.status(), 418);
    assert_eq!(response.headers()["x-theirs"], "yes");
    assert!(
        !response.headers().contains_key("x-belljar-command")
            && !response.headers().contains_key("set-cookie")
    );
    assert!(response.headers()["content-security-policy"].to_str().expect("text").starts_with("sandbox"));
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let seen: Value = serde_json::from_slice(&body).expect("json");
    assert_eq!(
        (&seen["method"], &seen["path"], &seen["body"]),
        (&json!("POST"), &json!("/a/b%20c?q=1"), &json!("hello"))
    );
    let headers = seen["headers"].as_object().expect("headers");
    assert_eq!(
        (&headers["host"], &headers["cookie"], &headers["x-plain"]),
        (&json!("localhost:8000"), &json!("theme=dark"), &json!("yes"))
    );
    assert!(!headers.contains_key("authorization"), "{headers:?}");
    assert!(!headers.keys().any(|name| name.starts_with("x-belljar")), "{headers:?}");
    for path in ["/ports/8000", "/ports/8000/"] {
        let seen: Value =
            serde_json::from_slice(&started.ask("GET", path, Body::empty()).await.1).expect("json");
        assert_eq!(seen["path"], "/");
    }
}

#[tokio::test]
async fn ports_that_were_not_asked_for_are_closed() {
    let started = with_ports();
    for path in ["/ports/22/", "/ports/8001/x", "/ports/0", "/ports/99999/", "/ports/x/"] {
        assert_eq!(
            started.refused("GET", path, json!({})).await,
            (403, "permission_denied".into()),
            "{path}"
        );
    }
    assert_eq!(started.refused("GET", "/ports/8000/", json!({})).await, (409, "connection_failed".into()));
}

const ECHO: &str = r#"
import socket
s = socket.create_server(("127.0.0.1", 9000))
print("ready")
while True:
    c, _ = s.accept()
    while True:
        b = c.recv(65536)
        if not b: break
        c.sendall(b[::-1])
    c.sendall(b"bye")
    c.close()
"#;

#[tokio::test]
async fn plain_bytes_go_both_ways() {
    let started = with_ports();
    serve(&started, ECHO).await;
    let mut request = started.request("GET", "/ports/9000", Body::empty());
    request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
    request.headers_mut().insert("upgrade", HeaderValue::from_static("tcp"));
    let response = started.send(request).await;
    assert_eq!(response.status(), 101);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.expect("bytes"));
    stream.write_all(b"abc").await.expect("sent");
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"cba");
    stream.shutdown().await.expect("our end");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.expect("its end");
    assert_eq!(rest, b"bye", "the other direction stays open");
}

const UPGRADING: &str = r#"
import socket
s = socket.create_server(("127.0.0.1", 9001))
print("ready")
while True:
    c, _ = s.accept()
    head = b""
    while not head.endswith(b"\r\n\r\n"): head += c.recv(1)
    assert b"upgrade: websocket" in head.lower(), head
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Mine: 1\r\n\r\nfirst")
    while True:
        b = c.recv(100)
        if not b: break
        c.sendall(b.upper())
    c.close()
"#;

#[tokio::test]
async fn a_websocket_inside_is_reached() {
    let started = with_ports();
    serve(&started, UPGRADING).await;
    let mut request = started.request("GET", "/ports/9001/socket", Body::empty());
    request.headers_mut().insert("connection", HeaderValue::from_static("keep-alive, Upgrade"));
    request.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
    let response = started.send(request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["upgrade"]),
        (101, &HeaderValue::from_static("websocket"))
    );
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.expect("bytes"));
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.expect("what was said at once");
    assert_eq!(&answer, b"first");
    stream.write_all(b"hello").await.expect("sent");
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HELLO");
}

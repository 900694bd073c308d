//! HTTP/2 inside of TLS that the gateway looks into, with gRPC on top: streams beside each other, trailers, resets.

use crate::terminate_http1::{any, served};
use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper::body::Incoming;
use belljar_tests_hosts::hyper::{Request, Response};
use belljar_tests_hosts::{
    self as hosts, Agreement, MODERN, WebBody, WebServer, have, piece, pieces, trailers, whole,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

for_every_isolated_backend! {
    everywhere:
        curl_speaks_http2_and_gets_trailers;
    once:
        grpc_messages_go_both_ways,
        many_streams_go_beside_each_other,
        a_reset_of_the_client_reaches_the_server,
        a_reset_of_the_server_reaches_the_client,
        a_refused_stream_leaves_the_others_alone,
        both_sides_speak_what_the_server_chose,
        a_client_of_http2_alone_is_told_that_the_server_has_none,
        an_unread_stream_stops_its_sender_alone;
}

async fn curl_speaks_http2_and_gets_trailers(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served(MODERN, |_: Request<Incoming>| async move {
        let (sender, body) = pieces();
        hosts::tokio::spawn(async move {
            sender.send(piece("body\n")).await.unwrap();
            sender.send(trailers([("x-sum", "7")])).await.unwrap();
        });
        Response::new(body)
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let printed =
        fixture.answer(&format!("curl -sS --http2 -D - https://api.test:{}/x", server.port())).await;
    assert!(printed.starts_with("HTTP/2 200"), "{printed}");
    assert!(printed.contains("body") && printed.contains("x-sum: 7"), "{printed}");
    assert_eq!(server.lines(), ["HTTP/2.0 GET /x"]);
}

/// Each message is answered before the next is sent; the status comes at the end, as trailers.
async fn grpc_messages_go_both_ways(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let (world, server) = served(MODERN, |request| async move { grpc_echo(request) });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = r#"
const stream = session.request({ ':method': 'POST', ':path': '/pkg.Echo/Talk', 'content-type': 'application/grpc', te: 'trailers' });
const message = text => Buffer.concat([Buffer.from([0, 0, 0, 0, text.length]), Buffer.from(text)]);
const words = ['one', 'two', 'three'];
let said = Buffer.alloc(0);
stream.write(message(words[0]));
stream.on('data', data => {
    said = Buffer.concat([said, data]);
    let expected = Buffer.concat(words.slice(0, next).map(message));
    if (said.length === expected.length) {
        if (!said.equals(expected)) throw new Error('not what was sent');
        if (next === words.length) stream.end(); else stream.write(message(words[next++]));
    }
});
let next = 1;
stream.on('trailers', headers => console.log(headers['grpc-status'], headers['grpc-message']));
stream.on('close', () => session.close());
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "0 fine");
}

async fn many_streams_go_beside_each_other(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    const STREAMS: usize = 100;
    // No request is answered before all are there.
    let waiting = Arc::new((AtomicUsize::new(0), hosts::tokio::sync::Notify::new()));
    let (world, server) = served(MODERN, move |request: Request<Incoming>| {
        let waiting = Arc::clone(&waiting);
        async move {
            let all_are_here = waiting.1.notified();
            if waiting.0.fetch_add(1, Ordering::SeqCst) + 1 == STREAMS {
                waiting.1.notify_waiters();
            } else {
                all_are_here.await;
            }
            Response::new(whole(request.uri().path().to_string()))
        }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = r#"
let done = 0;
for (let number = 0; number < 100; number++) {
    const stream = session.request({ ':path': '/' + number });
    let body = '';
    stream.setEncoding('utf8').on('data', data => body += data).on('end', () => {
        if (body !== '/' + number) throw new Error(body);
        if (++done === 100) { console.log('all'); session.close(); }
    });
}
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "all");
    assert_eq!(server.accepted(), 1);
}

async fn a_reset_of_the_client_reaches_the_server(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let resets = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&resets);
    let (world, server) = served(MODERN, move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let mut incoming = request.into_body();
            let (sender, body) = pieces();
            sender.send(piece("begun")).await.unwrap();
            hosts::tokio::spawn(async move {
                while let Some(Ok(_)) = incoming.frame().await {}
                // The client may have ended its half before it broke off; only its reset ends ours.
                sender.closed().await;
                seen.fetch_add(1, Ordering::SeqCst);
            });
            Response::new(body)
        }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = r#"
const stream = session.request({ ':method': 'POST', ':path': '/' }, { endStream: false });
stream.write('some');
stream.on('data', () => stream.close(http2.constants.NGHTTP2_CANCEL));
stream.on('close', () => setTimeout(() => { console.log('closed'); session.close(); }, 300));
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "closed");
    wait_until("the server to see the reset", || resets.load(Ordering::SeqCst) == 1);
}

async fn a_reset_of_the_server_reaches_the_client(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let seen = Arc::new(hosts::tokio::sync::Notify::new());
    let (world, server) = served(MODERN, move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            if request.uri().path() == "/seen" {
                seen.notify_one();
                return Response::new(whole(""));
            }
            let (sender, body) = pieces();
            hosts::tokio::spawn(async move {
                sender.send(piece("half")).await.unwrap();
                seen.notified().await;
                sender.send(Err(io::Error::other("broken off"))).await.unwrap();
            });
            Response::new(body)
        }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = r#"
const stream = session.request({ ':path': '/' });
let body = '';
stream.setEncoding('utf8').on('error', () => {});
stream.on('data', data => { body += data; session.request({ ':path': '/seen' }).resume(); });
stream.on('close', () => { console.log(body, stream.rstCode); session.close(); });
"#;
    // 2 is INTERNAL_ERROR, which the server says.
    assert_eq!(fixture.answer(&node(&server, script)).await, "half 2");
}

async fn a_refused_stream_leaves_the_others_alone(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let (world, server) = served(MODERN, |_: Request<Incoming>| async move { Response::new(whole("ok")) });
    let rule = format!("api.test:{}/tls", server.port());
    let fixture = world.fixture(backend, world.inspecting(&rule, &["GET"], &["/ok"])).await;
    let script = r#"
const get = (path, then) => {
    const stream = session.request({ ':path': path });
    let body = '', status;
    stream.on('response', headers => status = headers[':status']);
    stream.setEncoding('utf8').on('data', data => body += data).on('end', () => then(status, body));
};
get('/no', (status, body) => {
    console.log(status, JSON.parse(body).error.code);
    get('/ok', (status, body) => { console.log(status, body); session.close(); });
});
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "403 request_not_allowed\n200 ok");
    assert_eq!(server.lines(), ["HTTP/2.0 GET /ok"]);
}

async fn both_sides_speak_what_the_server_chose(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    for (alpn, version) in [(&["h2", "http/1.1"][..], "2"), (&["http/1.1"], "1.1"), (&[], "1.1")] {
        let agreement = Agreement { alpn, client_certificates: None };
        let (world, server) =
            served(agreement, |_: Request<Incoming>| async move { Response::new(whole("")) });
        let fixture = world.fixture(backend, any(&world, &server)).await;
        let url = format!("https://api.test:{}/", server.port());
        let printed = fixture.answer(&format!("curl -sS --http2 -w '%{{http_version}}' {url}")).await;
        assert_eq!(printed, version, "{alpn:?}");
        let printed = fixture.answer(&format!("curl -sS --http1.1 -w '%{{http_version}}' {url}")).await;
        assert_eq!(printed, "1.1", "{alpn:?}");
    }
}

async fn a_client_of_http2_alone_is_told_that_the_server_has_none(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    for alpn in [&["http/1.1"][..], &[]] {
        let agreement = Agreement { alpn, client_certificates: None };
        let (world, server) =
            served(agreement, |_: Request<Incoming>| async move { Response::new(whole("")) });
        let fixture = world.fixture(backend, any(&world, &server)).await;
        let script = r#"
const stream = session.request({ ':path': '/' });
let body = '';
stream.on('response', headers => console.log(headers[':status']));
stream.setEncoding('utf8').on('data', data => body += data);
stream.on('end', () => { console.log(JSON.parse(body).error.message); session.close(); });
"#;
        let printed = fixture.answer(&node(&server, script)).await;
        assert!(
            printed.starts_with("502\n") && printed.contains("no HTTP that the client does"),
            "{printed}"
        );
        assert!(printed.contains("let the client speak both HTTP/1.1 and HTTP/2"), "{printed}");
        assert_eq!(fixture.refusals()[0].2, Reason::DialFailed);
        assert_eq!(server.lines(), [""; 0]);
    }
}

/// Flow control goes from end to end: the server is held up by the stream that the client does not read, and by no other.
async fn an_unread_stream_stops_its_sender_alone(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (world, server) = served(MODERN, move |request: Request<Incoming>| {
        let counted = Arc::clone(&counted);
        async move {
            if request.uri().path() == "/small" {
                return Response::new(whole("small"));
            }
            let (sender, body) = pieces();
            hosts::tokio::spawn(async move {
                let zeros = vec![0; 64 * 1024];
                while sender.send(piece(zeros.clone())).await.is_ok() {
                    counted.fetch_add(zeros.len(), Ordering::SeqCst);
                }
            });
            Response::new(body)
        }
    });
    let fixture = world.fixture(backend, any(&world, &server)).await;
    let script = r#"
const large = session.request({ ':path': '/large' });
large.on('error', () => {});
large.on('response', () => {
    let left = 20;
    const next = () => {
        const small = session.request({ ':path': '/small' });
        let body = '';
        small.setEncoding('utf8').on('data', data => body += data).on('end', () => {
            if (--left) return setTimeout(next, 50);
            console.log(body);
            session.destroy();
        });
    };
    next();
});
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "small");
    let most = 16 * 1024 * 1024;
    assert!(sent.load(Ordering::SeqCst) < most, "{} bytes wait for no reader", sent.load(Ordering::SeqCst));
}

/// A script for a session of HTTP/2 with the server.
/// Says each message again as it comes; the status comes at the end, as trailers.
pub(crate) fn grpc_echo(request: Request<Incoming>) -> Response<WebBody> {
    assert_eq!(request.headers()["te"], "trailers");
    let (sender, body) = pieces();
    let mut incoming = request.into_body();
    hosts::tokio::spawn(async move {
        while let Some(Ok(frame)) = incoming.frame().await {
            if let Ok(data) = frame.into_data() {
                sender.send(piece(data)).await.unwrap();
            }
        }
        sender.send(trailers([("grpc-status", "0"), ("grpc-message", "fine")])).await.unwrap();
    });
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

pub(crate) fn node(server: &WebServer, script: &str) -> String {
    let open = format!(
        "const http2 = require('http2');
         const session = http2.connect('https://api.test:{}');
         session.on('error', error => {{ console.error(error); process.exitCode = 1; }});",
        server.port()
    );
    format!("cat > script.js <<'END'\n{open}\n{script}\nEND\nnode script.js")
}

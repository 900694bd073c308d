//! The same over HTTP/2, which most hosts that keys belong to speak: a placeholder arrives as the real value where that belongs, is
//! refused in any other part of a request, and nothing comes back; and what is watched is not held up.

use crate::credentials_requests::{KEY, made, x_api_key};
use crate::terminate_http1::{next_when_seen, served};
use crate::terminate_http2::{grpc_echo, node};
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::http_body_util::BodyExt;
use belljar_tests_hosts::hyper::body::Incoming;
use belljar_tests_hosts::hyper::{Request, Response};
use belljar_tests_hosts::{
    self as hosts, Agreement, MODERN, WebBody, WebServer, have, piece, pieces, trailers, whole,
};
use std::sync::{Arc, Mutex};

for_every_isolated_backend! {
    once:
        a_placeholder_arrives_as_the_real_key_over_http2,
        what_a_server_echoes_over_http2_is_redacted,
        a_placeholder_in_another_part_of_a_stream_does_not_arrive,
        grpc_with_a_key_keeps_its_trailers,
        pieces_arrive_one_by_one_where_a_key_is_watched;
}

/// What arrived whole: the line, the key that came with it, the body.
type Arrived = Arc<Mutex<Vec<(String, Option<String>, String)>>>;

fn keeping(arrived: &Arrived) -> impl Fn(Request<Incoming>) -> ResponseFuture + Send + Sync + 'static {
    let arrived = Arc::clone(arrived);
    move |request| {
        let arrived = Arc::clone(&arrived);
        Box::pin(async move {
            let line = format!("{:?} {} {}", request.version(), request.method(), request.uri());
            let key = request.headers().get("x-api-key").map(|key| key.to_str().unwrap().to_string());
            // Who breaks off has sent nothing.
            let Ok(body) = request.into_body().collect().await else { return Response::new(whole("")) };
            let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            arrived.lock().unwrap().push((line, key, body));
            Response::new(whole("fine"))
        })
    }
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response<WebBody>> + Send>>;

async fn fixture(world: &World, server: &WebServer, backend: BackendName) -> SandboxFixture {
    let drawer = Drawer::with([("secret:model", KEY)]);
    let credential = credential("model", "api.test", server.port(), [x_api_key()]);
    made(world, backend, &drawer, server.port(), vec![credential]).await
}

async fn a_placeholder_arrives_as_the_real_key_over_http2(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let arrived = Arrived::default();
    let (world, server) = served(MODERN, keeping(&arrived));
    let fixture = fixture(&world, &server, backend).await;
    let url = format!("https://api.test:{}/v1/x", server.port());
    let printed = fixture
        .answer(&format!(
            "curl -sS --http2 -w ' %{{http_version}}' -H \"x-api-key: $MODEL_KEY\" {url}; \
             curl -sS --http2 -H \"x-api-key: $MODEL_KEY\" -d body {url}; \
             curl -sS --http1.1 -H \"x-api-key: $MODEL_KEY\" {url}"
        ))
        .await;
    assert_eq!(printed, "fine 2finefine");
    let arrived = arrived.lock().unwrap().clone();
    let lines: Vec<&str> = arrived.iter().map(|(line, ..)| line.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["HTTP/2.0", "HTTP/2.0", "HTTP/1.1"]);
    assert!(arrived.iter().all(|(_, key, _)| key.as_deref() == Some(KEY)), "{arrived:?}");
    assert_eq!(arrived[1].2, "body");
}

async fn what_a_server_echoes_over_http2_is_redacted(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let (world, server) = served(MODERN, |request: Request<Incoming>| async move {
        let key = request.headers()["x-api-key"].to_str().unwrap().to_string();
        let (sender, body) = pieces();
        let (first, second) = key.split_at(11);
        let (first, second) = (format!("it was {first}"), format!("{second}!"));
        let echoed = key.clone();
        hosts::tokio::spawn(async move {
            sender.send(piece(first)).await.unwrap();
            sender.send(piece(second)).await.unwrap();
            let _ = sender.send(trailers([("x-trailer", &echoed)])).await;
        });
        Response::builder().header("x-echo", key).body(body).unwrap()
    });
    let fixture = fixture(&world, &server, backend).await;
    let url = format!("https://api.test:{}/v1/x", server.port());
    let printed = fixture
        .answer(&format!("curl -sS --http2 -D - -H \"x-api-key: $MODEL_KEY\" {url}; echo; echo $MODEL_KEY"))
        .await;
    assert!(printed.starts_with("HTTP/2 200"), "{printed}");
    assert!(!printed.contains(KEY), "{printed}");
    let placeholder = printed.lines().last().unwrap();
    assert!(printed.contains(&format!("x-echo: {placeholder}")), "{printed}");
    assert!(printed.contains(&format!("it was {placeholder}!")), "{printed}");
    // Where it is told at all.
    assert!(
        !printed.contains("x-trailer") || printed.contains(&format!("x-trailer: {placeholder}")),
        "{printed}"
    );
}

async fn a_placeholder_in_another_part_of_a_stream_does_not_arrive(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let arrived = Arrived::default();
    let (world, server) = served(MODERN, keeping(&arrived));
    let fixture = fixture(&world, &server, backend).await;
    // One after the other over one connection: a stream that is refused leaves the others alone.
    let script = r#"
const key = process.env.MODEL_KEY;
const ask = (headers, body) => new Promise(done => {
    const stream = session.request({ ':path': '/v1/x', ':method': body ? 'POST' : 'GET', ...headers });
    let status = 'reset';
    stream.on('response', headers => status = headers[':status']);
    stream.on('error', () => {});
    stream.on('close', () => done(status));
    stream.resume();
    for (const part of body || []) stream.write(part);
    stream.end();
});
(async () => {
    const said = [];
    said.push(await ask({ 'x-other': key }));
    said.push(await ask({ 'x-other': 'Basic ' + Buffer.from('me:' + key).toString('base64') }));
    said.push(await ask({ cookie: 'a=' + key }));
    said.push(await ask({ ':path': '/v1/' + key }));
    said.push(await ask({ ':path': '/v1/x?a=' + encodeURIComponent(key) }));
    said.push(await ask({}, ['before ' + key + ' after']));
    said.push(await ask({}, ['before ' + key.slice(0, 9), key.slice(9) + ' after']));
    said.push(await ask({}, [Buffer.from(key).toString('base64')]));
    said.push(await ask({ 'x-api-key': key }, ['nothing in here']));
    console.log(said.join(' '));
    session.close();
})();
"#;
    let printed = fixture.answer(&node(&server, script)).await;
    let printed: Vec<&str> = printed.split(' ').collect();
    let (last, refused) = printed.split_last().unwrap();
    assert_eq!((*last, refused.len()), ("200", 8), "{printed:?}");
    assert!(refused.iter().all(|status| ["403", "reset"].contains(status)), "{printed:?}");
    let arrived = arrived.lock().unwrap().clone();
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    assert_eq!((arrived[0].1.as_deref(), arrived[0].2.as_str()), (Some(KEY), "nothing in here"));
    assert!(fixture.refusals().iter().all(|refusal| refusal.2 == Reason::PlaceholderElsewhere));
}

async fn grpc_with_a_key_keeps_its_trailers(backend: BackendName) {
    if !have(["node"]) {
        return;
    }
    let (world, server) = served(MODERN, |request: Request<Incoming>| async move {
        assert_eq!(request.headers()["x-api-key"], KEY);
        grpc_echo(request)
    });
    let fixture = fixture(&world, &server, backend).await;
    // The next message is sent when the last has come back: nothing may wait for more.
    let script = r#"
const stream = session.request({ ':method': 'POST', ':path': '/pkg.Echo/Talk', 'content-type': 'application/grpc', te: 'trailers',
    'x-api-key': process.env.MODEL_KEY });
const message = text => Buffer.concat([Buffer.from([0, 0, 0, 0, text.length]), Buffer.from(text)]);
const words = ['one', 'two', 'three'];
let next = 1, said = Buffer.alloc(0);
stream.write(message(words[0]));
stream.on('data', data => {
    said = Buffer.concat([said, data]);
    if (said.length === Buffer.concat(words.slice(0, next).map(message)).length) {
        if (next === words.length) stream.end(); else stream.write(message(words[next++]));
    }
});
stream.on('trailers', headers => console.log(headers['grpc-status'], headers['grpc-message']));
stream.on('close', () => session.close());
"#;
    assert_eq!(fixture.answer(&node(&server, script)).await, "0 fine");
}

/// The server sends the next event only when the client has said, by another request, that it has the last.
async fn pieces_arrive_one_by_one_where_a_key_is_watched(backend: BackendName) {
    for alpn in [&["http/1.1"][..], &["h2"]] {
        if !have(["curl"]) {
            return;
        }
        let seen = Arc::new(hosts::tokio::sync::Notify::new());
        let agreement = Agreement { alpn, client_certificates: None };
        let (world, server) = served(agreement, move |request: Request<Incoming>| {
            assert_eq!(request.headers()["x-api-key"], KEY);
            let events = next_when_seen(&request, &seen);
            async move { events }
        });
        let fixture = fixture(&world, &server, backend).await;
        let url = format!("https://api.test:{}", server.port());
        let printed = fixture
            .answer(&format!(
                "curl -sSN -H \"x-api-key: $MODEL_KEY\" {url}/events | while read line; do \
                   [ -z \"$line\" ] || {{ echo \"$line\"; curl -sS -o /dev/null -H \"x-api-key: $MODEL_KEY\" {url}/seen; }}; done"
            ))
            .await;
        assert_eq!(printed, "data: 0\ndata: 1\ndata: 2", "{alpn:?}");
    }
}

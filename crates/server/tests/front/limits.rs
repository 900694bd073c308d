//! How much, how long and how often.

use crate::front::daemon::{Daemon, code, request, speak};
use axum::body::Body;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let daemon = Daemon::start().await;
    let long = json!({ "key": "x".repeat(2 << 20) });
    assert_eq!(code(&daemon.owner("POST", "/v1/sandboxes", long).await), (413, "body_too_large"));
    daemon.end().await;
}

#[tokio::test]
async fn heads_have_an_end() {
    let daemon = Daemon::start().await;
    let many: String = (0..200).map(|at| format!("x-{at}: 1\r\n")).collect();
    let answer =
        daemon.raw(format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = "x".repeat(100 * 1024);
    let answer =
        daemon.raw(format!("GET /v1/health?{long} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    daemon.end().await;
}

#[tokio::test]
async fn who_never_finishes_asking_is_not_waited_for() {
    let daemon = Daemon::with(|settings| settings.time_limit = Some(Duration::from_millis(200))).await;
    let mut stream = TcpStream::connect(daemon.tcp).await.unwrap();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: local").await.unwrap();
    let mut answer = Vec::new();
    // Without the daemon's time limit this would never return.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
    daemon.end().await;
}

#[tokio::test]
async fn a_grant_that_asks_too_often_is_told_when_to_come_again() {
    let daemon = Daemon::start().await;
    let made = daemon.grant(json!({ "name": "hasty", "allow_sandbox": true, "rate": 1 })).await;
    let mut refused = None;
    for _ in 0..20 {
        let stream = TcpStream::connect(daemon.tcp).await.unwrap();
        let request_with = request("GET", "/v1/sandboxes", Some(&made.token), Value::Null);
        let response = speak(TokioIo::new(stream), request_with).await;
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
        assert_eq!(response.status(), 200);
    }
    let refused = refused.expect("twenty at once are more than one a second");
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(after >= 1);
    assert_eq!(code(&crate::front::daemon::answer_of(refused).await).1, "too_many_requests");
    daemon.end().await;
}

#[tokio::test]
async fn lists_come_in_parts() {
    let daemon = Daemon::start().await;
    for at in 0..5 {
        daemon.grant(json!({ "name": format!("g{at}") })).await;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = daemon.owner("GET", &format!("/v1/grants?limit=2{after}"), Value::Null).await;
        assert_eq!(status, 200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|grant| grant["name"].to_string()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["\"g0\"", "\"g1\"", "\"g2\"", "\"g3\"", "\"g4\""]);
    for limit in ["0", "1001", "-1", "x", "1e9"] {
        let answer = daemon.owner("GET", &format!("/v1/sandboxes?limit={limit}"), Value::Null).await;
        assert_eq!(code(&answer), (400, "request_invalid"), "{limit}");
    }
    daemon.end().await;
}

#[tokio::test]
async fn files_are_no_longer_than_the_daemon_takes() {
    let daemon = Daemon::with(|settings| settings.max_upload = Some(1000)).await;
    let name = daemon.sandbox(json!({})).await;
    let path = format!("/v1/sandboxes/{name}/files?path=a");
    let put = |length: usize| {
        let mut request_with = request("PUT", &path, None, Value::Null);
        *request_with.body_mut() = Body::from(vec![b'x'; length]);
        request_with
    };
    let stream = UnixStream::connect(&daemon.socket).await.unwrap();
    let response = speak(TokioIo::new(stream), put(1001)).await;
    assert_eq!(code(&crate::front::daemon::answer_of(response).await), (413, "body_too_large"));
    assert!(daemon.send(put(1000)).await.status().is_success());
    daemon.end().await;
}

//! What goes through to a sandbox: streams as they come, connections that change, and what becomes of them when one end goes.

use crate::front::daemon::{Daemon, code, request, speak};
use axum::body::Body;
use futures_util::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

#[tokio::test]
async fn the_same_request_twice_is_one_sandbox() {
    let daemon = Daemon::start().await;
    let ask = |body: Value| {
        let mut request_with = request("POST", "/v1/sandboxes", None, body);
        request_with.headers_mut().insert("idempotency-key", "once".parse().unwrap());
        request_with
    };
    let (status, first) = crate::front::daemon::answer_of(daemon.send(ask(json!({}))).await).await;
    assert_eq!(status, 201);
    let (_, second) = crate::front::daemon::answer_of(daemon.send(ask(json!({}))).await).await;
    assert_eq!(first["sandbox"]["name"], second["sandbox"]["name"]);
    let other = crate::front::daemon::answer_of(daemon.send(ask(json!({ "lease_s": 9 }))).await).await;
    assert_eq!(code(&other), (422, "idempotency_mismatch"));
    let name = first["sandbox"]["name"].as_str().unwrap();
    assert_eq!(daemon.owner("DELETE", &format!("/v1/sandboxes/{name}"), Value::Null).await.0, 204);
    let gone =
        daemon.owner("POST", &format!("/v1/sandboxes/{name}/commands"), json!({ "argv": ["true"] })).await;
    assert_eq!(code(&gone), (404, "sandbox_not_found"));
    daemon.end().await;
}

#[tokio::test]
async fn events_come_as_they_happen() {
    let daemon = Daemon::start().await;
    let name = daemon.sandbox(json!({})).await;
    let body = json!({ "shell": "echo one; read line; echo two $line", "stdin_open": true });
    let mut request_with = request("POST", &format!("/v1/sandboxes/{name}/commands"), None, body);
    request_with.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let response = daemon.send(request_with).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let command = response.headers()["x-belljar-command"].to_str().unwrap().to_string();
    let mut events = response.into_body();
    let mut output = String::new();
    while !output.contains("one") {
        let frame = events.frame().await.expect("more to come").unwrap();
        output.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
    }
    let path = format!("/v1/sandboxes/{name}/commands/{command}/stdin?end=true");
    let mut line = request("POST", &path, None, Value::Null);
    *line.body_mut() = Body::from("three\n");
    assert!(daemon.send(line).await.status().is_success());
    let rest = events.collect().await.unwrap().to_bytes();
    output.push_str(&String::from_utf8_lossy(&rest));
    assert!(output.contains("two three") && output.contains("ended"), "{output}");
    daemon.end().await;
}

#[tokio::test]
async fn a_websocket_goes_through_and_ends_with_its_grant() {
    let daemon = Daemon::start().await;
    let made = daemon.grant(json!({ "name": "mine", "allow_sandbox": true })).await;
    let (status, created) = daemon.ask(&made.token, "POST", "/v1/sandboxes", json!({})).await;
    assert_eq!(status, 201, "{created}");
    let name = created["sandbox"]["name"].as_str().unwrap().to_string();
    let commands = format!("/v1/sandboxes/{name}/commands");
    let body = json!({ "argv": ["cat"], "stdin_open": true, "background": true });
    let (_, command) = daemon.ask(&made.token, "POST", &commands, body).await;
    let id = command["id"].as_str().unwrap();
    let url = format!("ws://{}{commands}/{id}/attach", daemon.tcp);
    let mut request_with = url.into_client_request().unwrap();
    request_with.headers_mut().insert("authorization", format!("Bearer {}", made.token).parse().unwrap());
    let stream = TcpStream::connect(daemon.tcp).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request_with, stream).await.unwrap();
    socket.send(Message::binary(b"through\n".to_vec())).await.unwrap();
    loop {
        match socket.next().await.expect("an answer").unwrap() {
            Message::Binary(bytes) => {
                assert_eq!(&bytes[..], b"\x01through\n");
                break;
            }
            Message::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(daemon.owner("DELETE", &format!("/v1/grants/{}", made.grant.id), Value::Null).await.0, 204);
    while let Some(Ok(_)) = socket.next().await {}
    assert_eq!(daemon.owner("DELETE", &format!("/v1/sandboxes/{name}"), Value::Null).await.0, 204);
    daemon.end().await;
}

#[tokio::test]
async fn who_hangs_up_may_take_the_command_along() {
    let daemon = Daemon::start().await;
    let name = daemon.sandbox(json!({})).await;
    let commands = format!("/v1/sandboxes/{name}/commands");
    for (word, left) in [("kill", 0), ("keep", 1)] {
        let mut request_with = request("POST", &commands, None, json!({ "argv": ["sleep", "1000"] }));
        request_with.headers_mut().insert("x-belljar-on-hangup", word.parse().unwrap());
        let stream = UnixStream::connect(&daemon.socket).await.unwrap();
        let response = speak(TokioIo::new(stream), request_with).await;
        assert_eq!(response.status(), 200);
        drop(response);
        let path = format!("/v1/sandboxes/{name}");
        let mut running = u64::MAX;
        for _ in 0..500 {
            running = daemon.owner("GET", &path, Value::Null).await.1["commands"].as_u64().unwrap();
            if running == 0 {
                break;
            }
            if word == "keep" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(running, left, "{word}");
    }
    daemon.end().await;
}

#[tokio::test]
async fn a_shim_that_dies_is_told_and_nothing_hangs() {
    let daemon = Daemon::start().await;
    let name = daemon.sandbox(json!({})).await;
    let commands = format!("/v1/sandboxes/{name}/commands");
    let waiting = daemon.send(request("POST", &commands, None, json!({ "argv": ["sleep", "1000"] }))).await;
    let place = daemon.root.path().join("state/belljar/fleet/sandboxes").join(&name);
    let contact: Value = serde_json::from_slice(&std::fs::read(place.join("keeper.json")).unwrap()).unwrap();
    let pid = belljar_sys::rustix::process::Pid::from_raw(contact["pid"].as_i64().unwrap() as i32).unwrap();
    belljar_sys::rustix::process::kill_process(pid, belljar_sys::rustix::process::Signal::KILL).unwrap();
    assert!(waiting.into_body().collect().await.is_err(), "an answer that was cut off is no answer");
    let answer = daemon.owner("POST", &commands, json!({ "argv": ["true"] })).await;
    let (status, code) = code(&answer);
    assert!([(404, "sandbox_not_found"), (409, "sandbox_not_alive")].contains(&(status, code)), "{answer:?}");
    daemon.end().await;
}

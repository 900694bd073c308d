//! What is said to commands: input, signals, sizes, and a WebSocket for all of it.

use crate::shim::started::Started;
use axum::body::Body;
use belljar_api::CommandInfo;
use belljar_api::SHIM_TOKEN_HEADER;
use futures_util::{SinkExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

#[tokio::test]
async fn input_comes_as_fast_as_it_is_read() {
    let started = Started::new();
    let command = started.begin(json!({"shell": "sha256sum", "stdin_open": true})).await;
    let path = format!("/commands/{}", command.id);
    let pieces = stream::iter((0..400).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 50_000])));
    let (status, _) = started.ask("POST", &format!("{path}/stdin"), Body::from_stream(pieces)).await;
    assert_eq!(status, 204);
    let (status, _) = started.ask("POST", &format!("{path}/stdin?end=true"), Body::empty()).await;
    assert_eq!(status, 204);
    let info: CommandInfo = started.json("POST", &format!("{path}/wait"), json!({})).await;
    let expected = started.run(json!({"shell": "head -c 20000000 /dev/zero | tr '\\0' x | sha256sum"})).await;
    assert_eq!(info.result.expect("it ended").stdout, expected.result.expect("it ended").stdout);
    let refused = started.refused("POST", &format!("{path}/stdin"), json!("more")).await;
    assert_eq!(refused, (409, "command_ended".into()));
}

#[tokio::test]
async fn a_command_that_does_not_read_can_be_ended() {
    let started = Started::new();
    let command = started.begin(json!({"argv": ["sleep", "1000"], "stdin_open": true})).await;
    let path = format!("/commands/{}", command.id);
    let pieces = stream::iter((0..400).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 50_000])));
    let request = started.request("POST", &format!("{path}/stdin"), Body::from_stream(pieces));
    let writing = tokio::spawn({
        let stream = started.stream().await;
        async move {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
                    .await
                    .expect("a server");
            tokio::spawn(connection);
            sender.send_request(request).await.map(|response| response.status().as_u16())
        }
    });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let ended: CommandInfo = started.json("DELETE", &path, json!({})).await;
    assert!(ended.result.expect("it ended").aborted);
    assert_eq!(writing.await.expect("no panic").expect("an answer"), 409);
}

#[tokio::test]
async fn signals_reach_the_process_group() {
    let started = Started::new();
    let script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let command = started.begin(json!({"shell": script})).await;
    let path = format!("/commands/{}", command.id);
    started.events(&format!("{path}/output")).await.next().await.expect("it is ready");
    let (status, _) = started.ask("POST", &format!("{path}/signal"), r#"{"signal":"SIGTERM"}"#).await;
    assert_eq!(status, 204);
    let info: CommandInfo = started.json("POST", &format!("{path}/wait"), json!({})).await;
    let result = info.result.expect("it ended");
    assert_eq!((result.exit_code, result.stdout.as_deref()), (Some(7), Some("ready\ncaught\n")));
    let unknown = started.refused("POST", &format!("{path}/signal"), json!({"signal": "SIGNOTHING"})).await;
    assert_eq!(unknown, (422, "request_value".into()));
    let late = started.refused("POST", &format!("{path}/signal"), json!({"signal": "9"})).await;
    assert_eq!(late, (409, "command_ended".into()));
}

#[tokio::test]
async fn a_terminal_has_a_size_and_gets_another() {
    let started = Started::new();
    let body = json!({"shell": "stty size; read x; stty size", "terminal": {"rows": 30, "cols": 100}, "stdin_open": true});
    let command = started.begin(body).await;
    let path = format!("/commands/{}", command.id);
    let mut events = started.events(&format!("{path}/output")).await;
    let (_, first) = events.next().await.expect("its size");
    assert!(first["text"].as_str().expect("text").contains("30 100"), "{first}");
    let (status, _) = started.ask("POST", &format!("{path}/resize"), r#"{"rows":40,"cols":120}"#).await;
    assert_eq!(status, 204);
    started.ask("POST", &format!("{path}/stdin"), "\n").await;
    let info: CommandInfo = started.json("POST", &format!("{path}/wait"), json!({})).await;
    assert!(info.result.expect("it ended").stdout.expect("text").contains("40 120"));
    let plain = started.begin(json!({"argv": ["sleep", "1000"]})).await;
    let refused = started
        .refused("POST", &format!("/commands/{}/resize", plain.id), json!({"rows": 1, "cols": 1}))
        .await;
    assert_eq!(refused, (409, "command_ended".into()));
}

async fn attach(started: &Started, id: &str, from: u64) -> WebSocketStream<UnixStream> {
    let address = format!("ws://keeper/v1/sandboxes/box/commands/{id}/attach?from={from}");
    let mut request = address.into_client_request().expect("a request");
    request.headers_mut().insert(SHIM_TOKEN_HEADER, started.contact.token.parse().expect("a value"));
    tokio_tungstenite::client_async(request, started.stream().await).await.expect("a WebSocket").0
}

/// Reads output until it has this text, and says what came meanwhile as words.
async fn until(socket: &mut WebSocketStream<UnixStream>, text: &str) -> Vec<Value> {
    let (mut seen, mut words) = (String::new(), Vec::new());
    while !seen.contains(text) {
        match socket.next().await.expect("more").expect("a message") {
            Message::Binary(bytes) => seen.push_str(&String::from_utf8_lossy(&bytes[1..])),
            Message::Text(word) => words.push(serde_json::from_str(&word).expect("json")),
            _ => {}
        }
    }
    words
}

#[tokio::test]
async fn two_people_speak_with_one_shell() {
    let started = Started::new();
    let body = json!({"argv": ["/bin/sh"], "terminal": {"rows": 24, "cols": 80}, "stdin_open": true});
    let command = started.begin(body).await;
    let mut one = attach(&started, &command.id, 0).await;
    let mut other = attach(&started, &command.id, 0).await;
    one.send(Message::Binary(b"echo from-$((40+2))\n".to_vec().into())).await.expect("sent");
    let words = until(&mut one, "from-42").await;
    assert_eq!(words[0]["type"], "started");
    until(&mut other, "from-42").await;
    other.send(Message::Text(r#"{"type":"resize","rows":50,"cols":132}"#.into())).await.expect("sent");
    other.send(Message::Binary(b"stty size\n".to_vec().into())).await.expect("sent");
    until(&mut one, "50 132").await;
    // Hanging up leaves it running.
    drop(one);
    other.send(Message::Text("nonsense".into())).await.expect("sent");
    other.send(Message::Binary(b"echo still-$((1+1))\n".to_vec().into())).await.expect("sent");
    let words = until(&mut other, "still-2").await;
    let complaint = words.iter().find(|word| word["type"] == "error");
    if let Some(complaint) = complaint {
        assert_eq!(complaint["error"]["code"], "request_value");
    }
    other.send(Message::Binary(b"exit 5\n".to_vec().into())).await.expect("sent");
    loop {
        if let Message::Text(word) = other.next().await.expect("its end").expect("a message") {
            let word: Value = serde_json::from_str(&word).expect("json");
            if word["type"] == "ended" {
                assert_eq!(word["result"]["exit_code"], 5);
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_slow_reader_slows_down_no_other() {
    let started = Started::new();
    let command = started
        .begin(json!({"shell": "read x; head -c 30000000 /dev/zero; echo end", "stdin_open": true}))
        .await;
    let mut slow = attach(&started, &command.id, 0).await;
    let quick = started.events(&format!("/commands/{}/output", command.id)).await;
    slow.send(Message::Binary(b"\n".to_vec().into())).await.expect("sent");
    let (bytes, ended) = quick.all().await;
    assert_eq!(bytes.len(), 30_000_004);
    assert_eq!(ended.expect("its end").exit_code, Some(0));
    // It has read nothing yet, and everything is there for it.
    let mut length = 0;
    loop {
        match slow.next().await.expect("more").expect("a message") {
            Message::Binary(bytes) => length += bytes.len() - 1,
            Message::Text(word) if word.contains("ended") => break,
            _ => {}
        }
    }
    assert_eq!(length, 30_000_004);
}

#[tokio::test]
async fn a_websocket_is_one_from_its_first_word() {
    let started = Started::new();
    let command = started.begin(json!({"argv": ["sleep", "1000"]})).await;
    let path = format!("/commands/{}/attach", command.id);
    assert_eq!(started.refused("GET", &path, json!({})).await, (400, "request_invalid".into()));
    let address = format!("ws://keeper/v1/sandboxes/box/commands/{}/attach", command.id);
    let request = address.into_client_request().expect("a request");
    assert!(
        tokio_tungstenite::client_async(request, started.stream().await).await.is_err(),
        "it has no token"
    );
}

#[tokio::test]
async fn an_unattended_command_ends_if_it_is_to() {
    let started = Started::new();
    let command = started.begin(json!({"argv": ["sleep", "1000"], "alone_s": 2})).await;
    let path = format!("/commands/{}", command.id);
    let mut socket = attach(&started, &command.id, 0).await;
    tokio::time::sleep(std::time::Duration::from_millis(3000)).await;
    let info: CommandInfo = started.json("GET", &path, json!({})).await;
    assert!(info.result.is_none(), "it ended while a client was attached");
    socket.close(None).await.expect("it is open");
    drop(socket);
    let info: CommandInfo = started.json("POST", &format!("{path}/wait"), json!({})).await;
    assert!(info.result.expect("it ended").aborted);
}

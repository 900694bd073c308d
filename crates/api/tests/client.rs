//! The client against a server made by hand, which says what is to be said and dies when it is to die.
#![cfg(feature = "client")]

use belljar_api::client::{AttachEvent, Client, ClientError, SandboxFilter};
use belljar_api::{CommandEvent, StartCommand, StreamName};
use belljar_spec::ErrorCode;
use futures_util::{SinkExt, StreamExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

#[tokio::test]
async fn what_the_server_refuses_keeps_its_code_and_its_hint() {
    let place = tempfile::tempdir().unwrap();
    let listener = listen(&place.path().join("s"));
    tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        let body = r#"{"error":{"kind":"policy","code":"sandbox_not_found","message":"no sandbox `x`","hint":"look"}}"#;
        answer(&mut stream, "404 Not Found", "application/json", body).await;
    });
    let client = Client::unix(place.path().join("s"));
    let error = client.sandbox("x").info().await.unwrap_err();
    assert_eq!(
        (error.code(), error.status(), error.hint()),
        (ErrorCode::SandboxNotFound, Some(404), Some("look".into()))
    );
    assert_eq!(error.to_string(), "no sandbox `x`");
}

#[tokio::test]
async fn without_a_daemon_the_error_names_the_address() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let error = Client::unix(&path).capabilities().await.unwrap_err();
    assert!(
        matches!(error, ClientError::NoDaemon { .. }) && error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
}

#[tokio::test]
async fn a_question_that_changes_nothing_is_asked_again_and_nothing_else_is() {
    let place = tempfile::tempdir().unwrap();
    let listener = listen(&place.path().join("s"));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        // The daemon is killed with the first question in its hands, still accepts the second, and dies with every order.
        for answers in [false, false, true, false] {
            let mut stream = accept(&listener).await;
            let request = match answers {
                true => answer(&mut stream, "200 OK", "application/json", r#"{"items":[]}"#).await,
                false => read_request(&mut stream).await,
            };
            seen.lock().unwrap().push(request.split(' ').next().unwrap_or_default().to_string());
        }
    });
    let client = Client::unix(place.path().join("s"));
    assert_eq!(client.sandboxes(&SandboxFilter::default()).await.unwrap(), []);
    let error = client.sandbox("x").stop().await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DaemonUnreachable);
    assert_eq!(*requests.lock().unwrap(), ["GET", "GET", "GET", "POST"]);
}

#[tokio::test]
async fn lists_are_read_to_their_end_over_one_connection() {
    let place = tempfile::tempdir().unwrap();
    let listener = listen(&place.path().join("s"));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        for body in [r#"{"items":[],"next":"b c"}"#, r#"{"items":[]}"#, r#"{"items":[]}"#] {
            let request = answer(&mut stream, "200 OK", "application/json", body).await;
            seen.lock().unwrap().push(request);
        }
    });
    let client = Client::unix(place.path().join("s"));
    let filter = SandboxFilter { key: Some("repo:/a b".into()), state: None };
    assert_eq!(client.sandboxes(&filter).await.unwrap(), []);
    assert_eq!(client.grants().await.unwrap(), []);
    let requests = requests.lock().unwrap();
    assert!(
        requests[0].starts_with("GET /v1/sandboxes?limit=500&key=repo%3A%2Fa%20b HTTP/1.1"),
        "{}",
        requests[0]
    );
    assert!(requests[1].contains("&after=b%20c&key="), "{}", requests[1]);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_waited_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let listener = listen(&place.path().join("s"));
    tokio::spawn(async move {
        for _ in 0..3 {
            let mut stream = accept(&listener).await;
            answer(&mut stream, "200 OK", "application/json", "{}").await;
        }
    });
    let client = Client::unix(place.path().join("s"));
    for _ in 0..3 {
        client.health().await.unwrap();
    }
}

#[tokio::test]
async fn a_daemon_is_started_where_none_listens() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = starts.clone();
    let socket = path.clone();
    let runtime = tokio::runtime::Handle::current();
    let client = Client::unix(&path).starting(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let socket = socket.clone();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let listener = listen(&socket);
            loop {
                let mut stream = accept(&listener).await;
                tokio::spawn(async move {
                    while !answer(&mut stream, "200 OK", "application/json", "{}").await.is_empty() {}
                });
            }
        });
        // As one that found that it is not needed.
        std::process::Command::new("true").spawn()
    });
    client.health().await.unwrap();
    client.health().await.unwrap();
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_command_is_followed_over_the_death_of_the_daemon() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let listener = listen(&path);
    tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        assert!(request.contains("accept: text/event-stream"), "{request}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        send_event(&mut stream, 0, &format!(r#"{{"type":"started","command":{RUNNING}}}"#)).await;
        send_event(&mut stream, 3, r#"{"type":"output","stream":"stdout","text":"one"}"#).await;
        drop((stream, listener));
        let listener = come_back(&path).await;
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        assert!(
            request.starts_with("GET /v1/sandboxes/bj-x/commands/cmd_1/output?from=3&follow=true "),
            "{request}"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        send_event(&mut stream, 6, r#"{"type":"output","stream":"stderr","text":"two"}"#).await;
        send_event(&mut stream, 6, r#"{"type":"ended","result":{"exit_code":7}}"#).await;
    });
    let client = Client::unix(place.path().join("s"));
    let mut events = client.sandbox("bj-x").run_following(&StartCommand::default()).await.unwrap();
    let mut text = String::new();
    let mut code = None;
    while let Some(event) = events.next().await.unwrap() {
        match event {
            CommandEvent::Output { text: Some(more), .. } => text.push_str(&more),
            CommandEvent::Ended { result } => code = result.exit_code,
            _ => {}
        }
    }
    assert_eq!((text.as_str(), code, events.cursor()), ("onetwo", Some(7), 6));
}

#[tokio::test]
async fn an_attachment_continues_when_the_daemon_is_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("s");
    let listener = listen(&path);
    let served = tokio::spawn(async move {
        let mut socket = tokio_tungstenite::accept_async(accept(&listener).await).await.unwrap();
        let started: Utf8Bytes = format!(r#"{{"type":"started","command":{RUNNING}}}"#).into();
        socket.send(Message::Text(started.clone())).await.unwrap();
        socket.send(Message::Binary(b"\x01abc".to_vec().into())).await.unwrap();
        drop((socket, listener));
        let listener = come_back(&path).await;
        let mut socket = tokio_tungstenite::accept_async(accept(&listener).await).await.unwrap();
        socket.send(Message::Text(started)).await.unwrap();
        socket.send(Message::Binary(b"\x02d".to_vec().into())).await.unwrap();
        let typed = socket.next().await.unwrap().unwrap();
        let size = socket.next().await.unwrap().unwrap();
        socket.send(Message::Text(r#"{"type":"ended","result":{"signal":"SIGINT"}}"#.into())).await.unwrap();
        (typed, size)
    });
    let client = Client::unix(place.path().join("s"));
    let mut attached = client.sandbox("bj-x").attach("cmd_1", 0).await.unwrap();
    let mut input = attached.input();
    let mut events = Vec::new();
    while let Some(event) = attached.next().await.unwrap() {
        if let AttachEvent::Output(StreamName::Stderr, _) = event {
            input.bytes("typed").await.unwrap();
            input.resize(belljar_api::Terminal { rows: 5, cols: 6 }).await.unwrap();
        }
        events.push(event);
    }
    assert!(matches!(events[0], AttachEvent::Started(_)));
    assert_eq!(events[1], AttachEvent::Output(StreamName::Stdout, "abc".into()));
    assert_eq!(events[2], AttachEvent::Resumed);
    assert_eq!(events[3], AttachEvent::Output(StreamName::Stderr, "d".into()));
    assert!(matches!(&events[4], AttachEvent::Ended(result) if result.signal.as_deref() == Some("SIGINT")));
    assert_eq!(attached.cursor(), 4);
    let (typed, size) = served.await.unwrap();
    assert_eq!(typed, Message::Binary("typed".into()));
    assert_eq!(size, Message::Text(r#"{"type":"resize","rows":5,"cols":6}"#.into()));
}

#[tokio::test]
async fn a_file_is_sent_as_long_as_it_was_said_to_be() {
    let place = tempfile::tempdir().unwrap();
    let listener = listen(&place.path().join("s"));
    let served = tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        (request, body)
    });
    let client = Client::unix(place.path().join("s"));
    client.sandbox("bj-x").write_file_from("/workspace/a&b", &b"hello, and more"[..], Some(5)).await.unwrap();
    let (request, body) = served.await.unwrap();
    assert!(request.starts_with("PUT /v1/sandboxes/bj-x/files?path=%2Fworkspace%2Fa%26b "), "{request}");
    assert!(request.to_lowercase().contains("content-length: 5\r\n"), "{request}");
    assert_eq!(&body, b"hello");
}

fn listen(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("a socket can be made")
}

/// As a daemon that was killed and started again.
async fn come_back(path: &PathBuf) -> UnixListener {
    std::fs::remove_file(path).expect("it was there");
    tokio::time::sleep(Duration::from_millis(60)).await;
    listen(path)
}

async fn accept(listener: &UnixListener) -> UnixStream {
    listener.accept().await.expect("a client connects").0
}

/// The head of a request; nothing if there is none.
async fn read_request(stream: &mut UnixStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("a head is text")
}

async fn answer(stream: &mut UnixStream, status: &str, kind: &str, body: &str) -> String {
    let request = read_request(stream).await;
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
    let _ = stream.write_all(text.as_bytes()).await;
    request
}

async fn send_event(stream: &mut UnixStream, id: u64, data: &str) {
    let event = format!("id: {id}\ndata: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk.as_bytes()).await.expect("the client listens");
}

const RUNNING: &str =
    r#"{"id":"cmd_1","argv":["x"],"state":"running","terminal":false,"started_ms":0,"cursor":0}"#;

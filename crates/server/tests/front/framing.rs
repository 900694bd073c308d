//! Where one request ends and the next begins: never something that two readers could see differently.

use crate::front::daemon::Daemon;

const HEAD: &str = "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n";

#[tokio::test]
async fn two_lengths_are_refused() {
    let daemon = Daemon::start().await;
    let answer =
        daemon.raw(format!("{HEAD}content-length: 2\r\ncontent-length: 40\r\n\r\n{{}}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    daemon.end().await;
}

#[tokio::test]
async fn a_length_beside_chunks_hides_no_second_request() {
    let daemon = Daemon::start().await;
    // Read by its length there is a second request behind the first; read by its chunks it is part of the body.
    let hidden = "GET /v1/grants HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let body = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for head in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let answer = daemon.raw(format!("{HEAD}{head}connection: close\r\n\r\n{body}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    daemon.end().await;
}

#[tokio::test]
async fn what_is_not_http_is_not_guessed_at() {
    let daemon = Daemon::start().await;
    for bytes in [
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: +2\r\n\r\n{}",
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length : 2\r\n\r\n{}",
        "GET /v1/health HTTP/1.1\r\nhost: localhost\r\n folded: x\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example.com\r\nconnection: close\r\n\r\n",
        "GET /v1/health HTTP/1.1\r\nconnection: close\r\n\r\n",
        "GET http://evil.example.com/v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{7f}\x03\x03\r\n\r\n",
    ] {
        let answer = daemon.raw(bytes.as_bytes()).await;
        let refused =
            answer.is_empty() || answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 403");
        assert!(refused, "{bytes:?}: {answer}");
    }
    daemon.end().await;
}

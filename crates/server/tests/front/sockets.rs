//! The daemon's own sockets.

use crate::front::daemon::Daemon;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

#[tokio::test]
async fn a_socket_that_was_removed_is_there_again() {
    let daemon = Daemon::start().await;
    let made = std::fs::metadata(&daemon.socket).unwrap();
    assert_eq!(made.mode() & 0o777, 0o600);
    std::fs::remove_dir_all(daemon.socket.parent().unwrap()).unwrap();
    while std::fs::metadata(&daemon.socket).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(daemon.owner("GET", "/v1/health", Value::Null).await, (200, json!({ "ok": true })));
    assert_eq!(std::fs::metadata(&daemon.socket).unwrap().mode() & 0o777, 0o600);
    daemon.end().await;
}

#[tokio::test]
async fn a_daemon_that_was_killed_is_followed_by_one_that_finds_its_sandboxes() {
    let daemon = Daemon::start().await;
    let name = daemon.sandbox(json!({ "key": "stays" })).await;
    let commands = format!("/v1/sandboxes/{name}/commands");
    let run = json!({ "shell": "echo $$ > here; sleep 1000", "background": true });
    assert_eq!(daemon.owner("POST", &commands, run).await.0, 201);
    let daemon = daemon.again().await;
    let (status, ended) = daemon.owner("POST", &commands, json!({ "argv": ["cat", "here"] })).await;
    assert_eq!((status, &ended["result"]["exit_code"]), (200, &json!(0)), "{ended}");
    let (_, info) = daemon.owner("GET", &format!("/v1/sandboxes/{name}"), Value::Null).await;
    assert_eq!((&info["state"], &info["commands"]), (&json!("live"), &json!(1)), "{info}");
    let (status, same) = daemon.owner("POST", "/v1/sandboxes", json!({ "key": "stays" })).await;
    assert_eq!((status, &same["sandbox"]["name"]), (200, &json!(name)));
    daemon.end().await;
}

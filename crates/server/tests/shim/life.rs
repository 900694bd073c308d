//! How a shim begins, who may speak with it, and how it ends.

use crate::shim::started::Started;
use axum::body::Body;
use belljar_api::{ApiCode, CommandInfo, CommandState, SHIM_TOKEN_HEADER, SandboxRequest};
use belljar_fleet::Status;
use belljar_server::shim::Contact;
use http_body_util::BodyExt;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn only_who_has_the_token_comes_in() {
    let started = Started::new();
    for token in [None, Some("wrong"), Some(""), Some(&started.contact.token[1..])] {
        for path in ["/keeper/status", "/commands", "/nowhere"] {
            let mut request = started.request("GET", path, Body::empty());
            request.headers_mut().remove(SHIM_TOKEN_HEADER);
            if let Some(token) = token {
                request.headers_mut().insert(SHIM_TOKEN_HEADER, token.parse().expect("a value"));
            }
            assert_eq!(started.send(request).await.status(), 401, "{path} with {token:?}");
        }
    }
    let status: Status = started.json("GET", "/keeper/status", json!({})).await;
    assert_eq!((status.commands, status.paused), (0, false));
    let mode = std::fs::metadata(started.place.contact()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the token is readable by its user alone");
}

#[tokio::test]
async fn a_place_has_one_shim() {
    let started = Started::new();
    let (mut another, answer) = started.another();
    assert!(!another.wait().expect("our child").success());
    assert_eq!(answer["error"]["code"], "in_use");
    let status: Status = started.json("GET", "/keeper/status", json!({})).await;
    assert_eq!(status.commands, 0, "the first one goes on");
}

#[test]
fn what_cannot_be_started_is_said() {
    let request = SandboxRequest { rootfs: "/nonexistent".parse().ok(), ..Default::default() };
    let error = Started::try_with(request).err().expect("no such root");
    assert!(!error.message.is_empty() && matches!(error.code, ApiCode::Known(_)), "{error:?}");
}

#[tokio::test]
async fn a_stop_ends_everything_and_tells_who_listens() {
    let mut started = Started::new();
    let command = started.begin(json!({"shell": "echo here; sleep 1000"})).await;
    let mut events = started.events(&format!("/commands/{}/output", command.id)).await;
    events.next().await.expect("its output");
    let life = started.send(started.request("GET", "/keeper/life", Body::empty())).await;
    let (status, _) = started.ask("POST", "/keeper/stop", r#"{"how":"wipe"}"#).await;
    assert_eq!(status, 202);
    let (_, last) = events.next().await.expect("its end");
    assert_eq!(last["type"], "ended");
    assert_eq!(last["result"]["aborted"], true);
    let _ = life.into_body().collect().await;
    assert!(started.wait(), "it ended well");
    assert!(
        Contact::read(&started.place).expect("readable").is_none(),
        "no client is led to a shim that is gone"
    );
    assert!(started.place.hold().expect("a lock").is_some(), "the place is free");
}

#[test]
fn a_shim_that_is_killed_leaves_no_process() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut started = Started::new();
    let mark = format!("31{}", started.contact.pid);
    let running = |mark: &str| {
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let lines = all.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line) == format!("sleep\0{mark}\0")).count()
    };
    runtime.block_on(started.begin(json!({"argv": ["sleep", mark]})));
    while running(&mark) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    started.child.kill().expect("our child");
    started.wait();
    while running(&mark) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(started.place.hold().expect("a lock").is_some(), "the place is free");
}

#[tokio::test]
async fn a_shim_whose_sandbox_has_gone_goes_too() {
    let mut started = Started::new();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", started.contact.pid)).expect("it lives").flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|all| all.split_whitespace().map(String::from).collect::<Vec<_>>()).collect();
    assert!(!children.is_empty(), "a sandbox has a first process");
    let killed = std::process::Command::new("kill").arg("-9").args(&children).status().expect("a program");
    assert!(killed.success());
    assert_eq!(started.refused("GET", "/files/stat?path=.", json!({})).await, (409, "guest_gone".into()));
    started.wait();
    assert!(started.place.hold().expect("a lock").is_some(), "the place is free");
}

#[tokio::test]
async fn everything_is_paused_and_resumed() {
    let started = Started::new();
    let command = started.begin(json!({"shell": "while :; do echo tick; sleep 0.01; done"})).await;
    let (status, _) = started.ask("POST", "/keeper/pause", Body::empty()).await;
    assert_eq!(status, 204);
    let status: Status = started.json("GET", "/keeper/status", json!({})).await;
    assert_eq!((status.commands, status.paused), (1, true));
    assert_eq!(
        started.refused("POST", "/commands", json!({"argv": ["true"]})).await,
        (409, "sandbox_paused".into())
    );
    assert_eq!(started.ask("POST", "/keeper/resume", Body::empty()).await.0, 204);
    let path = format!("/commands/{}", command.id);
    let now: CommandInfo = started.json("GET", &path, json!({})).await;
    loop {
        let later: CommandInfo = started.json("GET", &path, json!({})).await;
        assert_eq!(later.state, CommandState::Running);
        if later.cursor > now.cursor + 20 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn paths_that_are_not_there_are_refused_in_our_own_words() {
    let started = Started::new();
    for (method, path, code) in [
        ("GET", "/nowhere", "not_found"),
        ("PATCH", "/commands", "method_not_allowed"),
        ("GET", "/commands/cmd_1", "name_unknown"),
        ("GET", "/commands/cmd_01", "name_unknown"),
        ("GET", "/commands/%FF", "request_invalid"),
        ("GET", "/commands?limit=0", "request_invalid"),
        ("GET", "/commands?limit=x", "request_invalid"),
        ("GET", "/commands?after=7", "request_invalid"),
        ("POST", "/commands", "request_invalid"),
    ] {
        assert_eq!(started.refused(method, path, json!("no object")).await.1, code, "{method} {path}");
    }
    let mut other = started.request("GET", "/commands", Body::empty());
    *other.uri_mut() = "/v1/sandboxes/other/commands".parse().expect("a path");
    assert_eq!(started.send(other).await.status(), 404);
}

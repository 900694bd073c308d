//! Commands, their output, and their ends.

use crate::shim::started::Started;
use axum::body::Body;
use belljar_api::{CommandInfo, CommandState, Page};
use belljar_server::shim::COMMAND_HEADER;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_command_is_run_and_told() {
    let started = Started::new();
    let info = started.run(json!({"shell": "echo out; echo err >&2; cat; exit 3", "stdin": "in"})).await;
    let result = info.result.expect("it ended");
    assert_eq!(info.id, "cmd_1");
    assert_eq!(
        (result.exit_code, result.stdout, result.stderr),
        (Some(3), Some("out\nin".into()), Some("err\n".into()))
    );
    assert_eq!((result.aborted, result.timed_out, result.output_truncated), (false, false, false));
    let shown: CommandInfo = started.json("GET", "/commands/cmd_1", json!({})).await;
    assert_eq!(shown.result.expect("it ended").stdout, None, "output is told where a client waited for it");
    let info = started.run(json!({"argv": ["env"], "env": {"COLOUR": "blue"}, "cwd": "/tmp"})).await;
    let text = info.result.expect("it ended").stdout.expect("text");
    assert!(text.lines().any(|line| line == "COLOUR=blue") && text.contains("/tmp"), "{text}");
}

#[tokio::test]
async fn what_cannot_run_is_a_result() {
    let started = Started::new();
    let result = started.run(json!({"argv": ["no-such-program"]})).await.result.expect("it ended");
    assert_eq!(result.exit_code, Some(127));
    assert!(result.not_started.is_some());
    let result =
        started.run(json!({"argv": ["true"], "cwd": "/no/such/folder"})).await.result.expect("it ended");
    assert_eq!(result.exit_code, None);
    assert_eq!(result.error.expect("why").code.to_string(), "not_found");
    assert_eq!(started.refused("POST", "/commands", json!({})).await, (422, "request_value".into()));
    let unknown = json!({"argv": ["true"], "colour": "blue"});
    assert_eq!(started.refused("POST", "/commands", unknown).await, (400, "request_invalid".into()));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_told_as_they_are() {
    let started = Started::new();
    let result = started.run(json!({"argv": ["printf", r"a\377b"]})).await.result.expect("it ended");
    assert_eq!(
        (result.stdout.as_deref(), result.stdout_base64.as_deref()),
        (Some("a\u{fffd}b"), Some("Yf9i"))
    );
    assert_eq!((result.stderr.as_deref(), result.stderr_base64), (Some(""), None));
    let back = started.run(json!({"argv": ["cat"], "stdin_base64": "Yf9i"})).await.result.expect("it ended");
    assert_eq!(back.stdout_base64.as_deref(), Some("Yf9i"));
}

#[tokio::test]
async fn followers_get_everything_from_any_cursor() {
    let started = Started::new();
    let script =
        "i=0; while [ $i -lt 200 ]; do echo \"line $i \u{e4}\u{20ac}\"; echo oh >&2; i=$((i+1)); done";
    let command = started.begin(json!({"shell": script})).await;
    let path = format!("/commands/{}/output", command.id);
    let (one, other) = tokio::join!(started.events(&path), started.events(&path));
    let ((one, ended), (other, _)) = tokio::join!(one.all(), other.all());
    assert_eq!(ended.expect("its end").exit_code, Some(0));
    assert_eq!(one, other, "two followers see the same");
    let text = String::from_utf8(one.clone()).expect("text");
    assert!((0..200).all(|line| text.contains(&format!("line {line} \u{e4}\u{20ac}\n"))));
    assert_eq!(text.matches("oh\n").count(), 200);
    for from in [0, 1, 7, 1000, one.len()] {
        let (rest, ended) = started.events(&format!("{path}?from={from}")).await.all().await;
        assert!(rest == one[from..], "from {from}");
        assert!(ended.is_some());
    }
    // A client that lost the connection continues after the last event.
    let mut first = started.events(&path).await;
    let (last, _) = first.next().await.expect("an event");
    let mut request = started.request("GET", &path, Body::empty());
    request.headers_mut().insert("last-event-id", last.into());
    let response = started.send(request).await;
    let rest = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body").to_bytes();
    let first_id =
        std::str::from_utf8(&rest).expect("text").lines().find_map(|line| line.strip_prefix("id: "));
    assert!(first_id.expect("an id").parse::<u64>().expect("a cursor") > last);
}

#[tokio::test]
async fn what_is_there_now_can_be_read_without_waiting() {
    let started = Started::new();
    let command = started.begin(json!({"shell": "echo begun; sleep 1000"})).await;
    let path = format!("/commands/{}/output", command.id);
    started.events(&path).await.next().await.expect("its first words");
    let (text, ended) = started.events(&format!("{path}?follow=false")).await.all().await;
    assert_eq!((text.as_slice(), ended), (&b"begun\n"[..], None));
    let waited: CommandInfo =
        started.json("POST", &format!("/commands/{}/wait?timeout_s=0", command.id), json!({})).await;
    assert_eq!(waited.state, CommandState::Running);
}

#[tokio::test]
async fn a_start_can_be_followed() {
    let started = Started::new();
    let mut request = started.request("POST", "/commands", json!({"shell": "echo hi"}).to_string());
    request.headers_mut().insert("accept", "text/event-stream".parse().expect("a value"));
    let response = started.send(request).await;
    assert_eq!(response.headers()[COMMAND_HEADER], "cmd_1");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body").to_bytes();
    let text = std::str::from_utf8(&body).expect("text");
    let types: Vec<String> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .map(|event| event["type"].as_str().expect("a type").to_string())
        .collect();
    assert_eq!(types, ["started", "output", "ended"]);
}

#[tokio::test]
async fn a_command_continues_when_its_requester_hangs_up() {
    let started = Started::new();
    let script = "read line; echo \"got $line\"";
    let request =
        started.request("POST", "/commands", json!({"shell": script, "stdin_open": true}).to_string());
    let response = started.send(request).await;
    let id = response.headers()[COMMAND_HEADER].to_str().expect("text").to_string();
    drop(response);
    let (status, _) = started.ask("POST", &format!("/commands/{id}/stdin?end=true"), "it\n").await;
    assert_eq!(status, 204);
    let info: CommandInfo = started.json("POST", &format!("/commands/{id}/wait"), json!({})).await;
    assert_eq!(info.result.expect("it ended").stdout.as_deref(), Some("got it\n"));
}

#[tokio::test]
async fn a_killed_command_takes_its_tree_along() {
    let started = Started::new();
    let command = started.begin(json!({"shell": "sleep 1000 & sleep 1000 & echo up; wait"})).await;
    started.events(&format!("/commands/{}/output", command.id)).await.next().await.expect("it is up");
    let ended: CommandInfo = started.json("DELETE", &format!("/commands/{}", command.id), json!({})).await;
    let result = ended.result.expect("it ended");
    assert_eq!((result.aborted, result.exit_code, result.signal.as_deref()), (true, None, Some("SIGKILL")));
    let left = started.run(json!({"shell": "pgrep -x sleep | wc -l"})).await.result.expect("it ended");
    assert_eq!(left.stdout.as_deref().map(str::trim), Some("0"));
    let again: CommandInfo = started.json("DELETE", &format!("/commands/{}", command.id), json!({})).await;
    assert!(again.result.expect("it ended").aborted, "it is as it was");
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_ended() {
    let started = Started::new();
    let result = started
        .run(json!({"shell": "echo begun; sleep 1000", "timeout_s": 1}))
        .await
        .result
        .expect("it ended");
    assert_eq!((result.timed_out, result.limit.as_deref()), (true, Some("timeout")));
    assert_eq!(result.stdout.as_deref(), Some("begun\n"));
}

#[tokio::test]
async fn much_output_is_kept_on_disk_and_cut_where_it_was_said() {
    let started = Started::new();
    let before = started.private_kib();
    let command =
        started.begin(json!({"shell": "head -c 60000000 /dev/zero | tr '\\0' x; echo end >&2"})).await;
    let path = format!("/commands/{}", command.id);
    loop {
        let now: CommandInfo = started.json("GET", &path, json!({})).await;
        if now.state == CommandState::Ended {
            assert_eq!(now.cursor, 60_000_004);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let grown = started.private_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "60 MB of output made the shim {grown} KiB larger");
    let (whole, _) = started.events(&format!("{path}/output?from=59999990")).await.all().await;
    assert_eq!(whole, b"xxxxxxxxxxend\n");
    let cut = started.run(json!({"shell": "yes | head -c 5000; echo oh >&2", "max_output": 1000})).await;
    let result = cut.result.expect("it ended");
    assert_eq!(result.stdout.expect("text").len(), 1000);
    assert_eq!(result.stderr.as_deref(), Some("oh\n"));
    assert_eq!((result.output_truncated, result.limit.as_deref()), (true, Some("output_truncated")));
}

#[tokio::test]
async fn the_last_thousand_are_remembered() {
    let started = Started::new();
    for round in 0..101 {
        let ten = (0..10).map(|at| started.run(json!({"argv": ["echo", format!("{round} {at}")]})));
        for info in futures_util::future::join_all(ten).await {
            assert_eq!(info.result.expect("it ended").exit_code, Some(0));
        }
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let path = match &after {
            None => "/commands?limit=300".to_string(),
            Some(after) => format!("/commands?limit=300&after={after}"),
        };
        let page: Page<CommandInfo> = started.json("GET", &path, json!({})).await;
        all.extend(page.items.into_iter().map(|one| one.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 1000);
    assert_eq!(all.last().map(String::as_str), Some("cmd_1010"));
    assert_eq!(started.refused("GET", "/commands/cmd_1", json!({})).await, (404, "name_unknown".into()));
}

//! Many who want the same at the same time.

use belljar_tests_daemon::{Answer, Home, Sandbox, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

/// The same request from so many at once.
fn at_once(count: usize, ask: impl Fn(usize) -> Answer + Sync) -> Vec<Answer> {
    let start = Barrier::new(count);
    thread::scope(|scope| {
        let all: Vec<_> = (0..count)
            .map(|number| {
                let (start, ask) = (&start, &ask);
                scope.spawn(move || {
                    start.wait();
                    ask(number)
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn sixteen_who_race_for_a_key_get_one_sandbox() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let answers = at_once(16, |_| client.post("/v1/sandboxes", &json!({ "key": "the one" })));
    let made: Vec<Value> = answers.into_iter().map(Answer::ok).collect();
    let of =
        |field: fn(&Value) -> &Value| made.iter().map(|one| field(one).to_string()).collect::<BTreeSet<_>>();
    assert_eq!(of(|one| &one["sandbox"]["name"]).len(), 1);
    assert_eq!(of(|one| &one["sandbox"]["id"]).len(), 1, "several lives");
    assert_eq!(of(|one| &one["lease"]["id"]).len(), 16, "each has a lease of its own");
    assert_eq!(made.iter().filter(|one| one["created"] == true).count(), 1);
    let sandbox = Sandbox::of(&client, made[0].clone());
    assert_eq!(sandbox.leases().len(), 16);
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_request_that_is_sent_twice_is_done_once() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client().with("idempotency-key", "a1b2c3");
    let answers = at_once(4, |_| client.post("/v1/sandboxes", &json!({})));
    let made: Vec<Value> = answers.into_iter().map(Answer::ok).collect();
    assert!(made.iter().all(|one| one["sandbox"]["name"] == made[0]["sandbox"]["name"]), "{made:#?}");
    assert!(made.iter().all(|one| one["lease"]["id"] == made[0]["lease"]["id"]), "{made:#?}");
    let other = client.post("/v1/sandboxes", &json!({ "key": "other" }));
    assert!((400..500).contains(&other.status), "the same key for another request: {}", other.text());
    let sandbox = Sandbox::of(&client, made[0].clone());
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn creating_and_deleting_race_without_a_loser() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let request = json!({ "key": "contested" });
    let mut ids = Vec::new();
    for _ in 0..6 {
        let sandbox = Sandbox::create(&client, &request);
        ids.push(sandbox.id());
        let answers = at_once(12, |number| match number % 3 {
            0 => client.post("/v1/sandboxes", &request),
            1 => client.delete(&sandbox.path("")),
            _ => client.post(&sandbox.path("/commands"), &json!({ "shell": "echo here" })),
        });
        for (number, answer) in answers.into_iter().enumerate() {
            assert!(answer.status < 500, "{number}: {} {}", answer.status, answer.text());
            if number % 3 == 0 {
                ids.push(Sandbox::of(&client, answer.ok()).id());
            }
        }
    }
    let last = Sandbox::create(&client, &request);
    assert_eq!(last.run("echo here"), ("here\n".into(), 0));
    ids.push(last.id());
    last.delete();
    home.is_clean(&[], &ids, Some(&daemon));
}

#[test]
fn joining_never_makes_a_sandbox() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let join = json!({ "key": "nobody has it", "owner": false });
    for answer in at_once(8, |_| client.post("/v1/sandboxes", &join)) {
        assert_eq!(answer.code(), "sandbox_not_alive", "{}", answer.text());
    }
    let orphan = client.post("/v1/sandboxes", &json!({ "inherit": "bj-nobody-000000000000" }));
    assert!((400..500).contains(&orphan.status), "{}", orphan.text());
    assert_eq!(client.get("/v1/sandboxes").ok()["items"], json!([]));
    home.is_clean(&[], &[], Some(&daemon));

    let parent = Sandbox::create(&client, &json!({ "key": "parent" }));
    let child = Sandbox::create(&client, &json!({ "inherit": parent.name }));
    assert_eq!((&child.name, &child.created["lease"]["owner"]), (&parent.name, &json!(false)));
    let more = client.post("/v1/sandboxes", &json!({ "inherit": parent.name, "persistent": true }));
    more.refused(422, "request_conflict");
    parent.delete();
    home.is_clean(&[], &[parent.id()], Some(&daemon));
}

#[test]
fn nothing_can_be_done_with_what_was_deleted() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let sandbox = Sandbox::create(&client, &json!({ "key": "gone" }));
    let command = sandbox.start("sleep 1000");
    let mut events = command.follow("0").unwrap();
    sandbox.delete();
    // Who listened hears that it is over.
    assert!(eventually(|| events.next().is_none()), "the stream goes on");
    for (method, path, body) in [
        ("GET", "", json!(null)),
        ("DELETE", "", json!(null)),
        ("POST", "/pause", json!({})),
        ("POST", "/resume", json!({})),
        ("POST", "/stop", json!({})),
        ("POST", "/commands", json!({ "shell": "true" })),
        ("GET", "/commands", json!(null)),
        ("GET", "/commands/cmd_1", json!(null)),
        ("POST", "/commands/cmd_1/wait", json!(null)),
        ("GET", "/files?path=file", json!(null)),
        ("GET", "/files/list?path=.", json!(null)),
        ("POST", "/files/folder", json!({ "path": "folder" })),
    ] {
        let ask = client.ask(method, &sandbox.path(path));
        let answer = if body.is_null() { ask.send() } else { ask.json(&body).send() };
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "sandbox_not_found"),
            "{method} {path}: {}",
            answer.text()
        );
    }
    let lease = client.post(&sandbox.path(&format!("/leases/{}", sandbox.lease)), &json!({}));
    assert_eq!(lease.status, 404, "{}", lease.text());
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

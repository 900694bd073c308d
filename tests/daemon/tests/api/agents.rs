//! Agents behind the API: a real one, unmodified, against a model that plays scripts.

use belljar_sys::rustix::process::geteuid;
use belljar_tests_daemon::{Client, Event, Events, Home, Started, eventually};
use belljar_tests_hosts::{Model, Step, have};
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

#[test]
fn a_run_is_told_as_it_happens_and_ends_with_its_bill() {
    let Some((home, daemon, model)) = with_model() else { return };
    model.scenario("hello");
    let folder = home.folder("work");
    let run = json!({ "prompt": "Do the task.", "sandbox": { "workspace": { "folder": folder } } });
    let events: Vec<Value> = start(&home.client(), &run).map(|event| event.json()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"started"), Some(&"final")), "{kinds:?}");
    let printed: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    assert!(printed.contains("I will write the file."), "{printed}");
    let end = events.last().unwrap();
    assert_eq!((&end["ok"], &end["stop_reason"]), (&json!(true), &json!("success")), "{end:#}");
    assert_eq!(end["content"], "Done. hello.txt says: hello from the mock");
    assert_eq!(end["usage"]["turns"], 2, "{end:#}");
    assert!(kinds.contains(&"usage") && end["usage"]["output_tokens"].as_u64() > Some(0), "{end:#}");
    assert_eq!(fs::read_to_string(folder.join("hello.txt")).unwrap(), "hello from the mock\n");
    // The lines are those of the log.
    let id = events[0]["run"]["id"].as_str().unwrap();
    let log = fs::read_to_string(home.path("state/belljar/runs").join(id).join("log.jsonl")).unwrap();
    let lines: Vec<Value> =
        events.iter().filter(|event| event["type"] == "line").map(|event| event["line"].clone()).collect();
    let kept: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, kept);
    is_over(&home, &daemon, id);
}

#[test]
fn who_hangs_up_ends_the_run() {
    let Some((home, daemon, model)) = with_model() else { return };
    model.script([Step::run("echo kept > work.txt; while sleep 1; do true; done")]);
    let folder = home.folder("work");
    let run = json!({ "prompt": "Do the task.", "sandbox": { "workspace": { "folder": folder } } });
    let mut events = start(&home.client(), &run);
    let id = events.next().unwrap().json()["run"]["id"].as_str().unwrap().to_string();
    assert!(long(|| folder.join("work.txt").exists()), "its command never ran");
    drop(events);
    is_over(&home, &daemon, &id);
    let result = fs::read_to_string(home.path("state/belljar/runs").join(&id).join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["stopReason"], "error_cancelled", "{result:#}");
    assert_eq!(fs::read_to_string(folder.join("work.txt")).unwrap(), "kept\n");
}

#[test]
fn a_daemon_that_is_killed_ends_its_runs() {
    let Some((home, daemon, model)) = with_model() else { return };
    model.script([Step::run("echo kept > work.txt; while sleep 1; do true; done")]);
    // In a folder that belongs to the run.
    let mut events = start(&home.client(), &json!({ "prompt": "Do the task." }));
    let id = events.next().unwrap().json()["run"]["id"].as_str().unwrap().to_string();
    assert!(long(|| !model.calls().is_empty()), "the model was never asked");
    daemon.kill();
    assert!(long(|| fs::exists(home.path("state/belljar/runs").join(&id).join("result.json")).unwrap()));
    let daemon = home.start();
    is_over(&home, &daemon, &id);
}

#[test]
fn budgets_of_a_run_are_held() {
    let Some((home, daemon, model)) = with_model() else { return };
    model.scenario("three");
    let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Begin." },
        { "role": "assistant", "content": "I began." }, { "role": "user", "content": "Do the task." }]);
    let run = json!({ "messages": messages, "budget": ["calls=1"] });
    let last = start(&home.client(), &run).last().unwrap().json();
    assert_eq!((&last["ok"], &last["stop_reason"]), (&json!(false), &json!("error_budget")), "{last:#}");
    is_over(&home, &daemon, "");
}

#[test]
fn agents_need_a_grant_and_make_sense() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let listed = owner.get("/v1/agents").ok();
    let ids: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["claude", "codex", "gemini", "opencode", "pi"]);
    let token = |rules: Value| owner.post("/v1/grants", &rules).ok()["token"].as_str().unwrap().to_string();
    let without = home.stranger().token(&token(json!({ "name": "without", "allow_sandbox": true })));
    assert_eq!(without.get("/v1/agents").status, 403);
    let run = json!({ "prompt": "hello" });
    without.post("/v1/agents/claude/runs", &run).refused(403, "not_granted");
    let with =
        home.stranger().token(&token(json!({ "name": "with", "allow_sandbox": true, "allow_agents": true })));
    assert_eq!(with.get("/v1/agents").status, 200);
    let folder = home.folder("work");
    for (agent, run, status) in [
        ("nobody", json!({ "prompt": "hello" }), 404),
        ("%2Fbin%2Fsh", json!({ "prompt": "hello" }), 404),
        ("claude", json!({}), 422),
        ("claude", json!({ "prompt": "  " }), 422),
        ("claude", json!({ "messages": [{ "role": "assistant", "content": "hello" }] }), 422),
        ("claude", json!({ "messages": [{ "role": "tool", "content": "hello" }] }), 400),
        ("claude", json!({ "prompt": "hello", "messages": [{ "role": "user", "content": "hello" }] }), 422),
        ("claude", json!({ "prompt": "hello", "bill": { "account": "a" } }), 400),
        ("claude", json!({ "prompt": "hello", "bill": { "end_user": "of-another" } }), 403),
        ("claude", json!({ "prompt": "hello", "model": "no-slash" }), 422),
        ("claude", json!({ "prompt": "hello", "effort": "much" }), 422),
        ("claude", json!({ "prompt": "hello", "budget": ["much"] }), 422),
        ("claude", json!({ "prompt": "hello", "timeout_s": 0 }), 422),
        ("claude", json!({ "prompt": "hello", "profile": "no such" }), 422),
        ("claude", json!({ "prompt": "hello", "sandbox": { "workspace": { "folder": folder } } }), 403),
        ("claude", json!({ "prompt": "hello", "sandbox": { "egress": { "mode": "open" } } }), 403),
        // Nothing on this machine says where a model is, and the vault is not the caller's.
        ("claude", json!({ "prompt": "hello" }), 403),
    ] {
        let answer = with.post(&format!("/v1/agents/{agent}/runs"), &run);
        assert_eq!(answer.status, status, "{agent} {run}: {}", answer.text());
    }
    assert!(!home.path("state/belljar/runs").exists(), "a run was kept that never was one");
}

/// A home whose model is played; nothing where there is no agent.
fn with_model() -> Option<(Home, Started, Model)> {
    let agents = agents();
    have([agents.join("bin").join(AGENT).to_str().unwrap()]).then(|| {
        let model = Model::start(Ipv4Addr::LOCALHOST);
        model.expect_key("sk-real");
        let usual = env::var("PATH").unwrap_or_default();
        let home = Home::new()
            .config(&format!("[llm]\nurl = \"{}\"\nkey = \"env:THE_KEY\"\n", model.url()))
            .env("THE_KEY", "sk-real")
            .env("PATH", &format!("{}/bin:{usual}", agents.display()));
        let daemon = home.start();
        (home, daemon, model)
    })
}

fn start(client: &Client, run: &Value) -> impl Iterator<Item = Event> + use<> {
    let ask =
        client.ask("POST", &format!("/v1/agents/{AGENT}/runs")).json(run).with("accept", "text/event-stream");
    let (answer, body) = ask.begin().unwrap();
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/event-stream")),
        "{answer:?}"
    );
    Events::new(body)
}

/// Nothing of a run is left but its account.
#[track_caller]
fn is_over(home: &Home, daemon: &Started, id: &str) {
    let ids = if id.is_empty() { vec![] } else { vec![id.to_string()] };
    assert!(long(|| home.left(daemon).processes == 0), "{:?}", home.left(daemon));
    home.is_clean(&[], &ids, Some(daemon));
    let jobs = || fs::read_dir(home.path("state/belljar/fleet/runs")).into_iter().flatten().count();
    assert!(eventually(|| jobs() == 0), "{} jobs are left", jobs());
}

/// Agents take their time.
fn long(mut is_so: impl FnMut() -> bool) -> bool {
    (0..6).any(|_| eventually(&mut is_so))
}

fn agents() -> PathBuf {
    match env::var_os("BELLJAR_TEST_AGENTS").filter(|folder| !folder.is_empty()) {
        Some(folder) => folder.into(),
        None if geteuid().is_root() => "/var/cache/belljar-agents".into(),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/belljar-agents"),
    }
}

/// The quickest of them.
const AGENT: &str = "pi";

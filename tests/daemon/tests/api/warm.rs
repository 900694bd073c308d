//! Sandboxes that a daemon starts ahead: handed out once, with nothing of anybody in them, and gone with their daemon.

use belljar_tests_daemon::{Home, Sandbox, eventually};
use serde_json::json;
use std::fs;

/// With two of each kind.
fn home() -> Home {
    Home::new().config("[daemon]\nwarm = 2\n")
}

/// How many sandboxes have directories: those that were handed out, and those that wait.
fn directories(home: &Home) -> usize {
    fs::read_dir(home.places()).map_or(0, Iterator::count)
}

fn listed(home: &Home) -> usize {
    home.client().get("/v1/sandboxes").ok()["items"].as_array().unwrap().len()
}

/// No program of the host works there, so nothing in it has to be held.
#[test]
fn a_workspace_of_the_sandboxs_own_can_become_a_repository() {
    let home = Home::new();
    let _daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({ "key": "own" }));
    let script = "git init -q . && git config user.name n && git config user.email e@example.com && echo a > a && \
                  git add a && git commit -qm first && git log --format=%s && mkdir .vscode && echo {} > .vscode/tasks.json";
    assert_eq!(sandbox.run(script), ("first\n".into(), 0));
    home.client().post(&sandbox.path("/stop"), &json!({})).ok();
    let again = Sandbox::create(&home.client(), &json!({ "key": "own" }));
    assert_eq!(again.run("git log --format=%s; git status --short"), ("first\n?? .vscode/\n".into(), 0));
    again.delete();
}

#[test]
fn a_sandbox_that_was_started_ahead_is_like_any_other() {
    let home = home();
    let daemon = home.start();
    let cold = Sandbox::create(&home.client(), &json!({}));
    assert_eq!(cold.run("touch /workspace/mine /tmp/mine; echo here"), ("here\n".into(), 0));
    assert!(eventually(|| directories(&home) == 3), "two wait");
    assert_eq!(listed(&home), 1);
    let warm = Sandbox::create(&home.client(), &json!({}));
    assert_eq!((&warm.created["sandbox"]["warm"], &warm.created["created"]), (&json!(true), &json!(true)));
    assert_ne!(warm.name, cold.name);
    let look = "ls -A /workspace; ls -A /tmp; cat /.belljar";
    let (seen, code) = warm.run(look);
    assert_eq!(code, 0, "{seen}");
    assert!(
        seen.contains(&warm.name) && !seen.contains("mine"),
        "its own name, and no files of others: {seen}"
    );
    assert_eq!(warm.leases(), std::slice::from_ref(&warm.lease));
    // It is what a cold one is, but for its names.
    let facts = |sandbox: &Sandbox| {
        let info = sandbox.info();
        ["backend", "assurance", "egress", "owner", "profile", "persistent", "state"]
            .map(|fact| info[fact].clone())
    };
    assert_eq!(facts(&warm), facts(&cold));
    assert!(eventually(|| directories(&home) == 4), "two wait again");
    let ids = [cold.id(), warm.id()];
    cold.delete();
    warm.delete();
    daemon.stop();
    assert_eq!(directories(&home), 0, "what waits ends with the daemon");
    home.is_clean(&[], &ids, None);
}

#[test]
fn a_change_of_the_configuration_holds_for_the_next_sandbox() {
    let home = home();
    let daemon = home.start();
    Sandbox::create(&home.client(), &json!({})).delete();
    assert!(eventually(|| directories(&home) == 2), "two wait");
    let home = home.config("[daemon]\nwarm = 2\n[egress]\nmode = \"none\"\n");
    let next = Sandbox::create(&home.client(), &json!({}));
    assert_eq!((next.info()["egress"].as_str(), next.info()["warm"].as_bool()), (Some("none"), None));
    next.delete();
    daemon.stop();
    assert_eq!(directories(&home), 0);
}

#[test]
fn what_waits_does_not_outlive_a_killed_daemon_for_long() {
    let home = home();
    let daemon = home.start();
    let held = Sandbox::create(&home.client(), &json!({ "idle_s": 3600 }));
    assert!(eventually(|| directories(&home) == 3), "two wait");
    daemon.kill();
    let daemon = home.start();
    // They have no lease: a daemon that ends takes them along.
    daemon.stop();
    assert!(eventually(|| directories(&home) == 1));
    let daemon = home.start();
    assert_eq!(held.run("echo here"), ("here\n".into(), 0));
    held.delete();
    home.is_clean(&[], &[held.id()], Some(&daemon));
}

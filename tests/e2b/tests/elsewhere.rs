//! `belljar --backend e2b` as a client: of belljar's own server, in another process and with directories of its own. What a sandbox can do
//! there is the conformance suite's.

use crate::daemon::Served;
use belljar_tests_daemon::{Home, eventually};
use serde_json::json;
use std::process::{Command, Output};

/// belljar on a machine that has no sandboxes of its own, told of the service by its variables.
fn client(served: &Served, key: &str) -> Home {
    let url = format!("http://{}", served.address);
    Home::new().env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", key)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(home: &Home, words: &[&str]) -> Output {
    let mut command: Command = home.belljar();
    command.args(["run", "--backend", "e2b"]).args(words).output().unwrap()
}

fn sandboxes(served: &Served, key: &str) -> usize {
    let asking = served.client().with("x-api-key", key);
    asking.get("/v2/sandboxes?state=running,paused").ok().as_array().unwrap().len()
}

#[test]
fn a_command_runs_elsewhere_and_nothing_is_left() {
    let served = Served::new();
    let key = served.key("own");
    let home = client(&served, &key);
    let script = "echo out; echo err >&2; echo \"$BELLJAR_TEST\"; pwd; exit 3";
    let output = run(&home, &["--env", "BELLJAR_TEST=ü", "--", "sh", "-c", script]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert_eq!(out, "out\nü\n/home/user/workspace\n");
    assert!(err.contains("err\n") && err.contains("the sandbox is elsewhere"), "{err}");
    assert_eq!(sandboxes(&served, &key), 0, "it was not ended");
    let remote = home.path("state/belljar/remote/ends");
    assert_eq!(std::fs::read_dir(remote).unwrap().count(), 0, "a note is left");
}

#[test]
fn what_a_killed_belljar_left_is_ended_by_the_next_start_and_nothing_else_is() {
    let served = Served::new();
    let key = served.key("own");
    let home = client(&served, &key);
    // Another client's, with metadata like ours.
    served.sandbox(&key, json!({ "metadata": { "belljar-owner": "0123456789abcdef", "belljar-id": "0" } }));
    let mut command = home.belljar();
    let mut child = command.args(["run", "--backend", "e2b", "--", "sleep", "600"]).spawn().unwrap();
    assert!(eventually(|| sandboxes(&served, &key) == 2), "there is no sandbox");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sandboxes(&served, &key), 2, "it lives on, as after any kill");
    assert_eq!(run(&home, &["--", "true"]).status.code(), Some(0));
    assert_eq!(sandboxes(&served, &key), 1);
}

#[test]
fn what_a_service_cannot_do_is_refused_before_anything_is_made() {
    let served = Served::new();
    let key = served.key("own");
    let home = client(&served, &key);
    let folder = home.folder("project").to_string_lossy().into_owned();
    for (words, why) in [
        (&["--workspace", &folder][..], "a folder of this machine is not in it"),
        (&["--ro", &folder], "no path of this machine is in it"),
        (&["--memory", "1g"], "its template's to say"),
        (&["--egress", "ask"], "asks no person"),
        (&["--allow", "db.example:5432"], "rules have no ports"),
        (&["--at-least", "namespace"], "does not compare with namespace"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["--", "true"]).collect();
        let output = run(&home, &words);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(125) && stderr.contains(why), "{words:?}: {stderr}");
    }
    let (url, wrong) = (format!("http://{}", served.address), format!("{}0", &key[..key.len() - 1]));
    let stranger =
        Home::new().env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", &wrong);
    let refused = text(&run(&stranger, &["--", "true"]).stderr);
    assert!(refused.contains("is not accepted") && !refused.contains(&wrong), "{refused}");
    let unknown = text(&run(&Home::new(), &["--", "true"]).stderr);
    assert!(unknown.contains("no E2B-compatible service is configured"), "{unknown}");
    assert_eq!(sandboxes(&served, &key), 0);
}

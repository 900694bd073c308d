//! Runs that are over, and one that continues.

use crate::agent::home::{Home, answer};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn runs_are_listed_and_their_logs_shown() {
    let home = Home::new();
    let none = home.run(&["agent", "runs"]);
    assert!(none.code == 0 && none.stderr.contains("`belljar agent run` makes one"), "{}", none.stderr);
    assert_eq!(home.run(&["agent", "runs", "--json"]).stdout.trim(), "[]");
    let nothing = home.run(&["agent", "logs"]);
    assert!(nothing.code == 126 && nothing.stderr.contains("there are no runs"), "{}", nothing.stderr);
    home.program("good", &answer("All is well."));
    home.program("bad", "exit 7");
    let url = home.model.url();
    for name in ["./good", "./bad"] {
        home.run(&home.agent(&url, name, &["--prompt", "Look."]));
    }
    let runs: Value = serde_json::from_str(&home.run(&["agent", "runs", "--json"]).stdout).unwrap();
    let states: Vec<&str> =
        runs.as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["error_exit", "success"], "the newest is the first");
    let id = runs[1]["runId"].as_str().unwrap();
    assert_eq!((&runs[1]["agent"], &runs[1]["model"]), (&"./good".into(), &"openai/gpt-5".into()));
    let table = home.run(&["agent", "runs"]).stdout;
    assert!(table.starts_with("RUN ") && table.contains(id), "{table}");
    let log = home.run(&["agent", "logs", &id[..8]]).stdout;
    assert!(log.starts_with(&format!("run {id}\n")), "{log}");
    for line in [
        "  prompt    Look.\n",
        "  says      All is well.\n",
        "  ended     success, 0 turns, 0 tokens, 0 USD, ",
    ] {
        assert!(log.contains(line), "{line:?} in {log}");
    }
    let newest = home.run(&["agent", "logs", "--json"]).stdout;
    let last: Value = serde_json::from_str(newest.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["subtype"]), (&"result".into(), &"error_exit".into()));
    let unknown = home.run(&["agent", "logs", "zz"]);
    assert!(unknown.code == 126 && unknown.stderr.contains("there is no run `zz`"), "{}", unknown.stderr);
}

#[test]
fn a_log_that_grows_is_followed_to_its_end() {
    let home = Home::new();
    let resume = "touch here; until [ -e go ]; do sleep 0.05; done";
    home.program("slow", &format!("{resume}\n{}", answer("At last.")));
    let url = home.model.url();
    let words = home.agent(&url, "./slow", &["--prompt", "x"]);
    let mut running = home
        .command(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while home.file("here").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let so_far = home.run(&["agent", "logs"]);
    assert!(so_far.stderr.contains("it still runs; `belljar agent logs -f"), "{}", so_far.stderr);
    assert!(home.run(&["agent", "runs"]).stdout.contains(" running "));
    let mut follower =
        home.command(&["agent", "logs", "-f"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // What was there when it came is shown before anything else happens.
    let agent = lines.by_ref().map(|line| line.unwrap()).find(|line| line.ends_with("  step      agent"));
    assert!(agent.is_some());
    fs::write(home.path("work/go"), "").unwrap();
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(rest.iter().any(|line| line.ends_with("  says      At last.")), "{rest:?}");
    assert!(rest.last().unwrap().contains("  ended     success"), "{rest:?}");
    assert!(follower.wait().unwrap().success() && running.wait().unwrap().success());
}

//! The API, fuzzed from its own description by schemathesis: no answer says that we are at fault, and every request gets one.
//!
//! `BELLJAR_FUZZ_EXAMPLES` says how many requests for each operation; `BELLJAR_FUZZ_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use belljar_sys::rustix::process::geteuid;
use belljar_tests_daemon::{Home, Sandbox};
use belljar_tests_hosts::have;
use serde_json::json;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
fn no_request_makes_the_daemon_fail_or_hang() {
    let program = program();
    if !have([program.to_str().unwrap()]) {
        return;
    }
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    // All that a grant can allow and that cannot harm this machine: no folder of it, no name to reach, no wall left out.
    let rules = json!({
        "name": "fuzz", "allow_sandbox": true, "allow_agents": true, "keys": ["*"], "profiles": ["*"], "sandboxes": 24,
        "egress": ["none", "strict"],
        "limits": { "memory": "256m", "pids": 64, "timeout": "5s", "output": "1m", "disk": "64m" },
    });
    let token = owner.post("/v1/grants", &rules).ok()["token"].as_str().unwrap().to_string();
    let client = home.stranger().token(&token);
    let sandbox = Sandbox::create(&client, &json!({ "key": "target", "sandbox": { "ports": [8080] } }));
    sandbox.run("echo text > file; mkdir -p folder");
    let command = sandbox.start("while read line; do echo $line; done");

    let examples = env::var("BELLJAR_FUZZ_EXAMPLES").unwrap_or("12".into());
    let mut fuzz = Command::new(&program);
    fuzz.args(["run", &format!("http://{}/v1/openapi.json", home.tcp())])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", CHECKS, "--max-examples", &examples, "--request-timeout", "20"])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--mode",
            "all",
            "--continue-on-failure",
            "--no-color",
        ])
        .args(["--generation-database", "none", "--workers", "2"])
        // What ends for everybody what the others are about.
        .args(["--exclude-path", "/v1/grants/{id}"])
        .current_dir(home.path("tmp"))
        .env("HOME", home.path("home"))
        .env("TMPDIR", home.path("tmp"))
        .stdin(Stdio::null());
    if let Ok(seed) = env::var("BELLJAR_FUZZ_SEED") {
        fuzz.args(["--seed", &seed]);
    }
    let config = home.path("tmp/schemathesis.toml");
    std::fs::write(&config, parameters(&sandbox.name, &command.id)).unwrap();
    let output = fuzz.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!home.log().contains("panicked"), "{}", home.log());

    // It still does its work.
    let after = Sandbox::create(&owner, &json!({}));
    assert_eq!(after.run("echo here"), ("here\n".into(), 0));
    for one in owner.get("/v1/sandboxes?limit=1000").ok()["items"].as_array().unwrap() {
        owner.delete(&format!("/v1/sandboxes/{}", one["name"].as_str().unwrap())).ok();
    }
    std::fs::remove_dir_all(home.path("tmp")).unwrap();
    std::fs::create_dir(home.path("tmp")).unwrap();
    home.is_clean(&[], &[sandbox.id(), after.id()], Some(&daemon));
}

/// Names that are really there: else most requests end at the first door.
fn parameters(name: &str, command: &str) -> String {
    format!(
        "[parameters]\n\"path.name\" = [\"{name}\"]\n\"path.cid\" = [\"{command}\", \"cmd_9\"]\n\"path.port\" = [8080]\n"
    )
}

/// `./dev setup` puts it there.
fn program() -> PathBuf {
    let folder = match env::var_os("BELLJAR_TEST_SCHEMATHESIS").filter(|folder| !folder.is_empty()) {
        Some(folder) => folder.into(),
        None if geteuid().is_root() => PathBuf::from("/var/cache/belljar-schemathesis"),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/belljar-schemathesis"),
    };
    folder.join("bin/schemathesis")
}

const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

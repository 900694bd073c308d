//! The API, fuzzed from its own description by schemathesis: no answer says that we are at fault, and every request gets one.
//!
//! `BELLJAR_FUZZ_EXAMPLES` says how many requests for each operation; `BELLJAR_FUZZ_SEED` repeats a run.

use belljar_sys::rustix::process::geteuid;
use belljar_tests_daemon::{Home, Sandbox};
use belljar_tests_hosts::have;
use serde_json::json;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
#[expect(clippy::print_stderr, reason = "what was tried, for the reader of a failure")]
fn no_request_makes_the_daemon_fail_or_hang() {
    let program = program();
    if !have([program.to_str().unwrap()]) {
        return;
    }
    let home = Home::new().listening();
    let daemon = home.start();
    let owner = home.client();
    // All that a grant can allow and that cannot harm this machine: no folder of it, no name to reach, no run without isolation.
    // Limits that only a cgroup can hold are not available to every user.
    let limits = match geteuid().is_root() {
        true => json!({ "memory": "256m", "pids": 64, "timeout": "5s", "output": "1m", "disk": "64m" }),
        false => json!({ "timeout": "5s", "output": "1m", "disk": "64m" }),
    };
    let rules = json!({
        "name": "fuzz", "allow_sandbox": true, "allow_agents": true, "keys": ["*"], "profiles": ["*"], "sandboxes": 24,
        "egress": ["none", "strict"],
        "limits": limits,
    });
    let token = owner.post("/v1/grants", &rules).ok()["token"].as_str().unwrap().to_string();
    // The owner's, which the fuzzer may join and use, and not end: it is there to the last request.
    let sandbox = Sandbox::create(
        &owner,
        &json!({ "key": "target", "sandbox": { "ports": [8080], "limits": { "timeout": "5s" } } }),
    );
    sandbox.run("echo text > file; mkdir -p folder; mkdir -p /tmp/folder");
    for _ in 0..3 {
        sandbox.start("while read line; do echo $line; done");
    }
    let _server = sandbox.start("exec python3 -m http.server 8080");

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
        .args(["--suppress-health-check", "all"])
        // It has no end; it is not its answer that could be waited for.
        .args(["--exclude-path", "/v1/sandboxes/{name}/files/watch"])
        .current_dir(home.path("tmp"))
        .env("HOME", home.path("home"))
        .env("TMPDIR", home.path("tmp"))
        .stdin(Stdio::null());
    if let Ok(seed) = env::var("BELLJAR_FUZZ_SEED") {
        fuzz.args(["--seed", &seed]);
    }
    let config = home.path("tmp/schemathesis.toml");
    std::fs::write(&config, parameters(&sandbox.name)).unwrap();
    let output = fuzz.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    eprintln!("{printed}");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
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

/// Names that really exist, else most requests are refused at the first check; and no request for what has no end.
fn parameters(name: &str) -> String {
    format!(
        r#"
        [dictionaries]
        commands.values = ["cmd_1", "cmd_2", "cmd_3", "cmd_4", "cmd_40", "x"]
        paths.values = ["file", "folder", ".", "/tmp/folder", "/etc/passwd", "nothing", "../..", ""]
        lines.values = ["true", "echo hello", "cat; exit 3", "kill -9 $$", "nothing-like-that"]
        words.values = ["true", "cat", "/bin/sh", "", "a\u0000b"]

        [parameters]
        "path.name" = "{name}"
        "path.id" = "claude"
        "path.port" = 8080
        "path.command" = {{ dictionary = "commands", probability = 0.9 }}
        "query.path" = {{ dictionary = "paths", probability = 0.7 }}
        "query.follow" = false
        "query.timeout_s" = 1
        "body.shell" = {{ dictionary = "lines", probability = 0.5 }}
        "body.argv[*]" = {{ dictionary = "words", probability = 0.5 }}
        "#
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

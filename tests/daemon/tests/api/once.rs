//! One call, one run: what comes of it, who may, and that its sandbox is gone whatever happens.

use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_daemon::{Address, Client, Home, Started, eventually};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

#[test]
fn a_run_has_one_result_and_nothing_is_left_of_it() {
    let home = Home::new();
    let daemon = home.start();
    let folder = home.folder("work");
    fs::write(folder.join("in.txt"), "from the host\n").unwrap();
    let place = json!({ "workspace": { "folder": folder } });
    let script = "cat in.txt; cat; echo err >&2; echo \"$A\" > out.txt; exit 3";
    let run =
        json!({ "argv": ["sh", "-c", script], "stdin": "said\n", "env": { "A": "b" }, "sandbox": place });
    let done = home.client().post("/v1/run-once", &run).ok();
    let contract = json!({
        "ok": false, "stdout": "from the host\nsaid\n", "stderr": "err\n", "exitCode": 3, "errorCode": null,
    });
    for (key, value) in contract.as_object().unwrap() {
        assert_eq!(done[key], *value, "{key}: {done:#}");
    }
    assert_eq!(fs::read_to_string(folder.join("out.txt")).unwrap(), "b\n");
    let id = done["runId"].as_str().unwrap();
    // The run's audit log has its id, and no other's.
    let log = home.client().get(&format!("/v1/sandboxes/{id}/audit")).ok();
    let kinds: Vec<&str> =
        log["items"].as_array().unwrap().iter().filter_map(|line| line["event"]["kind"].as_str()).collect();
    assert!(kinds.contains(&"sandbox_started"), "{log:#}");
    is_over(&home, &daemon, &[id]);
}

#[test]
fn every_end_has_its_code() {
    let home = Home::new();
    let daemon = home.start();
    let zero = "head -c 3000000 /dev/zero";
    let mut ids = Vec::new();
    for (run, code, error) in [
        // An empty workspace will do.
        (json!({ "argv": ["sh", "-c", "ls -A; pwd"] }), 0, None),
        (json!({ "argv": ["sh", "-c", "sleep 60"], "timeout_s": 1 }), 124, Some("timeout")),
        (json!({ "argv": ["no-such-program"] }), 127, Some("not_started")),
        (json!({ "argv": ["true"], "cwd": "no/such/folder" }), 126, Some("not_started")),
        (json!({ "argv": ["sh", "-c", zero] }), 0, Some("output_truncated")),
        (json!({ "argv": ["sh", "-c", "echo 12345"], "max_output": 3 }), 0, Some("output_truncated")),
        (
            json!({ "argv": ["sh", "-c", "head -c 20000000 /dev/zero > /tmp/x"], "sandbox": { "limits": { "disk": "8m" } } }),
            1,
            Some("disk_full"),
        ),
        // No shell reads the words, and nothing is reached.
        (json!({ "argv": ["test", "$(id); a", "=", "$(id); a"] }), 0, None),
        (json!({ "argv": ["sh", "-c", "test $(wc -l < /proc/net/route) = 1"] }), 0, None),
    ] {
        let done = home.client().post("/v1/run-once", &run).ok();
        assert_eq!(done["exitCode"], code, "{run}: {done:#}");
        assert_eq!(done["errorCode"].as_str(), error, "{run}: {done:#}");
        assert_eq!(done["ok"], code == 0 && error.is_none(), "{run}");
        ids.push(done["runId"].as_str().unwrap().to_string());
    }
    let mut different = ids.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), ids.len(), "an id was used twice");
    is_over(&home, &daemon, &ids);
}

#[test]
fn words_that_make_no_sense_start_nothing() {
    let home = Home::new();
    let daemon = home.start();
    for run in [
        json!({}),
        json!({ "argv": "true" }),
        json!({ "argv": ["true"], "runId": "0123456789abcdef" }),
        json!({ "argv": ["true"], "shell": "true" }),
        json!({ "argv": ["a\u{0}"] }),
        json!({ "argv": ["true"], "timeout_s": 0 }),
        json!({ "argv": ["true"], "max_output": 1u64 << 40 }),
        json!({ "argv": ["true"], "sandbox": { "limits": { "ready": "8760h" } } }),
        json!({ "argv": ["true"], "stdin": "a", "stdin_base64": "YQ==" }),
        json!({ "argv": ["true"], "stdin_base64": "%" }),
        json!({ "argv": ["true"], "profile": "no such" }),
        json!({ "argv": ["true"], "sandbox": { "workspace": { "folder": "relative" } } }),
    ] {
        let answer = home.client().post("/v1/run-once", &run);
        assert!((400..500).contains(&answer.status), "{run}: {} {}", answer.status, answer.text());
        assert!(!answer.code().is_empty(), "{run}");
    }
    is_over::<String>(&home, &daemon, &[]);
}

#[test]
fn a_grant_holds_for_runs_as_for_sandboxes() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let owner = home.client();
    let token = |rules: Value| owner.post("/v1/grants", &rules).ok()["token"].as_str().unwrap().to_string();
    let without = home.stranger().token(&token(json!({ "name": "without", "allow_agents": true })));
    let run = json!({ "argv": ["true"] });
    without.post("/v1/run-once", &run).refused(403, "not_granted");
    let rules =
        json!({ "name": "with", "allow_sandbox": true, "limits": { "timeout": "1m" }, "sandboxes": 1 });
    let with = home.stranger().token(&token(rules));
    assert_eq!(with.post("/v1/run-once", &run).ok()["ok"], true);
    let folder = home.folder("work");
    for (sandbox, status) in [
        (json!({ "workspace": { "folder": folder } }), 403),
        (json!({ "egress": { "mode": "open" } }), 403),
        (json!({ "limits": { "timeout": "2m" } }), 403),
        (json!({ "backend": "host" }), 403),
        (json!({ "secrets": ["anthropic"] }), 403),
    ] {
        let answer = with.post("/v1/run-once", &json!({ "argv": ["true"], "sandbox": sandbox }));
        assert_eq!(answer.status, status, "{sandbox}: {}", answer.text());
    }
    // One at a time.
    let held = with.post("/v1/sandboxes", &json!({})).ok();
    with.post("/v1/run-once", &run).refused(403, "quota_exceeded");
    with.delete(&format!("/v1/sandboxes/{}", held["sandbox"]["name"].as_str().unwrap())).ok();
    assert_eq!(with.post("/v1/run-once", &run).ok()["ok"], true);
}

#[test]
fn the_ceilings_of_a_grant_are_those_of_its_runs() {
    let home = Home::new().listening();
    let _daemon = home.start();
    let limits = json!({ "timeout": "2s", "output": "1k", "ready": "20s" });
    let limited = grant(&home, json!({ "allow_sandbox": true, "limits": limits }));
    // More is refused, and not cut down.
    for run in [
        json!({ "argv": ["true"], "timeout_s": 3 }),
        json!({ "argv": ["true"], "max_output": 1025 }),
        json!({ "argv": ["true"], "sandbox": { "limits": { "ready": "21s" } } }),
    ] {
        limited.post("/v1/run-once", &run).refused(403, "not_granted");
    }
    // Nothing said is the ceiling.
    let wrote = limited.post("/v1/run-once", &json!({ "argv": ["head", "-c", "5000", "/dev/zero"] })).ok();
    assert_eq!(wrote["stdout"].as_str().unwrap().len(), 1024, "{wrote}");
    assert_eq!(wrote["errorCode"], "output_truncated");
    let slept = limited.post("/v1/run-once", &json!({ "argv": ["sleep", "600"] })).ok();
    assert_eq!(slept["errorCode"], "timeout", "{slept}");
    // Less is what was asked for.
    let wrote = limited.post("/v1/run-once", &json!({ "argv": ["echo", "12345"], "max_output": 3 })).ok();
    assert_eq!(wrote["stdout"], "123");
    // The limits of a sandbox hold for its one command too, whichever client asks.
    let limits = json!({ "limits": { "timeout": "1s", "output": "10" } });
    let run = json!({ "argv": ["sleep", "600"], "timeout_s": 500, "sandbox": limits });
    assert_eq!(home.client().post("/v1/run-once", &run).ok()["errorCode"], "timeout");
    let run = json!({ "argv": ["echo", "0123456789012"], "max_output": 100, "sandbox": limits });
    assert_eq!(home.client().post("/v1/run-once", &run).ok()["stdout"], "0123456789");
}

#[test]
fn runs_and_sandboxes_count_together() {
    let home = Home::new().listening();
    let daemon = home.start();
    let folder = home.folder("work");
    let rules = json!({ "allow_sandbox": true, "sandboxes": 1, "folders": [folder] });
    let limited = grant(&home, rules);
    let requested = begin_as(&limited, &long(&folder.display().to_string()));
    assert!(eventually(|| folder.join("started").exists()), "its command never ran");
    limited.post("/v1/sandboxes", &json!({})).refused(403, "quota_exceeded");
    limited.post("/v1/run-once", &json!({ "argv": ["true"] })).refused(403, "quota_exceeded");
    // Its process is in no hurry.
    let job = *jobs(&daemon).first().unwrap();
    signal(job, Signal::STOP);
    let open = daemon.open_files();
    drop(requested);
    assert!(eventually(|| daemon.open_files() < open), "the daemon did not notice that the client hung up");
    limited.post("/v1/run-once", &json!({ "argv": ["true"] })).refused(403, "quota_exceeded");
    limited.post("/v1/sandboxes", &json!({})).refused(403, "quota_exceeded");
    signal(job, Signal::CONT);
    let run = || limited.post("/v1/run-once", &json!({ "argv": ["true"] }));
    assert!(eventually(|| run().status == 200), "{}", run().text());
    // A client that got its result has room again.
    for _ in 0..5 {
        assert_eq!(run().ok()["ok"], true);
    }
    is_over::<String>(&home, &daemon, &[]);
}

#[test]
fn who_hangs_up_ends_a_run_whose_sandbox_is_still_made() {
    let home = Home::new();
    let daemon = home.start();
    // A registry that takes calls, and says nothing.
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("oci:{}/silent:1", registry.local_addr().unwrap());
    let requested = begin_as(&home.client(), &json!({ "argv": ["true"], "sandbox": { "rootfs": image } }));
    let _called = registry.accept().unwrap();
    assert_eq!(jobs(&daemon).len(), 1);
    drop(requested);
    let gone = || jobs(&daemon).is_empty();
    assert!((0..3).any(|_| eventually(gone)), "the run continues without a client");
    is_over::<String>(&home, &daemon, &[]);
}

#[test]
fn the_daemon_does_not_keep_an_unread_result() {
    let home = Home::new();
    let daemon = home.start();
    let client = home.client();
    let length = 4 << 20;
    // In JSON each of these is six bytes long.
    let run = json!({ "argv": ["head", "-c", length.to_string(), "/dev/zero"], "max_output": length });
    let before = daemon.memory();
    let mut unread = Vec::new();
    for _ in 0..5 {
        let (answer, body) = client.ask("POST", "/v1/run-once").json(&run).begin().unwrap();
        assert_eq!(answer.status, 200);
        unread.push(body);
    }
    let more = daemon.memory().saturating_sub(before);
    assert!(more < 24 << 10, "{more} KiB for 5 unread results");
    assert_eq!(jobs(&daemon).len(), 5, "they are where they came from");
    // A client that reads gets all of it.
    let mut text = Vec::new();
    unread.pop().unwrap().read_to_end(&mut text).unwrap();
    let reported: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(reported["stdout"].as_str().unwrap().len(), length);
    assert_eq!(reported["ok"], true);
    drop(unread);
    assert!(eventually(|| jobs(&daemon).is_empty()), "{:?}", jobs(&daemon));
    is_over::<String>(&home, &daemon, &[]);
}

#[test]
fn who_hangs_up_ends_the_run() {
    let home = Home::new();
    let daemon = home.start();
    let folder = home.folder("work");
    let mut requested = begin(&home, &folder.display().to_string());
    assert!(eventually(|| folder.join("started").exists()), "its command never ran");
    requested.flush().unwrap();
    drop(requested);
    is_over::<String>(&home, &daemon, &[]);
}

#[test]
fn a_daemon_that_is_killed_ends_its_runs() {
    let home = Home::new();
    let daemon = home.start();
    let folder = home.folder("work");
    let _running = begin(&home, &folder.display().to_string());
    assert!(eventually(|| folder.join("started").exists()), "its command never ran");
    daemon.kill();
    let daemon = home.start();
    is_over::<String>(&home, &daemon, &[]);
}

/// A run that would take long, asked for by hand.
fn begin(home: &Home, folder: &str) -> Box<dyn Write> {
    begin_as(&home.client(), &long(folder))
}

fn long(folder: &str) -> Value {
    let script = "touch started; while sleep 1; do true; done";
    json!({ "argv": ["sh", "-c", script], "sandbox": { "workspace": { "folder": folder } } })
}

fn begin_as(client: &Client, run: &Value) -> Box<dyn Write> {
    let body = run.to_string();
    let mut connection: Box<dyn Write> = match client.address() {
        Address::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
        Address::Tcp(address) => Box::new(TcpStream::connect(address).unwrap()),
    };
    let headers: String =
        client.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST /v1/run-once HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    connection
}

/// A client with a grant, over TCP.
fn grant(home: &Home, mut rules: Value) -> Client {
    rules["name"] = "somebody".into();
    let made = home.client().post("/v1/grants", &rules).ok();
    home.stranger().token(made["token"].as_str().unwrap())
}

/// The processes of runs that a daemon started.
fn jobs(daemon: &Started) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|pid| {
        // The state, and then the parent: proc_pid_stat(5).
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        // Zombies have no command line.
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent == Some(daemon.pid()) && words.split(|byte| *byte == 0).any(|word| word == b"shim")
    })
    .collect()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Nothing of a run is left but its record.
#[track_caller]
fn is_over<S: ToString>(home: &Home, daemon: &Started, ids: &[S]) {
    let gone = || home.left(daemon).processes == 0;
    assert!((0..4).any(|_| eventually(gone)), "{:?}", home.left(daemon));
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    home.is_clean(&[], &ids, Some(daemon));
    let jobs = || fs::read_dir(home.path("state/belljar/fleet/runs")).into_iter().flatten().count();
    assert!(eventually(|| jobs() == 0), "{} jobs are left", jobs());
}

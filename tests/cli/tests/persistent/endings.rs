//! Every ending of a command, as each caller that runs commands reports it: the library, `run`, `run --json`, `exec` through the
//! daemon, and `agent run`. They all go through one driver, and have to say the same.

use crate::persistent::home::Home;
use belljar_engine::Engine;
use belljar_spec::{
    BackendChoice, BackendName, ByteSize, Command, Ended, LimitsRequest, SandboxSpec, parse_time,
};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_cli::Run;
use belljar_tests_hosts::{Model, processes_with};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// A command and its end.
#[derive(Debug, Clone, Copy, Default)]
struct Case {
    name: &'static str,
    /// `MARKER` in it is a word that no other process has.
    script: &'static str,
    timeout: Option<&'static str>,
    memory: Option<&'static str>,
    output: Option<&'static str>,
    /// What the first process of the sandbox is sent when the command runs.
    to_guest: Option<Signal>,
    exit_code: u8,
    signal: Option<&'static str>,
    limit: Option<&'static str>,
    error: Option<&'static str>,
}

const CASES: [Case; 8] = [
    Case { name: "exit", script: "exit 3", exit_code: 3, ..LASTING },
    Case { name: "signal", script: "kill -TERM $$", exit_code: 143, signal: Some("SIGTERM"), ..LASTING },
    Case { name: "timeout", timeout: Some("1s"), ..TIMED_OUT },
    Case { name: "unresponsive guest", timeout: Some("4s"), to_guest: Some(Signal::STOP), ..TIMED_OUT },
    Case {
        name: "supervisor killed",
        script: "kill -KILL $PPID; sleep 1000",
        exit_code: 125,
        error: Some("supervisor_killed"),
        ..LASTING
    },
    Case {
        name: "out of memory",
        script: "exec tail /dev/zero",
        memory: Some("64m"),
        exit_code: 137,
        signal: Some("SIGKILL"),
        limit: Some("oom_killed"),
        ..LASTING
    },
    Case {
        name: "output limit",
        script: "head -c 100000 /dev/zero | tr '\\0' x",
        output: Some("1k"),
        limit: Some("output_truncated"),
        ..LASTING
    },
    Case {
        name: "sandbox gone",
        to_guest: Some(Signal::KILL),
        exit_code: 125,
        error: Some("guest_gone"),
        ..LASTING
    },
];

const LASTING: Case = Case {
    name: "",
    script: "sleep 1000; : MARKER",
    timeout: Some("60s"),
    memory: None,
    output: None,
    to_guest: None,
    exit_code: 0,
    signal: None,
    limit: None,
    error: None,
};

/// An agent is interrupted before it is killed: this one has to be killed, as every other command is.
const TIMED_OUT: Case = Case {
    script: "trap '' INT; sleep 1000; : MARKER",
    exit_code: 124,
    signal: Some("SIGKILL"),
    limit: Some("timeout"),
    ..LASTING
};

/// Runs the command of a case, and says what is reported of its end.
type Caller = fn(&Case) -> Reported;

#[test]
fn every_caller_reports_every_ending_the_same_way() {
    let callers: [(&str, Caller); 5] = [
        ("library", library),
        ("run", run),
        ("run --json", run_once),
        ("exec", exec),
        ("agent run", agent_run),
    ];
    let is_memory_held = is_memory_held();
    let wrong: Vec<String> = CASES
        .iter()
        .filter(|case| case.memory.is_none() || is_memory_held)
        .flat_map(|case| {
            let reports = thread::scope(|scope| {
                let started: Vec<_> = callers
                    .iter()
                    .enumerate()
                    .map(|(number, (caller, report))| {
                        let marker = format!(
                            "ending-{}-{}-{number}-",
                            std::process::id(),
                            case.name.replace(' ', "-")
                        );
                        let case = Case { script: case.script.replace("MARKER", &marker).leak(), ..*case };
                        if let Some(signal) = case.to_guest {
                            scope.spawn(move || send_to_guest(&marker, signal));
                        }
                        (*caller, scope.spawn(move || report(&case)))
                    })
                    .collect();
                started
                    .into_iter()
                    .map(|(caller, report)| (caller, report.join().unwrap()))
                    .collect::<Vec<_>>()
            });
            reports.into_iter().filter_map(move |(caller, reported)| {
                let expected = expected(case, caller);
                (reported != expected)
                    .then(|| format!("{caller}, {}: {reported:?}, and not {expected:?}", case.name))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether this machine limits the memory of this user's sandboxes; without a cgroup it says that it does not.
fn is_memory_held() -> bool {
    let run = Home::new().run(&["run", "--memory", "64m", "--", "true"]);
    assert!(run.code == 0 || run.stderr.contains("cannot be enforced here"), "{}", run.stderr);
    run.code == 0
}

/// What a caller says of an ending.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    exit_code: u8,
    signal: Option<String>,
    limit: Option<String>,
    error: Option<String>,
}

fn expected(case: &Case, caller: &str) -> Reported {
    let text = |text: Option<&str>| text.map(String::from);
    let (exit_code, signal, limit, error) =
        (case.exit_code, text(case.signal), text(case.limit), text(case.error));
    match caller {
        // Its sentences name the limit; the signal is in the exit code, and an error is a sentence.
        "run" => Reported { exit_code, signal: None, limit, error: None },
        _ => Reported { exit_code, signal, limit, error },
    }
}

fn library(case: &Case) -> Reported {
    let home = Home::new();
    let size = |text: Option<&str>| text.map(|text| text.parse::<ByteSize>().unwrap());
    let limits = LimitsRequest {
        memory: size(case.memory),
        output: size(case.output),
        timeout: case.timeout.map(|time| parse_time(time).unwrap()),
        ..LimitsRequest::default()
    };
    let spec = SandboxSpec {
        workspace: Some(home.path("work")),
        backend: BackendChoice::Named(BackendName::Native),
        limits,
        ..SandboxSpec::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        let engine = Engine::new().with_records(home.path("records")).with_state(home.path("state"));
        let sandbox = engine.create(spec).await.unwrap();
        let outcome = sandbox.exec(&Command::new(["sh", "-c", case.script]).unwrap()).await;
        sandbox.dispose().await;
        outcome
    });
    match outcome {
        Ok(result) => Reported {
            exit_code: result.exit_code(),
            signal: result.ended.signal,
            limit: result.ended.limit.map(|limit| limit.to_string()),
            error: None,
        },
        Err(error) => Reported {
            exit_code: error.kind().exit_code(),
            signal: None,
            limit: None,
            error: Some(error.code.to_string()),
        },
    }
}

fn run(case: &Case) -> Reported {
    let run = Home::new().run(&with_limits(&["run"], case, &["--", "sh", "-c", case.script]));
    let limits = ["timeout", "oom_killed", "output_truncated"];
    let named = limits.into_iter().find(|limit| run.stderr.contains(&format!(" ({limit})\n")));
    Reported { exit_code: code(&run), signal: None, limit: named.map(String::from), error: None }
}

fn run_once(case: &Case) -> Reported {
    let home = Home::new();
    let run = home.run(&with_limits(&["run", "--json"], case, &["--", "sh", "-c", case.script]));
    let result = json(&run);
    assert_eq!(result["exitCode"], code(&run), "{result}");
    let error = text(&result["error"]["code"]);
    let limit = text(&result["errorCode"]).filter(|_| error.is_none());
    Reported { exit_code: code(&run), signal: text(&result["signal"]), limit, error }
}

fn exec(case: &Case) -> Reported {
    let home = Home::ready();
    let started = home.run(&with_limits(&["start"], &Case { timeout: None, ..*case }, &[]));
    assert_eq!(started.code, 0, "{}", started.stderr);
    let timeout = case.timeout.unwrap();
    let run = home.run(&["exec", "--json", "--timeout", timeout, "--", "sh", "-c", case.script]);
    let info = json(&run);
    let result = &info["result"];
    assert_eq!(result["timed_out"], case.exit_code == 124, "{}: {info}", case.name);
    assert!(result["not_started"].is_null(), "{}: {info}", case.name);
    Reported {
        exit_code: code(&run),
        signal: text(&result["signal"]),
        limit: text(&result["limit"]),
        error: text(&result["error"]["code"]),
    }
}

fn agent_run(case: &Case) -> Reported {
    let home = Home::new();
    let model = Model::start(Ipv4Addr::LOCALHOST);
    let program = home.path("work/agent");
    fs::write(&program, format!("#!/bin/sh\nexec sh -c '{}'\n", case.script.replace('\'', "'\\''"))).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let url = model.url();
    let words = ["agent", "run", "./agent", "--json", "--prompt", "x", "--model", "openai/gpt-5"];
    let route = ["--llm", &url, "--llm-key", "env:MODEL_KEY"];
    let mut command = home.command(&with_limits(&words, case, &route));
    command.env("MODEL_KEY", "sk-test");
    let run = home.finish(command);
    let last = run.stdout.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr));
    let ended = Ended {
        exit_code: result["exitCode"].as_i64().map(|code| code as i32),
        signal: text(&result["signal"]),
        timed_out: result["stopReason"] == "error_timeout",
        ..Ended::default()
    };
    // Its result has the sentence of an error, and not the code.
    let error = case.error.filter(|_| result["stopReason"] == "error_sandbox");
    Reported {
        exit_code: ended.exit_code(),
        signal: ended.signal,
        limit: text(&result["limit"]),
        error: error.map(String::from),
    }
}

fn with_limits<'a>(words: &[&'a str], case: &Case, rest: &[&'a str]) -> Vec<&'a str> {
    let flags = [("--timeout", case.timeout), ("--memory", case.memory), ("--output", case.output)];
    let limits = flags.into_iter().filter_map(|(flag, value)| Some([flag, value?]));
    words.iter().copied().chain(limits.flatten()).chain(rest.iter().copied()).collect()
}

fn code(run: &Run) -> u8 {
    u8::try_from(run.code).unwrap_or_else(|_| panic!("it was killed: {}", run.stderr))
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(String::from)
}

/// Waits for the process inside that has this word, and sends a signal to the first process of its sandbox.
fn send_to_guest(marker: &str, signal: Signal) {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    let ours = namespace(std::process::id());
    let is_inside = |pid: &u32| ![PathBuf::new(), ours.clone()].contains(&namespace(*pid));
    for _ in 0..3000 {
        // Not the guest that is being started, which has the arguments of belljar for a moment.
        let is_shell =
            |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text.starts_with(b"sh\0"));
        if let Some(pid) = processes_with(marker).into_iter().filter(is_shell).find(is_inside) {
            let first = std::iter::successors(Some(pid), |pid| parent(*pid).filter(is_inside)).last();
            kill_process(Pid::from_raw(first.unwrap() as i32).unwrap(), signal).unwrap();
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no process has {marker}");
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

//! `belljar audit`.

use belljar_audit::{Ending, Event, Log};
use belljar_spec::egress::{Destination, Mode, Reason, Refusal, Rule, RuleSource};
use belljar_spec::{BackendName, SandboxId};
use belljar_tests_cli::{Run, belljar};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A state directory of its own.
struct State {
    folder: tempfile::TempDir,
}

impl State {
    fn new() -> State {
        State { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("belljar/audit")
    }

    fn log(&self, number: u64) -> PathBuf {
        self.directory().join(format!("{}.jsonl", id(number)))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(belljar());
        command.arg("audit").args(args).env("XDG_STATE_HOME", self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        let Output { status, stdout, stderr } = self.command(args).output().expect("belljar starts");
        Run {
            code: status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// What a person sees, with nothing in it that is different each time.
    fn seen(&self, args: &[&str]) -> String {
        let Run { code, stdout, stderr } = self.run(args);
        let steady = |text: &str| -> String {
            let text = text.replace(self.folder.path().to_str().expect("a plain path"), "STATE");
            text.split_inclusive('\n').map(steady_line).collect()
        };
        format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", steady(&stdout), steady(&stderr))
    }
}

/// Times and hashes by name.
fn steady_line(line: &str) -> String {
    let words: Vec<String> = line
        .split(' ')
        .map(|word| {
            let digits = |separator: char| {
                word.trim().chars().all(|c| c.is_ascii_digit() || c == separator || c == '.')
            };
            let hexadecimal = word.trim().len() == 64 && word.trim().chars().all(|c| c.is_ascii_hexdigit());
            match word.trim().len() {
                10 if digits('-') => "YYYY-MM-DD".to_string(),
                12 if digits(':') => "hh:mm:ss.mmm".to_string(),
                64 if hexadecimal => word.replace(word.trim(), "HASH"),
                _ => word.to_string(),
            }
        })
        .collect();
    words.join(" ")
}

fn id(number: u64) -> SandboxId {
    SandboxId::from_random(number.to_be_bytes())
}

/// A log with one of each.
fn write(state: &State, number: u64) -> Log {
    let log = Log::create(&state.directory(), id(number)).expect("a log can be made");
    let name: belljar_spec::egress::HostName = "api.example.com".parse().expect("a name");
    let rule = Rule::allow("example.com", RuleSource::Flag).expect("a rule").label;
    let refusal = Refusal::new(
        "elsewhere.net".parse::<belljar_spec::egress::HostName>().expect("a name"),
        Some(443),
        Reason::NameNotAllowed,
    );
    let events = [
        Event::SandboxStarted {
            backend: BackendName::Native,
            mode: Mode::Strict,
            rules: vec![rule.to_string()],
            inspect: true,
            loosened: vec!["--nested".into()],
            policy: None,
            folder: None,
            name: None,
            uid: None,
            belljar: "0.1.0".into(),
        },
        Event::ConnectionOpened {
            connection: 1,
            name: name.clone(),
            port: 443,
            protocol: belljar_spec::egress::Protocol::Tls,
            rule: rule.to_string(),
            address: Some([93, 184, 216, 34].into()),
            proxy: None,
        },
        Event::ConnectionClosed {
            connection: 1,
            sent: 812,
            received: 1_500_000,
            millis: 1234,
            address: None,
            ending: Ending::Finished,
        },
        Event::refused(&refusal, 1),
        Event::refused(&refusal, 10),
        Event::NameRefused {
            name: Destination::understand(b"a\x1b[2J\n\"b"),
            record_type: "TXT".into(),
            reason: Reason::RecordTypeRefused,
            times: 1,
        },
        Event::Fetched {
            name,
            port: 443,
            method: "GET".into(),
            status: 200,
            received: 512,
            rule: rule.to_string(),
        },
    ];
    events.iter().for_each(|event| log.append(event).expect("a record can be written"));
    log
}

fn ended(state: &State, number: u64) {
    write(state, number).end(&Event::SandboxEnded {}).expect("a log can be ended");
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let text = fs::read_to_string(path).expect("a log can be read");
    let mut lines = text.split_inclusive('\n').map(String::from).collect();
    change(&mut lines);
    fs::write(path, lines.concat()).expect("a log can be written");
}

#[test]
fn help_stays_as_it_is() {
    let state = State::new();
    for (name, args) in [
        ("audit", &["--help"][..]),
        ("audit_tail", &["tail", "--help"]),
        ("audit_verify", &["verify", "--help"]),
        ("audit_prune", &["prune", "--help"]),
    ] {
        insta::assert_snapshot!(format!("help_{name}"), state.run(args).stdout);
    }
}

#[test]
fn records_are_shown_in_sentences() {
    let state = State::new();
    ended(&state, 0x3f);
    insta::assert_snapshot!("show", state.seen(&["show"]));
    insta::assert_snapshot!("tail", state.seen(&["tail", "-n", "2", "000"]));
}

/// Longer than a filesystem's clock needs to tell two files apart.
fn a_moment() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

#[test]
fn logs_are_listed() {
    let state = State::new();
    insta::assert_snapshot!("list_none", state.seen(&[]));
    ended(&state, 1);
    a_moment();
    drop(write(&state, 2));
    a_moment();
    let live = write(&state, 3);
    let list = state.run(&[]).stdout;
    let states: Vec<(&str, &str)> = list
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| (words[0].trim_start_matches('0'), words[3]))
        .collect();
    assert_eq!(states, [("3", "running"), ("2", "killed"), ("1", "ended")], "{list}");
    let json: serde_json::Value = serde_json::from_str(&state.run(&["--json"]).stdout).expect("JSON");
    assert_eq!(
        (&json[2]["records"], &json[2]["opened"], &json[2]["refused"]),
        (&8.into(), &2.into(), &11.into())
    );
    drop(live);
}

#[test]
fn raw_lines_are_the_files() {
    let state = State::new();
    ended(&state, 1);
    let file = fs::read_to_string(state.log(1)).expect("a log can be read");
    assert_eq!(state.run(&["show", "--json"]).stdout, file);
    assert_eq!(state.run(&["tail", "--json", "-n", "100"]).stdout, file);
}

#[test]
fn what_is_as_it_was_written_verifies() {
    let state = State::new();
    ended(&state, 1);
    ended(&state, 2);
    drop(write(&state, 3));
    insta::assert_snapshot!("verify_fine", state.seen(&["verify"]));
    let json: serde_json::Value =
        serde_json::from_str(&state.run(&["verify", "--json"]).stdout).expect("JSON");
    assert_eq!(json["logs"][0]["state"], "ended");
    assert_eq!(json["findings"][0]["code"], "ended_without_a_word");
    let head = json["ledger_head"].as_str().expect("a hash");
    assert_eq!(state.run(&["verify", "--head", head]).code, 0);
    let other = head.replace(|_: char| true, "0");
    let result = state.run(&["verify", "--head", &other]);
    assert!(result.code == 1 && result.stdout.contains("it was written anew"), "{}", result.stdout);
}

#[test]
fn what_was_changed_is_said_by_file_and_line() {
    let state = State::new();
    (1..5).for_each(|number| ended(&state, number));
    edit(&state.log(1), |lines| lines[1] = lines[1].replace("api.example.com", "api.example.org"));
    edit(&state.log(2), |lines| drop(lines.remove(4)));
    edit(&state.log(3), |lines| lines.truncate(5));
    fs::remove_file(state.log(4)).expect("a log can be removed");
    insta::assert_snapshot!("verify_changed", state.seen(&["verify"]));
    assert_eq!(state.run(&["verify", &id(4).to_string()]).code, 1);
    assert_eq!(state.run(&["verify", "--json"]).code, 1);
}

#[test]
fn logs_that_are_not_there_are_said() {
    let state = State::new();
    insta::assert_snapshot!("show_none", state.seen(&["show"]));
    ended(&state, 1);
    ended(&state, 2);
    insta::assert_snapshot!("show_unknown", state.seen(&["show", "f00d"]));
    insta::assert_snapshot!("show_ambiguous", state.seen(&["show", "000"]));
    let result = state.run(&["verify", "00000000000000ff"]);
    assert!(result.code == 126 && result.stderr.contains("there is no audit log"), "{}", result.stderr);
}

#[test]
fn following_ends_with_the_sandbox() {
    let state = State::new();
    let log = write(&state, 1);
    let child =
        state.command(&["tail", "-f", "-n", "0"]).stdout(Stdio::piped()).spawn().expect("belljar starts");
    std::thread::sleep(std::time::Duration::from_millis(300));
    log.append(&Event::RecordsSuppressed { count: 5 }).expect("a record can be written");
    log.end(&Event::SandboxEnded {}).expect("a log can be ended");
    let output = child.wait_with_output().expect("belljar ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.contains("5 more of the same") && text.contains("the sandbox is gone"), "{text}");
}

#[test]
fn a_last_line_that_is_not_whole_is_said_and_not_shown() {
    let state = State::new();
    // The log has no end: its writer was killed.
    drop(write(&state, 1));
    let whole = state.run(&["show"]).stdout;
    let half = r#"{"seq":4,"time":"2026-11-15T06:00:00.123456Z","sandbox":"0000"#;
    edit(&state.log(1), |lines| lines.push(half.into()));
    for args in [&["show"][..], &["tail", "-n", "1000"], &["tail", "-f", "-n", "1000"]] {
        let Run { code, stdout, stderr } = state.run(args);
        assert_eq!((code, &stdout), (0, &whole), "{args:?}: {stderr}");
        let says = format!("the last line is not whole ({} bytes)", half.len());
        assert!(stderr.contains(&says), "{args:?}: {stderr}");
    }
    let Run { code, stdout, stderr } = state.run(&["show", "--json"]);
    assert!(code == 0 && stdout.lines().all(|line| line.ends_with('}')), "{stdout}");
    assert!(stderr.contains("is not whole"), "{stderr}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let state = State::new();
    let log = write(&state, 1);
    (0..20_000)
        .for_each(|count| log.append(&Event::RecordsSuppressed { count }).expect("a record can be written"));
    log.end(&Event::SandboxEnded {}).expect("a log can be ended");
    let mut child = state
        .command(&["show"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("belljar starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("belljar ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn a_command_that_cannot_be_recorded_is_not_run() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for backend in ["native", "bwrap", "host"] {
        let output = Command::new(belljar())
            .args(["run", "--backend", backend, "--", "touch", "ran"])
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", "/proc/nobody/writes/here")
            .stdin(Stdio::null())
            .output()
            .expect("belljar runs");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{backend}: {printed}");
        // Where a note has to be written as well, that is said first.
        let says = printed.contains("cannot be recorded") || printed.contains("cannot note");
        assert!(says && printed.contains("hint: "), "{backend}: {printed}");
        assert!(!folder.path().join("ran").exists(), "{backend}: it ran");
    }
}

#[test]
fn old_logs_are_pruned() {
    let state = State::new();
    (1..4).for_each(|number| ended(&state, number));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 86_400);
    let age = |number| {
        let file = fs::File::options().append(true).open(state.log(number)).expect("a log can be opened");
        file.set_modified(long_ago).expect("a time can be set");
    };
    age(1);
    let printed = state.run(&["prune", "--older-than", "30d", "--dry-run"]).stdout;
    assert!(printed.starts_with(&format!("{}\n1 log, ", id(1))), "{printed}");
    assert!(printed.ends_with(": would be removed\n"), "{printed}");
    assert!(state.log(1).exists());
    let json: serde_json::Value =
        serde_json::from_str(&state.run(&["prune", "--older-than", "30d", "--json"]).stdout).expect("JSON");
    assert_eq!(json["removed"], serde_json::json!([id(1).to_string()]));
    assert!(!state.log(1).exists() && state.log(2).exists());
    let verified = state.run(&["verify"]);
    assert!(verified.code == 0 && verified.stdout.contains("1 log more: pruned\n"), "{}", verified.stdout);
    let result = state.run(&["verify", &id(1).to_string()]);
    assert!(result.code == 126 && result.stderr.contains("was pruned"), "{}", result.stderr);

    edit(&state.log(2), |lines| lines[1] = lines[1].replace("api.example.com", "api.example.org"));
    age(2);
    age(3);
    let result = state.run(&["prune", "--older-than", "30d"]);
    assert!(result.code == 1 && result.stdout.starts_with("1 log, "), "{}", result.stdout);
    assert!(result.stderr.contains(&format!("the log of {} is not as it was written", id(2))));
    assert!(state.log(2).exists() && !state.log(3).exists());

    for age in ["soon", "30", "30s"] {
        let result = state.run(&["prune", "--older-than", age]);
        assert!(result.code != 0 && result.stderr.contains("30d"), "{}", result.stderr);
    }
    assert_ne!(state.run(&["prune"]).code, 0, "how old has to be said");
}

//! Logs that are read while they are written, by a process that may be killed or have no room.

use super::{id, ticking};
use belljar_agent::claims::Claims;
use belljar_agent::entry::{Entry, Summary, System};
use belljar_agent::event::AgentEvent;
use belljar_agent::log::Log;
use belljar_agent::read::{self, Followed, Found, ReadError, Reader, State};
use belljar_agent::stop::StopReason;
use belljar_spec::SandboxId;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn other_line(text: &str) -> AgentEvent {
    AgentEvent::Other(text.into())
}

fn result(subtype: StopReason, result: &str) -> Entry {
    Entry::Result(Box::new(Summary {
        subtype,
        is_error: subtype != StopReason::Success,
        result: result.into(),
        error: None,
        num_turns: 2,
        total_cost_usd: None,
        total_input_tokens: 201,
        total_output_tokens: 61,
        total_cache_read_input_tokens: 2000,
        total_cache_creation_input_tokens: 2050,
        duration_ms: 7,
        claims: Claims { cost_usd: Some(0.5), ..Claims::default() },
        more: serde_json::Map::new(),
    }))
}

fn init(agent: &str) -> Entry {
    let agent = agent.to_string();
    Entry::System(System::Init { agent, model: Some("m".into()), backend: None, cwd: "/w".into() })
}

/// What a reader sees: the texts of lines, and `-` for what it passes over.
fn seen(found: &Found) -> String {
    match found {
        Found::Line { line, .. } => match &line.entry {
            Entry::System(System::Output { text } | System::Warning { text }) => text.clone(),
            Entry::Result(result) => format!("result {}", result.subtype),
            other => serde_json::to_string(other).unwrap(),
        },
        Found::Skipped { number, .. } => format!("- {number}"),
    }
}

fn follow(path: &Path) -> (Vec<String>, Followed) {
    let mut lines = Vec::new();
    let how = read::follow(path, &mut |found| {
        lines.push(seen(&found));
        ControlFlow::Continue(())
    });
    (lines, how.unwrap())
}

#[test]
fn a_line_that_is_none_is_passed_over_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::create(folder.path(), id(), ticking()).unwrap();
    let mut other = OpenOptions::new().append(true).open(log.path()).unwrap();
    log.event(&other_line("one"));
    other.write_all(b"{\"type\":\"system\"}\nno\n\xff\n\n").unwrap();
    log.event(&other_line("two"));
    other.write_all(b"{\"type\":\"sys").unwrap();
    let mut reader = Reader::open(log.path()).unwrap();
    let mut lines = Vec::new();
    while let Some(found) = reader.next_line().unwrap() {
        lines.push(seen(&found));
    }
    assert_eq!(lines, ["one", "- 2", "- 3", "- 4", "- 5", "two"]);
    assert!(reader.is_live());
    // The half line may become a whole one, as long as the log has a writer.
    other
        .write_all(
            b"tem\",\"subtype\":\"output\",\"text\":\"three\",\"timestamp\":\"\",\"sessionId\":\"\"}\n{",
        )
        .unwrap();
    assert_eq!(reader.next_line().unwrap().as_ref().map(seen).as_deref(), Some("three"));
    drop(log);
    assert!(!reader.is_live() && reader.next_line().unwrap().is_none());
    let rest = Found::Skipped { number: 8, why: "it breaks off after 1 bytes".into() };
    assert_eq!(reader.rest(), Some(rest));
}

#[test]
fn runs_are_listed_the_newest_first_and_found_by_the_start_of_their_id() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(read::list(state.path()).unwrap(), []);
    assert!(matches!(read::find(state.path(), None), Err(ReadError::NoRuns(_))));
    // Made within one tick of the clock they are ordered by id, so the newest has the smallest.
    let ids = [0xbb_u64, 0xba, 0xaa].map(|number| SandboxId::from_random((number << 56).to_be_bytes()));
    let mut logs: Vec<_> = (ids.iter())
        .map(|id| Log::create(&read::directory(state.path(), *id), *id, ticking()).unwrap())
        .collect();
    fs::create_dir_all(read::runs(state.path()).join("not-a-run")).unwrap();
    fs::create_dir_all(read::directory(state.path(), SandboxId::from_random([1; 8]))).unwrap();
    logs.iter_mut().for_each(|log| log.write(init("claude")));
    // A long answer, beyond what is looked at first.
    logs[0].write(result(StopReason::ErrorLength, &"long ".repeat(100_000)));
    let running = logs.pop();
    drop(logs);

    let runs = read::list(state.path()).unwrap();
    let found: Vec<_> = runs.iter().map(|run| (run.id, run.glance().unwrap().state)).collect();
    let ended = State::Ended(StopReason::ErrorLength);
    assert_eq!(found, [(ids[2], State::Running), (ids[1], State::Dead), (ids[0], ended)]);
    let glance = runs[0].glance().unwrap();
    assert_eq!(glance.agent.as_deref(), Some("claude"));
    assert_eq!(glance.model.as_deref(), Some("m"));
    assert_eq!(glance.began.as_deref(), Some("2025-01-01T00:00:01.000000Z"));
    assert!(runs[0].is_live() && !runs[1].is_live());
    drop(running);

    assert_eq!(read::find(state.path(), None).unwrap().id, ids[2]);
    assert_eq!(read::find(state.path(), Some("ba")).unwrap().id, ids[1]);
    assert!(matches!(read::find(state.path(), Some("b")), Err(ReadError::Ambiguous(_))));
    assert!(matches!(read::find(state.path(), Some("c")), Err(ReadError::NoSuchRun(_))));
}

#[test]
fn a_log_is_followed_to_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::create(folder.path(), id(), ticking()).unwrap();
    let path = log.path().to_path_buf();
    let follower = std::thread::spawn(move || follow(&path));
    for number in 0..50 {
        log.event(&other_line(&format!("line {number}")));
        std::thread::yield_now();
    }
    log.write(result(StopReason::Success, "done"));
    // Still held: the result is enough.
    let (lines, how) = follower.join().unwrap();
    assert_eq!((lines.len(), lines[50].as_str(), how), (51, "result success", Followed::Ended));

    let mut first = None;
    let left = read::follow(log.path(), &mut |found| {
        first.get_or_insert(seen(&found));
        ControlFlow::Break(())
    });
    assert_eq!((left.unwrap(), first.as_deref()), (Followed::Left, Some("line 0")));
}

#[test]
fn a_log_without_a_writer_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), id(), ticking()).unwrap();
    let path = log.path().to_path_buf();
    drop(log);
    assert_eq!(follow(&path), (vec![], Followed::Dead));
}

/// Not a test in itself: writes some lines, says so, and waits to be killed.
#[test]
fn writing_process() {
    let Some(directory) = child_directory() else { return };
    let mut log = Log::create(&directory, id(), ticking()).unwrap();
    log.event(&other_line("one"));
    log.event(&other_line("two"));
    // Half a line, as when it is killed in the midst of writing.
    let mut other = OpenOptions::new().append(true).open(log.path()).unwrap();
    other.write_all(b"{\"type\":").unwrap();
    println!("written");
    std::thread::park();
}

#[test]
fn a_run_that_was_killed_is_known_to_be_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = again("reading::writing_process", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap().ends_with("written")));
    let path = folder.path().join("log.jsonl");
    assert!(Reader::open(&path).unwrap().is_live());
    let follower = std::thread::spawn(move || follow(&path));
    child.kill().unwrap();
    child.wait().unwrap();
    let (lines, how) = follower.join().unwrap();
    assert_eq!((lines, how), (vec!["one".into(), "two".into(), "- 3".into()], Followed::Dead));
}

/// Not a test in itself: runs where no file may grow beyond some kilobytes.
#[test]
fn limited_process() {
    let Some(directory) = child_directory() else { return };
    let mut watched = 0;
    let watcher = Box::new(|_: &_, _: &str| watched += 1);
    let mut log = Log::create(&directory, id(), ticking()).unwrap().watched(watcher);
    assert!(log.failure().is_none());
    (0..1000).for_each(|number| log.event(&other_line(&format!("line {number} {}", "x".repeat(100)))));
    let failure = log.failure().unwrap().to_string();
    drop(log);
    println!("watched={watched} failure={failure}");
}

#[test]
fn a_full_disk_leaves_whole_lines_and_the_run_continues() {
    let folder = tempfile::tempdir().unwrap();
    let child = again("reading::limited_process", folder.path());
    // A file at its limit takes a part of a line, then refuses, as a full disk does.
    let script = "trap '' XFSZ; ulimit -f 41; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("watched=1000 failure=cannot write to the run's log /"), "{text}");
    let (lines, how) = follow(&folder.path().join("log.jsonl"));
    assert!(lines.len() > 10 && lines.iter().all(|line| line.starts_with("line ")), "{lines:?}");
    assert_eq!(how, Followed::Dead);
}

/// This test program again, as another process that does only `test`, with a directory to work in.
fn again(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, directory);
    command
}

/// The directory, in such a process; none in the test run itself.
fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

const CHILD: &str = "BELLJAR_AGENT_TEST_CHILD";

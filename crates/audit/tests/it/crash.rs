//! A writer that is killed at any moment.

use super::{again, child_directory, ended_log, event, found, log_path, sandbox, verify};
use belljar_audit::{Event, Log, LogState, Severity};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

/// Not a test itself: the code of the killed process. Makes logs, ends every other one, and never stops.
#[test]
fn writer_process() {
    let Some(directory) = child_directory() else { return };
    let base = u64::from(std::process::id()) << 32;
    for number in 0.. {
        let log = Log::create(&directory, sandbox(base + number)).unwrap();
        (0..20).for_each(|number| log.append(&event(number)).unwrap());
        if number == 0 {
            println!("writing");
        }
        if number % 2 == 0 {
            log.end(&Event::SandboxEnded {}).unwrap();
        }
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_logs_that_verify() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40u64 {
        let mut child = again("crash::writer_process", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("writing")));
        // At another point each time, in steps smaller than the time of one record.
        std::thread::sleep(Duration::from_micros(round * 137 % 3000));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 4 == 0 {
            let report = verify(folder.path());
            assert_eq!(found(&report, Severity::Error), [], "round {round}");
        }
    }
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), []);
    assert!(report.logs.iter().any(|log| log.state == LogState::Ended && log.lines == 21));
    assert!(report.logs.iter().any(|log| log.state == LogState::Killed));
    // A second run reports the same, and nothing more.
    let again = verify(folder.path());
    assert_eq!(again.findings, report.findings);
}

#[test]
fn a_live_log_is_running_and_a_dropped_one_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), sandbox(1)).unwrap();
    log.append(&event(1)).unwrap();
    let report = verify(folder.path());
    assert_eq!((report.logs[0].state, report.findings.len()), (LogState::Running, 0));
    drop(log);
    let report = verify(folder.path());
    assert_eq!(report.logs[0].state, LogState::Killed);
    let name = format!("{}.jsonl", sandbox(1));
    assert_eq!(found(&report, Severity::Warning), [(name, None, "ended_without_a_word")]);
}

#[test]
fn the_next_create_closes_what_a_killed_writer_left() {
    let folder = tempfile::tempdir().unwrap();
    let killed = Log::create(folder.path(), sandbox(1)).unwrap();
    (0..3).for_each(|number| killed.append(&event(number)).unwrap());
    drop(killed);
    ended_log(folder.path(), 2, 2);
    // From here on its end is known: truncation is noticed.
    let path = log_path(folder.path(), sandbox(1));
    let text = std::fs::read_to_string(&path).unwrap();
    let two: String = text.split_inclusive('\n').take(2).collect();
    std::fs::write(&path, two).unwrap();
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), [(format!("{}.jsonl", sandbox(1)), Some(3), "cut_short")]);
}

#[test]
fn a_live_log_is_not_swept() {
    let folder = tempfile::tempdir().unwrap();
    let live = Log::create(folder.path(), sandbox(1)).unwrap();
    live.append(&event(1)).unwrap();
    (2..6).for_each(|number| ended_log(folder.path(), number, 2));
    verify(folder.path());
    live.append(&event(2)).unwrap();
    live.end(&Event::SandboxEnded {}).unwrap();
    let report = verify(folder.path());
    assert_eq!(report.findings, []);
    assert_eq!((report.logs[0].state, report.logs[0].lines), (LogState::Ended, 3));
}

#[test]
fn a_torn_last_line_is_said_and_no_error_for_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let tear = |number: u64| {
        let log = Log::create(folder.path(), sandbox(number)).unwrap();
        (0..3).for_each(|number| log.append(&event(number)).unwrap());
        let path = log.path().to_path_buf();
        drop(log);
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(br#"{"seq":3,"time":"2026-"#).unwrap();
    };
    // Found by `verify` first; found by the next create first.
    tear(1);
    let name = |number| format!("{}.jsonl", sandbox(number));
    let expected = |number| [(name(number), Some(4), "torn"), (name(number), None, "ended_without_a_word")];
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), []);
    assert_eq!(found(&report, Severity::Warning), expected(1));
    tear(2);
    ended_log(folder.path(), 3, 2);
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), []);
    assert_eq!(found(&report, Severity::Warning), [expected(1), expected(2)].concat());
}

#[test]
fn a_torn_ledger_continues_where_it_was_whole() {
    let folder = tempfile::tempdir().unwrap();
    ended_log(folder.path(), 1, 2);
    let ledger = folder.path().join("ledger.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(ledger).unwrap();
    file.write_all(br#"{"seq":2,"ti"#).unwrap();
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), []);
    assert_eq!(found(&report, Severity::Warning), [("ledger.jsonl".to_string(), Some(3), "torn")]);
    ended_log(folder.path(), 2, 2);
    assert_eq!(verify(folder.path()).findings, []);
}

#[test]
fn a_ledger_that_is_ahead_of_its_head_is_caught_up_with() {
    let folder = tempfile::tempdir().unwrap();
    let head = folder.path().join("ledger.head");
    ended_log(folder.path(), 1, 2);
    let before = std::fs::read(&head).unwrap();
    let log = Log::create(folder.path(), sandbox(2)).unwrap();
    // As if killed between the ledger and its head.
    std::fs::write(&head, before).unwrap();
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Warning), [("ledger.jsonl".to_string(), None, "ledger_head_behind")]);
    log.end(&Event::SandboxEnded {}).unwrap();
    assert_eq!(verify(folder.path()).findings, []);
}

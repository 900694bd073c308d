//! Old logs are removed, and nothing else.

use super::{again, child_directory, ended_log, event, found, log_path, sandbox, verify};
use belljar_audit::{Event, Log, LogState, Pruned, Pruning, Severity, prune};
use belljar_spec::{ErrorCode, SandboxId};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// Sets a file's times back by this much.
fn age(directory: &Path, number: u64, age: Duration) {
    let file = File::options().append(true).open(log_path(directory, sandbox(number))).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn prune_older_than(directory: &Path, age: Duration) -> Pruned {
    prune(directory, SystemTime::now() - age, Pruning::Real, |_| {}).unwrap()
}

fn left(directory: &Path) -> Vec<SandboxId> {
    let mut left: Vec<_> =
        belljar_audit::list(directory).unwrap().into_iter().map(|log| log.sandbox).collect();
    left.sort();
    left
}

/// 1 and 2 ended, 3 was killed, 4 lives; all but 2 are old.
fn fixture() -> (tempfile::TempDir, Log) {
    let folder = tempfile::tempdir().unwrap();
    ended_log(folder.path(), 1, 6);
    ended_log(folder.path(), 2, 4);
    Log::create(folder.path(), sandbox(3)).unwrap().append(&event(1)).unwrap();
    let live = Log::create(folder.path(), sandbox(4)).unwrap();
    live.append(&event(1)).unwrap();
    [1, 3, 4].into_iter().for_each(|number| age(folder.path(), number, 40 * DAY));
    (folder, live)
}

#[test]
fn what_ended_long_ago_is_removed_and_everything_still_verifies() {
    let (folder, live) = fixture();
    let length = |number| fs::metadata(log_path(folder.path(), sandbox(number))).unwrap().len();
    let both = length(1) + length(3);
    let imagined = prune(folder.path(), SystemTime::now() - 30 * DAY, Pruning::Imagined, |_| {}).unwrap();
    assert_eq!((imagined.removed, imagined.bytes), (vec![sandbox(1), sandbox(3)], both));
    assert_eq!(left(folder.path()).len(), 4, "it was only said");

    let pruned = prune_older_than(folder.path(), 30 * DAY);
    assert_eq!((pruned.removed, pruned.bytes), (vec![sandbox(1), sandbox(3)], both));
    assert!(pruned.doubtful.is_empty());
    assert_eq!(left(folder.path()), [sandbox(2), sandbox(4)]);
    let report = verify(folder.path());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let states: Vec<_> = report.logs.iter().map(|log| (log.sandbox, log.state)).collect();
    assert_eq!(states, [(sandbox(2), LogState::Ended), (sandbox(4), LogState::Running)]);
    assert!(prune_older_than(folder.path(), 30 * DAY).removed.is_empty(), "nothing is left to do");

    // A name that is free again, and a live log that continues.
    ended_log(folder.path(), 1, 3);
    live.end(&Event::SandboxEnded {}).unwrap();
    let report = verify(folder.path());
    assert!(report.is_fine() && report.logs.len() == 3, "{:?}", report.findings);
    fs::remove_file(log_path(folder.path(), sandbox(1))).unwrap();
    let removed = found(&verify(folder.path()), Severity::Error);
    assert_eq!(
        removed,
        [("0000000000000001.jsonl".into(), None, "removed")],
        "the second one was not pruned"
    );
}

#[test]
fn what_is_not_as_it_was_written_stays() {
    let (folder, _live) = fixture();
    let path = log_path(folder.path(), sandbox(1));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("443", "444", 1)).unwrap();
    age(folder.path(), 1, 40 * DAY);
    let pruned = prune_older_than(folder.path(), 30 * DAY);
    assert_eq!(pruned.doubtful, [sandbox(1)]);
    assert!(left(folder.path()).contains(&sandbox(1)));

    // Nor is anything removed by a ledger that was tampered with.
    let ledger = folder.path().join("ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, text.replacen("\"lines\":6", "\"lines\":7", 1)).unwrap();
    let before = left(folder.path());
    let error = prune(folder.path(), SystemTime::now(), Pruning::Real, |_| {}).unwrap_err();
    assert_eq!(belljar_spec::SandboxError::from(error).code, ErrorCode::StateFailed);
    assert_eq!(left(folder.path()), before);
}

#[test]
fn a_line_about_pruning_cannot_be_made_up() {
    for (number, contradicts) in [(2, false), (4, true), (9, true)] {
        let (folder, _live) = fixture();
        let ledger = folder.path().join("ledger.jsonl");
        let mut text = fs::read_to_string(&ledger).unwrap();
        let line = text.lines().last().unwrap().to_string();
        let event = line.find("\"event\"").unwrap()..line.find(",\"previous\"").unwrap();
        let forged = line.replacen(&line[event], "\"event\":{\"kind\":\"log_pruned\"}", 1);
        let own = format!("\"sandbox\":\"{}\"", sandbox(4));
        text.push_str(&forged.replacen(&own, &format!("\"sandbox\":\"{}\"", sandbox(number)), 1));
        text.push('\n');
        fs::write(&ledger, text).unwrap();
        let _ = fs::remove_file(log_path(folder.path(), sandbox(number)));
        let wrong = found(&verify(folder.path()), Severity::Error);
        assert!(!wrong.is_empty(), "{number}");
        let is_reported = wrong.iter().any(|(_, _, code)| *code == "ledger_contradiction");
        assert_eq!(is_reported, contradicts, "{number}: only what has ended is pruned: {wrong:?}");
    }
}

#[test]
fn many_prune_and_start_at_once() {
    if let Some(directory) = child_directory() {
        prune_older_than(&directory, 30 * DAY);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    (1..=60).for_each(|number| ended_log(folder.path(), number, 3));
    (1..=50).for_each(|number| age(folder.path(), number, 40 * DAY));
    let mut children: Vec<_> = (0..4)
        .map(|_| again("prune::many_prune_and_start_at_once", folder.path()).spawn().unwrap())
        .collect();
    (100..120).for_each(|number| {
        ended_log(folder.path(), number, 3);
        assert!(verify(folder.path()).is_fine(), "a verify meanwhile finds nothing wrong");
    });
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    let report = verify(folder.path());
    assert!(report.is_fine(), "{:?}", report.findings);
    assert_eq!(left(folder.path()).len(), 10 + 20);
}

#[test]
fn a_prune_that_was_killed_is_completed_by_the_next() {
    let (folder, _live) = fixture();
    let path = log_path(folder.path(), sandbox(1));
    let log = fs::read(&path).unwrap();
    prune_older_than(folder.path(), 30 * DAY);
    fs::write(&path, log).unwrap();
    let warned = found(&verify(folder.path()), Severity::Warning);
    assert_eq!(warned, [("0000000000000001.jsonl".into(), None, "pruned_and_there")]);
    assert_eq!(verify(folder.path()).pruned, 1, "that one is counted as a log");
    age(folder.path(), 1, 40 * DAY);
    assert_eq!(prune_older_than(folder.path(), 30 * DAY).removed, [sandbox(1)]);
    assert!(!path.exists() && verify(folder.path()).findings.is_empty());
}

#[test]
fn who_was_killed_goes_though_something_else_is_wrong() {
    let (folder, _live) = fixture();
    // Another log is damaged, so that `verify` writes nothing; and one has no record.
    let damaged = log_path(folder.path(), sandbox(2));
    fs::write(&damaged, fs::read_to_string(&damaged).unwrap().replacen("443", "444", 1)).unwrap();
    fs::write(log_path(folder.path(), sandbox(8)), "").unwrap();
    age(folder.path(), 8, 40 * DAY);
    let before = SystemTime::now() - 30 * DAY;
    let imagined = prune(folder.path(), before, Pruning::Imagined, |_| {}).unwrap();
    let pruned = prune(folder.path(), before, Pruning::Real, |_| {}).unwrap();
    assert_eq!(pruned.removed, [sandbox(1), sandbox(3), sandbox(8)]);
    assert_eq!((imagined.removed, imagined.bytes), (pruned.removed, pruned.bytes), "as it was said");
    assert_eq!(found(&verify(folder.path()), Severity::Error).len(), 1, "the damaged one, and no other");
    assert_eq!(verify(folder.path()).pruned, 2);
}

#[test]
fn a_sandbox_that_is_killed_after_many_were_pruned_is_closed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    (1..=100).for_each(|number| {
        ended_log(folder.path(), number, 2);
        age(folder.path(), number, 40 * DAY);
    });
    let live = Log::create(folder.path(), sandbox(200)).unwrap();
    live.append(&event(1)).unwrap();
    assert_eq!(prune_older_than(folder.path(), 30 * DAY).removed.len(), 100);
    drop(live);
    ended_log(folder.path(), 201, 2);
    let ledger = fs::read_to_string(folder.path().join("ledger.jsonl")).unwrap();
    let closed = |line: &&str| line.contains("log_closed") && line.contains(&sandbox(200).to_string());
    assert_eq!(ledger.lines().filter(closed).count(), 1);
    assert!(verify(folder.path()).is_fine());
}

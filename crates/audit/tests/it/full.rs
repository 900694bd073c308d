//! A full disk.

use super::{again, child_directory, event, found, sandbox, verify};
use belljar_audit::{AuditError, Event, Log, LogState, Severity};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes until it fails, and returns how many lines were confirmed.
fn fill(log: &Log) -> u64 {
    let confirmed = (0..1_000_000).take_while(|number| log.append(&event(*number)).is_ok()).count();
    assert!(confirmed > 3, "the disk was full from the start");
    // From now on: an error each time, and never a partial line.
    for number in 0..10 {
        let error = log.append(&event(number)).unwrap_err();
        assert!(matches!(error, AuditError::Write { .. }), "{error}");
    }
    let bytes = fs::read(log.path()).unwrap();
    assert_eq!(bytes.last(), Some(&b'\n'));
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), confirmed);
    confirmed as u64
}

/// Not a test itself: runs with a file size limit of some kilobytes.
#[test]
fn limited_process() {
    let Some(directory) = child_directory() else { return };
    let log = Log::create(&directory, sandbox(1)).unwrap();
    println!("confirmed={}", fill(&log));
    assert!(log.end(&Event::SandboxEnded {}).is_err());
}

#[test]
fn a_write_that_fails_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let child = again("full::limited_process", folder.path());
    // A file at its limit takes a part of a line, then refuses, as a full disk does.
    let script = "trap '' XFSZ; ulimit -f 41; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let confirmed: u64 = text.split("confirmed=").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let report = verify(folder.path());
    assert_eq!(found(&report, Severity::Error), []);
    assert_eq!(
        found(&report, Severity::Warning),
        [(format!("{}.jsonl", sandbox(1)), None, "ended_without_a_word")]
    );
    assert_eq!(report.logs[0].lines, confirmed);
}

/// Not a test itself: runs with a directory that is a disk of 128 KiB.
#[test]
fn small_disk_process() {
    let Some(directory) = child_directory() else { return };
    let log = Log::create(&directory, sandbox(1)).unwrap();
    let ballast = directory.join("ballast");
    fs::write(&ballast, vec![0; 32 * 1024]).unwrap();
    let confirmed = fill(&log);
    // With the disk full no sandbox starts, and none is left half made.
    assert!(starts_no_log(&directory));
    // With space again, the gap is recorded, then the log continues.
    fs::remove_file(&ballast).unwrap();
    log.append(&event(1)).unwrap();
    log.end(&Event::SandboxEnded {}).unwrap();
    let report = verify(&directory);
    assert_eq!(found(&report, Severity::Error), []);
    assert_eq!((report.logs[0].state, report.logs[0].lines), (LogState::Ended, confirmed + 3));
    let text = fs::read_to_string(log.path()).unwrap();
    assert!(text.contains(r#"{"kind":"records_lost","count":11}"#), "{text}");
    println!("done");
}

fn starts_no_log(directory: &Path) -> bool {
    // The ledger may still have room in its last block.
    let refused = (2..200).map(sandbox).find(|id| Log::create(directory, *id).is_err());
    refused.is_some_and(|id| !super::log_path(directory, id).exists())
}

#[test]
fn a_full_disk_is_an_error_and_when_there_is_room_again_it_continues() {
    let folder = tempfile::tempdir().unwrap();
    let child = again("full::small_disk_process", folder.path());
    let script = "mount -t tmpfs -o size=128k,mode=700 none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(folder.path());
    command.arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("skipped: there is no `unshare` here");
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare failed")
        || stderr.contains("permission denied")
        || stderr.contains("Operation not permitted")
    {
        eprintln!("skipped: no disk of our own can be made here: {stderr}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("done"), "{text}{stderr}");
}

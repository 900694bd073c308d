//! Several processes and threads at once.

use super::{again, child_directory, ended_log, event, sandbox, verify};
use belljar_audit::{Event, Log, LogState};
use std::process::{Child, Stdio};

/// Not a test itself: the code of each process.
#[test]
fn maker_process() {
    let Some(directory) = child_directory() else { return };
    let base = u64::from(std::process::id()) << 32;
    (0..100).for_each(|number| ended_log(&directory, base + number, 5));
}

#[test]
fn processes_that_make_logs_at_once_share_one_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..6)
        .map(|_| again("together::maker_process", folder.path()).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    // Verify all the while; nothing looks wrong in between.
    for _ in 0..20 {
        assert_eq!(verify(folder.path()).findings, []);
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report = verify(folder.path());
    assert_eq!(report.findings, []);
    assert_eq!((report.logs.len(), report.ledger_lines), (600, 1200));
    assert!(report.logs.iter().all(|log| log.state == LogState::Ended && log.lines == 5));
}

#[test]
fn threads_that_write_to_one_log_make_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), sandbox(1)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..500).for_each(|number| log.append(&event(number)).unwrap()));
        }
    });
    log.end(&Event::SandboxEnded {}).unwrap();
    let report = verify(folder.path());
    assert_eq!((report.findings.len(), report.logs[0].lines), (0, 4001));
}

#[test]
fn a_sandbox_has_one_log_and_it_ends_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(folder.path(), sandbox(1)).unwrap();
    let second = Log::create(folder.path(), sandbox(1)).unwrap_err();
    assert!(second.to_string().ends_with("already"), "{second}");
    log.end(&Event::SandboxEnded {}).unwrap();
    assert!(log.append(&event(1)).unwrap_err().to_string().ends_with("has ended"));
    assert!(log.end(&Event::SandboxEnded {}).is_err());
    assert_eq!(verify(folder.path()).findings, []);
}

#[test]
fn other_users_cannot_read_them() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("state/audit");
    ended_log(&directory, 1, 2);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

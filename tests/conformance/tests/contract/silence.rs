//! A guest that hangs answers nothing and closes no connection. Every caller that waits for it gets an error, and the guest is killed.

use belljar_spec::{BackendName, ErrorCode, ErrorKind};
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_conformance::*;

for_every_backend![a_guest_that_hangs_blocks_no_caller];

async fn a_guest_that_hangs_blocks_no_caller(backend: BackendName) {
    if !matches!(backend, BackendName::Native | BackendName::Bwrap) {
        // Where there is no isolation, no process kills a guest from outside; tests/docker tests paused containers.
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let _running = fixture.spawn(&sh(&format!("sleep 1000; : {marker}"))).await.unwrap();
    marker.appears(1).await;
    let guest = first_process_above(marker.processes()[0]);
    kill_process(Pid::from_raw(guest as i32).unwrap(), Signal::STOP).unwrap();
    // More than fits into a socket whose reader hangs.
    let mut long = sh(":");
    long.env.push(("LONG".parse().unwrap(), "x".repeat(900_000).into()));
    let (looked, made, begun, dialled) = tokio::join!(
        fixture.stat("."),
        fixture.mkdir("made", false),
        async { fixture.spawn(&long).await.map(drop) },
        async { fixture.connect(8000).await.map(drop) },
    );
    for error in [looked.map(drop), made, begun, dialled].map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Runtime, "{error}");
        assert!(
            [ErrorCode::GuestUnresponsive, ErrorCode::GuestGone].contains(&error.code),
            "{} {error}",
            error.code
        );
    }
    marker.wait_for_none();
}

/// The process that everything of a sandbox descends from.
fn first_process_above(pid: u32) -> u32 {
    let mut pid = pid;
    while namespace_of_processes(parent(pid).unwrap()) == namespace_of_processes(pid) {
        pid = parent(pid).unwrap();
    }
    pid
}

fn namespace_of_processes(pid: u32) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap()
}

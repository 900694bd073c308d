//! A sandbox whose first process is paused, by a user of Docker or by its own command, keeps to its time limit all the same.

use belljar_tests_docker::{Dockerd, Work, eventually};
use std::fs;
use std::process::Stdio;

#[test]
fn who_pauses_a_container_does_not_stop_its_time() {
    let Some(daemon) = Dockerd::start() else { return };
    for backend in ["docker", "docker+runsc"] {
        let work = Work::with(&daemon);
        let script = "touch begun; while :; do date >> lives; sleep 0.1; done";
        let mut command = work.run(backend, &["--timeout", "6s", "--", "sh", "-c", script]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(eventually(|| work.folder().join("begun").exists()), "{backend}: the command does not begin");
        let name = daemon.containers().pop().unwrap();
        daemon.docker(&["pause", &name]);
        timed_out(backend, &daemon, &work, child);
    }
}

/// gVisor lets a command stop process 1, as no other kernel does.
#[test]
fn who_stops_process_1_does_not_stop_its_time() {
    let Some(daemon) = Dockerd::start() else { return };
    for backend in ["docker", "docker+runsc"] {
        let work = Work::with(&daemon);
        let script = "kill -STOP 1; while :; do date >> lives; sleep 0.1; done";
        let mut command = work.run(backend, &["--timeout", "3s", "--", "sh", "-c", script]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        timed_out(backend, &daemon, &work, child);
    }
}

/// It ended by its time, and nothing of it runs any more.
fn timed_out(backend: &str, daemon: &Dockerd, work: &Work<'_>, child: std::process::Child) {
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{backend}: {printed}");
    assert!(eventually(|| daemon.containers().is_empty()), "{backend}: {:?}", daemon.containers());
    let lives = work.folder().join("lives");
    let length = || fs::metadata(&lives).map(|found| found.len()).unwrap_or_default();
    let before = length();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(length(), before, "{backend}: it writes on");
}

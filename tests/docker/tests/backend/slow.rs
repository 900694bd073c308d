//! A Docker that takes longer to start a container than a sandbox may take until it is ready.

use belljar_tests_docker::{Dockerd, Work, eventually};
use serde_json::Value;

#[test]
fn a_daemon_that_does_not_start_a_container_in_time_is_not_waited_for() {
    let Some(daemon) = Dockerd::start_with_slow_gvisor() else { return };
    let work = Work::with(&daemon);
    work.succeeds("docker+runsc", &["--", "true"]);
    assert!(eventually(|| daemon.containers().is_empty()), "{:?}", daemon.containers());

    daemon.hold_gvisor();
    let words = ["--json", "--ready-timeout", "2s", "--", "true"];
    let output = work.run("docker+runsc", &words).output().unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["error"]["code"], "not_ready", "{output:?}");
    let message = printed["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Docker daemon") && message.contains("2s"), "{message}");
    let hint = printed["error"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("docker info") && hint.contains("--ready-timeout"), "{hint}");

    // The next start removes a container that may have come of it.
    daemon.let_gvisor_go();
    let is_swept = || {
        work.succeeds("docker+runsc", &["--", "true"]);
        eventually(|| daemon.containers().is_empty())
    };
    assert!(eventually(is_swept), "{:?}", daemon.containers());
}

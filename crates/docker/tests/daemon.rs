//! Against a real daemon, where there is one; and where there is none.

use belljar_docker::{Daemon, bollard::query_parameters::ListContainersOptions};
use belljar_spec::ErrorCode;
use std::os::unix::net::UnixListener;

/// The daemon here; a machine without one has nothing to try.
fn daemon() -> Option<Daemon> {
    Daemon::connect().ok()
}

#[test]
fn a_daemon_answers_in_the_version_that_both_know() {
    let Some(daemon) = daemon() else { return };
    let listed = daemon
        .run("list containers", async |client| client.list_containers(None::<ListContainersOptions>).await)
        .expect("a list");
    let _ = listed.len();
}

#[test]
fn a_thread_of_another_runtime_may_wait_too() {
    let Some(daemon) = daemon() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let answered = runtime.block_on(async { daemon.run("answer", async |client| client.ping().await) });
    assert_eq!(answered.as_deref(), Ok("OK"));
}

#[test]
fn removing_what_is_not_there_is_no_error() {
    let Some(daemon) = daemon() else { return };
    assert_eq!(daemon.remove_container("belljar-nobody-has-this-name"), Ok(()));
}

#[test]
fn without_a_listener_the_error_says_what_to_do() {
    let place = tempfile::tempdir().expect("a folder");
    let socket = place.path().join("docker.sock");
    assert_eq!(Daemon::at(socket.clone()).err().expect("no socket").code, ErrorCode::BackendUnavailable);
    drop(UnixListener::bind(&socket).expect("a socket"));
    let error = Daemon::at(socket).err().expect("no daemon listens");
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(error.message.contains("no process listens"), "{error}");
}

#[test]
fn a_socket_that_is_no_daemons_is_an_error_and_no_wait() {
    let place = tempfile::tempdir().expect("a folder");
    let socket = place.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let closing = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(listener.accept());
        }
    });
    assert_eq!(Daemon::at(socket).err().expect("no daemon").code, ErrorCode::StartFailed);
    closing.join().expect("closed");
}

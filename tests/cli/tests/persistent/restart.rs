//! The daemon is killed: a client that follows a command does not notice.

use crate::persistent::home::Home;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

const COUNT: &str = "for i in $(seq 40); do echo $i; sleep 0.05; done; exit 5";

fn all() -> String {
    (1..=40).map(|number| format!("{number}\n")).collect()
}

#[test]
fn a_command_in_the_foreground_continues_when_the_daemon_is_killed() {
    let home = Home::ready();
    let mut child = home.command(&["exec", "--", "sh", "-c", COUNT]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    reader.read_line(&mut seen).unwrap();
    home.kill_daemon();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, all());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_log_is_followed_over_the_death_of_the_daemon() {
    let home = Home::ready();
    home.run(&["exec", "-d", "--", "sh", "-c", COUNT]);
    let mut child = home.command(&["logs", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    reader.read_line(&mut seen).unwrap();
    home.kill_daemon();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, all());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn two_that_need_a_daemon_at_once_get_one() {
    let home = Home::ready();
    let children: Vec<_> = (0..4)
        .map(|_| {
            home.command(&["exec", "--", "cat", "/.belljar"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let markers: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert!(markers.windows(2).all(|pair| pair[0] == pair[1]), "{markers:?}");
}

/// The daemon that knew of it is gone, and the name must not be lost.
#[test]
fn a_sandbox_that_was_being_made_when_the_daemon_was_killed_can_be_made_anew() {
    let home = Home::ready();
    let has_daemon = || assert_eq!(home.run(&["list"]).code, 0, "a daemon is started");
    has_daemon();
    // A registry that never answers: making the sandbox takes until its timeout.
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("oci:{}/x:1", registry.local_addr().unwrap());
    let body = |rootfs: &str| format!(r#"{{"key":"half","sandbox":{{"rootfs":"{rootfs}"}}}}"#);
    let ask = |body: String| {
        let mut daemon = UnixStream::connect(home.path("run/belljar/daemon.sock")).unwrap();
        let length = body.len();
        write!(
            daemon,
            "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        daemon
    };
    let requested = ask(body(&image));
    // The shim is in the middle of it.
    let (_connection, _) = registry.accept().unwrap();
    home.kill_daemon();
    drop(requested);
    has_daemon();
    let mut answer = String::new();
    ask(body("host")).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 200"), "{answer}");
}

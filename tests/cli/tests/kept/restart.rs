//! The daemon is killed: whoever looks at a command does not notice.

use crate::home::Home;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

const COUNT: &str = "for i in $(seq 40); do echo $i; sleep 0.05; done; exit 5";

fn all() -> String {
    (1..=40).map(|number| format!("{number}\n")).collect()
}

#[test]
fn a_command_in_the_foreground_goes_on_when_the_daemon_is_killed() {
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

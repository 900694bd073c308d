//! Readers that do not read: a run comes to its end without them, and ctrl-C counts.

use crate::agent::home::{Home, answer};
use belljar_sys::rustix::pipe::fcntl_getpipe_size;
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{PipeReader, Write, pipe};
use std::process::Stdio;
use std::time::Duration;

/// A pipe that takes nothing more.
fn full() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().unwrap();
    let size = fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'x'; size]).unwrap();
    (reader, Stdio::from(writer))
}

#[test]
fn an_answer_comes_though_the_account_is_unread() {
    let home = Home::new();
    home.program("mine", &answer("done"));
    let url = home.model.url();
    let (_reader, stderr) = full();
    let words = home.agent(&url, "./mine", &["--prompt", "x"]);
    let child = home.command(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"done\n"[..]));
    assert_eq!(home.result()["success"], true);
}

#[test]
fn ctrl_c_counts_while_the_output_is_unread() {
    let home = Home::new();
    home.program("mine", &answer("done"));
    let url = home.model.url();
    let words = home.agent(&url, "./mine", &["--prompt", "x", "--json"]);
    // belljar waits until the reader takes its result, or until Ctrl-C.
    let (_reader, stdout) = full();
    let mut child = home.command(&words).stdin(Stdio::null()).stdout(stdout).spawn().unwrap();
    let runs = home.path("state/belljar/runs");
    let is_over = || {
        let mut runs = fs::read_dir(&runs).into_iter().flatten().flatten();
        runs.any(|run| run.path().join("result.json").exists())
    };
    while !is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The first may still be taken for one that stops the work.
    while child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

//! An agent's own interface, at a real terminal: everything is set up, so that a first prompt is done without a question.

use belljar_sys::terminal::{Pair, open_pair};
use belljar_tests_agents::{Job, KEY, eventually, for_agents, of_run};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

for_agents! {
    an_agents_own_interface_does_a_first_prompt: claude codex pi;
}

fn an_agents_own_interface_does_a_first_prompt(agent: &str) {
    let job = Job::new(agent, "hello");
    let Pair { controller, terminal } = open_pair(40, 120).unwrap();
    let mut command = job.command("shell");
    let end = || Stdio::from(terminal.try_clone().unwrap());
    command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    // Ours are closed, so that the terminal ends with the agent.
    drop((command, terminal));
    let shown = Arc::new(Mutex::new(Vec::new()));
    let (mut from, mut keys, into) =
        (File::from(controller.try_clone().unwrap()), File::from(controller), shown.clone());
    let reading = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..length]);
        }
    });
    let text = || String::from_utf8_lossy(&shown.lock().unwrap()).into_owned();
    let start = Instant::now();
    while job.file("hello.txt").is_none_or(|text| text.is_empty()) && start.elapsed() < WAIT_TIMEOUT {
        assert!(child.try_wait().unwrap().is_none(), "it ended: {}", text());
        thread::sleep(Duration::from_millis(20));
    }
    let file = job.file("hello.txt");
    // Keys that end one or another of them, until it ends: some want ctrl-C twice, and soon.
    let mut ended = false;
    for (key, pause) in [(b"\x03", 300), (b"\x03", 300), (b"\x04", 3000)].into_iter().cycle().take(18) {
        if !ended {
            let _ = keys.write_all(key);
            ended = eventually_within(Duration::from_millis(pause), || child.try_wait().unwrap().is_some());
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let _ = reading.join();
    let text = text();
    assert!(file.is_some_and(|file| !file.is_empty()), "nothing was written: {text:?}");
    assert!(ended, "it does not end: {text:?}");
    assert!(text.contains("belljar: model: ") && !text.contains(KEY), "{text:?}");
    let left = || of_run(&job.mark(), None);
    assert!(eventually(|| left().is_empty()), "{:?}", left());
}

fn eventually_within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    while !is_so() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    is_so()
}

/// The slowest agent on the busiest machine is there by then.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

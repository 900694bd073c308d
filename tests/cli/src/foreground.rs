//! A belljar in the foreground, as a shell has it: something is piped to it, and it is sent signals.

use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is piped to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piped {
    Nothing,
    /// More than anybody takes.
    Everything,
}

/// A belljar that runs something.
pub struct Foreground {
    child: Child,
    stdout: BufReader<ChildStdout>,
    _stdin: Option<ChildStdin>,
}

impl Foreground {
    /// Starts it, until what it runs says `ready` and nothing more goes in.
    pub fn start(mut command: Command, piped: Piped) -> Foreground {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.expect("belljar starts");
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line can be read");
        assert_eq!(line, "ready\n");
        let stdin = match piped {
            Piped::Nothing => Some(stdin),
            Piped::Everything => {
                fill(stdin);
                None
            }
        };
        Foreground { child, stdout, _stdin: stdin }
    }

    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("one that has ended is still ours");
    }

    /// The same, until it ends. Two that come at once are one, so there is time between them.
    pub fn send_until_it_ends(&mut self, signal: Signal) {
        self.send(signal);
        while self.child.try_wait().expect("it is our child").is_none() {
            thread::sleep(Duration::from_millis(100));
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// What it still wrote, and its exit code.
    pub fn ends(mut self) -> (String, Option<i32>) {
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed).expect("it writes text");
        (printed, self.child.wait().expect("it is our child").code())
    }
}

/// Writes for as long as belljar lives; comes back when nothing more is taken.
fn fill(mut stdin: ChildStdin) {
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    thread::spawn(move || {
        while stdin.write_all(&[b'y'; 4096]).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut last = (0, Instant::now());
    while last.0 == 0 || last.1.elapsed() < Duration::from_millis(500) {
        thread::sleep(Duration::from_millis(20));
        let now = written.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

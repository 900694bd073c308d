//! A person at a terminal.

use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_sys::terminal::{Pair, open_pair, set_size};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A person at a terminal of 24 rows and 80 columns, who waits for words and types.
pub struct Person {
    child: Child,
    keys: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
}

/// What was written to the terminal and not read by the test yet.
#[derive(Default)]
struct Shown {
    bytes: Vec<u8>,
    over: bool,
}

impl Person {
    /// Starts this at it.
    pub fn new(mut command: Command) -> Person {
        let Pair { controller, terminal } = open_pair(24, 80).expect("a terminal can be made");
        let end = || Stdio::from(terminal.try_clone().expect("there are descriptors"));
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn();
        let child = child.expect("belljar starts");
        // Ours are closed, so that the terminal ends with the program.
        drop((command, terminal));
        let mut reader = File::from(controller);
        let keys = reader.try_clone().expect("there are descriptors");
        let shown = Arc::new((Mutex::new(Shown::default()), Condvar::new()));
        let reported = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let (seen, news) = &*reported;
            loop {
                let read = reader.read(&mut buffer);
                let mut seen = seen.lock().expect(WHOLE);
                match read {
                    Ok(length @ 1..) => seen.bytes.extend_from_slice(&buffer[..length]),
                    _ => seen.over = true,
                }
                news.notify_all();
                if seen.over {
                    return;
                }
            }
        });
        Person { child, keys, shown }
    }

    pub fn types(&mut self, keys: &str) -> &mut Person {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self
    }

    pub fn resizes(&mut self, rows: u16, cols: u16) -> &mut Person {
        set_size(&self.keys, rows, cols).expect("the terminal is there");
        // The kernel signals no process here, because this is no session's controlling terminal.
        kill_process(Pid::from_child(&self.child), Signal::WINCH).expect("it is our child");
        self
    }

    /// Waits until this was shown, and forgets what was shown up to there.
    pub fn sees(&mut self, words: &str) -> &mut Person {
        let (seen, news) = &*self.shown;
        let mut seen = seen.lock().expect(WHOLE);
        loop {
            let found = seen.bytes.windows(words.len()).position(|window| window == words.as_bytes());
            if let Some(at) = found {
                seen.bytes.drain(..at + words.len());
                drop(seen);
                return self;
            }
            assert!(
                !seen.over,
                "it ended and never said {words:?}: {}",
                String::from_utf8_lossy(&seen.bytes)
            );
            let (next, timeout) = news.wait_timeout(seen, WAIT_TIMEOUT).expect(WHOLE);
            seen = next;
            assert!(
                !timeout.timed_out(),
                "it never said {words:?}: {}",
                String::from_utf8_lossy(&seen.bytes)
            );
        }
    }

    /// Its exit code, and all that was shown since.
    pub fn ends(&mut self) -> (i32, String) {
        let code = self.child.wait().expect("it is our child").code().unwrap_or(-1);
        let (seen, news) = &*self.shown;
        let seen = news.wait_while(seen.lock().expect(WHOLE), |seen| !seen.over).expect(WHOLE);
        (code, String::from_utf8_lossy(&seen.bytes).into_owned())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // One whose end was waited for has none.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing that is waited for here takes that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const WHOLE: &str = "no thread panics while holding it";

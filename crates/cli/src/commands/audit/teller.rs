//! How far the reading of all logs is.

use belljar_audit::Progress;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub(super) fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Shows progress to a person who waits.
pub(super) struct Teller {
    start: Instant,
    last: Option<Instant>,
    watched: bool,
}

impl Teller {
    pub(super) fn new() -> Teller {
        Teller { start: Instant::now(), last: None, watched: std::io::stderr().is_terminal() }
    }

    pub(super) fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let due = self.last.map_or(self.start + FIRST_WORD_DELAY, |last| last + BETWEEN_WORDS);
        if self.watched && now >= due {
            self.last = Some(now);
            eprint!("\rverifying log {} of {}", progress.done + 1, progress.logs);
        }
    }

    pub(super) fn finish(&self) {
        if self.last.is_some() {
            // To the beginning of the line, and the rest of it away.
            eprint!("\r\x1b[K");
        }
    }
}

/// What takes less is not worth a word.
const FIRST_WORD_DELAY: Duration = Duration::from_millis(500);
const BETWEEN_WORDS: Duration = Duration::from_millis(100);

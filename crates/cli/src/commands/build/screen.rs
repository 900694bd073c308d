//! What a person sees of a build in progress, on standard error: a line for each step; at a terminal, below them one line
//! that changes.

use belljar_image_build::Event;
use belljar_overlay::quote::visible;
use belljar_spec::ByteSize;
use belljar_sys::rustix::stdio::stderr;
use belljar_sys::rustix::termios::isatty;
use belljar_sys::terminal;
use std::io::Write;
use std::time::{Duration, Instant};

/// Where a build is shown.
pub(super) struct Screen {
    form: Form,
    /// The line that changes is there.
    status: bool,
    /// When it was last drawn, and what the last plain line about it was.
    drawn: Option<Instant>,
    announced: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A program waits for the end.
    Silent,
    Plain,
    Terminal,
}

impl Screen {
    pub(super) fn new(as_json: bool) -> Screen {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let form = match (as_json, isatty(stderr()) && !is_dumb) {
            (true, _) => Form::Silent,
            (false, true) => Form::Terminal,
            (false, false) => Form::Plain,
        };
        Screen { form, status: false, drawn: None, announced: String::new() }
    }

    /// A line of our own.
    pub(super) fn say(&mut self, text: &str) {
        self.line(&format!("belljar: {}", visible(text.as_bytes())));
    }

    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Step { number, of, instruction } => {
                let width = of.to_string().len();
                self.line(&format!("[{number:>width$}/{of}] {}", short(instruction)));
            }
            Event::Cached { .. } => self.line(&format!("{:8}done before", "")),
            Event::Output { line } => self.change(line),
            Event::Sent { bytes, of } => {
                let (bytes, of) = (ByteSize::bytes(*bytes), ByteSize::bytes(*of));
                self.change(&format!("sent {bytes} of {of}"));
            }
            Event::Pulling { image, status } => {
                let beginning = format!("pulling {image}");
                if self.announced != beginning {
                    self.say(&beginning);
                    self.announced = beginning;
                }
                self.change(status);
            }
            Event::Warning { .. } => {}
        }
    }

    /// Removes the line that changes.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.status) {
            put(&format!("\r{REST_OF_LINE}"));
        }
    }

    fn line(&mut self, text: &str) {
        self.clear();
        match self.form {
            Form::Silent => {}
            Form::Plain => put(&format!("{text}\n")),
            Form::Terminal => put(&format!("{}\n", fitting(text))),
        }
    }

    /// Shows what the build does now; a terminal only.
    fn change(&mut self, text: &str) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= BETWEEN);
        if self.form != Form::Terminal || text.trim().is_empty() || !is_due {
            return;
        }
        self.drawn = Some(Instant::now());
        self.status = true;
        let text = visible(text.trim().as_bytes());
        put(&format!("\r{}{REST_OF_LINE}", fitting(&format!("        {text}"))));
    }
}

/// The beginning of an instruction: scripts are long.
pub(super) fn short(instruction: &str) -> String {
    let words = instruction.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&visible(words.as_bytes()), MAX_INSTRUCTION_BYTES)
}

fn fitting(text: &str) -> String {
    let columns = terminal::size(stderr()).map_or(80, |(_, columns)| usize::from(columns));
    // The last column is left free: some terminals go to the next line with it.
    cut(text, columns.max(20) - 1)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_string(),
    }
}

/// A terminal that went away misses nothing.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

const REST_OF_LINE: &str = "\x1b[K";
const MAX_INSTRUCTION_BYTES: usize = 120;
/// A person does not see more frequent changes.
const BETWEEN: Duration = Duration::from_millis(50);

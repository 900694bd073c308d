//! What a person sees of a run in progress, on standard error: a line for each step and each call of a tool; at a terminal,
//! below them one line that changes.
//!
//! A thread of its own writes: a terminal that was stopped, or a slow reader, holds up neither the run nor ctrl-C.

use super::sentence::{Detail, Sentence, Tone, cut, of, step_name, visible, wants_colours};
use crate::commands::model::counted;
use belljar_agent::entry::{Block, Entry, Line, StepState, System};
use belljar_sys::rustix::stdio::stderr;
use belljar_sys::rustix::termios::isatty;
use belljar_sys::terminal;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Where lines of a run go, as they are written.
pub(super) struct Screen {
    out: Sender<Vec<u8>>,
    form: Form,
    /// The line that changes is there.
    status: bool,
    since: Instant,
    doing: String,
    tools: u64,
    /// The last thing that the model said: the answer, unless something follows.
    held: Option<Sentence>,
    /// The run whose lines these are.
    run: String,
    /// The caller that waits for the answer prints it.
    answer_follows: bool,
}

/// For whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A program: every line as it stands in the log.
    Raw,
    /// A person, whatever it is that they read with.
    Plain,
    /// A person at a terminal.
    Terminal { colours: bool },
}

/// The thread that writes. It ends when its screen is gone.
pub(super) struct Writing {
    /// Hears of each piece that was written, and of the end.
    progress: Receiver<()>,
    /// How long nothing may be written. What a program asked for is waited for, as ever.
    time_limit: Option<Duration>,
}

impl Writing {
    /// Waits until everything is written. Says whether it was: the reader may have stopped reading.
    pub(super) fn wait(self) -> bool {
        loop {
            let received = match self.time_limit {
                Some(time_limit) => self.progress.recv_timeout(time_limit),
                None => self.progress.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

/// Says something on standard error when all is over; not for ever, if it is not read.
pub(super) fn say_patiently(say: impl FnOnce() + Send + 'static) {
    let (done, progress) = channel();
    std::thread::spawn(move || {
        let _done = done;
        say();
    });
    Writing { progress, time_limit: Some(WRITE_TIMEOUT) }.wait();
}

impl Screen {
    /// For a person, on standard error.
    pub(super) fn for_people() -> (Screen, Writing) {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let form = match isatty(stderr()) && !is_dumb {
            true => Form::Terminal { colours: wants_colours() },
            false => Form::Plain,
        };
        Screen::new(form, Some(WRITE_TIMEOUT), |from, wrote| write_all(from, io::stderr(), wrote))
    }

    /// For a program, on standard output.
    pub(super) fn for_programs() -> (Screen, Writing) {
        Screen::new(Form::Raw, None, |from, wrote| write_all(from, io::stdout(), wrote))
    }

    fn new(
        form: Form,
        time_limit: Option<Duration>,
        write: impl FnOnce(Receiver<Vec<u8>>, Sender<()>) + Send + 'static,
    ) -> (Screen, Writing) {
        let (out, from) = channel();
        let (wrote, progress) = channel();
        std::thread::spawn(move || write(from, wrote));
        let writing = Writing { progress, time_limit };
        let screen = Screen {
            out,
            form,
            status: false,
            since: Instant::now(),
            doing: String::new(),
            tools: 0,
            held: None,
            run: String::new(),
            answer_follows: true,
        };
        (screen, writing)
    }

    /// A line of the log, and how it stands there.
    pub(super) fn line(&mut self, line: &Line, text: &str) {
        if self.form == Form::Raw {
            self.put(format!("{text}\n"));
            return;
        }
        if self.run != line.session_id {
            self.begin(line);
        }
        self.note(line);
        if let Entry::Result(summary) = &line.entry
            && self.answer_follows
        {
            let answer = visible(&summary.result, usize::MAX);
            self.held = self.held.take().filter(|held| !is_beginning(&held.lines, &answer));
        }
        for sentence in of(line, Detail::Live) {
            // Steps that end come between the last words and the result.
            if sentence.word != "step" {
                self.say_held();
            }
            match sentence.word {
                "says" => self.held = Some(sentence),
                _ => self.say(&sentence),
            }
        }
        if let Entry::Result(_) = &line.entry {
            self.say_held();
            self.clear();
        }
        self.tick();
    }

    /// The next run's answer is one among several, and is not printed.
    pub(super) fn expect_answer(&mut self, follows: bool) {
        self.answer_follows = follows;
    }

    /// Something that belljar says meanwhile; one line.
    pub(super) fn announce(&mut self, text: &str) {
        if self.form == Form::Raw {
            return;
        }
        self.clear();
        self.put(format!("belljar: {text}\n"));
    }

    /// A line of ours for a program that reads.
    pub(super) fn object(&mut self, value: &serde_json::Value) {
        if self.form == Form::Raw {
            self.put(format!("{value}\n"));
        }
    }

    /// Shows the current step, where there is a line that changes.
    pub(super) fn tick(&mut self) {
        let Form::Terminal { colours } = self.form else { return };
        if self.doing.is_empty() {
            return;
        }
        let mut text = format!("  {}", self.doing);
        let whole_seconds = self.since.elapsed().as_secs();
        if whole_seconds > 0 {
            text.push_str(&format!(", {}", clock(whole_seconds)));
        }
        if self.tools > 0 {
            text.push_str(&format!(", {}", counted(self.tools, "tool call")));
        }
        let text = fitting(&text, columns());
        self.put(format!("\r{}{REST_OF_LINE}", Tone::Quiet.paint(&text, colours)));
        self.status = true;
    }

    /// Removes the line that changes.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.status) {
            self.put(format!("\r{REST_OF_LINE}"));
        }
    }

    /// The first line of a run.
    fn begin(&mut self, line: &Line) {
        self.run.clone_from(&line.session_id);
        (self.since, self.tools, self.held) = (Instant::now(), 0, None);
        self.announce(&format!("run {}", visible(&line.session_id, 1).concat()));
    }

    /// Notes the current step and the number of tool calls.
    fn note(&mut self, line: &Line) {
        match &line.entry {
            Entry::System(System::Step { step, state: StepState::Started, .. }) => {
                self.doing = step_name(*step).to_string();
            }
            Entry::Assistant(assistant) => {
                let blocks = assistant.message.iter().flat_map(|message| &message.content);
                self.tools += blocks.filter(|block| matches!(block, Block::ToolUse { .. })).count() as u64;
            }
            Entry::Result(_) => self.doing.clear(),
            Entry::System(_) | Entry::User { .. } => {}
        }
    }

    fn say_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.say(&held);
        }
    }

    fn say(&mut self, sentence: &Sentence) {
        self.clear();
        // Prose is for reading, and wraps into the next line of the terminal.
        let is_prose = matches!(sentence.word, "says" | "error" | "warning");
        let (colours, width) = match self.form {
            Form::Terminal { colours } if is_prose => (colours, usize::MAX),
            Form::Terminal { colours } => (colours, columns()),
            Form::Plain | Form::Raw => (false, usize::MAX),
        };
        let mut word = sentence.word;
        for line in &sentence.lines {
            let text = fitting(&format!("  {word:<8}  {line}"), width);
            self.put(format!("{}\n", sentence.tone.paint(text.trim_end(), colours)));
            word = "";
        }
    }

    fn put(&self, text: String) {
        // A writer that is gone has a reader that is gone.
        let _ = self.out.send(text.into_bytes());
    }
}

/// Whether what was shown is all that a person has to see of the answer: the same, or its first lines.
fn is_beginning(shown: &[String], answer: &[String]) -> bool {
    let same = shown.iter().zip(answer).take_while(|(shown, answer)| shown == answer).count();
    same == shown.len() || (same > 0 && same + 1 == shown.len() && answer.len() > same)
}

fn write_all(from: Receiver<Vec<u8>>, mut to: impl Write, wrote: Sender<()>) {
    for bytes in from {
        if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
            // The reader is gone. The run continues: it is paid for, and its log is kept.
            return;
        }
        // There may be no waiting thread by now.
        let _ = wrote.send(());
    }
}

/// As much of a line as stays on one. Letters outside of ASCII may be two columns wide.
fn fitting(text: &str, columns: usize) -> String {
    let text = text.replace('\t', "    ");
    let mut room = columns.saturating_sub(1);
    let fits = text.chars().take_while(|letter| {
        let wide = if letter.is_ascii() { 1 } else { 2 };
        let fits = wide <= room;
        room = room.saturating_sub(wide);
        fits
    });
    let count = fits.count();
    if count < text.chars().count() { cut(&text, count) } else { text }
}

/// `9 s`, `12 min 3 s`.
fn clock(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

fn columns() -> usize {
    match terminal::size(stderr()) {
        Ok((_, columns)) if columns > 0 => usize::from(columns),
        _ => 80,
    }
}

/// For a slow reader; one that takes longer does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// ECMA-48, EL: what follows in the line is erased.
const REST_OF_LINE: &str = "\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::mpsc::channel;

    fn shown(form: Form, lines: &[Value]) -> String {
        let (tell, receiver) = channel();
        let (mut screen, writing) = Screen::new(form, None, move |from, _wrote| {
            let _ = tell.send(from.iter().flatten().collect::<Vec<u8>>());
        });
        for value in lines {
            let mut value = value.clone();
            value["timestamp"] = "2026-11-15T06:00:00.000000Z".into();
            value["sessionId"] = "0101010101010101".into();
            let text = value.to_string();
            screen.line(&serde_json::from_value(value).expect("a line"), &text);
        }
        drop(screen);
        assert!(writing.wait());
        String::from_utf8(receiver.recv().expect("a screen")).expect("text")
    }

    fn step(step: &str, state: &str) -> Value {
        json!({"type": "system", "subtype": "step", "step": step, "state": state, "duration_ms": 12})
    }

    fn says(text: &str) -> Value {
        json!({"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}})
    }

    fn calls(command: &str) -> Value {
        let call = json!({"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": command}});
        json!({"type": "assistant", "message": {"role": "assistant", "content": [call]}})
    }

    fn result(text: &str) -> Value {
        json!({"type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
            "total_cost_usd": null, "total_input_tokens": 0, "total_output_tokens": 0,
            "total_cache_read_input_tokens": 0, "total_cache_creation_input_tokens": 0, "duration_ms": 1, "claims": {}})
    }

    #[test]
    fn each_step_and_each_call_is_a_line_and_the_answer_is_not_said_twice() {
        let lines = [
            step("sandbox", "started"),
            step("sandbox", "done"),
            step("agent", "started"),
            says("I look."),
            calls("ls"),
            says("It is done.\nReally."),
            step("agent", "done"),
            step("teardown", "done"),
            result("It is done.\nReally."),
        ];
        assert_eq!(
            shown(Form::Plain, &lines),
            "belljar: run 0101010101010101\n  step      sandbox, 12 ms\n  step      agent\n  says      I look.\n  tool      Bash: ls\n  step      teardown, 12 ms\n"
        );
        let other = [says("I stop here."), result("")];
        assert!(shown(Form::Plain, &other).ends_with("1\n  says      I stop here.\n"));
        let long: String = (0..50).map(|number| format!("{number}\n")).collect();
        assert_eq!(shown(Form::Plain, &[says(&long), result(&long)]), "belljar: run 0101010101010101\n");
    }

    #[test]
    fn a_line_that_changes_is_gone_at_the_end() {
        let text =
            shown(Form::Terminal { colours: false }, &[step("agent", "started"), calls("ls"), result("")]);
        assert!(text.contains("\r  agent\x1b[K\r\x1b[K  tool      Bash: ls\n"), "{text:?}");
        assert!(text.contains("agent, 1 tool call") && text.ends_with("\r\x1b[K"), "{text:?}");
    }

    #[test]
    fn a_program_gets_the_lines_as_they_are() {
        let text = shown(Form::Raw, &[says("\u{1b}[2J"), result("x")]);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((lines.len(), &lines[1]["type"]), (2, &json!("result")));
    }

    #[test]
    fn a_reader_that_does_not_read_is_not_waited_for_for_ever() {
        let (resume, held) = channel::<()>();
        let time_limit = Some(Duration::from_millis(10));
        let (mut screen, writing) = Screen::new(Form::Plain, time_limit, move |from, wrote| {
            let _ = held.recv();
            write_all(from, io::sink(), wrote);
        });
        screen.announce("x");
        drop(screen);
        assert!(!writing.wait());
        drop(resume);
    }

    #[test]
    fn a_line_stays_on_its_line() {
        for (text, columns, expected) in [
            ("abc", 4, "abc"),
            ("abcd", 4, "ab…"),
            ("日本語", 7, "日本語"),
            ("日本語", 6, "日…"),
            ("a\tb", 80, "a    b"),
        ] {
            assert_eq!(fitting(text, columns), expected);
        }
    }
}

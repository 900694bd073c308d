//! `belljar agent logs`: what a run said and did, while it does or afterwards.

use super::super::audit::{moment, printable};
use super::sentence::{Detail, Tone, of, wants_colours};
use super::state;
use crate::args::AgentLogsArgs;
use belljar_agent::entry::{Entry, Line};
use belljar_agent::read::{self, Followed, Found, Reader, Run};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdout;
use belljar_sys::rustix::termios::isatty;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;

pub(super) fn logs(options: &AgentLogsArgs) -> Result<u8, SandboxError> {
    let run = read::find(&state()?, options.run.as_deref())?;
    let mut printer = Printer {
        out: BufWriter::new(io::stdout().lock()),
        raw: options.json,
        colours: isatty(stdout()) && wants_colours(),
        failure: None,
        has_result: false,
    };
    if !options.json && printer.line(&format!("run {}\n", run.id)).is_break() {
        return printer.end();
    }
    match options.follow {
        true => follow(&run, &mut printer)?,
        false => show(&run, &mut printer)?,
    }
    printer.end()
}

fn show(run: &Run, printer: &mut Printer<'_>) -> Result<(), SandboxError> {
    let is_live = run.is_live();
    let mut reader = Reader::open(&run.log)?;
    while let Some(found) = reader.next_line()? {
        if printer.show(found).is_break() {
            return Ok(());
        }
    }
    if printer.has_result {
        return Ok(());
    }
    match is_live {
        true => eprintln!("belljar: it still runs; `belljar agent logs -f {}` follows it", run.id),
        false => {
            if let Some(rest) = reader.rest() {
                let _ = printer.show(rest);
            }
            say_dead();
        }
    }
    Ok(())
}

fn follow(run: &Run, printer: &mut Printer<'_>) -> Result<(), SandboxError> {
    let mut each = |found| {
        let flow = printer.show(found);
        if flow.is_continue() { printer.flush() } else { flow }
    };
    match read::follow(&run.log, &mut each)? {
        Followed::Ended | Followed::Left => {}
        Followed::Dead => say_dead(),
    }
    Ok(())
}

fn say_dead() {
    eprintln!("belljar: there is no result: belljar was killed while the agent ran");
}

/// What is printed, for people or for programs.
struct Printer<'p> {
    out: BufWriter<io::StdoutLock<'p>>,
    raw: bool,
    colours: bool,
    failure: Option<io::Error>,
    has_result: bool,
}

impl Printer<'_> {
    fn show(&mut self, found: Found) -> ControlFlow<()> {
        match found {
            Found::Line { line, text } => {
                self.has_result |= matches!(line.entry, Entry::Result(_));
                let text = if self.raw { format!("{text}\n") } else { self.sentences(&line) };
                self.line(&text)
            }
            Found::Skipped { number, why } => {
                eprintln!("belljar: line {number} of the log is passed over: {}", printable(&why));
                ControlFlow::Continue(())
            }
        }
    }

    fn sentences(&self, line: &Line) -> String {
        let time: String = moment(&line.timestamp).chars().skip(11).collect();
        let time = printable(&time);
        let mut text = String::new();
        for sentence in of(line, Detail::Log) {
            let (mut time, mut word) = (time.as_str(), sentence.word);
            for line in &sentence.lines {
                let head = Tone::Quiet.paint(&format!("{time:<12}  {word:<8}"), self.colours);
                let line = format!("{head}  {}", sentence.tone.paint(line, self.colours));
                text.push_str(line.trim_end());
                text.push('\n');
                (time, word) = ("", "");
            }
        }
        text
    }

    fn line(&mut self, text: &str) -> ControlFlow<()> {
        let outcome = self.out.write_all(text.as_bytes());
        self.went(outcome)
    }

    fn flush(&mut self) -> ControlFlow<()> {
        let outcome = self.out.flush();
        self.went(outcome)
    }

    fn went(&mut self, outcome: io::Result<()>) -> ControlFlow<()> {
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// A reader that went away, as `head` does, has what it wanted.
    fn end(mut self) -> Result<u8, SandboxError> {
        let outcome = match self.failure.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        };
        match outcome {
            Ok(()) => Ok(0),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
            Err(error) => {
                Err(ErrorCode::StreamFailed.error(format!("cannot write: {error}")).caused_by(error))
            }
        }
    }
}

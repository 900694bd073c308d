//! `belljar audit`: what was decided for a sandbox, and whether it still says so.

mod export;
mod list;
mod prune;
mod sentence;
mod teller;
mod verify;

pub(super) use sentence::{moment, printable};

use crate::args::{AuditArgs, AuditCommand, AuditShowArgs, AuditTailArgs};
use belljar_audit::{AuditError, Event, LogFile, Reader, Record};
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::VecDeque;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

pub(crate) fn audit(options: AuditArgs) -> Result<u8, SandboxError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = match options.command {
        None => list::list(&mut out, options.all, options.json),
        Some(AuditCommand::Tail(options)) => tail(&mut out, &options),
        Some(AuditCommand::Show(options)) => show(&mut out, &options),
        Some(AuditCommand::Export(options)) => export::export(&mut out, &options),
        Some(AuditCommand::Verify(options)) => verify::verify(&mut out, &options),
        Some(AuditCommand::Prune(options)) => prune::prune(&mut out, &options),
        Some(AuditCommand::Spend(options)) => return super::llm::spend(&options),
    };
    match outcome.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => Ok(code),
        Err(Stop::ReaderGone) => Ok(0),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The log of a sandbox: by its id or the beginning of it; by the name of one that is kept, or by a folder, the newest.
fn find(named: Option<&str>) -> Result<LogFile, Stop> {
    let directory = belljar_audit::directory()?;
    let Some(word) = named.filter(|word| !is_id(word)) else {
        return Ok(belljar_audit::find(&directory, named)?);
    };
    let folder = std::fs::canonicalize(word).ok();
    for log in belljar_audit::list(&directory)? {
        let Ok(Some(first)) = Reader::open(&log.path).and_then(|mut reader| reader.next_record()) else {
            continue;
        };
        if let Some(Event::SandboxStarted { folder: of, name, .. }) = first.event.known() {
            let is_named = name.as_ref().is_some_and(|name| name == word || name.starts_with(word));
            let is_folder =
                of.as_ref().zip(folder.as_ref()).is_some_and(|(of, folder)| Path::new(of) == folder);
            if is_named || is_folder {
                return Ok(log);
            }
        }
    }
    let message = format!("no audit log is of `{}`", word.escape_debug());
    Err(Stop::Failed(
        ErrorCode::NameUnknown
            .error(message)
            .hint("name a folder, a sandbox, or the beginning of an id; `belljar audit --all` lists them"),
    ))
}

fn is_id(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit()) && !Path::new(word).is_dir()
}

fn show(out: &mut impl Write, options: &AuditShowArgs) -> Result<u8, Stop> {
    let log = find(options.sandbox.as_deref())?;
    let form = Form::new(options.json);
    form.begin(out, &log)?;
    let live = log.is_live();
    let mut reader = Reader::open(&log.path)?;
    while let Some(record) = reader.next_record()? {
        form.record(out, &record)?;
    }
    if !live {
        say_torn(&reader);
    }
    Ok(0)
}

fn tail(out: &mut impl Write, options: &AuditTailArgs) -> Result<u8, Stop> {
    let log = find(options.sandbox.as_deref())?;
    let form = Form::new(options.json);
    form.begin(out, &log)?;
    let mut reader = Reader::open(&log.path)?;
    let mut last = VecDeque::new();
    let mut ended = false;
    while let Some(record) = reader.next_record()? {
        ended |= record.event.is_end();
        last.push_back(record);
        if last.len() > options.lines {
            last.pop_front();
        }
    }
    last.iter().try_for_each(|record| form.record(out, record))?;
    while options.follow && !ended {
        out.flush()?;
        // Asked first: what was written before it died is read below.
        let live = log.is_live();
        while let Some(record) = reader.next_record()? {
            ended |= record.event.is_end();
            form.record(out, &record)?;
        }
        if !live {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    if !log.is_live() {
        say_torn(&reader);
    }
    Ok(0)
}

fn say_torn(reader: &Reader) {
    if reader.torn() > 0 {
        eprintln!(
            "belljar: the last line is not whole ({} bytes): belljar was killed while it wrote it",
            reader.torn()
        );
    }
}

/// For people or for programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    People,
    Raw,
}

impl Form {
    fn new(json: bool) -> Form {
        if json { Form::Raw } else { Form::People }
    }

    fn begin(self, out: &mut impl Write, log: &LogFile) -> Result<(), Stop> {
        match self {
            Form::People => writeln!(out, "sandbox {}", log.sandbox)?,
            Form::Raw => {}
        }
        Ok(())
    }

    fn record(self, out: &mut impl Write, record: &Record) -> Result<(), Stop> {
        match self {
            Form::People => out.write_all(sentence::of(record).as_bytes())?,
            Form::Raw => writeln!(out, "{}", record.raw)?,
        }
        Ok(())
    }
}

/// Why there is no more output.
enum Stop {
    /// The reader is gone, as with `| head`.
    ReaderGone,
    Failed(SandboxError),
}

impl From<AuditError> for Stop {
    fn from(error: AuditError) -> Stop {
        Stop::Failed(error.into())
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        match error.kind() {
            ErrorKind::BrokenPipe => Stop::ReaderGone,
            _ => Stop::Failed(ErrorCode::StreamFailed.error(format!("cannot write: {error}"))),
        }
    }
}

impl From<serde_json::Error> for Stop {
    fn from(error: serde_json::Error) -> Stop {
        Stop::from(io::Error::from(error))
    }
}

/// Soon enough for a person who watches.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

//! Reads logs: their list, and their records in order. The content is shown without checks; `verify` does those.

use crate::{AuditError, Event, log_path};
use belljar_spec::SandboxId;
use belljar_state::is_written_to;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A log in the directory.
#[derive(Debug, Clone)]
pub struct LogFile {
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// Its path.
    pub path: PathBuf,
    /// When it was created; if the filesystem does not record that, when it was last modified.
    pub created: SystemTime,
}

impl LogFile {
    /// Whether the sandbox still lives.
    pub fn is_live(&self) -> bool {
        File::open(&self.path).is_ok_and(|file| is_written_to(&file))
    }
}

/// All logs, newest first.
pub fn list(directory: &Path) -> Result<Vec<LogFile>, AuditError> {
    let failed = |source| AuditError::Read { path: directory.into(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut logs = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let Some(sandbox) = log_path::sandbox_of(&path) else { continue };
        let found = fs::metadata(&path).and_then(|found| found.created().or_else(|_| found.modified()));
        logs.push(LogFile { sandbox, path, created: found.unwrap_or(SystemTime::UNIX_EPOCH) });
    }
    logs.sort_by_key(|log| (std::cmp::Reverse(log.created), log.sandbox));
    Ok(logs)
}

/// The log of the sandbox whose id starts like this; without an id, the newest.
pub fn find(directory: &Path, sandbox: Option<&str>) -> Result<LogFile, AuditError> {
    let mut logs = list(directory)?.into_iter();
    let Some(start) = sandbox else {
        return logs.next().ok_or_else(|| AuditError::NoLogs(directory.into()));
    };
    let mut matching = logs.filter(|log| log.sandbox.to_string().starts_with(start));
    match (matching.next(), matching.next()) {
        (Some(log), None) => Ok(log),
        (Some(_), Some(_)) => Err(AuditError::Ambiguous(start.into())),
        (None, _) => Err(AuditError::NoSuchLog(start.into())),
    }
}

/// One line of a log.
#[derive(Debug, Clone)]
pub struct Record {
    /// Counted from one.
    pub line: u64,
    /// The text of the line; invalid UTF-8 is replaced.
    pub raw: String,
    /// When it was written, if it is a record.
    pub time: Option<String>,
    /// The event.
    pub event: Logged,
}

/// An event from a log, which another version of belljar may have written, or even another program.
#[derive(Debug, Clone)]
pub enum Logged {
    /// An event of this version.
    Known(Box<Event>),
    /// Any other; null if the line is no record.
    Other(serde_json::Value),
}

impl Logged {
    /// The event, if this version knows it.
    pub fn known(&self) -> Option<&Event> {
        match self {
            Logged::Known(event) => Some(event),
            Logged::Other(_) => None,
        }
    }

    /// The name of an event that this version does not know.
    pub fn other_kind(&self) -> Option<&str> {
        match self {
            Logged::Known(_) => None,
            Logged::Other(event) => event["kind"].as_str(),
        }
    }

    /// Whether it is a log's last event.
    pub fn is_end(&self) -> bool {
        matches!(self.known(), Some(Event::SandboxEnded {}))
    }
}

impl Record {
    /// The event as it was written, known to this version or not.
    pub fn written(&self) -> serde_json::Value {
        serde_json::from_str(&self.raw).map(|parts: Parts| parts.event).unwrap_or_default()
    }
}

/// The records of a log, one after the other.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    line: u64,
    /// The part of an incomplete line that was read.
    part: Vec<u8>,
}

impl Reader {
    /// Starts at the first record.
    pub fn open(path: &Path) -> Result<Reader, AuditError> {
        let file = File::open(path).map_err(|source| AuditError::Open { path: path.into(), source })?;
        Ok(Reader { file: BufReader::new(file), path: path.into(), line: 0, part: Vec::new() })
    }

    /// The next record; `None` if there is no complete one yet.
    pub fn next_record(&mut self) -> Result<Option<Record>, AuditError> {
        let failed = |source| AuditError::Read { path: self.path.clone(), source };
        self.file.read_until(b'\n', &mut self.part).map_err(failed)?;
        let Some(line) = self.part.strip_suffix(b"\n") else {
            return Ok(None);
        };
        self.line += 1;
        let parts: Option<Parts> = serde_json::from_slice(line).ok();
        let (time, event) = parts.map(|parts| (parts.time, parts.event)).unzip();
        let event = event.unwrap_or_default();
        let event =
            Event::deserialize(&event).map_or(Logged::Other(event), |event| Logged::Known(Box::new(event)));
        let raw = String::from_utf8_lossy(line).into_owned();
        self.part.clear();
        Ok(Some(Record { line: self.line, raw, time, event }))
    }

    /// The length of an unfinished line after the last record.
    pub fn torn(&self) -> usize {
        self.part.len()
    }
}

#[derive(Deserialize)]
struct Parts {
    time: String,
    event: serde_json::Value,
}

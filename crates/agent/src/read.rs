//! Logs of runs, as a reader sees them: which there are, their lines in order, and whether more will come.
//!
//! What a log says is shown, not judged. A line that makes no sense is passed over, and that is said.

use crate::entry::{Entry, Line, System};
use crate::log::FILE;
use crate::stop::StopReason;
use belljar_spec::{CommandLine, ErrorCode, Hint, SandboxError, SandboxId, hint};
use belljar_state::is_written_to;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where the runs are, below the state directory: one directory each, named by the run's id.
pub fn runs(state: &Path) -> PathBuf {
    state.join("runs")
}

/// Where a run is.
pub fn directory(state: &Path, id: SandboxId) -> PathBuf {
    runs(state).join(id.to_string())
}

/// A run that has a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub id: SandboxId,
    /// Where it is.
    pub directory: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// When the log was made; where the filesystem does not know, when it was last written to.
    pub created: SystemTime,
}

/// What its log says of a run at a glance.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// When its first line was written.
    pub began: Option<String>,
    pub agent: Option<String>,
    pub model: Option<String>,
    pub state: State,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A belljar process is writing its log.
    Running,
    /// It has a result.
    Ended(StopReason),
    /// No process writes its log any more, and there is no result: belljar was killed.
    Dead,
}

/// All runs of a state directory, the newest first.
pub fn list(state: &Path) -> Result<Vec<Run>, ReadError> {
    let folder = runs(state);
    let failed = |source| ReadError::Directory { path: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        let name = directory.file_name().and_then(|name| name.to_str());
        let Some(id) = name.and_then(SandboxId::parse) else { continue };
        let log = directory.join(FILE);
        // One without a log is just being made, or was made in vain.
        let Ok(made) = fs::metadata(&log) else { continue };
        let created = made.created().or_else(|_| made.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        found.push(Run { id, directory, log, created });
    }
    found.sort_by_key(|run| (std::cmp::Reverse(run.created), run.id));
    Ok(found)
}

/// The run whose id starts like this; without one, the newest.
pub fn find(state: &Path, start: Option<&str>) -> Result<Run, ReadError> {
    let mut found = list(state)?.into_iter();
    let Some(start) = start else {
        return found.next().ok_or_else(|| ReadError::NoRuns(runs(state)));
    };
    let mut matching = found.filter(|run| run.id.to_string().starts_with(start));
    match (matching.next(), matching.next()) {
        (Some(run), None) => Ok(run),
        (Some(_), Some(_)) => Err(ReadError::Ambiguous(start.into())),
        (None, _) => Err(ReadError::NoSuchRun(start.into())),
    }
}

impl Run {
    /// Whether a belljar process is writing its log.
    pub fn is_live(&self) -> bool {
        File::open(&self.log).is_ok_and(|file| is_written_to(&file))
    }

    /// What its log says of it, from the first lines and the last one.
    pub fn glance(&self) -> Result<Glance, ReadError> {
        let mut reader = Reader::open(&self.log)?;
        // Asked before the last line is looked for: one that ends in between is not taken for dead.
        let is_live = is_written_to(reader.file.get_ref());
        let (mut began, mut agent, mut model) = (None, None, None);
        for _ in 0..FIRST_LINES {
            let Some(found) = reader.next_line()? else { break };
            let Found::Line { line, .. } = found else { continue };
            began.get_or_insert(line.timestamp);
            if let Entry::System(System::Init { agent: name, model: requested, .. }) = line.entry {
                (agent, model) = (Some(name), requested);
                break;
            }
        }
        let last = reader.last_line()?;
        let state =
            match last.and_then(|line| serde_json::from_slice::<Line>(&line).ok()).map(|line| line.entry) {
                Some(Entry::Result(result)) => State::Ended(result.subtype),
                _ if is_live => State::Running,
                _ => State::Dead,
            };
        Ok(Glance { began, agent, model, state })
    }
}

/// What comes next in a log.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// A line, and how it stands in the file, without its end.
    Line { line: Box<Line>, text: String },
    /// A line that is none: its number, counted from one, and why.
    Skipped { number: u64, why: String },
}

/// The lines of a log, one after the other.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    number: u64,
    /// What has come of a line that is not whole yet.
    part: Vec<u8>,
}

impl Reader {
    /// From its first line.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::Read { path: path.into(), source })?;
        Ok(Reader { path: path.into(), file: BufReader::new(file), number: 0, part: Vec::new() })
    }

    /// The next line; nothing when there is no whole one, for now.
    pub fn next_line(&mut self) -> Result<Option<Found>, ReadError> {
        let read = self.file.read_until(b'\n', &mut self.part);
        read.map_err(|source| ReadError::Read { path: self.path.clone(), source })?;
        if self.part.pop_if(|last| *last == b'\n').is_none() {
            return Ok(None);
        }
        self.number += 1;
        let line = std::mem::take(&mut self.part);
        Ok(Some(self.understand(line)))
    }

    /// The log has no writer any more: the half line at its end, if there is one.
    pub fn rest(&mut self) -> Option<Found> {
        let length = std::mem::take(&mut self.part).len();
        let why = format!("it breaks off after {length} bytes");
        (length > 0).then_some(Found::Skipped { number: self.number + 1, why })
    }

    /// Whether a belljar process is writing to it.
    pub fn is_live(&self) -> bool {
        is_written_to(self.file.get_ref())
    }

    fn understand(&self, line: Vec<u8>) -> Found {
        let why = match String::from_utf8(line) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(line) => return Found::Line { line, text },
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        Found::Skipped { number: self.number, why }
    }

    /// The last whole line, wherever the reader stands. Afterwards it stands somewhere else.
    fn last_line(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let failed = |source| ReadError::Read { path: self.path.clone(), source };
        let file = self.file.get_mut();
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut window = WINDOW;
        loop {
            let from = length.saturating_sub(window);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            file.take(length - from).read_to_end(&mut bytes).map_err(failed)?;
            let mut ends = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
            match (ends.next(), ends.next()) {
                (Some((end, _)), Some((start, _))) => return Ok(Some(bytes[start + 1..end].to_vec())),
                (Some((end, _)), None) if from == 0 => return Ok(Some(bytes[..end].to_vec())),
                _ if from == 0 || window > MAX_WINDOW => return Ok(None),
                // A result holds an answer, which may be long.
                _ => window *= 8,
            }
        }
    }
}

/// Gives each line of a log, and waits for more until there will be none: after the result, or when its writer is gone.
/// `each` may break off. Blocks.
pub fn follow(path: &Path, each: &mut dyn FnMut(Found) -> ControlFlow<()>) -> Result<Followed, ReadError> {
    let mut reader = Reader::open(path)?;
    let mut is_new = true;
    loop {
        // Asked before the lines are read: what is written in between is not missed.
        let is_live = reader.is_live();
        while let Some(found) = reader.next_line()? {
            let is_result =
                matches!(&found, Found::Line { line, .. } if matches!(line.entry, Entry::Result(_)));
            if each(found).is_break() {
                return Ok(Followed::Left);
            }
            if is_result {
                return Ok(Followed::Ended);
            }
        }
        // A log is made, then held: one that is empty may be just about to be.
        let may_begin = is_new && reader.number == 0;
        if !is_live && !may_begin {
            return Ok(match reader.rest().map(&mut *each) {
                Some(ControlFlow::Break(())) => Followed::Left,
                Some(ControlFlow::Continue(())) | None => Followed::Dead,
            });
        }
        is_new = false;
        std::thread::sleep(PAUSE);
    }
}

/// Why following is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The result was the last line.
    Ended,
    /// The log has no writer any more, and there is no result.
    Dead,
    /// `each` broke off.
    Left,
}

/// A log could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot look into the directory of runs {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot read the run's log {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("there is no run `{0}`")]
    NoSuchRun(String),
    #[error("more than one run starts with `{0}`")]
    Ambiguous(String),
    #[error("there are no runs in {}", .0.display())]
    NoRuns(PathBuf),
}

impl ReadError {
    /// What to do next.
    pub fn hint(&self) -> Hint {
        match self {
            ReadError::Directory { path, .. } | ReadError::Read { path, .. } => {
                format!("`ls -ld {}` says whose it is", path.display()).into()
            }
            ReadError::NoSuchRun(_) | ReadError::Ambiguous(_) => {
                hint!("{} lists them", CommandLine::AgentRuns)
            }
            ReadError::NoRuns(_) => hint!("{} makes one", CommandLine::AgentRun),
        }
    }
}

impl From<ReadError> for SandboxError {
    fn from(error: ReadError) -> SandboxError {
        let code = match &error {
            ReadError::Directory { .. } | ReadError::Read { .. } => ErrorCode::StateFailed,
            ReadError::NoSuchRun(_) | ReadError::Ambiguous(_) | ReadError::NoRuns(_) => ErrorCode::NotFound,
        };
        code.error(error.to_string()).hint(error.hint()).caused_by(error)
    }
}

/// How often a log that grows is looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// What runs is said among these: the prompt and the first steps stand before.
const FIRST_LINES: usize = 64;

/// How much of the end of a log is looked at for its last line, at first and at most.
const WINDOW: u64 = 64 << 10;
const MAX_WINDOW: u64 = 32 << 20;

//! The log of a run, while it is written: `<state>/runs/<id>/log.jsonl`, one JSON object a line, as things happen.
//!
//! ```text
//!   create: file made and held ──write──> ... ──write the result──> dropped: file let go
//!                                  │
//!                               kill -9: file let go, no result; a reader knows that nothing comes any more
//! ```
//!
//! Whatever happens to the file, the run continues: what could not be written is remembered, and told at the end. A watcher
//! is given each line as it is written, so that what a person sees, what `--json` prints and what the log says are one
//! thing.

use crate::entry::{Entry, Line, System};
use crate::event::AgentEvent;
use crate::transcript::Transcript;
use belljar_audit::Stamp;
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::{create_private, lock_open_file};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Says what time it is.
pub type Clock = Box<dyn FnMut() -> Stamp + Send>;

/// Is given each line, and how it stands in the file, without its end.
pub type Watcher<'w> = Box<dyn FnMut(&Line, &str) + Send + 'w>;

/// A log to write to. Once it is dropped, the file has no writer any more.
pub struct Log<'w> {
    path: PathBuf,
    file: File,
    id: SandboxId,
    clock: Clock,
    watcher: Option<Watcher<'w>>,
    transcript: Transcript,
    limit: u64,
    written: u64,
    /// The limit was reached.
    full: bool,
    /// Lines that could not be written since the last one that could.
    lost: u64,
    /// An unfinished line could not be taken back.
    torn: bool,
    failure: Option<LogError>,
}

impl<'w> Log<'w> {
    /// Makes the log of a run in the run's own directory, which is made as well if need be.
    pub fn create(directory: &Path, id: SandboxId, clock: Clock) -> Result<Log<'w>, LogError> {
        let made = create_private(directory);
        let bad = |source| LogError::Directory { path: directory.into(), source };
        made.map_err(bad)?;
        // Who can put things there could have us write elsewhere, or read what was said.
        keeps_others_out(directory).map_err(bad)?;
        let path = directory.join(FILE);
        let failed = |source| LogError::Create { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        hold(&file).map_err(failed)?;
        let transcript = Transcript::new();
        Ok(Log {
            path,
            file,
            id,
            clock,
            watcher: None,
            transcript,
            limit: MAX_LOG,
            written: 0,
            full: false,
            lost: 0,
            torn: false,
            failure: None,
        })
    }

    /// Gives each line to this watcher, also lines that cannot be written.
    pub fn watched(mut self, watcher: Watcher<'w>) -> Log<'w> {
        self.watcher = Some(watcher);
        self
    }

    /// Writes what the agent said.
    pub fn event(&mut self, event: &AgentEvent) {
        if self.full {
            return;
        }
        let entry = self.transcript.entry(event);
        self.write(entry);
    }

    /// Writes what belljar has to say.
    pub fn write(&mut self, entry: Entry) {
        let is_optional = !is_always_written(&entry);
        if self.full && is_optional {
            return;
        }
        let Some((line, text)) = self.line(entry) else { return };
        if is_optional && self.written + text.len() as u64 >= self.limit {
            self.fill();
            return;
        }
        self.append(&text);
        self.show(&line, &text);
    }

    /// The first write that failed, if one did.
    pub fn failure(&self) -> Option<&LogError> {
        self.failure.as_ref()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// There is no more room: says so, once.
    fn fill(&mut self) {
        self.full = true;
        let text = format!(
            "the log is full at {} MiB: what the agent says from here on is not kept, only how it ends",
            self.limit >> 20
        );
        if let Some((line, text)) = self.line(Entry::System(System::Warning { text })) {
            self.append(&text);
            self.show(&line, &text);
        }
    }

    fn line(&mut self, entry: Entry) -> Option<(Line, String)> {
        let line = Line { entry, timestamp: (self.clock)().to_string(), session_id: self.id.to_string() };
        match serde_json::to_string(&line) {
            Ok(text) => Some((line, text)),
            Err(error) => {
                self.fail(error.into());
                None
            }
        }
    }

    fn append(&mut self, text: &str) {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        if self.torn {
            // What is left of the last line stands alone, where a reader passes over it.
            bytes.push(b'\n');
        }
        if self.lost > 0 {
            let text = format!("{} lines are missing here: they could not be written", self.lost);
            if let Some((_, gap)) = self.line(Entry::System(System::Warning { text })) {
                bytes.extend_from_slice(gap.as_bytes());
                bytes.push(b'\n');
            }
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
        match put(&mut self.file, &bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                (self.lost, self.torn) = (0, false);
            }
            Err((error, put)) => {
                self.torn |= put > 0 && take_back(&self.file, put).is_err();
                self.fail(error);
            }
        }
    }

    fn fail(&mut self, source: io::Error) {
        self.lost += 1;
        self.failure.get_or_insert_with(|| LogError::Write { path: self.path.clone(), source });
    }

    fn show(&mut self, line: &Line, text: &str) {
        if let Some(watcher) = &mut self.watcher {
            watcher(line, text);
        }
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        // A process that is being started has it open too, for an instant. Closing alone would not let go then.
        let _ = self.file.unlock();
    }
}

fn keeps_others_out(directory: &Path) -> io::Result<()> {
    let us = std::fs::metadata("/proc/self")?.uid();
    let found = directory.symlink_metadata()?;
    let is_ours = found.is_dir() && found.uid() == us && found.mode() & WRITABLE_BY_OTHERS == 0;
    let above = match directory.parent() {
        Some(above) => above.metadata()?,
        None => return Ok(()),
    };
    let is_theirs_to_trust = above.uid() == us || above.uid() == 0;
    let stays = above.mode() & WRITABLE_BY_OTHERS == 0 || above.mode() & STICKY != 0;
    match is_ours && is_theirs_to_trust && stays {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "others could put things there")),
    }
}

const WRITABLE_BY_OTHERS: u32 = 0o022;
/// What is in such a folder stays where its owner put it.
const STICKY: u32 = 0o1000;

/// The time, as it is.
pub fn clock() -> Clock {
    Box::new(Stamp::now)
}

/// A log could not be made, or not be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot make the run's directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot make the run's log {}: {source}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// Some of what happened is not in it.
    #[error("cannot write to the run's log {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl LogError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            LogError::Directory { path, .. } | LogError::Create { path, .. } => format!(
                "`ls -ld {}` says whose it is; it must be yours, or set `XDG_STATE_HOME` to a folder that is",
                path.display()
            ),
            LogError::Write { path, .. } => {
                format!(
                    "`df {}` says whether the disk is full; the run itself is not affected",
                    path.display()
                )
            }
        }
    }
}

impl From<LogError> for SandboxError {
    fn from(error: LogError) -> SandboxError {
        ErrorCode::StateFailed.error(error.to_string()).hint(error.hint()).caused_by(error)
    }
}

/// Few, and ours: they are what makes sense of the rest.
fn is_always_written(entry: &Entry) -> bool {
    matches!(entry, Entry::Result(_) | Entry::System(System::Step { .. }))
}

/// In one write, unless the disk takes only a part; then how much of it was taken.
fn put(file: &mut File, bytes: &[u8]) -> Result<(), (io::Error, u64)> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return Err((io::ErrorKind::WriteZero.into(), done as u64)),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((error, done as u64)),
        }
    }
    Ok(())
}

fn take_back(file: &File, bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    file.set_len(length.saturating_sub(bytes))
}

/// Locks the file for this process, so that a reader can tell whether the run still writes. The file is new: another
/// process that holds the lock is a reader testing just that, for an instant.
fn hold(file: &File) -> io::Result<()> {
    match lock_open_file(file, LOCK_TIMEOUT)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// What it is called in the run's directory.
pub const FILE: &str = "log.jsonl";

/// The largest log. An agent that prints without end fills no disk.
const MAX_LOG: u64 = 256 << 20;

/// For a reader that was stopped in just that instant.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Step, StepState};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Arc, Mutex};

    fn new(directory: &Path) -> Log<'static> {
        let mut second = 0;
        let clock = move || {
            second += 1;
            Stamp::at(second)
        };
        Log::create(directory, SandboxId::from_random(*b"belljar!"), Box::new(clock)).unwrap()
    }

    fn step() -> Entry {
        Entry::System(System::Step {
            step: Step::Agent,
            state: StepState::Done,
            duration_ms: None,
            error: None,
        })
    }

    fn texts(log: &Log) -> Vec<String> {
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        let lines = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
        lines
            .map(|line| match line.entry {
                Entry::System(System::Output { text } | System::Warning { text }) => text,
                other => serde_json::to_string(&other).unwrap(),
            })
            .collect()
    }

    #[test]
    fn a_line_has_what_happened_when_and_in_which_run() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("runs/1");
        let mut log = new(&directory);
        log.event(&AgentEvent::Other("a\0\u{1b}[31m\n\u{2028}\"".into()));
        let expected = concat!(
            r#"{"type":"system","subtype":"output","text":"a\u0000\u001b[31m\n"#,
            "\u{2028}",
            r#"\"","timestamp":"1970-01-01T00:00:01.000000Z","sessionId":"62656c6c6a617221"}"#,
            "\n"
        );
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), expected);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&directory), mode(&folder.path().join("runs")), mode(log.path())),
            (0o700, 0o700, 0o600)
        );
    }

    #[test]
    fn one_run_has_one_log() {
        let folder = tempfile::tempdir().unwrap();
        drop(new(folder.path()));
        let again = Log::create(folder.path(), SandboxId::from_random([0; 8]), clock());
        assert!(matches!(again, Err(LogError::Create { .. })));
    }

    #[test]
    fn a_watcher_sees_each_line_as_it_stands_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let into = seen.clone();
        let watcher = move |line: &Line, text: &str| {
            assert_eq!(serde_json::from_str::<Line>(text).unwrap(), *line);
            into.lock().unwrap().push_str(&format!("{text}\n"));
        };
        let mut log = new(folder.path()).watched(Box::new(watcher));
        log.limit = 400;
        (0..9).for_each(|_| log.event(&AgentEvent::Other("one".into())));
        log.write(step());
        assert_eq!(*seen.lock().unwrap(), std::fs::read_to_string(log.path()).unwrap());
    }

    #[test]
    fn a_full_log_says_so_once_and_takes_only_steps_and_the_result() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new(folder.path());
        log.limit = 1000;
        (0..100).for_each(|number| log.event(&AgentEvent::Other(format!("line {number}"))));
        log.event(&AgentEvent::Other("short".into()));
        log.write(step());
        let texts = texts(&log);
        let ends = texts.iter().rev().take(3).rev().map(String::as_str).collect::<Vec<_>>();
        assert!(ends[0].starts_with("line ") && ends[1].starts_with("the log is full"), "{ends:?}");
        assert_eq!(ends[2], r#"{"type":"system","subtype":"step","step":"agent","state":"done"}"#);
        assert!(log.written < 2000 && log.failure().is_none());
    }

    #[test]
    fn what_cannot_be_written_is_remembered_and_the_run_continues() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new(folder.path());
        log.event(&AgentEvent::Other("one".into()));
        // As a full disk: the same file, but nothing can be written to it.
        let readable = File::open(log.path()).unwrap();
        let writable = std::mem::replace(&mut log.file, readable);
        log.event(&AgentEvent::Other("two".into()));
        log.event(&AgentEvent::Other("three".into()));
        let failure = log.failure().unwrap().to_string();
        assert!(failure.starts_with("cannot write to the run's log /"), "{failure}");
        log.file = writable;
        log.event(&AgentEvent::Other("four".into()));
        assert_eq!(texts(&log), ["one", "2 lines are missing here: they could not be written", "four"]);
    }
}

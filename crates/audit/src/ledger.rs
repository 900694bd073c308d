//! The ledger lists all logs, and how each one ended: a separate chain that every process of this user writes to, under a lock.
//!
//! `ledger.jsonl` records for each log that it was opened, and later its number of lines and the hash of the last one. The first
//! line of a log follows, in its chain, the ledger's line that opened it: neither can be exchanged alone. `ledger.head` holds the
//! length and the last hash of the ledger itself, or its own end could be cut off unnoticed. It is written after the ledger, so the
//! ledger may be one line ahead of it, never behind.

use crate::append::{append, hold, take_back};
use crate::chain::{Hash, Link, Tip};
use crate::event::LedgerEvent;
use crate::{AuditError, log_path};
use belljar_spec::SandboxId;
use belljar_state::is_written_to;
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    pub(crate) lines: u64,
    pub(crate) head: Hash,
    pub(crate) finished: bool,
    pub(crate) torn: u64,
}

/// The ledger, locked by this process until dropped.
pub(crate) struct Ledger {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    head: File,
    tip: Tip,
    /// There are lines and no head: the next line records it, before there is a head again.
    is_head_missing: bool,
    /// The last lines, for the sweep.
    recent: Vec<u8>,
}

impl Ledger {
    /// Locks it, makes it if needed, and finds its end.
    pub(crate) fn hold(directory: &Path) -> Result<Ledger, AuditError> {
        let (path, head_path) = (log_path::ledger(directory), log_path::ledger_head(directory));
        let open = |path: &Path, append: bool| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).append(append).create(true).truncate(false).mode(0o600);
            options.open(path).map_err(|source| AuditError::Open { path: path.into(), source })
        };
        let file = open(&path, true)?;
        hold(&file, &path)?;
        let head = open(&head_path, false)?;
        let confirmed = read_head(&head);
        let recent =
            end_of(&file, WINDOW).map_err(|source| AuditError::Read { path: path.clone(), source })?;
        let recent = without_fragment(&file, &path, recent)?;
        let (tip, head_state) = tip_of(confirmed, &recent, &path)?;
        let is_head_missing = head_state == Head::Missing;
        let ledger = Ledger { directory: directory.into(), path, file, head, tip, is_head_missing, recent };
        if head_state == Head::Behind {
            // Its writer was killed between writing the ledger and the head. Repaired first, so that the head is never two lines
            // behind.
            ledger.confirm(tip)?;
        }
        Ok(ledger)
    }

    /// Its number of lines.
    pub(crate) fn lines(&self) -> u64 {
        self.tip.next
    }

    /// Records a new log; its chain starts from the returned hash.
    pub(crate) fn opened(&mut self, sandbox: SandboxId) -> Result<Hash, AuditError> {
        self.add(sandbox, &LedgerEvent::Opened {})
    }

    /// Records the end of a log.
    pub(crate) fn closed(&mut self, sandbox: SandboxId, closing: Closing) -> Result<(), AuditError> {
        let Closing { lines, head, finished, torn } = closing;
        self.add(sandbox, &LedgerEvent::Closed { lines, head, finished, torn })?;
        Ok(())
    }

    /// Records that a log is about to be removed.
    pub(crate) fn pruned(&mut self, sandbox: SandboxId) -> Result<(), AuditError> {
        self.add(sandbox, &LedgerEvent::Pruned {})?;
        Ok(())
    }

    /// Closes logs whose writers were killed: the oldest few of those that the last lines show as open. Earlier ones are left to
    /// `verify`; a start must not take longer because the ledger is long.
    pub(crate) fn sweep(&mut self) {
        let mut open: Vec<SandboxId> = Vec::new();
        let is_crowded = self.recent.windows(PRUNED.len()).any(|bytes| bytes == PRUNED);
        if let Some(further) = is_crowded.then(|| end_of(&self.file, CROWDED).ok()).flatten() {
            // Lines about pruned logs come many at a time, and push open logs out of the window.
            self.recent = further;
        }
        for line in self.recent.split(|byte| *byte == b'\n') {
            match Entry::read(line) {
                Some((sandbox, Statement::Opened)) => open.push(sandbox),
                Some((sandbox, Statement::Closed(_))) => open.retain(|known| *known != sandbox),
                Some((_, Statement::Pruned | Statement::HeadMissing)) | None => {}
            }
        }
        // A failed sweep must not prevent a start.
        let killed = |sandbox: SandboxId| {
            let file = File::open(log_path::log(&self.directory, sandbox))
                .ok()
                .filter(|file| !is_written_to(file))?;
            Some((sandbox, end(&file)?))
        };
        let killed: Vec<_> = open.into_iter().filter_map(killed).take(SWEPT_AT_ONCE).collect();
        for (sandbox, closing) in killed {
            let _ = self.closed(sandbox, closing);
        }
    }

    fn add(&mut self, sandbox: SandboxId, event: &LedgerEvent) -> Result<Hash, AuditError> {
        if self.is_head_missing {
            self.write(sandbox, &LedgerEvent::HeadMissing {})?;
            self.is_head_missing = false;
        }
        self.write(sandbox, event)
    }

    fn write(&mut self, sandbox: SandboxId, event: &LedgerEvent) -> Result<Hash, AuditError> {
        let (line, tip) = self.tip.line(sandbox, event);
        append(&self.file, &self.path, &line)?;
        if let Err(error) = self.confirm(tip) {
            // Undo the line. If even that fails, the ledger is one line ahead, which is allowed.
            let _ = take_back(&self.file, line.len() as u64);
            return Err(error);
        }
        self.tip = tip;
        Ok(tip.head)
    }

    /// Of constant length, in one write: a killed process leaves the old or the new content.
    fn confirm(&self, tip: Tip) -> Result<(), AuditError> {
        let text = format!("{:020} {}\n", tip.next, tip.head);
        self.head.write_all_at(text.as_bytes(), 0).map_err(|source| {
            let path = log_path::ledger_head(&self.directory);
            AuditError::Write { path, source }
        })
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread starts just now has the file open too, until it executes
        // its program.
        let _ = self.file.unlock();
    }
}

/// A line of the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Statement {
    Opened,
    Closed(Closing),
    Pruned,
    HeadMissing,
}

/// How the head relates to the lines of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// It has their end, or the former end if some were cut off.
    Confirmed,
    /// One line behind.
    Behind,
    /// It is missing or unreadable, and there is more than the first line.
    Missing,
}

/// A line of the ledger as it is read. Flat, since a tagged enum would be copied first.
#[derive(Deserialize)]
pub(crate) struct Entry<'a> {
    #[serde(borrow)]
    sandbox: Cow<'a, str>,
    event: Fields<'a>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    lines: Option<u64>,
    head: Option<Cow<'a, str>>,
    finished: Option<bool>,
    torn: Option<u64>,
}

impl Entry<'_> {
    /// `None` for an event that is not the ledger's.
    pub(crate) fn read(line: &[u8]) -> Option<(SandboxId, Statement)> {
        let Entry { sandbox, event } = serde_json::from_slice(line).ok()?;
        let statement = match (event.kind.as_ref(), event.lines, event.head, event.finished) {
            ("log_opened", ..) => Statement::Opened,
            ("log_pruned", ..) => Statement::Pruned,
            ("head_missing", ..) => Statement::HeadMissing,
            ("log_closed", Some(lines), Some(head), Some(finished)) => {
                let torn = event.torn.unwrap_or(0);
                Statement::Closed(Closing { lines, head: head.parse().ok()?, finished, torn })
            }
            _ => return None,
        };
        Some((SandboxId::parse(&sandbox)?, statement))
    }
}

/// The content of `ledger.head`; `None` if it is empty, or malformed.
pub(crate) fn read_head(file: &File) -> Option<Tip> {
    let mut bytes = [0; 20 + 1 + 64 + 1];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (next, head) = std::str::from_utf8(&bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
    Some(Tip { next: next.parse().ok()?, head: head.parse().ok()? })
}

/// Where the ledger continues, and how its head relates to it. A ledger that lacks lines still continues from its head: so the gap
/// stays visible.
fn tip_of(confirmed: Option<Tip>, recent: &[u8], path: &Path) -> Result<(Tip, Head), AuditError> {
    let last =
        recent.strip_suffix(b"\n").map(|lines| lines.rsplit(|byte| *byte == b'\n').next().unwrap_or(lines));
    let read = last.and_then(|line| Some((Link::read(line)?, Hash::of(line))));
    match (confirmed, read) {
        (Some(tip), Some(((link, previous), hash))) if link.seq == tip.next && previous == tip.head => {
            Ok((Tip { next: link.seq.saturating_add(1), head: hash }, Head::Behind))
        }
        (Some(tip), _) => Ok((tip, Head::Confirmed)),
        (None, Some(((link, _), hash))) => {
            // The very first line, and its writer was killed.
            let head_state = if link.seq == 0 { Head::Behind } else { Head::Missing };
            Ok((Tip { next: link.seq.saturating_add(1), head: hash }, head_state))
        }
        (None, None) if recent.is_empty() => Ok((Tip { next: 0, head: Hash::ZERO }, Head::Confirmed)),
        (None, None) => Err(AuditError::LedgerDamaged { path: path.into() }),
    }
}

/// Cuts off a partial line of a killed writer, and returns the lines before it. It was never confirmed to any caller.
fn without_fragment(file: &File, path: &Path, mut recent: Vec<u8>) -> Result<Vec<u8>, AuditError> {
    let whole = recent.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let fragment = recent.len() - whole;
    if fragment >= WINDOW {
        return Err(AuditError::LedgerDamaged { path: path.into() });
    }
    if fragment > 0 {
        take_back(file, fragment as u64).map_err(|source| AuditError::Write { path: path.into(), source })?;
        recent.truncate(whole);
    }
    Ok(recent)
}

/// How a log that no process writes to any more ends, by its last line. `None` if that is not a record: then the caller has to read
/// the whole log.
pub(crate) fn end(file: &File) -> Option<Closing> {
    let length = file.metadata().ok()?.len();
    let mut window = 4096;
    loop {
        let bytes = end_of(file, window).ok()?;
        let all = bytes.len() as u64 == length;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let torn = |whole: usize| (bytes.len() - whole) as u64;
        match whole {
            None if all => {
                return Some(Closing { lines: 0, head: Hash::ZERO, finished: false, torn: torn(0) });
            }
            None => {}
            Some(at) => {
                let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map(|before| before + 1);
                if let Some(start) = start.or(all.then_some(0)) {
                    let (link, _) = Link::read(&bytes[start..at])?;
                    let head = Hash::of(&bytes[start..at]);
                    return Some(Closing {
                        lines: link.seq.checked_add(1)?,
                        head,
                        finished: false,
                        torn: torn(at + 1),
                    });
                }
            }
        }
        window = (window < MAX_LINE_BYTES).then_some(window * 16)?;
    }
}

/// Reads up to this many bytes from the end.
fn end_of(file: &File, window: usize) -> std::io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(window as u64);
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(window)];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// About a dozen sandboxes.
const WINDOW: usize = 8 * 1024;
/// A thousand logs that were pruned.
const CROWDED: usize = 256 * 1024;
const PRUNED: &[u8] = b"\"kind\":\"log_pruned\"";
/// Each costs tens of microseconds, and is swept once.
const SWEPT_AT_ONCE: usize = 8;
/// Size of a line: a sandbox's first record lists its rules, which may be many.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

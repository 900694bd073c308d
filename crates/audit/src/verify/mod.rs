//! Checks that the logs are intact. Reads the ledger and the logs, and finds lines that were changed, removed, inserted, moved,
//! exchanged or cut off, by file and line.
//!
//! It writes one thing, and only if nothing is wrong: the end of logs whose writers were killed.

mod finding;
mod ledger;
mod walk;

pub use finding::{Finding, Problem, Severity};

use crate::chain::Hash;
use crate::ledger::{Closing, Ledger};
use crate::{AuditError, log_path, read};
use belljar_spec::SandboxId;
use belljar_state::is_written_to;
use finding::Findings;
use ledger::Account;
pub(crate) use ledger::{Holder, View};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use walk::{Walked, walk};

/// The result of `verify`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The logs that were read.
    pub logs: Vec<Verified>,
    /// The problems found, those of the ledger first.
    pub findings: Vec<Finding>,
    /// How many more logs there were that have been pruned.
    pub pruned: u64,
    /// The number of the ledger's lines.
    pub ledger_lines: u64,
    /// The hash of its last line. A copy in a place that a user with write access here cannot change proves all that was written so
    /// far.
    pub ledger_head: Hash,
}

impl Report {
    /// Whether nothing was tampered with.
    pub fn is_fine(&self) -> bool {
        !self.findings.iter().any(|finding| finding.problem.severity() == Severity::Error)
    }
}

/// A log that was read.
#[derive(Debug, Serialize)]
pub struct Verified {
    pub sandbox: SandboxId,
    pub file: PathBuf,
    pub lines: u64,
    pub state: LogState,
}

/// The state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogState {
    /// The sandbox lives.
    Running,
    /// It ended normally.
    Ended,
    /// Its writer was killed.
    Killed,
    /// There is no file.
    Removed,
}

/// The progress of `verify`.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub done: usize,
    pub logs: usize,
}

/// Checks everything, or only one of the logs. `known` is a hash of the ledger that the caller has stored elsewhere.
pub fn verify(
    directory: &Path,
    only: Option<SandboxId>,
    known: Option<Hash>,
    mut progress: impl FnMut(Progress),
) -> Result<Report, AuditError> {
    // List the files before reading the ledger: a log is in the ledger before it has any content.
    let files = read::list(directory)?.into_iter().map(|log| log.sandbox);
    let view = View::read(directory, known, Holder::Others)?;
    let expected =
        view.accounts.iter().filter(|(_, account)| !account.is_pruned).map(|(sandbox, _)| *sandbox);
    let all: BTreeSet<SandboxId> = files.chain(expected).collect();
    let is_selected = |sandbox: &SandboxId| only.is_none_or(|only| only == *sandbox);
    let is_gone = |(sandbox, account): &(&SandboxId, &Account)| {
        account.is_pruned && is_selected(sandbox) && !all.contains(sandbox)
    };
    let pruned = view.accounts.iter().filter(is_gone).count() as u64;
    let selected: Vec<SandboxId> = all.into_iter().filter(is_selected).collect();
    let mut report = Report {
        logs: Vec::with_capacity(selected.len()),
        findings: view.findings.clone(),
        pruned,
        ledger_lines: view.tip.next,
        ledger_head: view.tip.head,
    };
    let mut checked = Vec::with_capacity(selected.len());
    for (done, sandbox) in selected.iter().enumerate() {
        progress(Progress { done, logs: selected.len() });
        checked.push(check(directory, *sandbox, view.accounts.get(sandbox), false));
    }
    for _ in 0..LOOKS_AGAIN {
        if !checked.iter().any(Checked::is_unsettled) {
            break;
        }
        // The ledger may have been read an instant too early for them. Check which writers live before reading it again: a log that
        // ends in between is in the ledger, or was still locked.
        let unsettled: Vec<_> = checked.iter_mut().filter(|checked| checked.is_unsettled()).collect();
        let lived: Vec<bool> = unsettled
            .iter()
            .map(|one| File::open(&one.verified.file).is_ok_and(|file| is_written_to(&file)))
            .collect();
        let view = View::read(directory, None, Holder::Others)?;
        for (checked, lived) in unsettled.into_iter().zip(lived) {
            let sandbox = checked.verified.sandbox;
            *checked = check(directory, sandbox, view.accounts.get(&sandbox), lived);
        }
    }
    let mut killed = Vec::new();
    for checked in checked {
        killed.extend(checked.unclosed.map(|closing| (checked.verified.sandbox, closing)));
        report.logs.push(checked.verified);
        report.findings.extend(checked.findings);
    }
    if report.is_fine() && !killed.is_empty() {
        close(directory, &killed);
    }
    Ok(report)
}

/// Checks one log against the ledger's statements.
struct Checked {
    verified: Verified,
    findings: Vec<Finding>,
    /// The ledger does not have its end yet.
    unclosed: Option<Closing>,
}

impl Checked {
    /// Whether the ledger could have more on it by now.
    fn is_unsettled(&self) -> bool {
        let late = |problem: &Problem| {
            matches!(problem, Problem::NotInLedger | Problem::NeverBegan | Problem::Removed)
        };
        self.unclosed.is_some() || self.findings.iter().any(|finding| late(&finding.problem))
    }
}

/// `lived`: it was locked when the ledger was read.
fn check(directory: &Path, sandbox: SandboxId, account: Option<&Account>, lived: bool) -> Checked {
    let file = log_path::log(directory, sandbox);
    let mut found = Findings::of(&file);
    let (lines, state, unclosed) = match check_file(&file, sandbox, account, lived, &mut found) {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if !account.is_some_and(|account| account.is_pruned) {
                found.add(None, Problem::Removed);
            }
            (0, LogState::Removed, None)
        }
        Err(error) => {
            found.add(None, Problem::Unreadable { why: error.to_string() });
            (0, LogState::Killed, None)
        }
    };
    let findings = found.into_list();
    Checked { verified: Verified { sandbox, file, lines, state }, findings, unclosed }
}

type Outcome = (u64, LogState, Option<Closing>);

fn check_file(
    path: &Path,
    sandbox: SandboxId,
    account: Option<&Account>,
    lived: bool,
    found: &mut Findings<'_>,
) -> std::io::Result<Outcome> {
    let file = File::open(path)?;
    // Checked before reading: a log that was not locked then has all its lines.
    let live = is_written_to(&file) || lived;
    let is_new = file.metadata()?.modified().is_ok_and(|made| made.elapsed().is_ok_and(|age| age < MAKING));
    let closed = account.and_then(|account| account.closed);
    let mut sealed = None;
    let first = account.map(|account| account.opened);
    let walked =
        walk(BufReader::with_capacity(BUFFER, file), first, Some(sandbox), found, |line, _, hash, _| {
            if closed.is_some_and(|closing| closing.lines == line) {
                sealed = Some(hash);
            }
        })?;
    if account.is_none() {
        // Between making the file and the ledger's line: it is being created, or its creator was killed there.
        match (walked.lines, live) {
            _ if walked.torn > 0 => found.add(None, Problem::NotInLedger),
            (0, true) => {}
            (0, false) if is_new => {}
            (0, false) => found.add(None, Problem::NeverBegan),
            (..) => found.add(None, Problem::NotInLedger),
        }
        return Ok((walked.lines, if live { LogState::Running } else { LogState::Killed }, None));
    }
    if account.is_some_and(|account| account.is_pruned) {
        found.add(None, Problem::PrunedAndThere);
    }
    match closed {
        Some(closing) => {
            against(closing, &walked, sealed, found);
            Ok((walked.lines, if closing.finished { LogState::Ended } else { LogState::Killed }, None))
        }
        None if live => Ok((walked.lines, LogState::Running, None)),
        None => {
            unfinished(&walked, found);
            let Walked { lines, head, torn } = walked;
            let head = if lines == 0 { Hash::ZERO } else { head };
            Ok((lines, LogState::Killed, Some(Closing { lines, head, finished: false, torn })))
        }
    }
}

/// Compares the ledger's end with the log's.
fn against(closing: Closing, walked: &Walked, sealed: Option<Hash>, found: &mut Findings<'_>) {
    let (lines, written) = (walked.lines, closing.lines);
    if lines < written || (lines == written && walked.torn < closing.torn) {
        found.add(Some(lines + 1), Problem::CutShort { lines, written });
    } else if lines > written || walked.torn > closing.torn {
        found.add(Some(written + 1), Problem::WrittenAfterEnd);
    }
    if lines >= written && written > 0 && sealed != Some(closing.head) {
        found.add(Some(written), Problem::LastLineChanged);
    }
    if !closing.finished {
        unfinished(&Walked { torn: closing.torn.min(walked.torn), ..*walked }, found);
    }
}

fn unfinished(walked: &Walked, found: &mut Findings<'_>) {
    if walked.torn > 0 {
        found.add(Some(walked.lines + 1), Problem::Torn { bytes: walked.torn });
    }
    found.add(None, Problem::EndedWithoutAWord);
}

/// Records logs whose writers were killed in the ledger. On failure they are found again the next time.
fn close(directory: &Path, killed: &[(SandboxId, Closing)]) {
    let Ok(mut ledger) = Ledger::hold(directory) else { return };
    // Read again under the lock: another process may have recorded it since.
    let Ok(view) = View::read(directory, None, Holder::Us) else { return };
    for (sandbox, closing) in killed {
        if view.accounts.get(sandbox).is_some_and(|account| account.closed.is_none()) {
            let _ = ledger.closed(*sandbox, *closing);
        }
    }
}

const BUFFER: usize = 64 * 1024;
/// A file is made an instant before it is locked; it is still empty then.
const MAKING: Duration = Duration::from_secs(10);
/// A log that is being made at the first look may begin at the second and end at the third.
const LOOKS_AGAIN: usize = 3;

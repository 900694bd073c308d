//! Reads the ledger without blocking its writers.

use super::finding::{Finding, Findings, Problem};
use super::walk::walk;
use crate::append::hold;
use crate::chain::{Hash, Tip};
use crate::ledger::{Closing, Entry, Statement, read_head};
use crate::{AuditError, log_path};
use belljar_spec::SandboxId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// The whole content.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) accounts: BTreeMap<SandboxId, Account>,
    pub(super) tip: Tip,
    pub(crate) findings: Vec<Finding>,
}

/// The ledger's statements on one log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    /// The hash of the line that opened it, where the log's own chain begins.
    pub(super) opened: Hash,
    pub(crate) closed: Option<Closing>,
    /// Its file was pruned.
    pub(crate) is_pruned: bool,
}

/// Which processes may write to it meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process holds the lock already.
    Us,
    Others,
}

impl View {
    /// Reads the present content. `known` is the hash of a line that must be in it.
    pub(crate) fn read(directory: &Path, known: Option<Hash>, holder: Holder) -> Result<View, AuditError> {
        let path = log_path::ledger(directory);
        let mut found = Findings::of(&path);
        let empty = Tip { next: 0, head: Hash::ZERO };
        let mut view = View { accounts: BTreeMap::new(), tip: empty, findings: Vec::new() };
        let failed = |source| AuditError::Read { path: path.clone(), source };
        let Snapshot { file, head } = Snapshot::take(&path, directory, holder)?;
        let (mut seen_known, mut at_head) = (known.is_none(), None);
        let file = BufReader::with_capacity(BUFFER, file);
        let walked = walk(file, Some(Hash::ZERO), None, &mut found, |line, bytes, hash, found| {
            seen_known |= known == Some(hash);
            if head.is_some_and(|head| head.next == line) {
                at_head = Some(hash);
            }
            view.tip = Tip { next: line, head: hash };
            match Entry::read(bytes) {
                Some((_, Statement::HeadMissing)) => found.add(Some(line), Problem::LedgerHeadWasMissing),
                Some((sandbox, head_state)) if !view.account(sandbox, head_state, hash) => {
                    found.add(Some(line), Problem::LedgerContradiction { sandbox });
                }
                Some(_) | None => {}
            }
        });
        let walked = walked.map_err(failed)?;
        if walked.torn > 0 {
            found.add(Some(walked.lines + 1), Problem::Torn { bytes: walked.torn });
        }
        match head {
            None if walked.lines == 0 => {}
            // The very first line, and its writer was killed.
            None if walked.lines == 1 => found.add(None, Problem::LedgerHeadBehind),
            None => found.add(None, Problem::LedgerHeadMissing),
            Some(head) if head.next > walked.lines => {
                found.add(None, Problem::LedgerCutShort { lines: walked.lines, written: head.next });
            }
            Some(head) if head.next > 0 && at_head != Some(head.head) => {
                found.add(Some(head.next), Problem::LedgerHeadDiffers);
            }
            Some(head) if walked.lines == head.next => {}
            Some(head) if walked.lines == head.next + 1 => found.add(None, Problem::LedgerHeadBehind),
            Some(head) => found.add(Some(head.next + 1), Problem::WrittenAfterEnd),
        }
        if !seen_known {
            found.add(None, Problem::KnownHeadMissing);
        }
        view.findings = found.into_list();
        Ok(view)
    }

    /// `false` for a contradiction.
    fn account(&mut self, sandbox: SandboxId, statement: Statement, hash: Hash) -> bool {
        match statement {
            Statement::Opened => {
                // The first statement counts: later ones cannot undo it. A sandbox's name is free again only after its log was
                // pruned.
                let fresh = self.accounts.get(&sandbox).is_none_or(|known| known.is_pruned);
                if fresh {
                    self.accounts.insert(sandbox, Account { opened: hash, closed: None, is_pruned: false });
                }
                fresh
            }
            Statement::Closed(closing) => match self.accounts.get_mut(&sandbox) {
                Some(Account { closed: closed @ None, .. }) => {
                    *closed = Some(closing);
                    true
                }
                Some(_) | None => false,
            },
            Statement::HeadMissing => true,
            Statement::Pruned => match self.accounts.get_mut(&sandbox) {
                Some(Account { closed: Some(_), is_pruned: is_pruned @ false, .. }) => {
                    *is_pruned = true;
                    true
                }
                Some(_) | None => false,
            },
        }
    }
}

/// The ledger up to its end at one moment, and its head at the same moment.
struct Snapshot {
    file: Box<dyn Read>,
    head: Option<Tip>,
}

impl Snapshot {
    fn take(path: &Path, directory: &Path, holder: Holder) -> Result<Snapshot, AuditError> {
        let failed = |source| AuditError::Read { path: path.into(), source };
        let head = || File::open(log_path::ledger_head(directory)).ok().and_then(|file| read_head(&file));
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Snapshot { file: Box::new(std::io::empty()), head: head() });
            }
            Err(error) => return Err(failed(error)),
        };
        if holder == Holder::Others {
            // For an instant: a process that starts a sandbox meanwhile waits for it.
            hold(&file, path)?;
        }
        let (length, head) = (file.metadata().map_err(failed)?.len(), head());
        if holder == Holder::Others {
            file.unlock().map_err(failed)?;
        }
        Ok(Snapshot { file: Box::new(file.take(length)), head })
    }
}

const BUFFER: usize = 256 * 1024;

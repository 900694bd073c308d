//! One chain, line by line: does each one follow from the one before?

use super::finding::{Findings, Problem};
use crate::chain::{Hash, Link};
use belljar_spec::SandboxId;
use std::io::{BufRead, Read};

/// The result of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walked {
    /// Complete lines.
    pub(super) lines: u64,
    /// The hash of the last.
    pub(super) head: Hash,
    /// Bytes after it.
    pub(super) torn: u64,
}

/// Walks over all lines. `first` is the hash that the first line must follow, if known; `sandbox` is the sandbox that all lines
/// must belong to, if they must belong to one.
pub(super) fn walk(
    mut file: impl BufRead,
    first: Option<Hash>,
    sandbox: Option<SandboxId>,
    found: &mut Findings<'_>,
    mut each: impl FnMut(u64, &[u8], Hash, &mut Findings<'_>),
) -> std::io::Result<Walked> {
    let sandbox = sandbox.map(|sandbox| sandbox.to_string());
    let mut place = ChainPosition { next: 0, head: first, before_junk: None };
    let mut walked = Walked { lines: 0, head: first.unwrap_or(Hash::ZERO), torn: 0 };
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut file).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            if line.len() as u64 == MAX_LINE_BYTES {
                // Our writers make no such line. Its rest would be taken for lines.
                found.add(Some(walked.lines + 1), Problem::NotARecord);
            }
            walked.torn = line.len() as u64;
            return Ok(walked);
        }
        walked.lines += 1;
        walked.head = Hash::of(&line);
        match Link::read(&line) {
            None => {
                found.add(Some(walked.lines), Problem::NotARecord);
                place.junk();
            }
            Some((link, previous)) => {
                if sandbox.as_ref().is_some_and(|sandbox| *sandbox != link.sandbox) {
                    let sandbox = link.sandbox.as_ref().into();
                    found.add(Some(walked.lines), Problem::OfAnotherSandbox { sandbox });
                }
                if let Some((line, problem)) = place.step(walked.lines, link.seq, previous, walked.head) {
                    found.add(Some(line), problem);
                }
            }
        }
        each(walked.lines, &line, walked.head, found);
    }
}

/// The position in the chain.
struct ChainPosition {
    /// The number that the next line must have.
    next: u64,
    /// The hash that it must hold; `None` after a line that was no record.
    head: Option<Hash>,
    /// The hash before that.
    before_junk: Option<Hash>,
}

impl ChainPosition {
    /// The problem of the next line, and the line to report it on.
    fn step(&mut self, line: u64, seq: u64, previous: Hash, hash: Hash) -> Option<(u64, Problem)> {
        if self.head.is_none() && self.before_junk == Some(previous) && seq.checked_add(1) == Some(self.next)
        {
            // The garbage was inserted, and replaced no line.
            self.next = seq;
        }
        let problem = if seq < self.next {
            // The expected line is still to come.
            return Some((line, Problem::OutOfPlace));
        } else if seq > self.next {
            Some((line, Problem::LinesRemoved { count: seq - self.next }))
        } else if self.head.is_some_and(|head| head != previous) {
            Some(if line == 1 { (1, Problem::NotFromLedger) } else { (line - 1, Problem::LineChanged) })
        } else {
            None
        };
        *self = ChainPosition { next: seq.saturating_add(1), head: Some(hash), before_junk: None };
        problem
    }

    fn junk(&mut self) {
        self.next = self.next.saturating_add(1);
        self.before_junk = self.head.or(self.before_junk);
        self.head = None;
    }
}

/// More than a sandbox's first record needs for its rules.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

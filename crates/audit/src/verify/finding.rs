//! The closed list of problems with a log.

use belljar_spec::SandboxId;
use belljar_spec::egress::Printable;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// A problem in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub file: PathBuf,
    /// Counted from one; `None` for the whole file.
    pub line: Option<u64>,
    pub problem: Problem,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The trace of a killed process or a full disk.
    Warning,
    /// The log or the ledger was tampered with.
    Error,
}

/// The kind of problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The line is not a record.
    NotARecord,
    /// The next line's hash does not match this line.
    LineChanged,
    /// Lines before this one are missing.
    LinesRemoved { count: u64 },
    /// This line was not written here.
    OutOfPlace,
    /// The line is of another sandbox.
    OfAnotherSandbox { sandbox: Printable },
    /// The first line does not follow the ledger's line.
    NotFromLedger,
    /// The ledger says that there were more lines.
    CutShort { lines: u64, written: u64 },
    /// The ledger says that the log had ended before this line.
    WrittenAfterEnd,
    /// The ledger has another hash of the last line.
    LastLineChanged,
    /// The file is gone.
    Removed,
    /// The ledger does not know of the log.
    NotInLedger,
    /// The ledger states it twice, or states the end of a log that was never opened.
    LedgerContradiction { sandbox: SandboxId },
    /// The ledger's head knows of more lines.
    LedgerCutShort { lines: u64, written: u64 },
    /// The ledger's last line is not the one in its head.
    LedgerHeadDiffers,
    /// The ledger has no head.
    LedgerHeadMissing,
    /// No line of the ledger has the hash that the caller gave.
    KnownHeadMissing,
    /// The file cannot be read.
    Unreadable { why: String },
    /// There are more findings than are listed.
    More { count: u64 },
    /// The last line is incomplete.
    Torn { bytes: u64 },
    /// The writer was killed.
    EndedWithoutAWord,
    /// The writer was killed before its first record.
    NeverBegan,
    /// The writer of the ledger was killed before it wrote its head.
    LedgerHeadBehind,
    /// The ledger had no head when this line of it was written.
    LedgerHeadWasMissing,
    /// The pruning process was killed before it removed the file.
    PrunedAndThere,
}

impl Problem {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Problem::NotARecord => "not_a_record",
            Problem::LineChanged => "line_changed",
            Problem::LinesRemoved { .. } => "lines_removed",
            Problem::OutOfPlace => "out_of_place",
            Problem::OfAnotherSandbox { .. } => "of_another_sandbox",
            Problem::NotFromLedger => "not_from_ledger",
            Problem::CutShort { .. } => "cut_short",
            Problem::WrittenAfterEnd => "written_after_end",
            Problem::LastLineChanged => "last_line_changed",
            Problem::Removed => "removed",
            Problem::NotInLedger => "not_in_ledger",
            Problem::LedgerContradiction { .. } => "ledger_contradiction",
            Problem::LedgerCutShort { .. } => "ledger_cut_short",
            Problem::LedgerHeadDiffers => "ledger_head_differs",
            Problem::LedgerHeadMissing => "ledger_head_missing",
            Problem::KnownHeadMissing => "known_head_missing",
            Problem::Unreadable { .. } => "unreadable",
            Problem::More { .. } => "more",
            Problem::Torn { .. } => "torn",
            Problem::EndedWithoutAWord => "ended_without_a_word",
            Problem::NeverBegan => "never_began",
            Problem::LedgerHeadBehind => "ledger_head_behind",
            Problem::LedgerHeadWasMissing => "ledger_head_was_missing",
            Problem::PrunedAndThere => "pruned_and_there",
        }
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        match self {
            Problem::Torn { .. }
            | Problem::EndedWithoutAWord
            | Problem::NeverBegan
            | Problem::LedgerHeadBehind
            | Problem::LedgerHeadWasMissing
            | Problem::PrunedAndThere => Severity::Warning,
            Problem::NotARecord
            | Problem::LineChanged
            | Problem::LinesRemoved { .. }
            | Problem::OutOfPlace
            | Problem::OfAnotherSandbox { .. }
            | Problem::NotFromLedger
            | Problem::CutShort { .. }
            | Problem::WrittenAfterEnd
            | Problem::LastLineChanged
            | Problem::Removed
            | Problem::NotInLedger
            | Problem::LedgerContradiction { .. }
            | Problem::LedgerCutShort { .. }
            | Problem::LedgerHeadDiffers
            | Problem::LedgerHeadMissing
            | Problem::KnownHeadMissing
            | Problem::Unreadable { .. }
            | Problem::More { .. } => Severity::Error,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotARecord => f.write_str("this is not a record"),
            Problem::LineChanged => f.write_str("this line was changed, or its hash in the next one"),
            Problem::LinesRemoved { count: 1 } => f.write_str("a line before this one was removed"),
            Problem::LinesRemoved { count } => write!(f, "{count} lines before this one were removed"),
            Problem::OutOfPlace => f.write_str("this line was put in, or moved here"),
            Problem::OfAnotherSandbox { sandbox } => {
                write!(f, "this line is of another sandbox, `{sandbox}`")
            }
            Problem::NotFromLedger => {
                f.write_str("the log does not begin where the ledger opened it: its beginning was exchanged")
            }
            Problem::CutShort { lines, written } => {
                write!(f, "the log was cut short: {written} lines were written, {lines} are left")
            }
            Problem::WrittenAfterEnd => f.write_str("this was written after the log had ended"),
            Problem::LastLineChanged => {
                f.write_str("this line was changed: the ledger has another hash of it")
            }
            Problem::Removed => f.write_str("the log was removed"),
            Problem::NotInLedger => f.write_str("the ledger does not know of this log"),
            Problem::LedgerContradiction { sandbox } => {
                write!(f, "this contradicts what the ledger says of {sandbox} before")
            }
            Problem::LedgerCutShort { lines, written } => {
                write!(f, "the ledger was cut short: {written} lines were written, {lines} are left")
            }
            Problem::LedgerHeadDiffers => f.write_str("this line was changed, or its hash in `ledger.head`"),
            Problem::LedgerHeadMissing => f.write_str("there is no head to check the end of the ledger by"),
            Problem::KnownHeadMissing => {
                f.write_str("no line of the ledger has the hash that you know: it was written anew")
            }
            Problem::Unreadable { why } => write!(f, "cannot be read: {why}"),
            Problem::More { count } => write!(f, "and {count} more findings in this file"),
            Problem::Torn { bytes } => {
                write!(
                    f,
                    "the last line is not whole ({bytes} bytes): its writer was killed; all before it is"
                )
            }
            Problem::EndedWithoutAWord => f.write_str(
                "the log ends abruptly: belljar was killed; what was cut off since is not known",
            ),
            Problem::NeverBegan => f.write_str("an empty log: belljar was killed while it began"),
            Problem::LedgerHeadBehind => {
                f.write_str("`ledger.head` is one line behind: belljar was killed in between")
            }
            Problem::LedgerHeadWasMissing => f.write_str(
                "`ledger.head` was missing or damaged when this line was written; what was cut off before it is not known",
            ),
            Problem::PrunedAndThere => f.write_str(
                "the log was pruned, and its file is still there: the next `audit prune` removes it",
            ),
        }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 5)?;
        fields.serialize_field("severity", &self.problem.severity())?;
        fields.serialize_field("file", &self.file.display().to_string())?;
        fields.serialize_field("line", &self.line)?;
        fields.serialize_field("code", self.problem.code())?;
        fields.serialize_field("what", &self.problem.to_string())?;
        fields.end()
    }
}

/// The findings of one file, as they come.
pub(super) struct Findings<'a> {
    file: &'a Path,
    found: Vec<Finding>,
    more: u64,
}

impl<'a> Findings<'a> {
    pub(super) fn of(file: &'a Path) -> Findings<'a> {
        Findings { file, found: Vec::new(), more: 0 }
    }

    pub(super) fn add(&mut self, line: Option<u64>, problem: Problem) {
        if self.found.len() < LISTED {
            self.found.push(Finding { file: self.file.into(), line, problem });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn into_list(mut self) -> Vec<Finding> {
        if self.more > 0 {
            let problem = Problem::More { count: self.more };
            self.found.push(Finding { file: self.file.into(), line: None, problem });
        }
        self.found
    }
}

/// A file that is no log at all would have as many findings as lines.
const LISTED: usize = 50;

//! `belljar audit verify`.

use super::Stop;
use super::sentence::printable;
use super::teller::{Teller, plural};
use crate::args::AuditVerifyArgs;
use belljar_audit::{AuditError, Report, Severity};
use belljar_spec::SandboxId;
use std::io::Write;

pub(super) fn verify(out: &mut impl Write, options: &AuditVerifyArgs) -> Result<u8, Stop> {
    let directory = belljar_audit::directory()?;
    let only = match options.sandbox.as_deref() {
        None => None,
        // A log that was removed is still in the ledger: a whole id needs no file.
        Some(text) => Some(match SandboxId::parse(text) {
            Some(sandbox) => sandbox,
            None => belljar_audit::find(&directory, Some(text))?.sandbox,
        }),
    };
    let mut teller = Teller::new();
    let report = belljar_audit::verify(&directory, only, options.head, |progress| teller.tell(progress));
    teller.finish();
    let report = report?;
    if let (Some(text), true, true) = (&options.sandbox, report.logs.is_empty(), report.is_fine()) {
        return Err(match report.pruned {
            0 => AuditError::NoSuchLog(text.clone()),
            _ => AuditError::Pruned(text.clone()),
        }
        .into());
    }
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(out, &report)?;
    }
    Ok(if report.is_fine() { 0 } else { CHANGED })
}

/// Findings as compilers write theirs: `FILE:LINE: error: what`.
fn print(out: &mut impl Write, report: &Report) -> Result<(), Stop> {
    for finding in &report.findings {
        let file = printable(&finding.file.display().to_string());
        let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
        let severity = match finding.problem.severity() {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        writeln!(out, "{file}{line}: {severity}: {}", finding.problem)?;
    }
    let count =
        |severity| report.findings.iter().filter(|finding| finding.problem.severity() == severity).count();
    let lines: u64 = report.logs.iter().map(|log| log.lines).sum();
    let read = format!("{}, {}", plural(report.logs.len() as u64, "log"), plural(lines, "line"));
    match (count(Severity::Error) as u64, count(Severity::Warning) as u64) {
        (0, 0) => writeln!(out, "{read}: all as they were written")?,
        (0, warnings) => writeln!(out, "{read}: all as they were written, {}", plural(warnings, "warning"))?,
        (errors, warnings) => {
            writeln!(out, "{read}: {}, {}", plural(errors, "error"), plural(warnings, "warning"))?;
        }
    }
    if report.pruned > 0 {
        writeln!(out, "{} more: pruned", plural(report.pruned, "log"))?;
    }
    if report.ledger_lines > 0 {
        writeln!(out, "ledger: {}, head {}", plural(report.ledger_lines, "line"), report.ledger_head)?;
    }
    Ok(())
}

/// Something is not as it was written.
const CHANGED: u8 = 1;

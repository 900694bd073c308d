//! The promises of `docs/audit.md`, tested from outside: with real files, real processes, and an attacker who edits the files.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "all of this is a test")]

mod crash;
mod forge;
mod full;
mod prune;
mod tamper;
mod together;

use belljar_audit::{Event, Log, Report, Severity};
use belljar_spec::SandboxId;
use belljar_spec::egress::{Reason, Refusal};
use std::path::{Path, PathBuf};
use std::process::Command;

fn sandbox(number: u64) -> SandboxId {
    SandboxId::from_random(number.to_be_bytes())
}

fn log_path(directory: &Path, sandbox: SandboxId) -> PathBuf {
    directory.join(format!("{sandbox}.jsonl"))
}

fn event(number: u64) -> Event {
    let name: belljar_spec::egress::HostName = format!("host{number}.example.com").parse().unwrap();
    Event::refused(&Refusal::new(name, Some(443), Reason::NameNotAllowed), 1)
}

/// An ended log of this many lines.
fn ended_log(directory: &Path, number: u64, lines: u64) {
    let log = Log::create(directory, sandbox(number)).unwrap();
    (1..lines).for_each(|number| log.append(&event(number)).unwrap());
    log.end(&Event::SandboxEnded {}).unwrap();
}

fn verify(directory: &Path) -> Report {
    belljar_audit::verify(directory, None, None, |_| {}).unwrap()
}

/// File name, line and code of the findings of this severity.
fn found(report: &Report, severity: Severity) -> Vec<(String, Option<u64>, &'static str)> {
    let matching = report.findings.iter().filter(|finding| finding.problem.severity() == severity);
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    matching.map(|finding| (name(&finding.file), finding.line, finding.problem.code())).collect()
}

/// This test program again, as another process that does only `test`, with a directory to work in.
fn again(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, directory);
    command
}

/// The directory, in such a process; `None` in the test run itself.
fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

const CHILD: &str = "BELLJAR_AUDIT_TEST_CHILD";

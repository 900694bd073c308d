//! Is the vault as it should be?

use super::super::print;
use crate::args::SecretsCheckArgs;
use crate::terms::for_command_line;
use belljar_spec::SandboxError;
use belljar_vault::{Finding, Part, Report, Vault};
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) fn check(vault: &Vault, options: &SecretsCheckArgs) -> Result<u8, SandboxError> {
    let report = vault.check();
    if options.json {
        print(format!("{:#}\n", as_json(&report)).as_bytes())?;
    } else if report.findings.is_empty() {
        eprintln!("belljar: there are no secrets in {}", vault.folder().display());
    } else {
        print(as_text(&report).as_bytes())?;
    }
    Ok(if report.is_fine() { 0 } else { WRONG })
}

fn as_text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let (kind, what) = described(&finding.part);
        // A string can always be written to.
        let _ = match &finding.outcome {
            Ok(()) => writeln!(text, "fine   {kind:<6}  {what}"),
            Err(error) => {
                writeln!(
                    text,
                    "wrong  {kind:<6}  {what}\n  {error}\n  hint: {}",
                    for_command_line(&error.hint())
                )
            }
        };
    }
    text
}

fn as_json(report: &Report) -> Value {
    let finding = |Finding { part, outcome }: &Finding| {
        let (kind, what) = described(part);
        let error = outcome
            .as_ref()
            .err()
            .map(|error| json!({ "code": error.code(), "message": error.to_string(), "hint": for_command_line(&error.hint()) }));
        json!({ "part": kind, "what": what, "fine": error.is_none(), "error": error })
    };
    json!({ "fine": report.is_fine(), "findings": report.findings.iter().map(finding).collect::<Value>() })
}

fn described(part: &Part) -> (&'static str, String) {
    match part {
        Part::Folder(path) => ("folder", path.display().to_string()),
        Part::Key(from) => ("key", from.clone()),
        Part::File(path) => ("vault", path.display().to_string()),
        Part::Secret(name) => ("secret", name.to_string()),
    }
}

/// Something is not as it should be.
const WRONG: u8 = 1;

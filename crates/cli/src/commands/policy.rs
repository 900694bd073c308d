//! `belljar policy`: is a file right, and what does policy say of a name?

use super::config::{effective, requests};
use super::learn;
use super::steer;
use super::table::table;
use super::{block_on, print};
use crate::args::{PolicyCheckArgs, PolicyCommand, PolicyExplainArgs, PolicyShowArgs};
use crate::failure;
use belljar_config::{self as config, Layer};
use belljar_engine::{Addresses, Explanation, Outcome, Resolve, explain};
use belljar_spec::SandboxError;
use belljar_spec::egress::{HostName, PolicyReport, RuleEffect, RuleReport};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

pub(crate) fn policy(command: PolicyCommand) -> Result<u8, SandboxError> {
    match command {
        PolicyCommand::Check(options) => check(&options),
        PolicyCommand::Show(options) => show(options),
        PolicyCommand::Explain(options) => explained(options),
        PolicyCommand::Suggest(options) => learn::suggest(&options),
    }
}

fn check(options: &PolicyCheckArgs) -> Result<u8, SandboxError> {
    let layer = options.layer.map_or_else(|| layer_of(&options.file), Layer::from);
    match config::check(&options.file, layer) {
        Ok(settings) => {
            let rules = match settings.rules() {
                1 => "1 rule".to_string(),
                rules => format!("{rules} rules"),
            };
            print(format!("fine as {}: {rules}\n", layer.file()).as_bytes())
        }
        // There is nothing to judge.
        Err(error) if !options.file.exists() => Err(error),
        Err(error) => {
            failure::say(&error);
            if layer == Layer::User && config::check(&options.file, Layer::Operator).is_ok() {
                eprintln!("  hint: `--as operator` checks it as the operator's");
            }
            Ok(NO)
        }
    }
}

fn layer_of(file: &Path) -> Layer {
    if file.ends_with(".belljar/config.toml") {
        Layer::Repository
    } else if file.starts_with("/etc/belljar") {
        Layer::Operator
    } else {
        Layer::User
    }
}

fn show(options: PolicyShowArgs) -> Result<u8, SandboxError> {
    let report = match &options.sandbox {
        Some(word) => {
            let state = steer::state()?;
            steer::chosen(&state, word)?.policy(&state)?
        }
        None => belljar_engine::policy_report(&effective(options.workspace, options.egress)?.0),
    };
    if options.json {
        return print(format!("{:#}\n", json!(report)).as_bytes());
    }
    print(shown(&report).as_bytes())
}

fn shown(report: &PolicyReport) -> String {
    let mut text = format!("policy {}  mode {}", report.policy, report.mode);
    if report.version > 0 {
        let _ = write!(text, "  changed {} times since the start", report.version);
    }
    if report.inspect {
        text.push_str("  TLS is intercepted everywhere");
    }
    text.push('\n');
    let row = |rule: &RuleReport| {
        let effect = match rule.effect {
            RuleEffect::Allow => "allow",
            RuleEffect::Deny => "deny",
        };
        let requests =
            rule.requests.as_ref().map(|requests| format!(", only {requests}")).unwrap_or_default();
        let time = match (rule.once, rule.ends_s) {
            (true, _) => ", for one connection".into(),
            (false, Some(left)) => format!(", for {left} s more"),
            (false, None) => String::new(),
        };
        [
            effect.into(),
            rule.rule.clone(),
            format!("{}{requests}", rule.openings.join(" ")),
            format!("{}{time}", rule.source),
        ]
    };
    if report.rules.is_empty() {
        text.push_str("no rules\n");
    } else {
        let rows: Vec<[String; 4]> = report.rules.iter().map(row).collect();
        text.push_str(&table(["", "RULE", "PORTS", "FROM"], &rows));
    }
    for range in &report.private {
        let _ = writeln!(text, "the operator opened the private range {range}");
    }
    if let Some(only) = &report.only {
        let _ = writeln!(text, "the operator lets only these be allowed: {}", only.join(", "));
    }
    text
}

fn explained(options: PolicyExplainArgs) -> Result<u8, SandboxError> {
    let (policy, _) = effective(options.workspace, options.egress)?;
    let ask = |name: &HostName| {
        block_on(async { Ok(belljar_engine::resolve(&policy, name).await) })
            .unwrap_or_else(|error| Err(error.to_string()))
    };
    let resolve: Option<Resolve<'_>> = if options.no_resolve { None } else { Some(&ask) };
    let explanation = explain(&policy, &options.target.name, options.target.port, resolve);
    match options.json {
        true => print(format!("{:#}\n", as_json(&explanation)).as_bytes())?,
        false => print(as_text(&explanation).as_bytes())?,
    };
    Ok(if matches!(explanation.outcome, Outcome::Allowed(_)) { 0 } else { NO })
}

fn as_text(explanation: &Explanation) -> String {
    let target = match explanation.port {
        Some(port) => format!("{}:{port}", explanation.name),
        None => explanation.name.to_string(),
    };
    let mut text = String::new();
    // A string can always be written to.
    let _ = match &explanation.outcome {
        Outcome::Allowed(grants) => {
            let _ = writeln!(text, "{target} can be reached");
            grants.iter().try_for_each(|grant| {
                writeln!(
                    text,
                    "  port {:<12} {:<10} by {}",
                    grant.ports.to_string(),
                    grant.protocols.to_string(),
                    grant.rule
                )
            })
        }
        Outcome::Refused { refusal, by } => {
            let _ = writeln!(text, "{target} cannot be reached: {}", refusal.reason);
            let rows = [
                ("by", by.as_ref().map(ToString::to_string)),
                ("found", refusal.detail.as_ref().map(ToString::to_string)),
                ("allow it", refusal.remedy()),
            ];
            let mut rows = rows.into_iter().filter_map(|(key, value)| Some((key, value?)));
            rows.try_for_each(|(key, value)| writeln!(text, "  {key:<17} {value}"))
        }
    };
    for (rule, filter) in &explanation.requests {
        let _ = writeln!(text, "  {:<17} {filter}, by {rule}", "looked into for");
    }
    let leads = match (&explanation.addresses, &explanation.outcome) {
        (Addresses::Found(found), _) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        (Addresses::Failed(why), _) => format!("nowhere: {why}"),
        (Addresses::NotResolved, Outcome::Allowed(_)) => "not resolved".into(),
        // A refused name is not resolved anyway.
        (Addresses::NotResolved, Outcome::Refused { .. }) => return text,
    };
    let _ = writeln!(text, "  {:<17} {leads}", "leads to");
    text
}

fn as_json(explanation: &Explanation) -> Value {
    let mut object = json!({
        "name": explanation.name,
        "port": explanation.port,
        "allowed": matches!(explanation.outcome, Outcome::Allowed(_)),
        "addresses": Value::Null,
    });
    match &explanation.outcome {
        Outcome::Allowed(grants) => {
            let grants = grants.iter().map(
                |grant| json!({ "ports": grant.ports, "protocols": grant.protocols, "rule": grant.rule }),
            );
            object["grants"] = grants.collect();
            let looked = explanation.requests.iter().map(|(rule, filter)| {
                let mut requests = requests(filter);
                requests["rule"] = json!(rule);
                requests
            });
            object["requests"] = looked.collect();
        }
        Outcome::Refused { refusal, by } => {
            object["reason"] = json!(refusal.reason);
            object["sentence"] = json!(refusal.reason.sentence());
            object["detail"] = json!(refusal.detail);
            object["by"] = json!(by);
            object["remedy"] = json!(refusal.remedy());
        }
    }
    match &explanation.addresses {
        Addresses::Found(found) => object["addresses"] = json!(found),
        Addresses::Failed(why) => object["resolving_failed"] = json!(why),
        Addresses::NotResolved => {}
    }
    object
}

/// It does not, or it cannot.
const NO: u8 = 1;

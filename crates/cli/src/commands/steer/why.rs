//! `belljar why`: what was refused, by which rule or for lack of one, and what would allow it; from the audit log.

use super::print_json;
use crate::args::WhyArgs;
use crate::commands::audit::{moment, printable};
use crate::commands::print;
use belljar_audit::{Event, LogFile, Reader};
use belljar_config::{self as config, EgressFlags};
use belljar_spec::egress::{Destination, HostName, Reason};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use serde::Serialize;
use std::fmt::Write;

/// One refusal, as often as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Explained {
    sandbox: String,
    time: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    reason: Reason,
    sentence: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The rule that says so; nothing where none allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// The policy that was in force, where the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    times: u64,
}

pub(crate) fn why(options: WhyArgs) -> Result<u8, SandboxError> {
    let directory = belljar_audit::directory()?;
    let (logs, host) = match options.what.as_deref() {
        None => (vec![belljar_audit::find(&directory, None)?], None),
        Some(word) => match belljar_audit::find(&directory, Some(word)) {
            Ok(log) => (vec![log], None),
            Err(error) if is_id(word) => return Err(error.into()),
            Err(_) => {
                let host = host(word)?;
                let logs: Vec<LogFile> = belljar_audit::list(&directory)?.into_iter().take(LOGS).collect();
                (logs, Some(host))
            }
        },
    };
    let mut all = Vec::new();
    for log in &logs {
        collect(log, host.as_ref(), &mut all)?;
    }
    if options.json {
        return print_json(&all);
    }
    if all.is_empty() {
        match &host {
            Some((name, port)) => {
                let host_and_port = host_and_port(name.as_str(), *port);
                eprintln!(
                    "belljar: {host_and_port} was not refused to any of the last {} sandboxes",
                    logs.len()
                );
                eprintln!("  hint: `belljar policy explain {host_and_port}` says what would be decided now");
            }
            None => eprintln!("belljar: nothing was refused to this sandbox"),
        }
        return Ok(0);
    }
    let now = host.and_then(|(name, port)| decided_now(&name, port));
    print(as_text(&all, now.as_deref()).as_bytes())
}

fn is_id(word: &str) -> bool {
    SandboxId::parse(word).is_some()
}

fn host(word: &str) -> Result<(HostName, Option<u16>), SandboxError> {
    let (name, port) = match word.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (word, None),
    };
    let name = name.parse().map_err(|error| {
        ErrorCode::RequestValue
            .error(format!("`{word}` is no sandbox, and no host: {error}"))
            .hint("name a host, or the beginning of a sandbox's id (`belljar audit`)")
    })?;
    Ok((name, port))
}

fn collect(
    log: &LogFile,
    host: Option<&(HostName, Option<u16>)>,
    all: &mut Vec<Explained>,
) -> Result<(), SandboxError> {
    let mut reader = Reader::open(&log.path)?;
    let mut policy = None;
    while let Some(record) = reader.next_record()? {
        let time = record.time.clone().unwrap_or_default();
        let Some(event) = record.event.known() else { continue };
        match event {
            Event::SandboxStarted { policy: digest, .. } => policy.clone_from(digest),
            Event::PolicyChanged { policy: digest, .. } => policy = Some(digest.clone()),
            _ => {}
        }
        let Some(mut one) = explained(event) else { continue };
        let is_meant = host.is_none_or(|(name, port)| {
            one.destination == name.as_str() && (port.is_none() || one.port.is_none() || one.port == *port)
        });
        if !is_meant {
            continue;
        }
        one.sandbox = log.sandbox.to_string();
        one.time = moment(&time);
        one.policy.clone_from(&policy);
        let same = |known: &&mut Explained| {
            (&known.sandbox, &known.destination, known.port, known.reason, &known.request)
                == (&one.sandbox, &one.destination, one.port, one.reason, &one.request)
        };
        match all.iter_mut().find(same) {
            Some(known) => *known = Explained { time: known.time.clone(), ..one },
            None => all.push(one),
        }
    }
    Ok(())
}

fn explained(event: &Event) -> Option<Explained> {
    let refused = |destination: &Destination, port: Option<u16>, reason: Reason, times: u64| Explained {
        sandbox: String::new(),
        time: String::new(),
        destination: destination.to_string(),
        port,
        request: None,
        reason,
        sentence: reason.sentence(),
        detail: None,
        rule: None,
        remedy: None,
        policy: None,
        times,
    };
    Some(match event {
        Event::NameRefused { name, reason, times, .. } => {
            let remedy = match reason {
                Reason::NameNotAllowed => Some(format!("--allow {name}")),
                _ => None,
            };
            Explained { remedy, ..refused(name, None, *reason, *times) }
        }
        Event::ConnectionRefused { destination, port, reason, detail, remedy, times, .. } => Explained {
            detail: detail.as_ref().map(ToString::to_string),
            remedy: remedy.clone(),
            ..refused(destination, *port, *reason, *times)
        },
        Event::RequestRefused { name, port, method, path, reason, detail, rule, remedy, times } => {
            Explained {
                request: Some(format!("{method} {path}")),
                detail: detail.as_ref().map(ToString::to_string),
                rule: rule.clone(),
                remedy: remedy.clone(),
                ..refused(name, *port, *reason, *times)
            }
        }
        Event::FetchRefused { destination, port, method, reason, detail, remedy } => Explained {
            request: Some(format!("{method} (fetched by the host)")),
            detail: detail.as_ref().map(ToString::to_string),
            remedy: remedy.clone(),
            ..refused(destination, *port, *reason, 1)
        },
        _ => return None,
    })
}

/// What the policy of this folder says now, in a sentence.
fn decided_now(name: &HostName, port: Option<u16>) -> Option<String> {
    let workspace = crate::args::workspace(None).ok()?;
    let policy = config::load(Some(&workspace), EgressFlags::default()).ok()?.policy?;
    let explanation = belljar_engine::explain(&policy, name, port, None);
    let digest = belljar_engine::policy_report(&policy).policy;
    Some(match explanation.outcome {
        belljar_engine::Outcome::Allowed(grants) => {
            let rule = grants.first().map(|grant| grant.rule.to_string()).unwrap_or_default();
            format!("a sandbox of this folder that starts now can reach it, by {rule} (policy {digest})")
        }
        belljar_engine::Outcome::Refused { refusal, by } => {
            let by = by.map(|by| format!(", by {by}")).unwrap_or_default();
            format!(
                "a sandbox of this folder that starts now cannot reach it: {}{by} (policy {digest})",
                refusal.reason
            )
        }
    })
}

fn as_text(all: &[Explained], now: Option<&str>) -> String {
    let mut text = String::new();
    let mut sandbox = "";
    for one in all {
        if one.sandbox != sandbox {
            let _ = writeln!(text, "sandbox {}", one.sandbox);
            sandbox = &one.sandbox;
        }
        let request = one.request.as_ref().map(|request| format!("{request} of ")).unwrap_or_default();
        let host_and_port = printable(&format!("{request}{}", host_and_port(&one.destination, one.port)));
        let times = if one.times > 1 { format!(", {} times or more", one.times) } else { String::new() };
        let _ = writeln!(text, "  {} {host_and_port}: {}{times}", one.time, one.sentence);
        let rows = [
            ("found", one.detail.clone()),
            ("rule", one.rule.clone().or_else(|| no_rule(one.reason))),
            ("policy", one.policy.clone()),
            ("allow it", one.remedy.clone()),
            ("who can", who_can(one)),
        ];
        for (key, value) in rows.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            let _ = writeln!(text, "    {key:<9} {}", printable(&value));
        }
    }
    if let Some(now) = now {
        let _ = writeln!(text, "{now}");
    }
    text
}

fn no_rule(reason: Reason) -> Option<String> {
    matches!(reason, Reason::NameNotAllowed | Reason::NotApproved).then(|| "none names it".into())
}

fn who_can(one: &Explained) -> Option<String> {
    Some(match one.reason {
        Reason::PrivateAddress => "the operator of this machine".into(),
        Reason::NameDenied => "the owner of the file with the rule that forbids it".into(),
        _ if one.remedy.is_some() => "you: `belljar allow HOST`, also while the sandbox lives".into(),
        _ => return None,
    })
}

fn host_and_port(host: &str, port: Option<u16>) -> String {
    match port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host.to_string(),
    }
}

/// Of the newest sandboxes; reading all logs of a year takes long.
const LOGS: usize = 50;

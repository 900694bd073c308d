//! `belljar config trust`: a repository's own configuration counts once the user looked at it and said so.

use super::config::openings;
use super::print;
use crate::args::{TrustArgs, workspace};
use belljar_config::{self as config, Proposal, SandboxSettings, Settings, Standing};
use belljar_spec::egress::{Rule, group};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

pub(crate) fn trust(options: TrustArgs) -> Result<u8, SandboxError> {
    let folder = workspace(options.folder)?;
    if options.revoke {
        return revoke(&folder, options.json);
    }
    let proposal = config::propose(&folder)?;
    let asks = !options.yes && proposal.standing != Standing::Trusted;
    if !options.json {
        print(as_text(&proposal).as_bytes())?;
    }
    if asks && !isatty(stdin()) {
        return Err(ErrorCode::RequestValue
            .error("cannot prompt: standard input is not a terminal")
            .hint("look at what the file allows, then say `belljar config trust --yes`"));
    }
    if asks && options.json {
        eprint!("{}", as_text(&proposal));
    }
    let trusted = !asks || confirmed()?;
    if trusted && proposal.standing != Standing::Trusted {
        proposal.keep()?;
    }
    if options.json {
        print(format!("{:#}\n", as_json(&proposal, trusted)).as_bytes())?;
    } else {
        eprintln!(
            "belljar: {}",
            match (trusted, proposal.standing) {
                (true, Standing::Trusted) => "this is trusted already",
                (true, Standing::Unknown | Standing::Changed) => "trusted, until the file changes",
                (false, _) => "not trusted: nothing of it counts",
            }
        );
    }
    Ok(if trusted { 0 } else { NO })
}

fn revoke(folder: &Path, as_json: bool) -> Result<u8, SandboxError> {
    let was_trusted = config::revoke(folder)?;
    if as_json {
        return print(format!("{:#}\n", json!({ "trusted": false, "was_trusted": was_trusted })).as_bytes());
    }
    match was_trusted {
        true => eprintln!("belljar: no longer trusted: nothing of it counts"),
        false => eprintln!("belljar: it was not trusted"),
    }
    Ok(0)
}

fn confirmed() -> Result<bool, SandboxError> {
    eprint!("Trust exactly this? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        ErrorCode::StreamFailed.error(format!("cannot read the answer: {error}")).caused_by(error)
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn as_text(proposal: &Proposal) -> String {
    let Settings { mode, groups, allow, deny, inspect, connections, bytes, reasons, .. } = &proposal.settings;
    let mut text = String::new();
    // A string can always be written to.
    let _ = writeln!(text, "{}", proposal.name());
    let _ = writeln!(
        text,
        "sha256 {}{}",
        proposal.sha256,
        match proposal.standing {
            Standing::Trusted => " (trusted)",
            Standing::Changed => " (another content was trusted)",
            Standing::Unknown => "",
        }
    );
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<12} {value}");
    };
    if let Some(mode) = mode {
        line("mode", mode.value.as_str());
    }
    let reason_of = |rule: &Rule| reasons.iter().find(|(label, _)| *label == rule.label);
    for rule in allow {
        let reason = reason_of(rule).map_or(String::new(), |(_, reason)| format!("  # {reason}"));
        line("allow", &format!("{}{reason}", openings(rule)));
    }
    for name in groups {
        let rules = group(name.value.as_str())
            .map_or(Vec::new(), |group| group.rules().map(Rule::to_string).collect());
        line("group", &format!("{}: {}", name.value, rules.join(", ")));
    }
    for rule in deny {
        line("deny", rule.label.text());
    }
    if inspect.is_some() {
        line("inspect", "TLS to every name");
    }
    if let Some(connections) = connections {
        line("connections", &connections.value.to_string());
    }
    if let Some(bytes) = bytes {
        line("bytes", &bytes.value.to_string());
    }
    let SandboxSettings { ports, volumes, env, rootfs, profile, checkpoint } = &proposal.settings.sandbox;
    for port in ports {
        line("port", &port.to_string());
    }
    for (name, target) in volumes {
        line("volume", &format!("{name} at {target}"));
    }
    for (name, value) in env {
        line("env", &format!("{}={}", name.as_str().escape_debug(), value.escape_debug()));
    }
    if let Some(rootfs) = rootfs {
        line("rootfs", &rootfs.to_string());
    }
    if let Some(profile) = profile {
        line("profile", &profile.value.escape_debug().to_string());
    }
    if *checkpoint {
        line("checkpoint", "before each command");
    }
    let tells_agents = proposal.file.with_file_name("agent-context").is_dir();
    if tells_agents {
        line("agents", "are told what the *.md of its agent-context directory say");
    }
    if proposal.settings.is_silent() && proposal.settings.sandbox.is_empty() && !tells_agents {
        line("nothing", "it says nothing that counts");
    }
    text
}

fn as_json(proposal: &Proposal, trusted: bool) -> Value {
    let Settings { mode, groups, allow, deny, inspect, connections, bytes, sandbox, .. } = &proposal.settings;
    let texts =
        |rules: &[Rule]| -> Vec<String> { rules.iter().map(|rule| rule.label.text().to_string()).collect() };
    json!({
        "file": proposal.file.to_string_lossy(),
        "sha256": proposal.sha256,
        "trusted": trusted,
        "before": match proposal.standing {
            Standing::Trusted => "trusted",
            Standing::Changed => "changed",
            Standing::Unknown => "unknown",
        },
        "mode": mode.as_ref().map(|mode| mode.value),
        "groups": groups.iter().map(|name| name.value).collect::<Vec<_>>(),
        "allow": texts(allow),
        "deny": texts(deny),
        "inspect": inspect.is_some(),
        "connections": connections.as_ref().map(|number| number.value),
        "bytes": bytes.as_ref().map(|size| size.value),
        "sandbox": {
            "ports": sandbox.ports,
            "volumes": sandbox.volumes.iter().map(|(name, at)| (name.to_string(), json!(at.as_str()))).collect::<Map<_, _>>(),
            "env": sandbox.env.iter().map(|(name, value)| (name.to_string(), json!(value))).collect::<Map<_, _>>(),
            "rootfs": sandbox.rootfs.as_ref().map(ToString::to_string),
            "profile": sandbox.profile.as_ref().map(|profile| &profile.value),
        },
    })
}

/// The user was asked, and said no.
const NO: u8 = 1;

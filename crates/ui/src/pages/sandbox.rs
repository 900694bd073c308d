//! One sandbox: what it is, what it may reach, what it asks, and what was decided.

use super::sandboxes::{actions, pill};
use super::{now_ms, question};
use crate::html::{Text, age, button};
use crate::serve::Shared;
use belljar_api::client::ClientError;
use belljar_api::{AuditRecord, OpenPort, SandboxInfo, SandboxQuestion, State};
use belljar_spec::ForwardedAt;
use belljar_spec::egress::{PolicyReport, RuleEffect, RuleReport};
use serde_json::Value;
use std::net::SocketAddr;

pub(super) async fn body(
    shared: &Shared,
    name: &str,
    questions: &[SandboxQuestion],
) -> Result<String, ClientError> {
    let sandbox = shared.client.sandbox(name);
    let info = sandbox.info().await?;
    let back = format!("/sandbox/{}", info.name);
    let is_alive = matches!(info.state, State::Live | State::Paused);
    // A backend without a network of its own tells none.
    let open = match info.state {
        State::Live => sandbox.open_ports().await.unwrap_or_default(),
        State::Starting | State::Paused | State::Stopping | State::Stopped => Vec::new(),
    };
    // One without egress has no policy that could change.
    let policy = if is_alive { sandbox.policy().await.ok() } else { None };
    let decisions = match info.id.is_some() {
        true => shared.decisions.of(&shared.client, &info.name, info.id.as_deref()).await.unwrap_or_default(),
        false => Vec::new(),
    };
    let own: String = questions
        .iter()
        .filter(|asked| asked.sandbox == info.name)
        .map(|asked| question(asked, &back, false))
        .collect();
    let asked = match own.is_empty() {
        true => String::new(),
        false => format!(
            r#"<section><h2>Waits for you</h2><ul class="questions" aria-live="polite">{own}</ul></section>"#
        ),
    };
    Ok(format!(
        r#"<div class="heading"><div><p class="quiet"><a href="/">Sandboxes</a> /</p><h1>{0}</h1></div><div class="actions">{1} {2}</div></div>
{asked}{3}{4}{5}"#,
        Text(&info.name),
        pill(&info),
        actions(&info, &back),
        facts(&info, &open),
        policy.as_ref().map_or_else(|| no_policy(&info), |policy| reach(policy, &back)),
        decided(&decisions, &back, policy.is_some()),
    ))
}

fn facts(info: &SandboxInfo, open: &[OpenPort]) -> String {
    let fact = |name: &str, value: Option<String>| {
        value.map(|value| format!("<div><dt>{name}</dt><dd>{}</dd></div>", Text(value))).unwrap_or_default()
    };
    let backend = info.backend.clone().zip(info.assurance.clone());
    [
        r#"<dl class="facts">"#.to_string(),
        fact("Folder", info.folder.clone()),
        fact("Isolation", backend.map(|(backend, assurance)| format!("{backend}, {assurance}"))),
        fact("Profile", Some(info.profile.clone())),
        fact("Owner", Some(info.owner.clone())),
        fact("Commands", Some(info.commands.to_string())),
        ports(info, open),
        fact("Made", Some(format!("{} ago", age(info.created_ms, now_ms())))),
        fact("Audit log", info.id.clone()),
        "</dl>".to_string(),
    ]
    .concat()
}

/// Links to what this machine leads to, and what is open inside beside that.
fn ports(info: &SandboxInfo, open: &[OpenPort]) -> String {
    let links = info.forwarded.iter().map(link);
    let is_led = |port: &&OpenPort| info.forwarded.iter().any(|at| at.inside == port.port);
    let others = open.iter().filter(|port| !is_led(port)).map(|open| {
        let (port, name) = (open.port, Text(&info.name));
        format!(
            r#"{port} <span class="quiet">open inside: <code>belljar forward {name} {port}</code></span>"#
        )
    });
    let all: Vec<String> = links.chain(others).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("<div><dt>Ports</dt><dd>{}</dd></div>", all.join("<br>")),
    }
}

/// What listens there is the sandbox's: the page that it serves is told nothing of this one.
pub(super) fn link(at: &ForwardedAt) -> String {
    let here = SocketAddr::new(at.address, at.port);
    let inside = if at.port == at.inside { String::new() } else { format!(" → {}", at.inside) };
    format!(r#"<a href="http://{here}/" target="_blank" rel="noopener noreferrer">{here}</a>{inside}"#)
}

fn no_policy(info: &SandboxInfo) -> String {
    let why = match info.state {
        State::Stopped | State::Stopping => {
            "The sandbox does not run. What it may reach is decided when it starts."
        }
        State::Starting | State::Live | State::Paused => {
            "This sandbox has no network that could be changed while it lives."
        }
    };
    format!(r#"<section class="card"><h2>What may leave</h2><p class="quiet">{why}</p></section>"#)
}

fn reach(policy: &PolicyReport, back: &str) -> String {
    let mode = match policy.mode.as_str() {
        "none" => "Nothing may leave.",
        "ask" => "What rules allow. Of any other name you are asked.",
        "open" => "Any public name, except what is denied.",
        _ => "Only what rules allow.",
    };
    let rules = match policy.rules.as_slice() {
        [] => r#"<p class="empty">No rules.</p>"#.to_string(),
        rules => {
            let (live, first): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.live);
            let rows: String = live.into_iter().rev().chain(first).map(|one| rule(one, back)).collect();
            // What was added while it lives is seen at once; a long list of the start, when it is asked for.
            let open =
                if rules.len() <= FEW_RULES || rules.iter().any(|rule| rule.live) { " open" } else { "" };
            let count = match rules.len() {
                1 => "1 rule".to_string(),
                more => format!("{more} rules"),
            };
            format!(
                r#"<details class="rules" id="rules"{open}><summary>{count}</summary><table><thead><tr><th>Rule</th><th>Host</th><th>Ports</th><th>From</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>{rows}</tbody></table></details>"#
            )
        }
    };
    format!(
        r#"<section class="card"><div class="heading"><div><h2>What may leave</h2><p class="quiet">{mode}</p></div><p class="quiet digest">policy <code>{}</code></p></div>
<form method="post" action="{back}/allow" class="inline"><input type="hidden" name="back" value="{back}">
<label class="grow"><span class="hidden">Host</span><input name="rule" id="rule" required autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="example.com, =api.example.com, example.com:8443"></label>
<label><span class="hidden">For how long</span><select name="for" id="for"><option value="">while it lives</option><option value="600">for 10 minutes</option><option value="once">for one connection</option></select></label>
<button class="primary">Allow</button><button class="danger" formaction="{back}/deny">Deny</button></form>
{rules}</section>"#,
        Text(&policy.policy),
        back = Text(back),
    )
}

fn rule(rule: &RuleReport, back: &str) -> String {
    let (word, class) = match rule.effect {
        RuleEffect::Allow => ("allow", "good"),
        RuleEffect::Deny => ("deny", "bad"),
    };
    let requests = rule
        .requests
        .as_ref()
        .map(|requests| format!(r#"<span class="quiet block">{}</span>"#, Text(requests)));
    let time = match (rule.once, rule.ends_s) {
        (true, _) => r#"<span class="quiet block">for one connection</span>"#.to_string(),
        (false, Some(left)) => format!(r#"<span class="quiet block">{} min left</span>"#, left.div_ceil(60)),
        (false, None) => String::new(),
    };
    let opposite = match (rule.live, rule.effect) {
        (_, RuleEffect::Allow) => {
            button(&format!("{back}/deny"), back, &[("rule", &rule.rule)], "Deny", "danger quiet")
        }
        (true, RuleEffect::Deny) => {
            button(&format!("{back}/allow"), back, &[("rule", &rule.rule)], "Allow", "quiet")
        }
        // What the start denies no change opens.
        (false, RuleEffect::Deny) => String::new(),
    };
    format!(
        r#"<tr><td data-label="Rule"><span class="pill {class}">{word}</span></td><td data-label="Host"><code>{}</code>{}</td><td data-label="Ports">{}</td><td data-label="From">{}{time}</td><td class="actions">{opposite}</td></tr>"#,
        Text(&rule.rule),
        requests.unwrap_or_default(),
        Text(rule.openings.join(" ")),
        Text(&rule.source),
    )
}

fn decided(decisions: &[AuditRecord], back: &str, can_change: bool) -> String {
    let rows: String = decisions.iter().filter_map(|record| decision(record, back, can_change)).collect();
    let list = match rows.is_empty() {
        true => r#"<p class="empty">Nothing wanted to leave yet.</p>"#.to_string(),
        false => format!(
            r#"<table class="log"><thead><tr><th>Time</th><th>Decision</th><th>Host</th><th>Why</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>{rows}</tbody></table>"#
        ),
    };
    format!(r#"<section class="card"><h2>Egress decisions</h2>{list}</section>"#)
}

/// A line of the log that a person wants to see. What ended is in the log.
fn decision(record: &AuditRecord, back: &str, can_change: bool) -> Option<String> {
    let event = &record.event;
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let port = |host: &str| match &event["port"] {
        Value::Number(port) => format!("{host}:{port}"),
        _ => host.to_string(),
    };
    let (word, class, host, why) = match text("kind") {
        "connection_opened" => ("opened", "good", port(text("name")), text("rule").to_string()),
        "connection_refused" | "fetch_refused" => {
            ("refused", "bad", port(text("destination")), text("reason").replace('_', " "))
        }
        "name_refused" => ("refused", "bad", text("name").to_string(), text("reason").replace('_', " ")),
        "request_refused" => {
            let request = format!("{} {}", text("method"), text("path"));
            (
                "refused",
                "bad",
                port(text("name")),
                format!("{} ({request})", text("reason").replace('_', " ")),
            )
        }
        "placeholder_elsewhere" => (
            "INCIDENT",
            "bad",
            port(text("destination")),
            format!("the placeholder of {}", text("credential")),
        ),
        "push_refused" => {
            ("refused", "bad", port(text("name")), format!("push of {}: {}", text("ref"), text("detail")))
        }
        "push_sent" => ("pushed", "good", port(text("name")), text("ref").to_string()),
        "model_refused" => ("refused", "bad", text("model").to_string(), text("reason").replace('_', " ")),
        "policy_changed" => (text("change"), "still", text("rule").to_string(), format!("by {}", text("by"))),
        "approval_requested" => {
            ("asked", "busy", port(text("name")), format!("question {}", event["question"]))
        }
        "approval_answered" => {
            ("answered", "still", port(text("name")), format!("{}, by {}", text("answer"), text("by")))
        }
        _ => return None,
    };
    let remedy = text("remedy").strip_prefix("--allow ").or_else(|| {
        (text("kind") == "name_refused" && text("reason") == "name_not_allowed").then(|| text("name"))
    });
    let allow = remedy
        .filter(|_| can_change)
        .map(|rule| button(&format!("{back}/allow"), back, &[("rule", rule)], "Allow", "quiet"))
        .unwrap_or_default();
    let times = event["times"].as_u64().filter(|times| *times > 1).map(|times| format!(" ×{times}"));
    let time = record.time.as_deref().and_then(|time| time.get(11..19)).unwrap_or_default();
    Some(format!(
        r#"<tr><td data-label="Time"><time>{}</time></td><td data-label="Decision"><span class="pill {class}">{}</span></td><td data-label="Host"><code>{}</code>{}</td><td data-label="Why">{}</td><td class="actions">{allow}</td></tr>"#,
        Text(time),
        Text(word),
        Text(host),
        times.unwrap_or_default(),
        Text(why),
    ))
}

/// As many as are read at a glance.
const FEW_RULES: usize = 6;

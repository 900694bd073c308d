//! All sandboxes, and the form that makes one: it offers what works here, and says why the rest does not.

use super::sandbox::link;
use super::{now_ms, question};
use crate::html::{Text, age, button};
use crate::serve::Shared;
use belljar_api::client::{ClientError, SandboxFilter};
use belljar_api::{Capabilities, ProfileInfo, SandboxInfo, SandboxQuestion, State};

pub(super) async fn body(shared: &Shared, questions: &[SandboxQuestion]) -> Result<String, ClientError> {
    let all = shared.client.sandboxes(&SandboxFilter::default()).await?;
    let profiles = shared.client.profiles().await?;
    let machine = shared.client.capabilities().await?;
    let asked = match questions {
        [] => String::new(),
        questions => {
            let all: String = questions.iter().map(|asked| question(asked, "/", true)).collect();
            format!(
                r#"<section aria-label="Approvals"><h2>Waits for you</h2><ul class="questions">{all}</ul></section>"#
            )
        }
    };
    let list = match all.as_slice() {
        [] => r#"<div class="empty"><p>No sandbox is kept.</p>
<p class="quiet">Make one below, or with <code>belljar start</code> in a folder.</p></div>"#
            .to_string(),
        all => {
            let rows: String = all.iter().map(row).collect();
            format!(
                r#"<table class="wide"><thead><tr><th>Sandbox</th><th>State</th><th>Isolation</th><th>Egress</th><th>Ports</th><th>Commands</th><th>Age</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>{rows}</tbody></table>"#
            )
        }
    };
    Ok(format!(
        r#"{asked}<div class="heading"><h1>Sandboxes</h1><p class="quiet">{}</p></div>{list}{}"#,
        count(all.len()),
        form(&profiles, &machine)
    ))
}

fn count(sandboxes: usize) -> String {
    match sandboxes {
        0 => String::new(),
        1 => "1 sandbox".into(),
        more => format!("{more} sandboxes"),
    }
}

fn row(info: &SandboxInfo) -> String {
    let folder = info.folder.as_deref().unwrap_or("a folder of its own");
    let isolation = match (&info.backend, &info.assurance) {
        (Some(backend), Some(assurance)) => {
            format!(r#"<span>{} <span class="quiet">{}</span></span>"#, Text(backend), Text(assurance))
        }
        _ => "–".into(),
    };
    format!(
        r#"<tr><td data-label="Sandbox"><a class="name" href="/sandbox/{0}">{0}</a><span class="quiet block">{1}</span></td><td data-label="State">{2}</td><td data-label="Isolation">{isolation}</td><td data-label="Egress">{3}</td><td data-label="Ports">{7}</td><td data-label="Commands">{4}</td><td data-label="Age">{5}</td><td class="actions">{6}</td></tr>"#,
        Text(&info.name),
        Text(folder),
        pill(info),
        Text(&info.egress),
        info.commands,
        age(info.created_ms, now_ms()),
        actions(info, "/"),
        match info.forwarded.is_empty() {
            true => "–".to_string(),
            false => info.forwarded.iter().map(link).collect::<Vec<_>>().join("<br>"),
        },
    )
}

pub(super) fn pill(info: &SandboxInfo) -> String {
    let (word, class) = match info.state {
        State::Starting => ("starting", "busy"),
        State::Live => ("live", "good"),
        State::Paused => ("paused", "busy"),
        State::Stopping => ("stopping", "busy"),
        State::Stopped => ("stopped", "still"),
    };
    let fault = info.fault.as_ref().map(|fault| format!(r#"<span class="fault">{}</span>"#, Text(fault)));
    format!(r#"<span class="pill {class}">{word}</span>{}"#, fault.unwrap_or_default())
}

/// What can be done in its state.
pub(super) fn actions(info: &SandboxInfo, back: &str) -> String {
    let one = |action: &str, label: &str, class: &str| {
        button(&format!("/sandbox/{}/{action}", info.name), back, &[], label, class)
    };
    match info.state {
        State::Live => [one("pause", "Pause", "quiet"), one("stop", "Stop", "quiet")].concat(),
        State::Paused => [one("resume", "Resume", "quiet"), one("stop", "Stop", "quiet")].concat(),
        State::Starting | State::Stopping => String::new(),
        State::Stopped => one("remove", "Remove", "danger quiet"),
    }
}

fn form(profiles: &[ProfileInfo], machine: &Capabilities) -> String {
    let option = |profile: &ProfileInfo| {
        let chosen = if profile.default { " selected" } else { "" };
        format!(
            r#"<option value="{0}"{chosen}>{0} – {1}, {2}</option>"#,
            Text(&profile.name),
            Text(&profile.label),
            Text(&profile.assurance)
        )
    };
    let options: String = profiles.iter().map(option).collect();
    let missing: String = machine
        .backends
        .iter()
        .filter(|backend| !backend.works)
        .map(|backend| {
            let hint =
                backend.hint.as_ref().map(|hint| format!(r#" <span class="quiet">{}</span>"#, Text(hint)));
            format!(
                "<li><strong>{}</strong>: {}{}</li>",
                Text(&backend.backend),
                Text(backend.reason.as_deref().unwrap_or("it does not work here")),
                hint.unwrap_or_default()
            )
        })
        .collect();
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!(
            r#"<details id="missing"><summary>What does not work on this machine, and why</summary><ul>{missing}</ul></details>"#
        ),
    };
    format!(
        r#"<section class="card"><h2>New sandbox</h2>
<form method="post" action="/new" class="fields"><input type="hidden" name="back" value="/">
<label>Folder <span class="quiet">of this machine; empty: one of its own</span><input name="folder" id="folder" autocomplete="off" placeholder="/home/me/project"></label>
<label>Profile<select name="profile" id="profile">{options}</select></label>
<label>Egress<select name="egress" id="egress"><option value="">as configured</option><option value="ask">ask me</option><option value="strict">strict: what rules allow</option><option value="none">none</option></select></label>
<button class="primary">Create</button></form>{missing}</section>"#
    )
}

//! `belljar config`: what the files come to, and what may stand in them.

mod sandbox;

use super::daemon::profiles;
use super::{print, trust};
use crate::args::{ConfigCommand, ConfigInitArgs, ConfigShowArgs, EgressArgs, workspace};
use crate::failure::say_notes;
use belljar_config::{self as config, DaemonSettings, LlmLoaded, Loaded, Origin};
use belljar_fleet::{BUILT_IN, Profile, known_profiles};
use belljar_spec::egress::{EgressPolicy, PathGlob, RequestFilter, RequestMethod, Rule, RuleSource};
use belljar_spec::secret::{Credential, Inject};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::create_private;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) fn config(command: ConfigCommand) -> Result<u8, SandboxError> {
    match command {
        ConfigCommand::Schema => print(config::schema().as_bytes()),
        ConfigCommand::Show(options) => show(*options),
        ConfigCommand::Trust(options) => trust::trust(options),
        ConfigCommand::Profiles(options) => profiles::profiles(&options),
        ConfigCommand::Init(options) => init(&options),
    }
}

/// What files and flags come to. Notes go to standard error.
pub(super) fn effective(
    folder: Option<PathBuf>,
    egress: EgressArgs,
) -> Result<(EgressPolicy, Loaded), SandboxError> {
    let mut loaded =
        config::load_for_command(Some(&workspace(folder)?), egress.request(), &RuleSource::Flag)?;
    say_notes(&loaded.notes);
    Ok((loaded.policy.take().unwrap_or_default(), loaded))
}

fn show(options: ConfigShowArgs) -> Result<u8, SandboxError> {
    let (policy, loaded) = effective(options.workspace, options.egress)?;
    let llm = loaded.llm.route(&options.llm.request()?.unwrap_or_default())?;
    let shown = Shown { policy, loaded, llm, daemon: config::daemon()?, profiles: known_profiles()? };
    match options.json {
        true => print(format!("{:#}\n", as_json(&shown)).as_bytes()),
        false => print(as_text(&shown).as_bytes()),
    }
}

/// Writes the sample where the user's file belongs; one that is there stays.
fn init(options: &ConfigInitArgs) -> Result<u8, SandboxError> {
    if options.print {
        return print(config::sample().as_bytes());
    }
    let path = config::ConfigPaths::real().user.ok_or_else(|| {
        ErrorCode::ConfigInvalid
            .error("neither HOME nor XDG_CONFIG_HOME says where your configuration belongs")
            .hint("`--print` shows the sample")
    })?;
    let folder = path.parent().unwrap_or(&path);
    let made = create_private(folder).and_then(|()| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path)?.write_all(config::sample().as_bytes())
    });
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ErrorCode::ConfigInvalid
            .error(format!("`{}` is there already, and stays", path.display()))
            .hint("`belljar config init --print` shows the sample"),
        _ => ErrorCode::StateFailed
            .error(format!("cannot write `{}`: {error}", path.display()))
            .hint("`--print` shows the sample; write it where you want it"),
    })?;
    eprintln!("belljar: wrote {}; every line is commented out", path.display());
    Ok(0)
}

/// All that files and flags come to.
struct Shown {
    policy: EgressPolicy,
    loaded: Loaded,
    llm: Option<LlmLoaded>,
    daemon: DaemonSettings,
    profiles: Vec<Profile>,
}

fn as_text(shown: &Shown) -> String {
    let Shown { policy, loaded, llm, daemon, profiles } = shown;
    let origins = &loaded.origins;
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut line = |key: &str, value: &str, origin: &dyn std::fmt::Display| {
        rows.push([key.to_string(), value.to_string(), origin.to_string()]);
    };
    for row in sandbox::defaults(loaded) {
        line(row.key, &row.value, &row.origin);
    }
    line("mode", policy.mode.as_str(), &origins.mode);
    for (name, origin) in &origins.groups {
        line("group", name.as_str(), origin);
    }
    for (key, rules) in [("allow", &policy.allow), ("deny", &policy.deny)] {
        for rule in rules {
            let reason = origins.reasons.iter().find(|(label, _)| *label == rule.label);
            let reason = reason.map_or(String::new(), |(_, reason)| format!("  # {reason}"));
            let value = if key == "deny" { rule.label.text().to_string() } else { openings(rule) };
            line(key, &value, &format!("{}{reason}", source(rule)));
        }
    }
    for (range, origin) in &origins.private {
        line("private", &range.to_string(), origin);
    }
    let resolvers: Vec<String> = policy.resolvers.iter().map(ToString::to_string).collect();
    let resolvers = if resolvers.is_empty() { "the system's".into() } else { resolvers.join(", ") };
    line("resolvers", &resolvers, &origins.resolvers);
    if let Some(proxy) = &policy.proxy {
        line("proxy", &proxy.at.to_string(), &origins.proxy);
    }
    for (file, origin) in &origins.authorities {
        line("authorities", file, origin);
    }
    if policy.inspect {
        line("inspect", "every name", &origins.inspect);
    }
    line("connections", &policy.limits.connections.to_string(), &origins.connections);
    let bytes = policy.limits.bytes.map_or("no limit".into(), |bytes| bytes.to_string());
    line("bytes", &bytes, &origins.bytes);
    if let Some(LlmLoaded { route, origin, .. }) = llm {
        line("llm", &format!("{} ({})", route.upstream, route.kind), origin);
        for list in &route.models {
            let names: Vec<&str> = list.iter().map(|glob| glob.as_str()).collect();
            line("llm model", &names.join(" or "), &"");
        }
        line("llm budget", &route.budget.to_string(), &"");
    }
    for binding in loaded.bindings() {
        let value =
            format!("{} {}{}", binding.value.name, bindings(&binding.value), injected(&binding.value));
        line("credential", &value, &binding.place);
    }
    if let Some(app) = loaded.github_app() {
        line("github", &format!("app {}, at {}", app.value.app, app.value.host), &app.place);
    }
    if let Some(warm) = &daemon.warm {
        line("warm", &warm.value.to_string(), &warm.place);
    }
    if let Some(retention) = &daemon.retention {
        line("retention", &in_words(retention.value), &retention.place);
    }
    if let Some(address) = &daemon.e2b {
        line("e2b", &address.value.to_string(), &address.place);
    }
    if let Some(domain) = &daemon.e2b_domain {
        line("e2b domain", &domain.value, &domain.place);
    }
    let built_in = profiles.iter().filter(|profile| profile.source == BUILT_IN);
    let names: Vec<&str> = built_in.map(|profile| profile.name.as_str()).collect();
    line("profiles", &names.join(", "), &BUILT_IN);
    for profile in profiles.iter().filter(|profile| profile.source != BUILT_IN) {
        line("profiles", &profile.name, &profile.source);
    }
    for (layer, file) in &loaded.files {
        line("file", layer.as_str(), file);
    }
    let width = rows.iter().map(|[_, value, _]| value.chars().count()).max().unwrap_or_default();
    rows.iter()
        .map(|[key, value, origin]| {
            format!("{key:<12} {value:<width$}  {origin}").trim_end().to_string() + "\n"
        })
        .collect()
}

fn as_json(shown: &Shown) -> Value {
    let Shown { policy, loaded, llm, daemon, profiles } = shown;
    let origins = &loaded.origins;
    let rules = |rules: &[Rule]| -> Vec<Value> {
        let one = |rule: &Rule| {
            let reason = origins.reasons.iter().find(|(label, _)| *label == rule.label);
            json!({
                "rule": rule.label.text(),
                "host": rule.host,
                "openings": rule.openings,
                "requests": rule.requests.as_ref().map(requests),
                "from": source(rule),
                "reason": reason.map(|(_, reason)| reason),
            })
        };
        rules.iter().map(one).collect()
    };
    let with_origin = |value: Value, origin: &Origin| json!({ "value": value, "from": origin.to_string() });
    let group = |(name, origin): &(_, Origin)| with_origin(json!(name), origin);
    json!({
        "sandbox": sandbox::as_json(loaded),
        "mode": with_origin(json!(policy.mode), &origins.mode),
        "groups": origins.groups.iter().map(group).collect::<Vec<_>>(),
        "allow": rules(&policy.allow),
        "deny": rules(&policy.deny),
        "private": origins.private.iter().map(|(range, origin)| with_origin(json!(range.to_string()), origin)).collect::<Vec<_>>(),
        "resolvers": with_origin(json!(policy.resolvers), &origins.resolvers),
        "proxy": policy.proxy.as_ref().map(|proxy| with_origin(json!(proxy.at.to_string()), &origins.proxy)),
        "authorities": origins.authorities.iter().map(|(file, origin)| with_origin(json!(file), origin)).collect::<Vec<_>>(),
        "inspect": with_origin(json!(policy.inspect), &origins.inspect),
        "connections": with_origin(json!(policy.limits.connections), &origins.connections),
        "bytes": with_origin(json!(policy.limits.bytes), &origins.bytes),
        "credentials": loaded.bindings().iter().map(|binding| json!({
            "name": binding.value.name,
            "secret": binding.value.source.to_string(),
            "hosts": binding.value.bindings.iter().map(|bound| format!("{}:{}", bound.host, bound.ports)).collect::<Vec<_>>(),
            "inject": inject(&binding.value).as_str(),
            "variables": binding.value.variables.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
            "from": binding.place.to_string(),
        })).collect::<Vec<_>>(),
        "github": loaded.github_app().map(|app| json!({
            "app": app.value.app,
            "installation": app.value.installation,
            "key": app.value.key.to_string(),
            "api": app.value.api,
            "host": app.value.host,
            "from": app.place.to_string(),
        })),
        "llm": llm.as_ref().map(|LlmLoaded { route, origin, .. }| json!({
            "url": route.upstream,
            "kind": route.kind,
            "key": route.key.as_ref().map(ToString::to_string),
            "models": route.models,
            "budget": { "calls": route.budget.calls, "turns": route.budget.turns, "tokens": route.budget.tokens, "usd_micros": route.budget.cost },
            "account": route.billing.account(),
            "port": route.port,
            "from": origin.to_string(),
        })),
        "daemon": {
            "warm": daemon.warm.as_ref().map(|set| json!({ "value": set.value, "from": set.place.to_string() })),
            "retention_s": daemon.retention.as_ref().map(|set| json!({ "value": set.value.as_secs(), "from": set.place.to_string() })),
            "e2b": daemon.e2b.as_ref().map(|set| json!({ "value": set.value, "from": set.place.to_string() })),
            "e2b_domain": daemon.e2b_domain.as_ref().map(|set| json!({ "value": set.value, "from": set.place.to_string() })),
        },
        "profiles": profiles.iter().map(|profile| json!({ "value": profile.name, "from": profile.source })).collect::<Vec<_>>(),
        "files": loaded.files.iter().map(|(layer, file)| json!({ "layer": layer.as_str(), "path": **file })).collect::<Vec<_>>(),
        "notes": loaded.notes.iter().map(super::run::of_note).collect::<Vec<_>>(),
    })
}

/// `secret:build -> =api.example.com:443`.
fn bindings(credential: &Credential) -> String {
    let bindings: Vec<String> =
        credential.bindings.iter().map(|bound| format!("{}:{}", bound.host, bound.ports)).collect();
    format!("{} -> {}", credential.source, bindings.join(", "))
}

/// Which requests get the value. All places of a credential have the same.
fn inject(credential: &Credential) -> Inject {
    credential.bindings.first().map(|bound| bound.inject).unwrap_or_default()
}

/// Nothing, where it is as usual.
fn injected(credential: &Credential) -> String {
    match inject(credential) {
        Inject::Placeholder => String::new(),
        always @ Inject::Always => format!(", inject {}", always.as_str()),
    }
}

/// `example.com 443 (tls), 80 (http)`, and which requests there.
pub(super) fn openings(rule: &Rule) -> String {
    let openings: Vec<String> = rule.openings.iter().map(ToString::to_string).collect();
    let requests = rule.requests.as_ref().map(|filter| format!(": {filter}")).unwrap_or_default();
    format!("{} {}{requests}", rule.host, openings.join(", "))
}

/// The requests that a rule allows: the gateway inspects TLS for them.
pub(super) fn requests(filter: &RequestFilter) -> Value {
    json!({
        "methods": filter.methods.iter().map(RequestMethod::as_str).collect::<Vec<_>>(),
        "paths": filter.paths.iter().map(PathGlob::as_str).collect::<Vec<_>>(),
    })
}

fn source(rule: &Rule) -> String {
    match rule.label.source() {
        RuleSource::Flag | RuleSource::Program | RuleSource::Mode => "command line".into(),
        RuleSource::Credential(name) => format!("credential {name}"),
        RuleSource::Live(who) => format!("live, by {who}"),
        RuleSource::Group(name) => format!("group {name}"),
        RuleSource::File { path, line } => format!("{path}:{line}"),
    }
}

/// In the largest unit that it is a whole number of.
fn in_words(age: Duration) -> String {
    match age.as_secs() / 3600 {
        hours if hours % 24 == 0 => format!("{}d", hours / 24),
        hours => format!("{hours}h"),
    }
}

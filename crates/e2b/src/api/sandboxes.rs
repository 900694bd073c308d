//! Sandboxes: from what clients ask to what the daemon is asked, and back.

use super::shapes::{
    CLIENT_ID, Connect, Detail, ENVD_VERSION, Lifecycle, Listed, Network, NewSandbox, Pause, Refresh, Resume,
    Sandbox, Timeout, rfc3339,
};
use super::templates::{self, Found as FoundTemplate};
use crate::envd::USER;
use crate::facts::{Facts, OnTimeout, Size, Standing, VERSION, now_ms};
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Query, header, json, nothing, read_json};
use crate::lifecycle::{Found, MAX_TIMEOUT_S, lease_s};
use crate::metrics;
use crate::network::policy;
use crate::server::{Caller, E2b};
use crate::token::random;
use belljar_api::{CreateSandbox, SandboxRequest};
use belljar_spec::request::{EnvValue, LimitsRequest};
use belljar_spec::{ByteSize, EnvName, VolumeName, VolumePath};
use data_encoding::HEXLOWER;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// Makes one.
pub(super) async fn create(
    e2b: &Arc<E2b>,
    caller: &Caller,
    request: Request<Incoming>,
    default_timeout_s: u64,
) -> Answer {
    let word = header(&request, "idempotency-key").map(String::from);
    let new: NewSandbox = read_json(request).await?;
    let id = match word {
        Some(word) if word.is_empty() || word.len() > 255 => {
            return Err(Fault::bad_request("the idempotency key has 1 to 255 characters"));
        }
        // The same request has the same id, also after a restart.
        Some(word) => HEXLOWER.encode(&Sha256::digest(format!("{}:{word}", caller.grant))[..ID_BYTES]),
        None => new_id()?,
    };
    let facts = facts(e2b, caller, id, new, default_timeout_s).await?;
    let entry = e2b.make(facts).await?;
    Ok(json(StatusCode::CREATED, &told(e2b, &entry.facts())))
}

pub(super) fn new_id() -> Result<String, Fault> {
    let id = random::<ID_BYTES>().map_err(|error| Fault::internal(error.to_string()))?;
    Ok(HEXLOWER.encode(&id))
}

/// What is kept of a sandbox to be, with the request that the daemon gets.
async fn facts(
    e2b: &E2b,
    caller: &Caller,
    id: String,
    new: NewSandbox,
    default_timeout_s: u64,
) -> Result<Facts, Fault> {
    let timeout_s = within(new.timeout.unwrap_or(default_timeout_s))?;
    for (what, said) in [("`mcp`", &new.mcp), ("`iam`", &new.iam)] {
        if said.as_ref().is_some_and(|said| !said.is_null()) {
            return Err(Fault::not_served(what));
        }
    }
    // It is kept as long as the sandbox is.
    let metadata_bytes: usize = new.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if metadata_bytes > MAX_METADATA_BYTES {
        return Err(Fault::bad_request(format!("`metadata` has at most {MAX_METADATA_BYTES} bytes")));
    }
    let network: Network = match &new.network {
        None | Some(Value::Null) => Network::default(),
        Some(network) => serde_json::from_value(network.clone())
            .map_err(|error| Fault::bad_request(format!("`network`: {error}")))?,
    };
    let rules = e2b.rules(&caller.grant).await?;
    let FoundTemplate { profile, snapshot, surroundings, cpus, memory_mb, begin, .. } =
        templates::find(e2b, caller, &new.template_id).await?;
    let mut env: BTreeMap<EnvName, EnvValue> = BTreeMap::new();
    for (name, value) in surroundings.env.into_iter().chain(new.env_vars) {
        env.insert(parsed("envVars", &name)?, env_value(&value)?);
    }
    let wanted = LimitsRequest {
        cpus: cpus.map(|cpus| parsed("cpuCount", &cpus.to_string())).transpose()?,
        memory: memory_mb.map(ByteSize::mebibytes),
        ..LimitsRequest::default()
    };
    env.extend(own_variables(&id)?);
    let mut volumes = BTreeMap::new();
    for mount in &new.volume_mounts {
        let name: VolumeName = parsed("volumeMounts", &mount.name)?;
        volumes.insert(name, parsed::<VolumePath>("volumeMounts", &mount.path)?);
    }
    let sandbox = SandboxRequest {
        user: Some(parsed("user", USER)?),
        snapshot,
        egress: policy(rules.as_ref(), new.allow_internet_access, &network)?,
        env,
        volumes,
        limits: wanted.clone(),
        ..SandboxRequest::default()
    };
    let request = CreateSandbox {
        persistent: Some(true),
        profile,
        idle_s: Some(0),
        lease_s: Some(lease_s(timeout_s)),
        sandbox,
        ..CreateSandbox::default()
    };
    let limits = rules.map(|rules| rules.limits).unwrap_or_default();
    let machine = &e2b.machine;
    let size = Size {
        cpus: wanted.cpus.or(limits.cpus).map_or(machine.cpus, |cpus| cpus.as_millis().div_ceil(1000).max(1)),
        memory_mb: wanted.memory.or(limits.memory).map_or(machine.memory_bytes / 2, |memory| memory.as_u64())
            >> 20,
        disk_mb: limits.disk.map_or(machine.memory_bytes / 4, |disk| disk.as_u64()) >> 20,
    };
    Ok(Facts {
        version: VERSION,
        id,
        salt: new_id()?,
        grant: caller.grant.clone(),
        name: String::new(),
        key: String::new(),
        lease: String::new(),
        standing: Standing::Making,
        template: if new.template_id.is_empty() { "base".into() } else { new.template_id },
        metadata: new.metadata,
        started_ms: now_ms(),
        ends_ms: now_ms(),
        timeout_s,
        on_timeout: on_timeout(new.auto_pause, new.auto_pause_memory),
        auto_resume: new.auto_resume.is_some_and(|resume| resume.enabled),
        allow_internet_access: new.allow_internet_access,
        public_traffic: network.allow_public_traffic.unwrap_or(true),
        mask_request_host: network.mask_request_host,
        network: new.network.filter(|network| !network.is_null()),
        size,
        begin,
        request: Box::new(request),
    })
}

/// A request for a sandbox that reaches as much as the grant may, and is nothing to clients: that of a build.
pub(crate) async fn request_of(e2b: &E2b, caller: &Caller) -> Result<CreateSandbox, Fault> {
    let rules = e2b.rules(&caller.grant).await?;
    let sandbox = SandboxRequest {
        user: Some(parsed("user", USER)?),
        egress: policy(rules.as_ref(), None, &Network::default())?,
        ..SandboxRequest::default()
    };
    Ok(CreateSandbox { persistent: Some(true), idle_s: Some(0), sandbox, ..CreateSandbox::default() })
}

/// By which programs inside know where they are.
pub(crate) fn own_variables(id: &str) -> Result<[(EnvName, EnvValue); 2], Fault> {
    Ok([
        (parsed("envVars", "E2B_SANDBOX")?, env_value("true")?),
        (parsed("envVars", "E2B_SANDBOX_ID")?, env_value(id)?),
    ])
}

fn on_timeout(auto_pause: bool, memory: Option<bool>) -> OnTimeout {
    match (auto_pause, memory) {
        (false, _) => OnTimeout::Kill,
        (true, Some(false)) => OnTimeout::Stop,
        (true, Some(true) | None) => OnTimeout::Pause,
    }
}

pub(super) fn within(timeout_s: u64) -> Result<u64, Fault> {
    match timeout_s <= MAX_TIMEOUT_S {
        true => Ok(timeout_s),
        false => {
            Err(Fault::bad_request(format!("a sandbox lives at most {MAX_TIMEOUT_S} seconds at a time")))
        }
    }
}

fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Fault> {
    text.parse().map_err(|error| Fault::bad_request(format!("`{field}`: {error}")))
}

/// A value as the daemon's API reads it: `secret:NAME` is a placeholder for a secret of the vault.
fn env_value(text: &str) -> Result<EnvValue, Fault> {
    serde_json::from_value(text.into()).map_err(|error| Fault::bad_request(format!("`envVars`: {error}")))
}

/// What the maker of a sandbox is told.
pub(super) fn told(e2b: &E2b, facts: &Facts) -> Sandbox {
    Sandbox {
        sandbox_id: facts.id.clone(),
        template_id: facts.template.clone(),
        alias: facts.template.clone(),
        client_id: CLIENT_ID,
        envd_version: ENVD_VERSION,
        envd_access_token: e2b.tokens.access(&facts.bearer()),
        traffic_access_token: (!facts.public_traffic).then(|| e2b.tokens.traffic(&facts.bearer())),
        domain: e2b.domain.as_ref().map(|domain| domain.told.clone()),
    }
}

pub(super) fn get(e2b: &E2b, caller: &Caller, id: &str) -> Answer {
    let facts = e2b.own(caller, id)?.facts();
    let detail = Detail {
        listed: Listed::from(&facts),
        envd_access_token: e2b.tokens.access(&facts.bearer()),
        domain: e2b.domain.as_ref().map(|domain| domain.told.clone()),
        allow_internet_access: facts.allow_internet_access,
        network: facts.network.clone(),
        lifecycle: Lifecycle::from(&facts),
    };
    Ok(json(StatusCode::OK, &detail))
}

pub(super) async fn kill(e2b: &E2b, caller: &Caller, id: &str) -> Answer {
    let entry = e2b.own(caller, id)?;
    match e2b.kill(&entry).await? {
        true => Ok(nothing(StatusCode::NO_CONTENT)),
        false => Err(Fault::not_found(format!("sandbox {id} was not found"))),
    }
}

pub(super) async fn connect(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Connect { timeout, memory } = read_json(request).await?;
    let timeout_s = within(timeout.unwrap_or(super::V2_TIMEOUT_S))?;
    let (facts, found) = e2b.connect(&entry, timeout_s, memory.unwrap_or(true)).await?;
    let status = match found {
        Found::Running => StatusCode::OK,
        Found::Paused => StatusCode::CREATED,
    };
    Ok(json(status, &told(e2b, &facts)))
}

pub(super) async fn resume(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Resume { timeout, auto_pause } = read_json(request).await?;
    if !entry.facts().is_paused() {
        return Err(Fault::conflict(format!("sandbox {id} is already running")));
    }
    let timeout_s = within(timeout.unwrap_or(super::V1_TIMEOUT_S))?;
    let (mut facts, _) = e2b.connect(&entry, timeout_s, true).await?;
    if let Some(auto_pause) = auto_pause {
        facts = e2b.book.change(&entry, |facts| facts.on_timeout = on_timeout(auto_pause, None))?;
    }
    Ok(json(StatusCode::CREATED, &told(e2b, &facts)))
}

pub(super) async fn timeout(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Timeout { timeout } = read_json(request).await?;
    e2b.set_timeout(&entry, within(timeout)?).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn refresh(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Refresh { duration } = read_json(request).await?;
    let duration = duration.unwrap_or(super::V1_TIMEOUT_S);
    if duration > MAX_REFRESH_S {
        return Err(Fault::bad_request(format!("`duration` is at most {MAX_REFRESH_S} seconds")));
    }
    e2b.refresh(&entry, duration).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn pause(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Pause { memory } = read_json(request).await?;
    e2b.pause(&entry, memory.unwrap_or(true)).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn metrics(e2b: &E2b, caller: &Caller, id: &str) -> Answer {
    let facts = e2b.own(caller, id)?.facts();
    if facts.is_paused() {
        return Ok(json(StatusCode::OK, &json!([])));
    }
    Ok(json(StatusCode::OK, &json!([metrics::measure(e2b, &facts).await?])))
}

/// Changing the policy of a living sandbox is not possible yet.
pub(super) fn network(e2b: &E2b, caller: &Caller, id: &str) -> Answer {
    e2b.own(caller, id)?;
    Err(Fault::not_served("changing the network of a running sandbox: say it when the sandbox is made"))
}

/// The audit log, as entries of a log.
pub(super) async fn logs(
    e2b: &E2b,
    caller: &Caller,
    id: &str,
    request: &Request<Incoming>,
    version: &str,
) -> Answer {
    let facts = e2b.own(caller, id)?.facts();
    let query = Query::of(request.uri().query());
    let limit = query.number::<usize>("limit")?.unwrap_or(MAX_LOGS).min(MAX_LOGS);
    let cursor = query.number::<i64>(if version == "v1" { "start" } else { "cursor" })?;
    let search = query.get("search").unwrap_or_default();
    let records = e2b.sandbox(&facts).audit().await?;
    let mut entries: Vec<(i64, Value)> = Vec::new();
    for record in records {
        let text = record["event"].to_string();
        let time = record["time"].as_str().and_then(super::shapes::from_rfc3339).unwrap_or(0);
        if text.contains(search) {
            entries.push((
                time,
                json!({ "timestamp": rfc3339(time), "message": text, "level": "info", "fields": {} }),
            ));
        }
    }
    if query.get("direction") == Some("backward") {
        entries.reverse();
        entries.retain(|(time, _)| cursor.is_none_or(|cursor| *time <= cursor));
    } else {
        entries.retain(|(time, _)| cursor.is_none_or(|cursor| *time >= cursor));
    }
    entries.truncate(limit);
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    if version == "v2" {
        return Ok(json(StatusCode::OK, &json!({ "logs": entries })));
    }
    let lines: Vec<Value> = entries
        .iter()
        .map(|entry| json!({ "timestamp": entry["timestamp"], "line": entry["message"] }))
        .collect();
    Ok(json(StatusCode::OK, &json!({ "logs": lines, "logEntries": entries })))
}

const ID_BYTES: usize = 10;
const MAX_REFRESH_S: u64 = 3600;
const MAX_LOGS: usize = 1000;
const MAX_METADATA_BYTES: usize = 64 * 1024;

//! Templates: the daemon's profiles, snapshots of sandboxes, and what clients have built.

use super::shapes::{ENVD_VERSION, rfc3339};
use crate::fault::Fault;
use crate::http::{Answer, json, nothing};
use crate::server::{Caller, E2b};
use crate::template::recipe::Surroundings;
use crate::template::record::{Built, USUAL_TAG};
use crate::template::start::Begin;
use belljar_api::SnapshotInfo;
use belljar_spec::SnapshotName;
use hyper::StatusCode;
use serde_json::{Value, json};

/// What a sandbox is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Nothing: the caller's default one.
    pub(crate) profile: Option<String>,
    pub(crate) snapshot: Option<SnapshotName>,
    /// What the steps of its build leave beside files.
    pub(crate) surroundings: Surroundings,
    pub(crate) start: Option<String>,
    pub(crate) ready: Option<String>,
    pub(crate) cpus: Option<u32>,
    pub(crate) memory_mb: Option<u64>,
    pub(crate) begin: Begin,
}

impl From<&Built> for Found {
    fn from(built: &Built) -> Found {
        Found {
            profile: built.profile.clone(),
            snapshot: Some(built.snapshot.clone()),
            surroundings: built.surroundings.clone(),
            start: built.start.clone(),
            ready: built.ready.clone(),
            cpus: built.cpus,
            memory_mb: built.memory_mb,
            begin: built.begin(),
        }
    }
}

/// The template of this name: a profile, what was built under it, or a snapshot. The usual one is the profile `base` or, where there is
/// none, the default profile.
pub(crate) async fn find(e2b: &E2b, caller: &Caller, asked: &str) -> Result<Found, Fault> {
    let name = without_tag(asked);
    let client = e2b.client(&caller.grant);
    if client.profiles().await?.iter().any(|profile| profile.name == name) {
        return Ok(Found { profile: Some(name.into()), ..Found::default() });
    }
    if matches!(name, "" | BASE) {
        return Ok(Found::default());
    }
    let (plain, tag) = asked.rsplit_once(':').unwrap_or((asked, USUAL_TAG));
    if let Some(template) = e2b.templates.find(&caller.grant, plain) {
        let tag = if tag == "latest" && !template.tags.contains_key(tag) { USUAL_TAG } else { tag };
        let built = template.tagged(tag);
        return built.map(Found::from).ok_or_else(|| {
            Fault::not_found(format!("template '{plain}' has no build with the tag '{tag}' that is ready"))
        });
    }
    match snapshot(e2b, caller, asked).await {
        Ok(found) => Ok(Found { snapshot: Some(found.id), ..Found::default() }),
        Err(fault) if fault.status == StatusCode::NOT_FOUND => Err(missing(asked)),
        Err(fault) => Err(fault),
    }
}

fn missing(name: &str) -> Fault {
    Fault::not_found(format!(
        "template '{name}' not found: a template is a profile of the daemon, a snapshot, or one that was built"
    ))
}

/// A snapshot that the caller took.
async fn snapshot(e2b: &E2b, caller: &Caller, asked: &str) -> Result<SnapshotInfo, Fault> {
    let name = without_tag(asked);
    // What cannot be a name is none.
    let name: SnapshotName = name.parse().map_err(|_| missing(asked))?;
    Ok(e2b.client(&caller.grant).snapshot(&name.to_string()).await?)
}

/// There is one build of each, which both tags mean.
pub(super) fn without_tag(name: &str) -> &str {
    name.strip_suffix(":default").or_else(|| name.strip_suffix(":latest")).unwrap_or(name)
}

pub(super) async fn alias(e2b: &E2b, caller: &Caller, alias: &str) -> Answer {
    let built = e2b.templates.find(&caller.grant, alias.rsplit_once(':').map_or(alias, |(name, _)| name));
    let id = match built {
        Some(template) => template.id,
        None => find(e2b, caller, alias).await.map(|_| alias.to_string())?,
    };
    Ok(json(StatusCode::OK, &json!({ "templateID": id, "public": false })))
}

/// Removes what was built, or a snapshot. Profiles are the operator's.
pub(super) async fn remove(e2b: &E2b, caller: &Caller, asked: &str) -> Answer {
    if let Some(template) = e2b.templates.find(&caller.grant, without_tag(asked)) {
        e2b.templates.remove(&template.id);
        for name in template.snapshots() {
            let _ = e2b.client(&caller.grant).remove_snapshot(&name.to_string()).await;
        }
        return Ok(nothing(StatusCode::NO_CONTENT));
    }
    let found = snapshot(e2b, caller, asked).await?;
    e2b.client(&caller.grant).remove_snapshot(&found.id.to_string()).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

/// The profiles that the caller may name, and what it has built.
pub(super) async fn list(e2b: &E2b, caller: &Caller) -> Answer {
    let profiles = e2b.client(&caller.grant).profiles().await?;
    let mut names: Vec<String> = profiles.into_iter().map(|profile| profile.name).collect();
    if !names.iter().any(|name| name == BASE) {
        names.insert(0, BASE.into());
    }
    let machine = &e2b.machine;
    let told = |id: &str, name: &str, build: &str, created_ms: i64, state: &str, builds: usize| -> Value {
        json!({
            "templateID": id, "buildID": build, "aliases": [name], "names": [name], "public": false,
            "cpuCount": machine.cpus, "memoryMB": machine.memory_bytes >> 21, "diskSizeMB": machine.memory_bytes >> 22,
            "createdAt": rfc3339(created_ms), "updatedAt": rfc3339(created_ms), "createdBy": null, "lastSpawnedAt": null,
            "spawnCount": 0, "buildCount": builds, "buildStatus": state, "envdVersion": ENVD_VERSION,
        })
    };
    let mut all: Vec<Value> = names.iter().map(|name| told(name, name, NO_BUILD, 0, "ready", 0)).collect();
    for template in e2b.templates.of_grant(&caller.grant) {
        let last = template.builds.last();
        let state = last.map_or("waiting", |build| super::builds::word(&build.state));
        let build = last.map_or(NO_BUILD, |build| build.id.as_str());
        let created = last.map_or(template.created_ms, |build| build.created_ms);
        all.push(told(&template.id, &template.name, build, created, state, template.builds.len()));
    }
    Ok(json(StatusCode::OK, &all))
}

/// The template that clients take if none is named.
pub(super) const BASE: &str = "base";
/// A profile is not built.
const NO_BUILD: &str = "00000000-0000-0000-0000-000000000000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_one_of_two_tags() {
        for (name, expected) in [("a", "a"), ("a:default", "a"), ("a:latest", "a"), ("a:v2", "a:v2")] {
            assert_eq!(without_tag(name), expected);
        }
    }
}

//! Templates: the daemon's profiles, and snapshots of sandboxes.

use super::shapes::{ENVD_VERSION, rfc3339};
use crate::fault::Fault;
use crate::http::{Answer, json, nothing};
use crate::server::{Caller, E2b};
use belljar_api::SnapshotInfo;
use belljar_spec::SnapshotName;
use hyper::StatusCode;
use serde_json::{Value, json};

/// What a sandbox is made from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    /// Nothing: the caller's default one.
    pub(super) profile: Option<String>,
    pub(super) snapshot: Option<SnapshotName>,
}

/// The template of this name. The usual one is the profile `base` or, where there is none, the default profile.
pub(super) async fn find(e2b: &E2b, caller: &Caller, asked: &str) -> Result<Template, Fault> {
    let name = without_tag(asked);
    let client = e2b.client(&caller.grant);
    if client.profiles().await?.iter().any(|profile| profile.name == name) {
        return Ok(Template { profile: Some(name.into()), snapshot: None });
    }
    if matches!(name, "" | BASE) {
        return Ok(Template::default());
    }
    match snapshot(e2b, caller, asked).await {
        Ok(found) => Ok(Template { profile: None, snapshot: Some(found.id) }),
        Err(fault) if fault.status == StatusCode::NOT_FOUND => Err(missing(asked)),
        Err(fault) => Err(fault),
    }
}

fn missing(name: &str) -> Fault {
    Fault::not_found(format!(
        "template '{name}' not found: a template is a profile of the daemon, or a snapshot"
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
    find(e2b, caller, alias).await?;
    Ok(json(StatusCode::OK, &json!({ "templateID": alias, "public": false })))
}

/// Removes a snapshot. Profiles are the operator's.
pub(super) async fn remove(e2b: &E2b, caller: &Caller, asked: &str) -> Answer {
    let found = snapshot(e2b, caller, asked).await?;
    e2b.client(&caller.grant).remove_snapshot(&found.id.to_string()).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

/// The profiles that the caller may name.
pub(super) async fn list(e2b: &E2b, caller: &Caller) -> Answer {
    let profiles = e2b.client(&caller.grant).profiles().await?;
    let mut names: Vec<String> = profiles.into_iter().map(|profile| profile.name).collect();
    if !names.iter().any(|name| name == BASE) {
        names.insert(0, BASE.into());
    }
    let machine = &e2b.machine;
    let told = |name: String| -> Value {
        json!({
            "templateID": name, "buildID": NO_BUILD, "aliases": [name], "names": [name], "public": false,
            "cpuCount": machine.cpus, "memoryMB": machine.memory_bytes >> 21, "diskSizeMB": machine.memory_bytes >> 22,
            "createdAt": rfc3339(0), "updatedAt": rfc3339(0), "createdBy": null, "lastSpawnedAt": null,
            "spawnCount": 0, "buildCount": 0, "buildStatus": "ready", "envdVersion": ENVD_VERSION,
        })
    };
    Ok(json(StatusCode::OK, &names.into_iter().map(told).collect::<Vec<_>>()))
}

/// The template that clients take if none is named.
const BASE: &str = "base";
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

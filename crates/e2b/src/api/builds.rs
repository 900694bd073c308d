//! Builds of templates: asked for, given files, started, watched, tagged.

use super::lists::MAX_PAGE;
use super::sandboxes::new_id;
use super::shapes::rfc3339;
use super::templates::BASE;
use crate::facts::now_ms;
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Query, header, json, nothing, read_json};
use crate::server::{Caller, E2b};
use crate::template::build::{self, Order};
use crate::template::recipe::{BuildRequest, FilesHash};
use crate::template::record::{Build, BuildState, Template, USUAL_TAG, VERSION};
use crate::token::{random, same};
use belljar_spec::SnapshotName;
use data_encoding::HEXLOWER;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewBuild {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tags {
    /// `NAME:TAG`, where tags are given.
    target: String,
    /// The template's name, where they are taken.
    name: String,
    tags: Vec<String>,
}

/// A template of this name is to be built: a new one, or another build of the one that is there.
pub(super) async fn request(e2b: &E2b, caller: &Caller, request: Request<Incoming>) -> Answer {
    let new: NewBuild = read_json(request).await?;
    let asked = new.name.or(new.alias).unwrap_or_default();
    let (name, tag) = match asked.split_once(':') {
        Some((name, tag)) => (name, Some(tag.to_string())),
        None => (asked.as_str(), None),
    };
    let mut tags: Vec<String> = tag.into_iter().chain(new.tags.unwrap_or_default()).collect();
    tags.dedup();
    if tags.is_empty() {
        tags.push(USUAL_TAG.into());
    }
    if tags.len() > MAX_TAGS {
        return Err(Fault::bad_request(format!("a template has at most {MAX_TAGS} tags")));
    }
    for word in tags.iter().map(String::as_str).chain([name]) {
        checked(word)?;
    }
    let profiles = e2b.client(&caller.grant).profiles().await?;
    if name == BASE || profiles.iter().any(|profile| profile.name == name) {
        return Err(Fault::conflict(format!("'{name}' is a profile of the daemon: take another name")));
    }
    let build = Build {
        id: build_id()?,
        created_ms: now_ms(),
        tags: tags.clone(),
        cpus: new.cpu_count,
        memory_mb: new.memory_mb,
        state: BuildState::Waiting,
    };
    let id = build.id.clone();
    let template = Template {
        version: VERSION,
        id: new_id()?,
        grant: caller.grant.clone(),
        name: name.into(),
        created_ms: now_ms(),
        builds: Vec::new(),
        tags: BTreeMap::new(),
        steps: Vec::new(),
    };
    let template = e2b.templates.change_or_make(template, |template| {
        // What was asked for and never started, and what failed long ago.
        let is_idle = |build: &Build| matches!(build.state, BuildState::Waiting | BuildState::Failed(_));
        while template.builds.iter().filter(|build| is_idle(build)).count() >= MAX_IDLE {
            let Some(first) = template.builds.iter().position(is_idle) else { break };
            template.builds.remove(first);
        }
        template.builds.push(build);
    })?;
    let told = json!({
        "templateID": template.id, "buildID": id, "public": false, "names": [template.name],
        "tags": tags, "aliases": [template.name],
    });
    Ok(json(StatusCode::ACCEPTED, &told))
}

/// Names and tags are what snapshots and profiles are called by.
fn checked(word: &str) -> Result<(), Fault> {
    match word.parse::<SnapshotName>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::bad_request(format!(
            "'{word}' names no template and no tag: up to 64 small letters, digits, dots, dashes and underscores"
        ))),
    }
}

/// A UUID, as the clients read it: RFC 9562, version 4.
fn build_id() -> Result<String, Fault> {
    let mut bytes = random::<16>().map_err(|error| Fault::internal(error.to_string()))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = HEXLOWER.encode(&bytes);
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn own(e2b: &E2b, caller: &Caller, name: &str) -> Result<Template, Fault> {
    let template = e2b.templates.find(&caller.grant, name);
    template.ok_or_else(|| Fault::not_found(format!("template '{name}' not found")))
}

fn own_build(e2b: &E2b, caller: &Caller, name: &str, build: &str) -> Result<(Template, Build), Fault> {
    let template = own(e2b, caller, name)?;
    let build = template.build(build).cloned();
    let build = build.ok_or_else(|| Fault::not_found(format!("template '{name}' has no such build")))?;
    Ok((template, build))
}

/// Whether files are there already; if not, where they are sent to.
pub(super) fn upload_link<B>(
    e2b: &E2b,
    caller: &Caller,
    name: &str,
    files: &str,
    request: &Request<B>,
) -> Answer {
    let template = own(e2b, caller, name)?;
    let files = FilesHash::parse(files)?;
    let present = e2b.uploads.find(&caller.grant, &files).is_some();
    let until = now_ms() / 1000 + UPLOAD_LINK_S;
    let token = e2b.tokens.upload(&template.id, files.as_str(), until);
    let host = header(request, "host").unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_secure = e2b.domain.as_ref().is_some_and(|domain| name.ends_with(&domain.name));
    let scheme = if is_secure { "https" } else { "http" };
    let url = format!(
        "{scheme}://{host}/templates/{}/files/{}?until={until}&token={token}",
        template.id,
        files.as_str()
    );
    Ok(json(StatusCode::CREATED, &json!({ "present": present, "url": url })))
}

/// Takes files. The address is the key: no client sends another with it.
pub(super) async fn upload(e2b: &E2b, template: &str, files: &str, request: Request<Incoming>) -> Answer {
    let refused =
        || Fault::unauthorized("this address for an upload was not given by this server, or is too old");
    let files = FilesHash::parse(files)?;
    let query = Query::of(request.uri().query());
    let until: i64 = query.number("until")?.ok_or_else(refused)?;
    let token = query.get("token").unwrap_or_default();
    if !same(&e2b.tokens.upload(template, files.as_str(), until), token) || until < now_ms() / 1000 {
        return Err(refused());
    }
    let template = e2b.templates.every().into_iter().find(|known| known.id == template);
    let template = template.ok_or_else(refused)?;
    // The grant may have been revoked since.
    e2b.client(&template.grant).profiles().await?;
    e2b.uploads.take(&template.grant, &files, request.into_body()).await?;
    Ok(nothing(StatusCode::OK))
}

/// Starts a build.
pub(super) async fn start(
    e2b: &Arc<E2b>,
    caller: &Caller,
    name: &str,
    build: &str,
    request: Request<Incoming>,
) -> Answer {
    let (template, known) = own_build(e2b, caller, name, build)?;
    if known.state != BuildState::Waiting {
        return Err(Fault::conflict("this build was started already"));
    }
    let recipe = read_json::<BuildRequest>(request).await?.recipe()?;
    let templates = e2b.templates.of_grant(&caller.grant);
    let is_at_work = |build: &&Build| matches!(build.state, BuildState::Queued | BuildState::Building(_));
    if templates.iter().flat_map(|template| &template.builds).filter(is_at_work).count() >= MAX_AT_WORK {
        let message = format!("{MAX_AT_WORK} builds of this API key are being made: wait for one of them");
        return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    e2b.templates.change_build(&template.id, build, |build| build.state = BuildState::Queued)?;
    let order = Order { caller: caller.clone(), template, build: build.into(), recipe };
    tokio::spawn(build::make(Arc::clone(e2b), order));
    Ok(nothing(StatusCode::ACCEPTED))
}

/// How a state is called.
pub(super) fn word(state: &BuildState) -> &'static str {
    match state {
        BuildState::Waiting => "waiting",
        BuildState::Queued | BuildState::Building(_) => "building",
        BuildState::Ready(_) => "ready",
        BuildState::Failed(_) => "error",
    }
}

pub(super) fn status<B>(e2b: &E2b, caller: &Caller, name: &str, build: &str, request: &Request<B>) -> Answer {
    let (template, build) = own_build(e2b, caller, name, build)?;
    let mut told = json!({
        "templateID": template.id, "buildID": build.id, "status": word(&build.state), "logs": [],
        "logEntries": lines(e2b, &build, "logsOffset", request)?,
    });
    if let BuildState::Failed(failure) = &build.state {
        told["reason"] = json!({ "message": failure.message, "step": failure.step, "logEntries": [] });
    }
    Ok(json(StatusCode::OK, &told))
}

pub(super) fn logs<B>(e2b: &E2b, caller: &Caller, name: &str, build: &str, request: &Request<B>) -> Answer {
    let (_, build) = own_build(e2b, caller, name, build)?;
    Ok(json(StatusCode::OK, &json!({ "logs": lines(e2b, &build, "offset", request)? })))
}

fn lines<B>(e2b: &E2b, build: &Build, offset: &str, request: &Request<B>) -> Result<Vec<Value>, Fault> {
    let query = Query::of(request.uri().query());
    let from = query.number::<usize>(offset)?.unwrap_or(0);
    let most = query.number::<usize>("limit")?.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    Ok(e2b.builds.lines(&build.id, from, most))
}

pub(super) fn tags(e2b: &E2b, caller: &Caller, name: &str) -> Answer {
    let template = own(e2b, caller, name)?;
    let told = template.tags.iter().map(
        |(name, tag)| json!({ "tag": name, "buildID": tag.build, "createdAt": rfc3339(tag.created_ms) }),
    );
    Ok(json(StatusCode::OK, &told.collect::<Vec<_>>()))
}

pub(super) async fn assign_tags(e2b: &E2b, caller: &Caller, request: Request<Incoming>) -> Answer {
    let Tags { target, tags, .. } = read_json(request).await?;
    let (name, tag) = target.split_once(':').unwrap_or((&target, USUAL_TAG));
    tags.iter().try_for_each(|tag| checked(tag))?;
    let template = own(e2b, caller, name)?;
    let build = template.tags.get(tag).map(|tag| tag.build.clone());
    let build = build.ok_or_else(|| Fault::not_found(format!("template '{name}' has no tag '{tag}'")))?;
    if template.tags.len() + tags.len() > MAX_TAGS {
        return Err(Fault::bad_request(format!("a template has at most {MAX_TAGS} tags")));
    }
    if !tags.is_empty() {
        e2b.templates.change(&template.id, |template| template.tag(&tags, &build))?;
    }
    Ok(json(StatusCode::CREATED, &json!({ "tags": tags, "buildID": build })))
}

pub(super) async fn remove_tags(e2b: &E2b, caller: &Caller, request: Request<Incoming>) -> Answer {
    let Tags { name, tags, .. } = read_json(request).await?;
    let template = own(e2b, caller, &name)?;
    if let Some(tag) = tags.iter().find(|tag| !template.tags.contains_key(*tag)) {
        return Err(Fault::not_found(format!("template '{name}' has no tag '{tag}'")));
    }
    let mut gone = Vec::new();
    e2b.templates.change(&template.id, |template| {
        template.tags.retain(|name, _| !tags.contains(name));
        gone = template.take_untagged();
    })?;
    for built in gone {
        let _ = e2b.client(&caller.grant).remove_snapshot(&built.snapshot.to_string()).await;
    }
    Ok(nothing(StatusCode::NO_CONTENT))
}

const UPLOAD_LINK_S: i64 = 60 * 60;
const MAX_IDLE: usize = 20;
/// Of one grant: more would have the builds of all others wait.
const MAX_AT_WORK: usize = 16;
const MAX_TAGS: usize = 100;

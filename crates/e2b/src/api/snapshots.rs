//! Snapshots of sandboxes, and forks. Files alone: a sandbox that is made from them begins with none of the processes.

use super::lists::{MAX_PAGE, from_token, to_token};
use super::sandboxes::{new_id, own_variables, told, within};
use super::shapes::{Fork, TakenSnapshot};
use super::templates::without_tag;
use crate::book::Entry;
use crate::facts::{Facts, Standing, now_ms};
use crate::fault::Fault;
use crate::http::Incoming;
use crate::http::{Answer, Query, json, read_json, set};
use crate::lifecycle::lease_s;
use crate::server::{Caller, E2b};
use crate::template::build::is_of_template;
use belljar_api::{SnapshotInfo, SnapshotMethod, TakeSnapshot};
use belljar_spec::SnapshotName;
use futures_util::{StreamExt, stream};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Takes one. The sandbox goes on.
pub(super) async fn take(e2b: &E2b, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let TakenSnapshot { name, memory } = read_json(request).await?;
    if memory == Some(true) {
        return Err(Fault::not_served("snapshots with memory: ask for one of the files"));
    }
    let name = name.filter(|name| !name.is_empty());
    let name = name.map(|name| without_tag(&name).parse::<SnapshotName>());
    let name = name.transpose().map_err(|error| Fault::bad_request(format!("`name`: {error}")))?;
    let taken = of(e2b, &entry, name).await?;
    Ok(json(StatusCode::CREATED, &info(&taken)))
}

/// A snapshot of a sandbox that neither ends nor is paused meanwhile.
async fn of(e2b: &E2b, entry: &Entry, name: Option<SnapshotName>) -> Result<SnapshotInfo, Fault> {
    let _turn = entry.turn.lock().await;
    let facts = entry.facts();
    if !facts.is_there() {
        return Err(Fault::not_found(format!("sandbox {} was not found", facts.id)));
    }
    let take = TakeSnapshot { name, ..TakeSnapshot::default() };
    let taken = e2b.sandbox(&facts).snapshot(&take).await.map_err(|error| e2b.lost(entry, error))?;
    if taken.how == SnapshotMethod::Layered {
        // It was started anew over its files.
        entry.commands.clear();
        entry.watchers.clear();
    }
    Ok(taken)
}

fn info(taken: &SnapshotInfo) -> Value {
    let names: Vec<String> =
        (taken.name != taken.id).then(|| format!("{}:default", taken.name)).into_iter().collect();
    json!({ "snapshotID": format!("{}:default", taken.id), "names": names })
}

pub(super) async fn list(e2b: &E2b, caller: &Caller, request: &Request<Incoming>) -> Answer {
    let query = Query::of(request.uri().query());
    let limit = query.number::<usize>("limit")?.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Fault::bad_request(format!("`limit` is from 1 to {MAX_PAGE}")));
    }
    let after = query.get("nextToken").filter(|token| !token.is_empty()).map(from_token).transpose()?;
    let sandbox = query.get("sandboxID").map(|id| e2b.own(caller, id).map(|entry| entry.facts().name));
    let sandbox = match sandbox {
        // Of a sandbox that is gone it is not known which were its own.
        Some(Err(_)) => return Ok(json(StatusCode::OK, &json!([]))),
        Some(Ok(name)) => Some(name),
        None => None,
    };
    let name = query.get("name").map(without_tag);
    let mut all = e2b.client(&caller.grant).snapshots().await?;
    all.retain(|taken| {
        taken.automatic.is_none()
            && !is_of_fork(taken)
            && !is_of_template(&taken.name)
            && sandbox.as_ref().is_none_or(|sandbox| *sandbox == taken.sandbox)
            && name.is_none_or(|name| taken.name.to_string() == name || taken.id.to_string() == name)
    });
    let place = |taken: &SnapshotInfo| (taken.created_ms, taken.id.to_string());
    // The newest first.
    all.sort_by_key(|taken| std::cmp::Reverse(place(taken)));
    if let Some(after) = after {
        all.retain(|taken| place(taken) < after);
    }
    let is_more = all.len() > limit;
    all.truncate(limit);
    let mut response = json(StatusCode::OK, &all.iter().map(info).collect::<Vec<_>>());
    if let Some(last) = all.last().filter(|_| is_more) {
        set(&mut response, "x-next-token", &to_token(last.created_ms, &last.id.to_string()));
    }
    Ok(response)
}

/// Makes sandboxes like one, with the files that it has now. Each has a token of its own.
pub(super) async fn fork(e2b: &Arc<E2b>, caller: &Caller, id: &str, request: Request<Incoming>) -> Answer {
    let entry = e2b.own(caller, id)?;
    let Fork { timeout, count } = read_json(request).await?;
    let timeout_s = within(timeout.unwrap_or(super::V1_TIMEOUT_S))?;
    let count = count.unwrap_or(1);
    if !(1..=MAX_FORKS).contains(&count) {
        return Err(Fault::bad_request(format!("`count` is from 1 to {MAX_FORKS}")));
    }
    let name = format!("{OF_FORK}{}", new_id()?);
    let name: SnapshotName = name.parse().map_err(|_| Fault::internal("a snapshot cannot be named"))?;
    let taken = of(e2b, &entry, Some(name)).await?;
    let source = entry.facts();
    let made: Vec<Value> = stream::iter(0..count)
        .map(|_| one_fork(e2b, &source, &taken.id, timeout_s))
        .buffered(FORKS_AT_ONCE)
        .map(|made| match made {
            Ok(facts) => json!({ "sandbox": told(e2b, &facts) }),
            Err(fault) => json!({ "error": { "code": fault.status.as_u16(), "message": fault.message } }),
        })
        .collect()
        .await;
    // Those that were made keep their files.
    let _ = e2b.client(&caller.grant).remove_snapshot(&taken.id.to_string()).await;
    Ok(json(StatusCode::CREATED, &made))
}

async fn one_fork(
    e2b: &E2b,
    source: &Facts,
    snapshot: &SnapshotName,
    timeout_s: u64,
) -> Result<Facts, Fault> {
    let id = new_id()?;
    let mut request = source.request.clone();
    request.lease_s = Some(lease_s(timeout_s));
    request.sandbox.snapshot = Some(snapshot.clone());
    request.sandbox.env.extend(own_variables(&id)?);
    let now = now_ms();
    let facts = Facts {
        id,
        salt: new_id()?,
        name: String::new(),
        key: String::new(),
        lease: String::new(),
        standing: Standing::Making,
        started_ms: now,
        ends_ms: now,
        timeout_s,
        request,
        ..source.clone()
    };
    Ok(e2b.make(facts).await?.facts())
}

/// Removes what a daemon that was killed during a fork has left.
pub(crate) async fn sweep(e2b: &E2b) {
    let Ok(all) = e2b.owner.snapshots().await else { return };
    for left in all.iter().filter(|taken| is_of_fork(taken)) {
        let _ = e2b.owner.remove_snapshot(&left.id.to_string()).await;
    }
}

fn is_of_fork(taken: &SnapshotInfo) -> bool {
    taken.name.to_string().starts_with(OF_FORK)
}

/// How the snapshot of a fork is called, as long as the fork lasts.
const OF_FORK: &str = "e2b-fork-";
const MAX_FORKS: usize = 100;
const FORKS_AT_ONCE: usize = 8;

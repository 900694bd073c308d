//! What happens in a folder: as a stream, or collected until a client asks.

use super::filesystem::{entry, must_be_folder};
use super::paths;
use super::route::Context;
use super::rpc::{self, Ended};
use crate::connect::{Code, RpcError};
use crate::http::Body;
use crate::http::Incoming;
use crate::token::random;
use belljar_api::client::{ClientError, Events};
use belljar_api::{WatchEvent, WatchKind};
use data_encoding::HEXLOWER;
use hyper::{Request, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The watchers of a sandbox that clients ask for what happened. Gone with the daemon.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<HashMap<String, Watcher>>);

#[derive(Debug)]
struct Watcher {
    collected: Arc<Mutex<Collected>>,
    task: AbortHandle,
}

/// What happened since a client asked.
#[derive(Debug, Default)]
struct Collected {
    events: Vec<Value>,
    /// It cannot be told any more.
    failed: Option<RpcError>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    /// What they watched is gone.
    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked {
    path: String,
    recursive: bool,
    include_entry: bool,
    watcher_id: String,
}

/// A folder that is watched.
struct Watched {
    context: Context,
    path: String,
    include_entry: bool,
    events: Events<WatchEvent>,
}

impl Watched {
    async fn begin(context: Context, asked: Asked) -> Result<Watched, RpcError> {
        let path = context.absolute(&asked.path);
        must_be_folder(&context, &path).await?;
        let events = context.sandbox.watch(&path, asked.recursive).await;
        let events = events.map_err(|error| context.failed(error))?;
        Ok(Watched { context, path, include_entry: asked.include_entry, events })
    }

    async fn next(&mut self) -> Result<Option<WatchEvent>, ClientError> {
        self.events.next().await
    }

    /// What happened, as clients are told it.
    async fn told(&self, happened: &WatchEvent) -> Result<Value, RpcError> {
        let kind = match happened.kind {
            WatchKind::Created => "EVENT_TYPE_CREATE",
            WatchKind::Modified => "EVENT_TYPE_WRITE",
            WatchKind::Removed => "EVENT_TYPE_REMOVE",
            WatchKind::Overflow => {
                let message = "more happened in the folder than could be told: list it, and watch it again";
                return Err(RpcError::new(Code::ResourceExhausted, message));
            }
        };
        let mut event = json!({ "name": happened.path, "type": kind });
        if self.include_entry
            && happened.kind != WatchKind::Removed
            && let Ok(entry) = entry(&self.context, &paths::join(&self.path, &happened.path)).await
        {
            event["entry"] = entry;
        }
        Ok(event)
    }
}

/// Tells a client what happens, as long as it listens.
pub(crate) async fn stream(context: Context, request: Request<Incoming>) -> Response<Body> {
    let keepalive = rpc::keepalive(&request);
    let deadline = rpc::deadline(&request);
    let begun = async { Watched::begin(context, rpc::single(request).await?).await };
    let mut watched = match begun.await {
        Ok(watched) => watched,
        Err(error) => return rpc::failed(&error),
    };
    rpc::stream(keepalive, json!({ "keepalive": {} }), move |sender| async move {
        sender.send(&json!({ "start": {} })).await?;
        let work = async {
            loop {
                match sender.wait(watched.next()).await? {
                    Ok(Some(happened)) => {
                        let event = watched.told(&happened).await?;
                        sender.send(&json!({ "filesystem": event })).await?;
                    }
                    // The folder itself is gone.
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(Ended::Broken),
                }
            }
        };
        let Some(deadline) = deadline else { return work.await };
        match tokio::time::timeout(deadline, work).await {
            Ok(done) => done,
            Err(_) => Err(RpcError::new(Code::DeadlineExceeded, "the time of the watch is over").into()),
        }
    })
}

/// A client that asks from time to time.
pub(crate) async fn poll(
    context: Context,
    method: &str,
    request: Request<Incoming>,
) -> Result<Value, RpcError> {
    let asked: Asked = rpc::unary(request).await?;
    let unknown = || RpcError::not_found(format!("watcher with id {} not found", asked.watcher_id));
    let entry = Arc::clone(&context.entry);
    match method {
        "CreateWatcher" => create(context, asked).await,
        "RemoveWatcher" => {
            let removed = entry.watchers.all().remove(&asked.watcher_id);
            removed.map(|_| rpc::empty()).ok_or_else(unknown)
        }
        _ => {
            let all = entry.watchers.all();
            let watcher = all.get(&asked.watcher_id).ok_or_else(unknown)?;
            let mut collected = watcher.collected.lock().unwrap_or_else(PoisonError::into_inner);
            let events = std::mem::take(&mut collected.events);
            match collected.failed.clone().filter(|_| events.is_empty()) {
                Some(error) => Err(error),
                None => Ok(json!({ "events": events })),
            }
        }
    }
}

async fn create(context: Context, asked: Asked) -> Result<Value, RpcError> {
    let entry = Arc::clone(&context.entry);
    let mut watched = Watched::begin(context, asked).await?;
    let id = random::<8>().map_err(|error| RpcError::new(Code::Internal, error.to_string()))?;
    let id = HEXLOWER.encode(&id);
    let collected = Arc::new(Mutex::new(Collected::default()));
    let into = Arc::clone(&collected);
    let task = tokio::spawn(async move {
        let failed = loop {
            let event = match watched.next().await {
                Ok(Some(happened)) => watched.told(&happened).await,
                Ok(None) => Err(RpcError::not_found("the folder is gone")),
                Err(error) => Err(error.into()),
            };
            let mut collected = into.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(event) if collected.events.len() < MAX_COLLECTED => collected.events.push(event),
                Ok(_) => {
                    let message = "more happened than is kept: list the folder, and watch it again";
                    break RpcError::new(Code::ResourceExhausted, message);
                }
                Err(error) => break error,
            }
        };
        into.lock().unwrap_or_else(PoisonError::into_inner).failed = Some(failed);
    });
    let watcher = Watcher { collected, task: task.abort_handle() };
    let mut all = entry.watchers.all();
    if all.len() >= MAX_WATCHERS {
        return Err(RpcError::new(
            Code::ResourceExhausted,
            format!("there are {MAX_WATCHERS} watchers already"),
        ));
    }
    all.insert(id.clone(), watcher);
    Ok(json!({ "watcherId": id }))
}

/// Events that a client has not asked for.
const MAX_COLLECTED: usize = 4000;
/// Watchers of one sandbox that clients have not removed.
const MAX_WATCHERS: usize = 32;

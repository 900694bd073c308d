//! What is in a folder, in parts.

use super::{checked, kind};
use crate::shim::LiveSandbox;
use crate::shim::extract::{Part, QueryParams, invalid};
use crate::shim::failure::Answer;
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use belljar_api::{ErrorBody, FileEntry, Page};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    path: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// List a folder.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/files/list", tag = "files", operation_id = "list_files",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = Option<String>, Query, description = "Path relative to the workspace, or absolute inside. Default: the workspace."),
        ("limit" = Option<u16>, Query, description = "Page size, 1 to 1000.", minimum = 1, maximum = 1000),
        ("after" = Option<String>, Query, description = "`next` of the page before."),
    ),
    responses(
        (status = 200, description = "One page of the folder's entries, sorted by name.", body = Page<FileEntry>),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn list(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Answer<Json<Page<FileEntry>>> {
    let _using = live.using().await?;
    let limit = Part { limit: query.limit, after: None }.limit()?;
    let after = query
        .after
        .as_ref()
        .map(|after| URL_SAFE_NO_PAD.decode(after).map_err(|_| invalid("`after` is not what `next` said")));
    let after = after.transpose()?.map(OsString::from_vec);
    let mut listing = live.sandbox().list(checked(query.path.as_deref().unwrap_or("."))?).await?;
    // The first ones behind `after`, and one more: however many there are, only so many are held.
    let mut first = BTreeMap::new();
    while let Some(some) = listing.next().await? {
        for entry in some.into_iter().filter(|entry| after.as_ref().is_none_or(|after| entry.name > *after)) {
            first.insert(entry.name, entry.kind);
            if first.len() > limit + 1 {
                first.pop_last();
            }
        }
    }
    let mut entries: Vec<_> =
        first.into_iter().map(|(name, kind)| belljar_engine::FileEntry { name, kind }).collect();
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|entry| URL_SAFE_NO_PAD.encode(entry.name.as_bytes()));
    let items = entries.into_iter().map(|entry| FileEntry {
        name: entry.name.to_string_lossy().into_owned(),
        name_base64: entry.name.to_str().is_none().then(|| STANDARD.encode(entry.name.as_bytes())),
        kind: kind(entry.kind),
    });
    Ok(Json(Page { items: items.collect(), next }))
}

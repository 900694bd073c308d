//! Files inside: read, written, listed, moved, watched. The guest does it, as the sandbox's user; here bytes only pass through.

mod list;
mod transfer;
mod watch;

use super::LiveSandbox;
use super::extract::{Body, QueryParams, invalid};
use super::failure::Answer;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use belljar_api::{ErrorBody, FileKind, FileStat, MakeFolder, MoveFile, SetAttributes};
use belljar_engine::EntryKind;
use belljar_spec::{ErrorCode, SandboxError};
use serde::Deserialize;
use std::ffi::OsString;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<LiveSandbox>> {
    OpenApiRouter::new()
        .routes(routes!(transfer::read, transfer::write, remove))
        .routes(routes!(stat))
        .routes(routes!(list::list))
        .routes(routes!(rename))
        .routes(routes!(folder))
        .routes(routes!(set_attributes))
        .routes(routes!(watch::watch))
}

/// Which file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathQuery {
    path: Option<String>,
    recursive: Option<bool>,
}

impl PathQuery {
    fn path(&self) -> Result<&str, SandboxError> {
        let path = self.path.as_deref().ok_or_else(|| invalid("`path` is missing"))?;
        checked(path)
    }

    fn recursive(&self) -> bool {
        self.recursive.unwrap_or(false)
    }
}

/// Remove a file, or with `recursive` a folder and all in it.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{name}/files", tag = "files", operation_id = "remove_file",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = String, Query, description = "Path relative to the workspace, or absolute inside."),
        ("recursive" = Option<bool>, Query, description = "Whether a folder is removed with everything in it."),
    ),
    responses(
        (status = 204, description = "The file or folder is removed."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn remove(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<PathQuery>,
) -> Answer<StatusCode> {
    let _using = live.using().await?;
    live.sandbox().remove(query.path()?, query.recursive()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get the attributes of a file. A link is not followed.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/files/stat", tag = "files", operation_id = "stat_file",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = String, Query, description = "Path relative to the workspace, or absolute inside."),
    ),
    responses(
        (status = 200, description = "Attributes of the file.", body = FileStat),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn stat(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<PathQuery>,
) -> Answer<Json<FileStat>> {
    let _using = live.using().await?;
    let found = live.sandbox().stat(query.path()?).await?;
    Ok(Json(FileStat {
        kind: kind(found.kind),
        size: found.size,
        mtime_ms: found.mtime_ms,
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        link: found.link.map(|link| link.to_string_lossy().into_owned()),
        attributes: found.attributes.into_iter().map(attribute).collect(),
    }))
}

/// Rename a file or a folder. A file of the new name is replaced.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/files/move", tag = "files", operation_id = "move_file",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    request_body = MoveFile,
    responses(
        (status = 204, description = "The file is moved."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn rename(State(live): State<Arc<LiveSandbox>>, Body(body): Body<MoveFile>) -> Answer<StatusCode> {
    let _using = live.using().await?;
    live.sandbox().rename(checked(&body.from)?, checked(&body.to)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make a folder.
#[utoipa::path(
    post, path = "/v1/sandboxes/{name}/files/folder", tag = "files", operation_id = "make_folder",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    request_body = MakeFolder,
    responses(
        (status = 204, description = "The folder exists."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn folder(State(live): State<Arc<LiveSandbox>>, Body(body): Body<MakeFolder>) -> Answer<StatusCode> {
    let _using = live.using().await?;
    live.sandbox().mkdir(checked(&body.path)?, body.recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Text with what is no UTF-8 replaced.
fn attribute((name, value): (OsString, Vec<u8>)) -> (String, String) {
    (name.to_string_lossy().into_owned(), String::from_utf8_lossy(&value).into_owned())
}

/// Set attributes of a file, in the place of those whose names begin with `prefix`.
#[utoipa::path(
    put, path = "/v1/sandboxes/{name}/files/attributes", tag = "files", operation_id = "set_file_attributes",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    request_body = SetAttributes,
    responses(
        (status = 204, description = "The attributes are set."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn set_attributes(
    State(live): State<Arc<LiveSandbox>>,
    Body(body): Body<SetAttributes>,
) -> Answer<StatusCode> {
    let _using = live.using().await?;
    let SetAttributes { path, prefix, attributes } = body;
    let is_name =
        |name: &String| name.starts_with(&prefix) && !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    if let Some(name) = attributes.keys().find(|name| !is_name(name) || name.contains('\0')) {
        let message =
            format!("`attributes`: `{}` does not begin with the prefix, or is no name", name.escape_debug());
        return Err(ErrorCode::RequestValue.error(message).into());
    }
    let attributes = attributes.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    live.sandbox().set_attributes(checked(&path)?, &prefix, attributes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where a path leads is the guest's business; whether it is one at all is ours.
fn checked(path: &str) -> Result<&str, SandboxError> {
    if path.is_empty() || path.contains('\0') || path.len() > MAX_PATH_BYTES {
        return Err(
            ErrorCode::PathInvalid.error("a path is not empty, has no zero byte, and at most 4096 bytes")
        );
    }
    Ok(path)
}

fn kind(kind: EntryKind) -> FileKind {
    match kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Symlink => FileKind::Symlink,
        EntryKind::Other => FileKind::Other,
    }
}

/// The kernel's PATH_MAX.
const MAX_PATH_BYTES: usize = 4096;
/// The kernel's XATTR_NAME_MAX, without `user.`.
const MAX_NAME_BYTES: usize = 250;

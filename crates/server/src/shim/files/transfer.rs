//! A file's content, piece by piece in both directions: no whole file is ever in memory.

use super::PathQuery;
use crate::shim::LiveSandbox;
use crate::shim::extract::{QueryParams, invalid};
use crate::shim::failure::Answer;
use crate::shim::live::Using;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_api::ErrorBody;
use belljar_engine::{EntryKind, FileReader};
use belljar_spec::{ErrorCode, SandboxError};
use futures_util::{StreamExt, stream};
use std::sync::Arc;

/// Read a file.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/files", tag = "files", operation_id = "read_file",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = String, Query, description = "Path relative to the workspace, or absolute inside."),
    ),
    responses(
        (status = 200, description = "Content of the file.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn read(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<PathQuery>,
) -> Answer<Response> {
    let using = live.using().await?;
    let path = query.path()?;
    let reader = live.sandbox().open_file(path).await?;
    let length = match live.sandbox().stat(path).await {
        // A file of the kernel has no size, and yet a content.
        Ok(found) if found.kind == EntryKind::File && found.size > 0 => Some(found.size),
        _ => None,
    };
    let reading = Reading { reader, left: length, _using: using };
    let next = |mut reading: Reading| async move { reading.next().await.map(|piece| (piece, reading)) };
    let mut response = Body::from_stream(stream::unfold(reading, next)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// Write a file.
///
/// Made, or its content replaced, when all of the body has come; a request that ends before that changes nothing. The folder must be there.
#[utoipa::path(
    put, path = "/v1/sandboxes/{name}/files", tag = "files", operation_id = "write_file",
    params(
        ("name" = String, Path, description = "Name of the sandbox."),
        ("path" = String, Query, description = "Path relative to the workspace, or absolute inside."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The file is created."),
        (status = 204, description = "The content of the file is replaced."),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
pub(super) async fn write(
    State(live): State<Arc<LiveSandbox>>,
    QueryParams(query): QueryParams<PathQuery>,
    request: Request,
) -> Answer<StatusCode> {
    let _using = live.using().await?;
    let path = query.path()?;
    let was_there = live.sandbox().exists(path).await?;
    let mut writer = live.sandbox().create_file(path).await?;
    let mut body = request.into_body().into_data_stream();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| invalid("the body did not come whole"))?;
        writer.write(&piece).await?;
    }
    writer.finish().await?;
    Ok(if was_there { StatusCode::NO_CONTENT } else { StatusCode::CREATED })
}

/// A file that is being sent to the client.
struct Reading {
    reader: FileReader,
    /// How many bytes were promised and not sent yet, if any were promised.
    left: Option<u64>,
    _using: Using,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Vec<u8>, SandboxError>> {
        if self.left == Some(0) {
            return None;
        }
        match self.reader.next().await {
            Ok(Some(mut piece)) => {
                if let Some(left) = &mut self.left {
                    // It grew meanwhile.
                    piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= piece.len() as u64;
                }
                Some(Ok(piece))
            }
            // It became shorter: the client must not take this for the whole file.
            Ok(None) if self.left.is_some() => {
                self.left = Some(0);
                Some(Err(ErrorCode::ChangedMeanwhile.error("the file became shorter while it was read")))
            }
            Ok(None) => None,
            Err(error) => {
                self.left = Some(0);
                Some(Err(error))
            }
        }
    }
}

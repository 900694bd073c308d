//! Which ports programs inside listen at now.

use crate::shim::LiveSandbox;
use crate::shim::failure::Answer;
use axum::Json;
use axum::extract::State;
use belljar_api::{ErrorBody, OpenPort, Page};
use std::sync::Arc;

/// List the TCP ports that programs inside listen at now.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/ports", tag = "ports", operation_id = "list_ports",
    params(("name" = String, Path, description = "The sandbox.")),
    responses(
        (status = 200, description = "All of them, in order.", body = Page<OpenPort>),
        (status = "4XX", description = "Why not.", body = ErrorBody),
    )
)]
pub(super) async fn list(State(live): State<Arc<LiveSandbox>>) -> Answer<Json<Page<OpenPort>>> {
    // No use of the sandbox: a dashboard that looks at it does not keep it alive.
    let items = live.sandbox().listening().await?.into_iter().map(|port| OpenPort { port }).collect();
    Ok(Json(Page { items, next: None }))
}

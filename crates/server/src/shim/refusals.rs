//! What a sandbox tried to reach and may not, counted since its life began: a client that asks before a command and behind it knows
//! what was refused to that command, also what the audit log tells only the first, tenth and hundredth time.

use super::LiveSandbox;
use super::failure::Answer;
use axum::Json;
use axum::extract::State;
use belljar_api::{ErrorBody, Page, RefusedInfo};
use belljar_engine::RefusedReport;
use belljar_spec::egress::Refused;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<LiveSandbox>> {
    OpenApiRouter::new().routes(routes!(refusals))
}

/// List what the sandbox tried to reach and may not, since it was started.
#[utoipa::path(
    get, path = "/v1/sandboxes/{name}/refusals", tag = "egress", operation_id = "list_refusals",
    params(("name" = String, Path, description = "Name of the sandbox.")),
    responses(
        (status = 200, description = "The refusals, each once.", body = Page<RefusedInfo>),
        (status = "4XX", description = "The request was refused or failed: the body says why.", body = ErrorBody),
    )
)]
async fn refusals(State(live): State<Arc<LiveSandbox>>) -> Answer<Json<Page<RefusedInfo>>> {
    let items = live.sandbox().refused().into_iter().map(to_api).collect();
    Ok(Json(Page { items, next: None }))
}

/// Without what only the host should know: an agent may read it.
fn to_api(Refused { refusal, times }: Refused) -> RefusedInfo {
    let RefusedReport { destination, port, reason, remedy, times, sentence, .. } =
        Refused { refusal: refusal.for_the_inside(), times }.into();
    RefusedInfo { destination, port, reason: reason.into(), sentence, remedy, times }
}

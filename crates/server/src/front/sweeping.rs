//! The sweep, for the owner alone.

use super::Front;
use super::extract::QueryParams;
use super::gate::Asking;
use crate::answer::Answer;
use axum::extract::State;
use axum::{Extension, Json};
use belljar_api::Sweep;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(sweep))
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct How {
    /// Only say what would be done.
    dry_run: Option<bool>,
}

/// Remove what dead sandboxes left; never what lives, nor what is meant to stay
#[utoipa::path(post, path = "/v1/sweep", tag = "sandboxes", params(How),
    responses((status = 200, description = "What was removed, or would be", body = Sweep)))]
async fn sweep(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(how): QueryParams<How>,
) -> Answer<Json<Sweep>> {
    asking.caller.must_be_owner("sweep")?;
    Ok(Json(front.fleet.sweep(how.dry_run.unwrap_or(false)).await?))
}

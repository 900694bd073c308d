//! Grants, for the owner alone.

use super::Front;
use super::extract::{Body, Named, Part, QueryParams};
use super::gate::Asking;
use crate::answer::Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use belljar_api::{GrantInfo, NewGrant, NewToken, Page};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// List grants
#[utoipa::path(get, path = "/v1/grants", tag = "grants", params(Part),
    responses((status = 200, description = "One page of grants", body = Page<GrantInfo>)))]
async fn list(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(part): QueryParams<Part>,
) -> Answer<Json<Page<GrantInfo>>> {
    asking.caller.must_be_owner("see grants")?;
    let mut grants = front.grants.list()?;
    grants.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Json(part.of(grants, |grant| grant.id.clone())?))
}

/// Create a grant; its token is in the response, and nowhere else
#[utoipa::path(post, path = "/v1/grants", tag = "grants", request_body = NewGrant,
    responses((status = 201, description = "The new grant, with its token; the token is shown once", body = NewToken)))]
async fn create(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Body(new): Body<NewGrant>,
) -> Answer<(StatusCode, Json<NewToken>)> {
    asking.caller.must_be_owner("make grants")?;
    let made = front.blocking(move |front| front.grants.create(new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Revoke a grant; what is being answered to its token ends at once
#[utoipa::path(delete, path = "/v1/grants/{id}", tag = "grants",
    params(("id" = String, Path, description = "Id of the grant")),
    responses((status = 204, description = "The grant is revoked")))]
async fn revoke(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(id): Named,
) -> Answer<StatusCode> {
    asking.caller.must_be_owner("revoke grants")?;
    let revoked = id.clone();
    front.blocking(move |front| front.grants.revoke(&revoked)).await?;
    front.fleet.forget_grant(&id);
    front.used.close(&id);
    Ok(StatusCode::NO_CONTENT)
}

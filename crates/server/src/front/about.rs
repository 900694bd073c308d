//! What can be asked of the daemon itself: that it is there, what it can do, which profiles work, and how it is spoken to.

use super::Front;
use super::extract::{MAX_BODY_BYTES, Part, QueryParams};
use super::gate::Asking;
use crate::answer::Answer;
use crate::metrics::{CONTENT_TYPE as OPEN_METRICS, Machine};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::{Extension, Json};
use belljar_api::{BackendInfo, Capabilities, Page, ProfileInfo};
use belljar_spec::Hint;
use belljar_spec::egress::Mode;
use serde::Serialize;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(capabilities))
        .routes(routes!(profiles))
        .routes(routes!(openapi))
        .routes(routes!(metrics))
}

/// That the daemon is there.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    ok: bool,
}

/// Check that the daemon runs; the one path that needs no grant
#[utoipa::path(get, path = "/v1/health", tag = "daemon", security(()),
    responses((status = 200, description = "The daemon is running", body = Health)))]
async fn health() -> Json<Health> {
    Json(Health { ok: true })
}

/// Get what this machine supports
#[utoipa::path(get, path = "/v1/capabilities", tag = "daemon",
    responses((status = 200, description = "Backends, modes and sizes", body = Capabilities)))]
async fn capabilities(State(front): State<Arc<Front>>) -> Json<Capabilities> {
    let machine = belljar_config::machine();
    let backends = front.backends.reports().await;
    let info = |report: &belljar_engine::BackendReport| BackendInfo {
        backend: report.backend.as_str().into(),
        assurance: report.assurance.as_str().into(),
        works: report.outcome.is_ok(),
        reason: report.outcome.as_ref().err().map(|error| error.message.clone()),
        hint: report.outcome.as_ref().err().and_then(|error| error.hint.as_ref()).map(Hint::to_string),
    };
    Json(Capabilities {
        version: env!("CARGO_PKG_VERSION").into(),
        api: "v1".into(),
        backends: backends.iter().map(info).collect(),
        egress_modes: Mode::ALL.iter().map(|mode| mode.as_str().into()).collect(),
        cpus: machine.cpus,
        memory_bytes: machine.memory.as_u64(),
        concurrent_starts: front.concurrent_starts(),
        max_body_bytes: MAX_BODY_BYTES as u64,
    })
}

/// List the profiles that work here and that the caller may name
#[utoipa::path(get, path = "/v1/profiles", tag = "daemon", params(Part),
    responses((status = 200, description = "One page of profiles", body = Page<ProfileInfo>)))]
async fn profiles(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(part): QueryParams<Part>,
) -> Answer<Json<Page<ProfileInfo>>> {
    let profiles = front.profiles().await?;
    let may = |profile: &ProfileInfo| {
        let chosen = profiles.choose(Some(&profile.name));
        chosen.is_ok_and(|chosen| {
            asking.caller.may_use_profile(&profile.name, profile.default, chosen.is_isolated()).is_ok()
        })
    };
    let mut offered: Vec<ProfileInfo> = profiles.advertised().into_iter().filter(may).collect();
    offered.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(part.of(offered, |profile| profile.name.clone())?))
}

/// Get this description of the API
#[utoipa::path(get, path = "/v1/openapi.json", tag = "daemon",
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object)))]
async fn openapi(State(front): State<Arc<Front>>) -> ([(HeaderName, &'static str); 1], Bytes) {
    ([(CONTENT_TYPE, "application/json")], front.description.clone())
}

/// Metrics, for Prometheus and others that read OpenMetrics
#[utoipa::path(get, path = "/metrics", tag = "daemon",
    responses((status = 200, description = "Metrics in OpenMetrics text format", body = String, content_type = "application/openmetrics-text")))]
async fn metrics(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
) -> Answer<([(HeaderName, &'static str); 1], String)> {
    asking.caller.may_see_metrics()?;
    let text = front.blocking(|front| {
        let began = front.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let machine = Machine { sandboxes: &front.fleet.known(), began };
        Ok(front.link.metrics().sum().text(&machine))
    });
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text.await?))
}

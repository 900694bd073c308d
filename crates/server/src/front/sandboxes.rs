//! Sandboxes: held, found, stopped and removed; and the leases on them. What is asked is put together here from the request, the
//! profile and the grant; the fleet carries it out.

use super::Front;
use super::extract::{Body, Named, Part, QueryParams};
use super::gate::Asking;
use crate::answer::{Answer, Refusal, invalid};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use belljar_api::{CreateSandbox, Created, LeaseInfo, Page, RenewLease, SandboxInfo, State as Standing};
use belljar_fleet::{Filter, Idempotency, Identity, LeaseRequest, Role, request};
use belljar_spec::{ErrorCode, SandboxError, is_regional_variable};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, delete))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(stop))
        .routes(routes!(renew, release))
}

/// Lease a sandbox: the one of its key, or a new one
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "create_sandbox",
    params(("idempotency-key" = Option<String>, Header,
        description = "Asked again with the same key and the same body, it is the same sandbox and no second one")),
    request_body = CreateSandbox,
    responses(
        (status = 201, description = "The sandbox is created", body = Created),
        (status = 200, description = "The sandbox existed, and runs", body = Created)))]
async fn create(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    headers: HeaderMap,
    Body(request): Body<CreateSandbox>,
) -> Answer<(StatusCode, Json<Created>)> {
    asking.caller.may_have_sandboxes()?;
    within_bounds(&request)?;
    let idempotency = match headers.get("idempotency-key") {
        Some(key) => {
            let key = key.to_str().map_err(|_| invalid("`idempotency-key` is not text"))?;
            Some(Idempotency::new(key, &request)?)
        }
        None => None,
    };
    let identity = front.fleet.identify(&request, &asking)?;
    let lease_request = lease_request(&front, &asking, request, identity, idempotency).await?;
    let created = front.fleet.create(lease_request, &asking).await.map_err(|error| match error.code {
        // A request to join a living sandbox found none.
        ErrorCode::SandboxNotAlive => Refusal::with_status(error, StatusCode::NOT_FOUND),
        _ => Refusal::from(error),
    })?;
    let status = if created.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(created)))
}

/// What is asked, what the profile says, and what the grant allows, in one.
pub(super) async fn lease_request(
    front: &Front,
    asking: &Asking,
    request: CreateSandbox,
    identity: Identity,
    idempotency: Option<Idempotency>,
) -> Result<LeaseRequest, SandboxError> {
    let CreateSandbox { profile: named, idle_s, lease_s, environment, sandbox: requested, .. } = request;
    of_the_owner(asking, &environment)?;
    let mut requested = asking.caller.admit(requested)?;
    let profiles = front.profiles().await?;
    let (profile, sandbox) = match identity.role {
        // Nothing is made for a guest: it takes what is there.
        Role::Guest => (named.clone().unwrap_or_default(), requested.clone()),
        Role::Owner => {
            let profile = profiles.choose(named.as_deref())?;
            let is_default = profiles.is_default(profile);
            asking.caller.may_use_profile(&profile.name, is_default, profile.is_isolated())?;
            requested = front.fleet.from_snapshot(requested, &profile.base, asking).await?;
            let sandbox = asking.caller.confine(profile.apply(requested.clone())?, profile.is_isolated())?;
            let sandbox = asking.caller.withhold_model(sandbox);
            request::check(&sandbox)?;
            (profile.name.clone(), sandbox)
        }
    };
    Ok(LeaseRequest {
        identity,
        requested,
        requested_profile: named,
        sandbox,
        profile,
        idle_s,
        lease_s,
        idempotency,
        rules: asking.caller.rules().cloned(),
        environment,
        profiles: Some(Arc::new(profiles)),
    })
}

/// A search path says which folders of the host are seen inside: it is the owner's to say, and nothing else of an environment counts.
fn of_the_owner(asking: &Asking, environment: &BTreeMap<String, String>) -> Result<(), SandboxError> {
    if !environment.is_empty() {
        asking.caller.must_be_owner("set `environment`")?;
    }
    for (name, value) in environment {
        let is_known = ["PATH", "SHELL"].contains(&name.as_str()) || is_regional_variable(name);
        if !is_known || value.contains('\0') {
            let message = format!("`environment`: `{}` cannot be set here", name.escape_debug());
            return Err(ErrorCode::RequestValue.error(message).hint(
                "`PATH`, `SHELL`, `LANG`, `LC_*` and `TZ` can; variables of commands belong in `sandbox.env`",
            ));
        }
    }
    Ok(())
}

pub(super) fn within_bounds(request: &CreateSandbox) -> Result<(), SandboxError> {
    let long = |field: &str, seconds: Option<u64>, least: u64| match seconds {
        Some(seconds) if !(least..=MAX_DURATION_S).contains(&seconds) => Err(ErrorCode::RequestValue
            .error(format!("`{field}`: must be from {least} to {MAX_DURATION_S} seconds"))),
        _ => Ok(()),
    };
    long("idle_s", request.idle_s, 0)?;
    long("lease_s", request.lease_s, 1)
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Only the one with this key.
    key: Option<String>,
    /// Only those in this state.
    #[param(inline)]
    state: Option<Standing>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// What comes behind this, which is `next` of the part before.
    after: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct How {
    /// Also one whose record this belljar does not understand.
    force: bool,
}

/// List the sandboxes that the caller may use
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "list_sandboxes", params(Which),
    responses((status = 200, description = "One page of sandboxes, sorted by name", body = Page<SandboxInfo>)))]
async fn list(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(which): QueryParams<Which>,
) -> Answer<Json<Page<SandboxInfo>>> {
    asking.caller.may_have_sandboxes()?;
    let limit = Part { limit: which.limit, after: None }.limit()?;
    let filter = Filter { key: which.key, state: which.state, after: which.after, limit: Some(limit) };
    Ok(Json(front.fleet.list(&filter, &asking).await))
}

/// Get a sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{name}", tag = "sandboxes", operation_id = "get_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    responses((status = 200, description = "The sandbox", body = SandboxInfo)))]
async fn get(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<SandboxInfo>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(front.fleet.get(&name, &asking).await?))
}

/// Delete a sandbox with all its files, also a persistent one, and regardless of leases
#[utoipa::path(delete, path = "/v1/sandboxes/{name}", tag = "sandboxes", operation_id = "delete_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox"), How),
    responses((status = 204, description = "The sandbox is deleted")))]
async fn delete(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    QueryParams(how): QueryParams<How>,
) -> Answer<StatusCode> {
    asking.caller.may_have_sandboxes()?;
    let gone = match how.force {
        true => front.fleet.delete_anyway(&name, &asking).await,
        false => front.fleet.delete(&name, &asking).await,
    };
    gone?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause all processes inside
#[utoipa::path(post, path = "/v1/sandboxes/{name}/pause", tag = "sandboxes", operation_id = "pause_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    responses((status = 200, description = "The sandbox is paused", body = SandboxInfo)))]
async fn pause(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<SandboxInfo>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(front.fleet.pause(&name, &asking).await?))
}

/// Resume all processes inside
#[utoipa::path(post, path = "/v1/sandboxes/{name}/resume", tag = "sandboxes", operation_id = "resume_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    responses((status = 200, description = "The sandbox is resumed", body = SandboxInfo)))]
async fn resume(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<SandboxInfo>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(front.fleet.resume(&name, &asking).await?))
}

/// Stop a sandbox; a persistent one keeps its files, another is removed
#[utoipa::path(post, path = "/v1/sandboxes/{name}/stop", tag = "sandboxes", operation_id = "stop_sandbox",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    responses((status = 200, description = "The sandbox is stopped", body = SandboxInfo)))]
async fn stop(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<SandboxInfo>> {
    asking.caller.may_have_sandboxes()?;
    Ok(Json(front.fleet.stop(&name, &asking).await?))
}

/// Renew a lease
#[utoipa::path(post, path = "/v1/sandboxes/{name}/leases/{lease}", tag = "sandboxes", operation_id = "renew_lease",
    params(("name" = String, Path, description = "Name or id of the sandbox"), ("lease" = String, Path, description = "Id of the lease")),
    request_body = RenewLease,
    responses((status = 200, description = "The lease, with its new end", body = LeaseInfo)))]
async fn renew(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Leased { name, lease }: Leased,
    Body(renewal): Body<RenewLease>,
) -> Answer<Json<LeaseInfo>> {
    asking.caller.may_have_sandboxes()?;
    within_bounds(&CreateSandbox { lease_s: renewal.lease_s, ..CreateSandbox::default() })?;
    let renewed = front.fleet.renew(&name, &lease, renewal.lease_s, &asking).await;
    Ok(Json(renewed?))
}

/// Release a lease on a sandbox
#[utoipa::path(delete, path = "/v1/sandboxes/{name}/leases/{lease}", tag = "sandboxes", operation_id = "drop_lease",
    params(("name" = String, Path, description = "Name or id of the sandbox"), ("lease" = String, Path, description = "Id of the lease")),
    responses((status = 204, description = "The lease is released")))]
async fn release(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Leased { name, lease }: Leased,
) -> Answer<StatusCode> {
    asking.caller.may_have_sandboxes()?;
    front.fleet.drop_lease(&name, &lease, &asking).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A sandbox and a lease on it, of the path.
struct Leased {
    name: String,
    lease: String,
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Leased {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Leased, Refusal> {
        let path = axum::extract::Path::<(String, String)>::from_request_parts(parts, state).await;
        let axum::extract::Path((name, lease)) = path
            .map_err(|error| invalid(format!("the path is not what it should be: {}", error.body_text())))?;
        Ok(Leased { name, lease })
    }
}

/// A year.
const MAX_DURATION_S: u64 = 31_536_000;

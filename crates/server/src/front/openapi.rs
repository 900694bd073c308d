//! How the daemon is spoken to, for programs: made from the handlers themselves, the shim's included.

use super::{Front, about, agents, grants, once, policy, records, sandboxes, snapshots, sweeping};
use crate::shim;
use belljar_api::ErrorBody;
use std::sync::Arc;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Info, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

/// What the front answers itself.
pub(super) fn api() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new()
        .merge(about::routes())
        .merge(sandboxes::routes())
        .merge(snapshots::routes())
        .merge(policy::routes())
        .merge(records::routes())
        .merge(grants::routes())
        .merge(sweeping::routes())
        .merge(agents::routes())
        .merge(once::routes())
}

/// The whole API.
pub fn description() -> OpenApi {
    let mut whole = api().into_openapi();
    whole.merge(shim::openapi());
    whole.info = Info::new("belljar", env!("CARGO_PKG_VERSION"));
    whole.info.description = Some(ABOUT.into());
    let components = whole.components.get_or_insert_default();
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.description = Some(
        "A token of `belljar daemon grants create`. Over the unix socket the user is proof enough".into(),
    );
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    components.schemas.insert(ErrorBody::name().into(), ErrorBody::schema());
    let mut below = Vec::new();
    ErrorBody::schemas(&mut below);
    components.schemas.extend(below);
    whole.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    for (path, item) in &mut whole.paths.paths {
        let is_open = path == "/v1/health";
        for operation in operations(item) {
            complete(operation, is_open);
        }
    }
    whole
}

/// With every refusal that the gate or a sandbox may give instead.
fn complete(operation: &mut Operation, is_open: bool) {
    let refusals: &[_] = if is_open { &REFUSALS[..2] } else { &REFUSALS };
    for (status, description) in refusals {
        let known = &mut operation.responses.responses;
        known.entry((*status).to_string()).or_insert_with(|| RefOr::T(refusal(description)));
    }
}

fn refusal(description: &str) -> Response {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    ResponseBuilder::new().description(description).content("application/json", body).build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
    [get, put, post, delete, options, head, patch, trace].into_iter().flatten()
}

const ABOUT: &str = "Running and persistent sandboxes: made, found by key, shared, paused and swept. Every answer has `x-request-id`; \
    every error is an `ErrorBody`, whose `code` is stable. Lists come in parts: `next` of one is `after` of the next.";

/// The first two also without a grant.
const REFUSALS: [(&str, &str); 10] = [
    ("400", "The request is not valid"),
    ("403", "This caller may not"),
    ("401", "No grant"),
    ("404", "There is no such thing, or none that the caller may see"),
    ("409", "Not as things are here and now"),
    ("410", "It was there, and is no more"),
    ("413", "The body is too long"),
    ("415", "A body of another kind is needed"),
    ("422", "The values are valid alone, and not together or not here"),
    ("429", "Too many requests; `retry-after` says when to come again"),
];

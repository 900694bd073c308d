//! Ports inside, reached from outside: HTTP with everything that it becomes, or plain bytes. Only ports that the sandbox was made
//! with; what listens there is the sandbox's, and gets nothing that would let it speak as the caller.

mod head;
mod open_ports;
mod pass;
mod plain;

use super::LiveSandbox;
use super::failure::Answer;
use crate::shim::CALLER;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::header::UPGRADE;
use axum::http::request::Parts;
use axum::routing::any;
use belljar_fleet::OWNER;
use belljar_spec::ErrorCode;
use std::sync::Arc;
use tokio::net::TcpStream;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<LiveSandbox>> {
    let mut routes = OpenApiRouter::new()
        .routes(routes!(plain::open))
        .routes(routes!(open_ports::list))
        .route("/v1/sandboxes/{name}/ports/{port}/", any(pass::pass))
        .route("/v1/sandboxes/{name}/ports/{port}/{*path}", any(pass::pass));
    // The router and the description have different words for the rest of a path.
    routes.get_openapi_mut().merge(Described::openapi());
    routes
}

#[derive(OpenApi)]
#[openapi(paths(pass::pass))]
struct Described;

/// A port that may be reached, and the way to it.
struct Port {
    number: u16,
    live: Arc<LiveSandbox>,
}

impl Port {
    async fn connect(&self) -> Answer<TcpStream> {
        let _using = self.live.using().await?;
        if self.live.is_paused() {
            return Err(ErrorCode::SandboxPaused
                .error("the sandbox is paused, and nothing answers in it")
                .hint("resume it first")
                .into());
        }
        Ok(self.live.sandbox().connect(self.number).await?)
    }
}

/// Whether the owner of the machine asks for plain bytes, as `belljar forward` does: that port is open for this connection. A page
/// that a browser asks for is another matter, since it could come from any site.
fn is_owners_own(headers: &HeaderMap) -> bool {
    let is_owner = headers.get(CALLER).is_none_or(|caller| caller == OWNER);
    is_owner
        && headers.get(UPGRADE).is_some_and(|upgrade_of| upgrade_of.as_bytes().eq_ignore_ascii_case(b"tcp"))
}

impl FromRequestParts<Arc<LiveSandbox>> for Port {
    type Rejection = super::failure::Failure;

    async fn from_request_parts(parts: &mut Parts, live: &Arc<LiveSandbox>) -> Answer<Port> {
        let params = RawPathParams::from_request_parts(parts, live).await.ok();
        let named = params.iter().flatten().find(|(name, _)| *name == "port").map(|(_, port)| port);
        let open = &live.plan.sandbox.ports;
        let is_open = |port: &u16| open.contains(port) || is_owners_own(&parts.headers);
        let number = named.and_then(|port| port.parse().ok()).filter(is_open);
        let number = number.ok_or_else(|| {
            ErrorCode::PermissionDenied
                .error("this port of the sandbox cannot be reached from outside")
                .hint("make the sandbox with `ports`, and name one of them")
        })?;
        Ok(Port { number, live: Arc::clone(live) })
    }
}

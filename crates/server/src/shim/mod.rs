//! The shim: the process that holds one sandbox. It makes the sandbox and ends with it. A one-shot run or a run of an agent ends with its
//! caller. A sandbox that lives is served over a socket: its commands, files and ports; its shim knows nothing of daemons, outlives the one
//! that started it, and the next one finds it again by its place.
//!
//! ```text
//!   daemon --a plan in, an answer out (protocol)--> process --> persistent | one_shot | agent_run
//!   daemon --HTTP over an abstract socket, token--> access --> commands | files | ports
//!                                                     \----> /keeper: status, life, pause, resume, snapshot, stop
//! ```

mod access;
pub(crate) mod agent_run;
mod commands;
mod contact;
mod extract;
mod failure;
mod fetch;
mod files;
mod life;
mod live;
pub(crate) mod one_shot;
mod persistent;
mod ports;
mod process;
pub(crate) mod protocol;
mod refusals;
mod serve;
mod snapshot;
mod starter;
mod wipe;
pub mod zygote;

pub use commands::COMMAND_HEADER;
pub use contact::Contact;
pub(crate) use failure::OWN_ERROR;
pub use life::StopRequest;
pub use live::LiveSandbox;
pub use process::run;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa_axum::router::OpenApiRouter;

/// All that a shim serves.
pub fn routes(live: Arc<LiveSandbox>) -> Router {
    let api = routes_of_api();
    api.route_layer(from_fn_with_state(Arc::clone(&live), access::ours))
        .merge(life::routes())
        .fallback(access::nowhere)
        .method_not_allowed_fallback(access::not_that)
        .layer(DefaultBodyLimit::max(extract::MAX_BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&live), access::check))
        .with_state(live)
}

/// What of the API is a shim's.
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().into_openapi()
}

/// Made once, where that is: in a zygote, for all its shims. The description that comes with it is the daemon's to serve.
fn routes_of_api() -> Router<Arc<LiveSandbox>> {
    static ROUTES: OnceLock<Router<Arc<LiveSandbox>>> = OnceLock::new();
    ROUTES.get_or_init(|| api().split_for_parts().0).clone()
}

fn api() -> OpenApiRouter<Arc<LiveSandbox>> {
    OpenApiRouter::new()
        .merge(commands::routes())
        .merge(files::routes())
        .merge(ports::routes())
        .merge(fetch::routes())
        .merge(refusals::routes())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The header with the caller of a request that the daemon passes on; without it, the owner is at the shim itself.
pub(crate) const CALLER: &str = "x-belljar-caller";

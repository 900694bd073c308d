//! Commands: started, listed, followed, spoken to, ended.

mod attach;
mod command;
mod events;
mod log;
mod looking;
mod named;
mod registry;
mod run;
mod signal;
mod speaking;
mod spill;
mod starting;
mod text;
mod understand;

pub(crate) use registry::Registry;

use super::LiveSandbox;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The name of the command that an answer is about.
pub const COMMAND_HEADER: &str = "x-belljar-command";

pub(super) fn routes() -> OpenApiRouter<Arc<LiveSandbox>> {
    OpenApiRouter::new()
        .routes(routes!(starting::start, looking::list))
        .routes(routes!(looking::show, speaking::kill))
        .routes(routes!(looking::output))
        .routes(routes!(looking::wait))
        .routes(routes!(speaking::stdin))
        .routes(routes!(speaking::send_signal))
        .routes(routes!(speaking::resize))
        .routes(routes!(speaking::attach))
}

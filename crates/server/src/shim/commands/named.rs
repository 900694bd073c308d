//! The command that a path names.

use super::command::Command;
use crate::shim::LiveSandbox;
use crate::shim::failure::Failure;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use belljar_spec::ErrorCode;
use std::sync::Arc;

/// It.
pub(super) struct Named(pub(super) Arc<Command>);

impl FromRequestParts<Arc<LiveSandbox>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, live: &Arc<LiveSandbox>) -> Result<Named, Failure> {
        let params = RawPathParams::from_request_parts(parts, live).await;
        let params = params.map_err(|_| ErrorCode::NameUnknown.error("this path names no command"))?;
        let id = params.iter().find(|(name, _)| *name == "command").map_or("", |(_, id)| id);
        Ok(Named(live.commands.find(id)?))
    }
}

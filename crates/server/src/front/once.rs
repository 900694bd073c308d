//! One call, one run. Here it is decided whether it may be; what it is, is a process of its own ([`crate::shim::one_shot`]).

use super::Front;
use super::connection::Connection;
use super::extract::Body;
use super::gate::Asking;
use super::slots::Slots;
use crate::answer::Answer;
use crate::link::run_failed;
use crate::shim::one_shot;
use crate::shim::protocol::{self, Plan};
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use belljar_api::{EgressRequest, RunOnce, RunResult, SandboxRequest};
use belljar_spec::SandboxError;
use belljar_spec::egress::Mode;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(run_once))
}

/// Run one command in a sandbox of its own, and wait for its end
///
/// What was run is answered with 200 however it ended: `ok` and `errorCode` say how. Where nothing may be run the answer is an
/// error. A client that hangs up ends the run; the sandbox is gone in every case.
#[utoipa::path(post, path = "/v1/run-once", tag = "runs", operation_id = "run_once", request_body = RunOnce,
    responses((status = 200, description = "Result of the run", body = RunResult)))]
async fn run_once(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Extension(connection): Extension<Arc<Connection>>,
    Body(run): Body<RunOnce>,
) -> Answer<Response> {
    asking.caller.may_have_sandboxes()?;
    let place = RUNS.take(&asking.caller, "runs", LATER)?;
    let seat = front.fleet.seat_run(&asking)?;
    asking.caller.may_take(run.timeout_s, run.max_output)?;
    let sandbox = confined(&front, &asking, &run).await?;
    let run = RunOnce { sandbox, ..run };
    one_shot::check(&run)?;
    let on_end = move |code| {
        drop((place, seat));
        if code == Some(protocol::UNREAD.into()) {
            connection.close();
        }
    };
    let started = front.link.start_run(Plan::OneShot(Box::new(run)), on_end).await?;
    let (protocol::Answer::Result(length), shim) = started else {
        return Err(run_failed("read the answer of the shim", &"it is no result").into());
    };
    let head = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((head, axum::body::Body::from_stream(shim.result(length))).into_response())
}

/// What is asked, what the profile says, and what the grant allows, in one. Where none of them names an egress mode, nothing
/// may be reached, whatever this machine's settings are.
async fn confined(front: &Front, asking: &Asking, run: &RunOnce) -> Result<SandboxRequest, SandboxError> {
    let request = asking.caller.admit(run.sandbox.clone())?;
    let profiles = front.profiles().await?;
    let profile = profiles.choose(run.profile.as_deref())?;
    let (is_default, is_isolated) = (profiles.is_default(profile), profile.is_isolated());
    asking.caller.may_use_profile(&profile.name, is_default, is_isolated)?;
    let mut made = profile.apply(request)?;
    if is_isolated && made.egress == EgressRequest::default() {
        made.egress.mode = Some(Mode::None);
    }
    Ok(asking.caller.withhold_model(asking.caller.confine(made, is_isolated)?))
}

/// Each is a process with a sandbox, counted until it has ended.
static RUNS: Slots = Slots::new(64);
const LATER: u64 = 2;

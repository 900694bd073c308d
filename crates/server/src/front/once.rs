//! One call, one run. Here it is decided whether it may be; what it is, is a process of its own ([`crate::once`]).

use super::Front;
use super::connection::Connection;
use super::extract::Body;
use super::gate::Asking;
use super::places::Places;
use crate::answer::Answer;
use crate::job::{PROGRAM, new_directory};
use crate::once::{Job, Terms, ask};
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use belljar_api::{EgressRequest, RunOnce, RunResult, SandboxRequest};
use belljar_spec::egress::Mode;
use belljar_spec::{ErrorCode, SandboxError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(run_once))
}

/// Run one command in a sandbox of its own, and wait for its end
///
/// What was run is answered with 200 however it ended: `ok` and `errorCode` say how. Where nothing may be run the answer is an
/// error. Whoever hangs up ends the run; the sandbox is gone in every case.
#[utoipa::path(post, path = "/v1/run-once", tag = "runs", operation_id = "run_once", request_body = RunOnce,
    responses((status = 200, description = "It is over", body = RunResult)))]
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
    let fleet = belljar_state::state_directory()
        .map_err(|error| {
            SandboxError::new(ErrorCode::StateFailed, format!("runs cannot be kept: {error}"))
                .hint(error.hint())
                .caused_by(error)
        })?
        .join("fleet");
    let sandbox = confined(&front, &asking, &run).await?;
    let job = Job {
        run: RunOnce { sandbox, ..run },
        directory: new_directory(&fleet)?,
        volumes: fleet.join("volumes"),
    };
    job.check()?;
    let terms =
        Terms { held: (place, seat), patience: TO_READ, on_silence: Box::new(move || connection.close()) };
    let telling = ask(Path::new(PROGRAM), job, terms).result().await?;
    let head = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CONTENT_LENGTH, HeaderValue::from(telling.length)),
    ];
    Ok((head, axum::body::Body::from_stream(telling.pieces())).into_response())
}

/// What is asked, what the profile says, and what the grant allows, in one. Where nobody says what may be reached, nothing is,
/// whatever this machine's settings are.
async fn confined(front: &Front, asking: &Asking, run: &RunOnce) -> Result<SandboxRequest, SandboxError> {
    let asked = asking.caller.admit(run.sandbox.clone())?;
    let profiles = front.profiles().await?;
    let profile = profiles.choose(run.profile.as_deref())?;
    let (is_default, has_wall) = (profiles.is_default(profile), profile.has_wall());
    asking.caller.may_use_profile(&profile.name, is_default, has_wall)?;
    let mut made = profile.apply(asked)?;
    if has_wall && made.egress == EgressRequest::default() {
        made.egress.mode = Some(Mode::None);
    }
    Ok(asking.caller.withhold_model(asking.caller.confine(made, has_wall)?))
}

/// Each is a process with a sandbox, counted until it has ended.
static RUNS: Places = Places::new(64);
const LATER: u64 = 2;
/// Whoever takes nothing of a result for so long does not want it.
const TO_READ: Duration = Duration::from_secs(30);

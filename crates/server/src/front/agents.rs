//! Agents: which there are, and runs of them. A run is a process of its own ([`crate::shim::agent_run`]); here it is decided
//! whether it may be, and what of it goes to the caller.

use super::Front;
use super::extract::{Body, Named, Part, QueryParams};
use super::gate::Asking;
use super::slots::Slots;
use crate::agents::{event_name, events};
use crate::answer::Answer;
use crate::shim::agent_run::AgentPlan;
use crate::shim::protocol::Plan;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::{Extension, Json};
use belljar_agent::adapter::catalog::{Listed, catalog};
use belljar_api::{AgentInfo, AgentRun, Page, RunEvent, SandboxRequest};
use belljar_fleet::Caller;
use belljar_spec::{ErrorCode, SandboxError};
use futures_util::{Stream, stream};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(run))
}

/// List known agents, and whether each is installed here
#[utoipa::path(get, path = "/v1/agents", tag = "agents", operation_id = "list_agents", params(Part),
    responses((status = 200, description = "One page of agents", body = Page<AgentInfo>)))]
async fn list(
    Extension(asking): Extension<Asking>,
    QueryParams(part): QueryParams<Part>,
) -> Answer<Json<Page<AgentInfo>>> {
    asking.caller.may_run_agents()?;
    let mut agents = apart(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(catalog(&path).into_iter().map(info).collect::<Vec<AgentInfo>>())
    })
    .await?;
    agents.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Json(part.of(agents, |agent| agent.id.clone())?))
}

/// Run an agent, and hear what it does
///
/// Events are named `started`, `line` (of its log), `text_delta`, `usage` and `final`, which is the last one. A client that hangs
/// up ends the run, with the work so far kept.
#[utoipa::path(post, path = "/v1/agents/{id}/runs", tag = "agents", operation_id = "run_agent", request_body = AgentRun,
    params(("id" = String, Path, description = "Name of the agent")),
    responses((status = 200, description = "Events of the run", body = RunEvent, content_type = "text/event-stream")))]
async fn run(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(id): Named,
    Body(run): Body<AgentRun>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let caller = &asking.caller;
    caller.may_run_agents()?;
    let place = RUNS.take(caller, "agents", LATER)?;
    let plan = AgentPlan {
        agent: id.clone(),
        run: AgentRun {
            sandbox: confined(&front, caller, run.profile.as_deref(), run.sandbox.clone()).await?,
            ..run
        },
        may_choose_model: chooses_model(caller),
    };
    plan.check()?;
    let plan = Plan::AgentRun(Box::new(plan));
    let (answer, shim) = front.link.start_run(plan, move |_| drop(place)).await?;
    let receiver = events(&answer, shim, id)?;
    let next = |mut receiver: Receiver<RunEvent>| async move {
        let event = receiver.recv().await?;
        Some((Ok(event_of(&event)), receiver))
    };
    Ok(Sse::new(stream::unfold(receiver, next)).keep_alive(KeepAlive::new().interval(QUIET)))
}

/// What is asked, what the profile says, and what the grant allows, in one.
async fn confined(
    front: &Front,
    caller: &Caller,
    profile: Option<&str>,
    request: SandboxRequest,
) -> Result<SandboxRequest, SandboxError> {
    let request = caller.admit(request)?;
    let profiles = front.profiles().await?;
    let profile = profiles.choose(profile)?;
    caller.may_use_profile(&profile.name, profiles.is_default(profile), profile.is_isolated())?;
    caller.confine(profile.apply(request)?, profile.is_isolated())
}

fn event_of(event: &RunEvent) -> Event {
    let named = Event::default().event(event_name(event));
    // What was read as JSON is JSON.
    named.json_data(event).unwrap_or_default()
}

/// Where no route to a model is configured, the provider's own is taken, with its key of the vault.
fn chooses_model(caller: &Caller) -> bool {
    caller.rules().is_none_or(|rules| rules.allow_llm)
}

fn info(Listed { adapter, found }: Listed) -> AgentInfo {
    let reason = found.as_ref().err().map(|error| match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    });
    AgentInfo {
        id: adapter.name.into(),
        label: adapter.title.into(),
        available: found.is_ok(),
        version: found.ok().and_then(|found| found.version),
        reason,
    }
}

/// Off the threads that answer others.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(ErrorCode::Internal.error(format!("a thread ended early: {error}")).caused_by(error))
    })
}

/// Each is an agent at work, with a sandbox, a model and a bill.
static RUNS: Slots = Slots::new(16);
const LATER: u64 = 10;
/// How long nothing is said before a sign of life is.
const QUIET: Duration = Duration::from_secs(15);

//! The policy of a sandbox that lives: shown, changed, and its questions answered. The order goes to the process that holds the
//! sandbox (`belljar_engine::Steered`); who may give it is judged here.
//!
//! A grant steers only sandboxes of its own, and never beyond the names that it could have asked for when they were made.

use super::Front;
use super::extract::{Body, Named, Part, QueryParams};
use super::gate::Asking;
use crate::answer::{Answer, Refusal, invalid};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use belljar_api::{AnswerQuestion, ChangePolicy, Page, PolicyChanged, SandboxNotice, SandboxQuestion};
use belljar_engine::{Order, Reply, Steered, steered};
use belljar_fleet::Filter;
use belljar_spec::egress::{PolicyReport, Rule, RuleEffect, RuleLasting, RuleSource, Verdict};
use belljar_spec::{ErrorCode, SandboxError, SandboxId};
use belljar_state::state_directory;
use futures_util::stream;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Front>> {
    OpenApiRouter::new().routes(routes!(show, change)).routes(routes!(questions)).routes(routes!(answer))
}

/// Get the policy in force in a running sandbox, each rule with its file and line
#[utoipa::path(get, path = "/v1/sandboxes/{name}/policy", tag = "egress", operation_id = "get_policy",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    responses((status = 200, description = "The policy in force", body = PolicyReport)))]
async fn show(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
) -> Answer<Json<PolicyReport>> {
    let one = front.steered(&asking, &name, May::See).await?;
    Ok(Json(front.blocking(move |_| one.policy(&state()?)).await?))
}

/// Add a rule to the policy of a sandbox that lives
///
/// It takes effect at once: no later connection is decided without it, and connections that it denies end. A grant may allow what it
/// could have asked for when the sandbox was made, and deny anything.
#[utoipa::path(post, path = "/v1/sandboxes/{name}/policy", tag = "egress", operation_id = "change_policy",
    params(("name" = String, Path, description = "Name or id of the sandbox")),
    request_body = ChangePolicy,
    responses((status = 200, description = "The change is in force", body = PolicyChanged)))]
async fn change(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Named(name): Named,
    request: Result<Body<ChangePolicy>, Refusal>,
) -> Answer<Json<PolicyChanged>> {
    // Before the body, in which fields are needed.
    asking.caller.may_have_sandboxes()?;
    let Body(request) = request?;
    let one = front.steered(&asking, &name, May::Steer).await?;
    let ChangePolicy { effect, rule, for_s, once } = request;
    let lasting = match (for_s, once) {
        (Some(_), true) => {
            return Err(ErrorCode::RequestConflict.error("`for_s` and `once` contradict each other").into());
        }
        (Some(seconds @ 1..=MAX_SECONDS), false) => RuleLasting::Seconds(seconds),
        (Some(_), false) => return Err(invalid(format!("`for_s` must be from 1 to {MAX_SECONDS}")).into()),
        (None, true) => RuleLasting::Once,
        (None, false) => RuleLasting::Life,
    };
    may_change(&asking, effect, &rule)?;
    let order = Order::Change { effect, rule, lasting, by: who(&asking) };
    Ok(Json(front.blocking(move |_| changed(one.order(&state()?, &order)?)).await?))
}

/// Answer a question of a sandbox
#[utoipa::path(post, path = "/v1/sandboxes/{name}/questions/{question}", tag = "egress", operation_id = "answer_question",
    params(("name" = String, Path, description = "Name or id of the sandbox"),
        ("question" = u64, Path, description = "Number of the question")),
    request_body = AnswerQuestion,
    responses((status = 200, description = "The question is answered, and the answer is in force", body = PolicyChanged)))]
async fn answer(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    Numbered { name, question }: Numbered,
    request: Result<Body<AnswerQuestion>, Refusal>,
) -> Answer<Json<PolicyChanged>> {
    asking.caller.may_have_sandboxes()?;
    let question: u64 = question.parse().map_err(|_| invalid("a question has a number"))?;
    let Body(request) = request?;
    let one = front.steered(&asking, &name, May::Steer).await?;
    let AnswerQuestion { rule: shown, verdict } = request;
    let by = who(&asking);
    let outcome = front
        .blocking(move |_| {
            let state = state()?;
            // Judged by what it is about, and sent with that: a number that means no question yet may mean one a moment later.
            let open = one.policy(&state)?.questions;
            let found = open.into_iter().find(|open| open.id == question);
            let found = found.filter(|found| shown.is_none_or(|shown| shown == found.rule));
            let rule = found.ok_or_else(|| over(question))?.rule;
            if verdict != Verdict::Deny {
                may_change(&asking, RuleEffect::Allow, &rule)?;
            }
            changed(one.order(&state, &Order::Answer { question, rule, verdict, by })?)
        })
        .await?;
    Ok(Json(outcome))
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct Which {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// What comes behind this, which is `next` of the part before.
    after: Option<String>,
    /// A stream of events: the questions that wait, and then those that come and end.
    follow: Option<bool>,
}

/// List questions of the caller's sandboxes that wait for a person
#[utoipa::path(get, path = "/v1/questions", tag = "egress", operation_id = "list_questions", params(Which),
    responses((status = 200, description = "One page of open questions, or with `follow` a stream of events", content(
        (Page<SandboxQuestion> = "application/json"), (SandboxNotice = "text/event-stream")))))]
async fn questions(
    State(front): State<Arc<Front>>,
    Extension(asking): Extension<Asking>,
    QueryParams(which): QueryParams<Which>,
) -> Answer<Response> {
    asking.caller.may_have_sandboxes()?;
    if which.follow == Some(true) {
        return Ok(follow(front, asking).into_response());
    }
    let all = front.questions(&asking).await?;
    let part = Part { limit: which.limit, after: which.after };
    let order = |one: &SandboxQuestion| format!("{} {:020}", one.sandbox, one.question.id);
    Ok(Json(part.of(all, order)?).into_response())
}

/// What a caller wants of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    See,
    Steer,
}

impl Front {
    /// The sandbox that takes orders. The owner may also name a run in the foreground, by its id.
    async fn steered(
        self: &Arc<Front>,
        asking: &Asking,
        name: &str,
        may: May,
    ) -> Result<Steered, SandboxError> {
        asking.caller.may_have_sandboxes()?;
        let id = match SandboxId::parse(name) {
            Some(id) if asking.caller.is_owner() => id.to_string(),
            _ => {
                let info = match may {
                    May::See => self.fleet.get(name, asking).await?,
                    May::Steer => self.fleet.owned(name, asking).await?,
                };
                info.id.ok_or_else(|| not_alive(name))?
            }
        };
        let name = name.to_string();
        self.blocking(move |_| {
            let found = steered(&state()?).into_iter().find(|one| one.id == id);
            found.ok_or_else(|| not_alive(&name))
        })
        .await
    }

    /// The questions of all sandboxes that the caller may use, in the order of their names.
    async fn questions(self: &Arc<Front>, asking: &Asking) -> Result<Vec<SandboxQuestion>, SandboxError> {
        let visible = self.fleet.list(&Filter::default(), asking).await.items;
        let is_owner = asking.caller.is_owner();
        self.blocking(move |_| {
            let state = state()?;
            let mut all = Vec::new();
            for one in steered(&state).into_iter().filter(|one| one.asks) {
                let known = visible.iter().find(|info| info.id.as_deref() == Some(&one.id));
                let sandbox = match known {
                    Some(info) => info.name.clone(),
                    None if is_owner => one.id.clone(),
                    None => continue,
                };
                // One that ended meanwhile asks nothing.
                for question in one.policy(&state).map(|policy| policy.questions).unwrap_or_default() {
                    let (sandbox, sandbox_id) = (sandbox.clone(), one.id.clone());
                    all.push(SandboxQuestion { sandbox, sandbox_id, folder: one.folder.clone(), question });
                }
            }
            all.sort_by(|one, other| {
                (&one.sandbox, one.question.id).cmp(&(&other.sandbox, other.question.id))
            });
            Ok(all)
        })
        .await
    }
}

fn not_alive(name: &str) -> SandboxError {
    ErrorCode::SandboxNotAlive
        .error(format!("`{name}` does not live, or its policy cannot be changed"))
        .hint("a sandbox without egress, and one of an older belljar, takes no changes")
}

fn over(question: u64) -> SandboxError {
    ErrorCode::NameUnknown
        .error(format!("there is no question {question} about this: it was answered, or its time was over"))
        .hint("list the questions that wait")
}

fn state() -> Result<PathBuf, SandboxError> {
    state_directory().map_err(|error| ErrorCode::StateFailed.error(error.to_string()).caused_by(error))
}

fn who(asking: &Asking) -> String {
    match asking.caller.is_owner() {
        true => "the owner, over the API".into(),
        false => format!("grant {}", asking.caller.id()),
    }
}

fn may_change(asking: &Asking, effect: RuleEffect, rule: &str) -> Result<(), SandboxError> {
    let read = match effect {
        RuleEffect::Allow => Rule::allow(rule, RuleSource::Program),
        RuleEffect::Deny => Rule::deny(rule, RuleSource::Program),
    };
    let rule = read.map_err(|error| ErrorCode::RequestValue.error(format!("`rule`: {error}")))?;
    match (asking.caller.rules(), effect) {
        (Some(granted), RuleEffect::Allow) => granted.may_allow(&rule.host),
        (Some(_), RuleEffect::Deny) | (None, _) => Ok(()),
    }
}

fn changed(reply: Reply) -> Result<PolicyChanged, SandboxError> {
    match reply {
        Reply::Changed { policy, version, ended } => Ok(PolicyChanged { policy, version, ended }),
        Reply::Policy(_) | Reply::Notice(_) | Reply::Refused { .. } => {
            Err(ErrorCode::Internal.error("the process that holds the sandbox answered something else"))
        }
    }
}

/// The questions as they come and go. Looked for: a sandbox may start at any time.
fn follow(front: Arc<Front>, asking: Asking) -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
    struct Following {
        front: Arc<Front>,
        asking: Asking,
        known: Vec<SandboxQuestion>,
        events: VecDeque<(&'static str, SandboxQuestion)>,
        is_first: bool,
    }
    let following = Following { front, asking, known: Vec::new(), events: VecDeque::new(), is_first: true };
    let events = stream::unfold(following, |mut following| async move {
        loop {
            if let Some((kind, question)) = following.events.pop_front() {
                let event = Event::default().event(kind).json_data(&question).unwrap_or_default();
                return Some((Ok(event), following));
            }
            if !std::mem::take(&mut following.is_first) {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            let all = following.front.questions(&following.asking).await.ok()?;
            let same = |one: &SandboxQuestion, other: &SandboxQuestion| {
                (&one.sandbox_id, one.question.id) == (&other.sandbox_id, other.question.id)
            };
            for one in &following.known {
                if !all.iter().any(|other| same(one, other)) {
                    following.events.push_back(("answered", one.clone()));
                }
            }
            for one in &all {
                if !following.known.iter().any(|other| same(one, other)) {
                    following.events.push_back(("asked", one.clone()));
                }
            }
            following.known = all;
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE))
}

/// A sandbox and a question of it, of the path.
struct Numbered {
    name: String,
    question: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Numbered {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Numbered, Refusal> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((name, question)) = path
            .map_err(|error| invalid(format!("the path is not what it should be: {}", error.body_text())))?;
        Ok(Numbered { name, question })
    }
}

/// A year.
const MAX_SECONDS: u64 = 31_536_000;
/// Soon enough for a person.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// So that a connection on which nothing happens is not taken for a dead one.
const ALIVE: Duration = Duration::from_secs(15);

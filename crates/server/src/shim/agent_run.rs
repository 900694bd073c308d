//! A run of an agent. Its log tells what happens.

use super::one_shot::TO_CLEAR_UP;
use super::process::{engine, runtime, surroundings};
use super::protocol::Answer;
use super::starter::Starter;
use belljar_agent::adapter::{self, ModelName};
use belljar_agent::billing::RunBilling;
use belljar_agent::budget::RunBudget;
use belljar_agent::log::Watcher;
use belljar_agent::messages::{Message, Messages, Role};
use belljar_agent::run::{Agent, Conversation, RunRequest};
use belljar_agent::{input, provider, run as agent};
use belljar_api::{AgentMessage, AgentRun, MessageRole, RunBill};
use belljar_config::resolve_with;
use belljar_fleet::SandboxDir;
use belljar_fleet::request;
use belljar_spec::request::LlmRequest;
use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// A run to make, when everything was allowed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AgentPlan {
    pub(crate) agent: String,
    /// With what the profile and the grant say of its sandbox.
    pub(crate) run: AgentRun,
    /// Whether the provider's key may be taken from the vault where no route to a model is configured.
    pub(crate) may_choose_model: bool,
}

impl AgentPlan {
    /// That it makes sense, before a process is started for it.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        adapter::named(&self.agent)?;
        let run = &self.run;
        self.task()?;
        if !self.may_choose_model && (run.bill.end_user.is_some() || run.bill.user_id.is_some()) {
            return Err(ErrorCode::NotGranted
                .error("this grant does not choose the account that a run is booked under")
                .hint("omit `bill.end_user` and `bill.user_id`; the owner of this machine can grant `allow_llm`"));
        }
        optional::<ModelName>("model", &run.model)?;
        optional::<adapter::Effort>("effort", &run.effort)?;
        self.budget()?;
        if run.timeout_s == Some(0) {
            return Err(ErrorCode::RequestValue.error("`timeout_s`: a run takes a second at least"));
        }
        super::one_shot::no_ports(&run.sandbox)?;
        request::check(&run.sandbox)
    }

    fn request(&self, place: &SandboxDir) -> Result<RunRequest, SandboxError> {
        let AgentPlan { agent, run, may_choose_model } = self;
        let agent = Agent::Known(adapter::named(agent)?);
        let model: Option<ModelName> = optional("model", &run.model)?;
        let budget = self.budget()?;
        let web_search = run.sandbox.web_search.is_some();
        let request = provider::for_agent(run.sandbox.clone(), budget.model);
        let (mut sandbox, _) = resolve_with(request, surroundings(place), |flags, layers| {
            let is_configured = layers.route(&LlmRequest::default())?.is_some();
            if !is_configured && flags.url.is_none() && !may_choose_model {
                let message = "no model is configured on this machine, and this grant does not choose one";
                return Err(ErrorCode::NotGranted
                    .error(message)
                    .hint("the owner of this machine can configure `[llm]`, or grant `allow_llm`"));
            }
            provider::server(flags, is_configured, model.as_ref(), &agent)
        })?;
        provider::check_price(sandbox.llm.as_ref(), model.as_ref(), &agent)?;
        billing(&run.bill).book(sandbox.llm.as_mut())?;
        let (prompt, messages) = self.task()?;
        Ok(RunRequest {
            agent,
            prompt,
            model,
            effort: optional("effort", &run.effort)?,
            web_search,
            context: messages.context(),
            messages,
            attached: Vec::new(),
            cwd: None,
            time: [budget.time, run.timeout_s.map(Duration::from_secs), sandbox.limits.timeout]
                .into_iter()
                .flatten()
                .min(),
            conversation: Conversation::New,
            own_arguments: Vec::new(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            sandbox,
        })
    }

    /// The prompt, and the conversation that it ends.
    fn task(&self) -> Result<(String, Messages), SandboxError> {
        let AgentRun { prompt, messages, .. } = &self.run;
        if messages.is_empty() {
            return Ok((input::prompt(prompt.clone().into_bytes(), "`prompt`")?, Messages::default()));
        }
        if !prompt.is_empty() {
            let message = "`prompt` and `messages` are two ways to say the same";
            return Err(ErrorCode::RequestConflict.error(message).hint("omit `prompt`"));
        }
        let messages = Messages::new(messages.iter().map(message).collect())?;
        Ok((messages.prompt(), messages))
    }

    fn budget(&self) -> Result<RunBudget, SandboxError> {
        let mut all = RunBudget::default();
        for text in &self.run.budget {
            all = all.strictest(word("budget", text)?);
        }
        Ok(all)
    }
}

/// Runs it to its end, or until the daemon hangs up: its work so far is kept then. Says its id as soon as there is a log.
pub(super) fn run(plan: &AgentPlan, place: &SandboxDir, starter: &mut Starter) -> Result<(), SandboxError> {
    let state = belljar_state::state_directory()?;
    let request = plan.request(place)?;
    let runtime = runtime()?;
    let hung_up = starter.hung_up();
    let mut is_reported = false;
    let watcher: Watcher<'_> = Box::new(|line, _| {
        if !std::mem::replace(&mut is_reported, true) {
            starter.say(&Answer::Run(line.session_id.clone()));
        }
    });
    let ran =
        runtime.block_on(agent::run(&engine(place), request, &state, Some(watcher), hung_up.notified()));
    // The download of an image may still be under way, though the run has ended.
    runtime.shutdown_timeout(TO_CLEAR_UP);
    ran.map(drop)
}

fn message(AgentMessage { role, content }: &AgentMessage) -> Message {
    let role = match role {
        MessageRole::System => Role::System,
        MessageRole::User => Role::User,
        MessageRole::Assistant => Role::Assistant,
    };
    Message { role, content: content.clone() }
}

fn billing(bill: &RunBill) -> RunBilling {
    let RunBill { end_user, user_id, session_id, graph_id, attempt } = bill.clone();
    RunBilling { end_user, user_id, session_id, graph_id, attempt }
}

fn optional<T: FromStr>(field: &str, text: &Option<String>) -> Result<Option<T>, SandboxError>
where
    T::Err: Display,
{
    text.as_deref().map(|text| word(field, text)).transpose()
}

fn word<T: FromStr>(field: &str, text: &str) -> Result<T, SandboxError>
where
    T::Err: Display,
{
    text.parse().map_err(|error| {
        ErrorCode::RequestValue.error(format!("`{field}`: {error}")).hint(format!("correct `{field}`"))
    })
}

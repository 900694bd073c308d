//! The process of one run. It knows nothing of HTTP: a job on standard input, the run's id on standard output.

use crate::job::{self, hold, hung_up, surroundings};
use belljar_agent::adapter::{self, ModelName};
use belljar_agent::budget::RunBudget;
use belljar_agent::log::Watcher;
use belljar_agent::run::{Agent, RunRequest};
use belljar_agent::{input, provider, run as agent};
use belljar_api::{AgentRun, ApiError};
use belljar_engine::Engine;
use belljar_engine::request::resolve_with;
use belljar_fleet::Place;
use belljar_fleet::request;
use belljar_spec::request::LlmRequest;
use belljar_spec::{ErrorCode, SandboxError};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A run to make, when everything was allowed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) agent: String,
    /// With what the profile and the grant say of its sandbox.
    pub(crate) run: AgentRun,
    /// Where it may keep what goes with it.
    pub(crate) directory: PathBuf,
    /// Where volumes are kept.
    pub(crate) volumes: PathBuf,
    /// Whether the provider's key may be taken from the vault where no route to a model is configured.
    pub(crate) may_choose_model: bool,
}

/// What a job says first, and last.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// It runs; its log has this id.
    Run(String),
    /// There is not even a log.
    Error(ApiError),
}

impl Job {
    /// That it makes sense, before a process is started for it.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        adapter::named(&self.agent)?;
        let run = &self.run;
        input::prompt(run.prompt.clone().into_bytes(), "`prompt`")?;
        optional::<ModelName>("model", &run.model)?;
        optional::<adapter::Effort>("effort", &run.effort)?;
        self.budget()?;
        if run.timeout_s == Some(0) {
            return Err(SandboxError::new(
                ErrorCode::RequestValue,
                "`timeout_s`: a run takes a second at least",
            ));
        }
        request::check(&run.sandbox)
    }

    fn request(&self, place: &Place) -> Result<RunRequest, SandboxError> {
        let Job { agent, run, may_choose_model, .. } = self;
        let agent = Agent::Known(adapter::named(agent)?);
        let model: Option<ModelName> = optional("model", &run.model)?;
        let budget = self.budget()?;
        let web_search = run.sandbox.web_search.is_some();
        let asked = provider::for_agent(run.sandbox.clone(), budget.model);
        let (sandbox, _) = resolve_with(asked, surroundings(place, &self.volumes), |flags, layers| {
            let is_configured = layers.route(&LlmRequest::default())?.is_some();
            if !is_configured && flags.url.is_none() && !may_choose_model {
                let message = "no model is configured on this machine, and this grant does not choose one";
                return Err(SandboxError::new(ErrorCode::NotGranted, message)
                    .hint("the owner of this machine can configure `[llm]`, or grant `allow_llm`"));
            }
            provider::server(flags, is_configured, model.as_ref(), &agent)
        })?;
        Ok(RunRequest {
            agent,
            prompt: input::prompt(run.prompt.clone().into_bytes(), "`prompt`")?,
            model,
            effort: optional("effort", &run.effort)?,
            web_search,
            context: Vec::new(),
            time: [budget.time, run.timeout_s.map(Duration::from_secs), sandbox.limits.timeout]
                .into_iter()
                .flatten()
                .min(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            sandbox,
        })
    }

    fn budget(&self) -> Result<RunBudget, SandboxError> {
        let mut all = RunBudget::default();
        for text in &self.run.budget {
            all = all.strictest(word("budget", text)?);
        }
        Ok(all)
    }

    pub(super) fn place(&self) -> Place {
        Place::new(&self.directory)
    }
}

/// Does the job that stands on standard input. Whoever wrote it keeps that open as long as the run is wanted.
pub fn run() -> Result<u8, SandboxError> {
    let job: Job = job::read("`belljar agent run` runs an agent")?;
    let said = done(&job);
    // Also where nobody waits for us any more. What is left of a kill is cleared by the next daemon.
    let _ = belljar_sys::remove_tree::remove(&job.directory);
    if let Err(error) = &said {
        let _ = job::say(&Said::Error(ApiError::from(error)), &mut io::stdout());
    }
    Ok(u8::from(said.is_err()))
}

fn done(job: &Job) -> Result<(), SandboxError> {
    let state = belljar_state::state_directory().map_err(|error| {
        SandboxError::new(ErrorCode::StateFailed, format!("runs cannot be kept: {error}"))
            .hint(error.hint())
            .caused_by(error)
    })?;
    let place = job.place();
    let _held = hold(&place)?;
    let request = job.request(&place)?;
    let runtime = job::runtime()?;
    let hung_up = hung_up();
    let mut is_told = false;
    let watcher: Watcher<'_> = Box::new(move |line, _| {
        if !std::mem::replace(&mut is_told, true) {
            let _ = job::say(&Said::Run(line.session_id.clone()), &mut io::stdout());
        }
    });
    runtime.block_on(agent::run(&Engine::new(), request, &state, Some(watcher), hung_up.notified()))?;
    Ok(())
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
        SandboxError::new(ErrorCode::RequestValue, format!("`{field}`: {error}"))
            .hint(format!("correct `{field}`"))
    })
}

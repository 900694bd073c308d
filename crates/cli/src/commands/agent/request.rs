//! From words to a run: who, what, with which model, and where.

use super::login::{has_plan, plan};
use crate::args::{AgentRunArgs, SandboxOptions, WishArgs};
use crate::commands::standing::Standing;
use belljar_agent::adapter::ModelName;
use belljar_agent::budget::RunBudget;
use belljar_agent::run::{Agent, Conversation, RunRequest};
use belljar_agent::{input, provider};
use belljar_config::Note;
use belljar_config::{Surroundings, resolve_with};
use belljar_spec::request::LlmRequest;
use belljar_spec::secret::SecretRef;
use belljar_spec::{ErrorCode, SandboxError, SandboxRequest, SandboxSpec};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The run that was asked for, and what a person should be told of it.
pub(super) fn of_run(options: AgentRunArgs) -> Result<(RunRequest, Vec<Note>), SandboxError> {
    let AgentRunArgs { agent, prompt, prompt_file, wish, json, sandbox_options, .. } = options;
    let agent = Agent::named(&agent)?;
    let prompt = the_prompt(prompt, prompt_file.as_deref())?;
    request(agent, prompt, wish, sandbox_options, !json)
}

/// The same, with a prompt that is known. `says` tells the user which repository a folder below its top belongs to.
pub(super) fn request(
    agent: Agent,
    prompt: String,
    wish: WishArgs,
    sandbox_options: SandboxOptions,
    says: bool,
) -> Result<(RunRequest, Vec<Note>), SandboxError> {
    let WishArgs { model, effort, context, attach, budget } = wish;
    let (context, budget) = (input::context(&context)?, budget.unwrap_or_default());
    let attached = input::attached(&attach)?;
    let Standing { sandbox_options, below } = Standing::of(sandbox_options, says)?;
    let (request, surroundings) = sandbox_options.into_request()?;
    let web_search = request.web_search.is_some();
    let (sandbox, notes) = spec(request, surroundings, &agent, model.as_ref(), budget)?;
    let time = [budget.time, sandbox.limits.timeout].into_iter().flatten().min();
    let request = RunRequest {
        agent,
        prompt,
        messages: Default::default(),
        model,
        effort,
        web_search,
        context,
        attached,
        cwd: below,
        time,
        conversation: Conversation::New,
        own_arguments: Vec::new(),
        path: search_path(),
        sandbox,
    };
    Ok((request, notes))
}

/// The sandbox of an agent: as it was asked for, with a route to its model.
pub(super) fn spec(
    request: SandboxRequest,
    surroundings: Surroundings,
    agent: &Agent,
    model: Option<&ModelName>,
    budget: RunBudget,
) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
    let request = provider::for_agent(request, budget.model);
    let (spec, notes) = resolve_with(request, surroundings, |flags, layers| {
        let is_configured = layers.route(&LlmRequest::default())?.is_some();
        let flags = with_plan(flags, is_configured, model, agent);
        provider::server(flags, is_configured, model, agent)
    })?;
    provider::check_price(spec.llm.as_ref(), model, agent)?;
    Ok((spec, notes))
}

/// Claude Code pays with the token of a plan, if there is one and nothing else was said.
fn with_plan(
    mut flags: LlmRequest,
    is_configured: bool,
    model: Option<&ModelName>,
    agent: &Agent,
) -> LlmRequest {
    let is_claude = matches!(agent, Agent::Known(adapter) if adapter.name == "claude");
    let is_anthropic = model.is_none_or(|model| model.provider == "anthropic");
    if is_claude && is_anthropic && !is_configured && flags.url.is_none() && flags.key.is_none() && has_plan()
    {
        flags.key = Some(SecretRef::Vault(plan()));
    }
    flags
}

/// Where agents are looked for.
pub(super) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// From exactly one place.
fn the_prompt(given: Option<OsString>, file: Option<&Path>) -> Result<String, SandboxError> {
    let from_stdin = || {
        input::prompt_from(std::io::stdin().lock(), "standard input").map_err(|error| {
            error.hint("write it there, or add `--prompt TEXT` or `--prompt-file FILE`; what is long goes into a file of the workspace")
        })
    };
    match (given, file) {
        (Some(given), _) => input::prompt(given.into_vec(), "`--prompt`"),
        (None, Some(file)) if file.as_os_str() == OsStr::new("-") => from_stdin(),
        (None, Some(file)) => input::prompt_file(file),
        (None, None) if isatty(stdin()) => {
            Err(ErrorCode::RequestValue.error("no prompt was given").hint(
                "add `--prompt TEXT` or `--prompt-file FILE`, or write it to standard input; `belljar agent shell` opens a \
                 conversation",
            ))
        }
        (None, None) => from_stdin(),
    }
}

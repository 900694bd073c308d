//! A run, from its request to its result. Each step is a line of the log, and a run that fails names the step:
//!
//! ```text
//! policy ─> credentials ─> workspace ─> sandbox ─> context ─> agent ─> teardown ─> collect
//! ```
//!
//! Changes are looked at once no process inside can make any more.
//!
//! Whatever happens after the log was made ends in a result: a run that could not even start has one too.

mod attend;
mod context;
mod course;
mod interactive;
mod judge;
mod request;
mod result;

pub use interactive::open;
pub use request::{Agent, Attached, Conversation, RunRequest};
pub use result::RunResult;

use crate::adapter::{self, Adapter, Found, Resume, Setup, Task};
use crate::claims::Claims;
use crate::entry::{Entry, Step, System};
use crate::log::{Log, Watcher, clock};
use crate::read;
use crate::stop::StopReason;
use crate::stream::Stream;
use attend::{Attended, attend};
use belljar_engine::{Engine, Sandbox, Stage};
use belljar_spec::{
    Command, Compare, EnvName, ErrorCode, Permission, SandboxError, SharedPath, Stdin, Term, hint,
};
use belljar_state::new_id;
use course::Course;
use judge::{Facts, judge};
use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use tokio::sync::mpsc::unbounded_channel;

/// Runs an agent to its end. `state` is where runs are kept; `stop` ends it early, with the work so far kept. An error means
/// that there is not even a log; everything else is in the result.
pub async fn run(
    engine: &Engine,
    request: RunRequest,
    state: &Path,
    watcher: Option<Watcher<'_>>,
    stop: impl Future<Output = ()>,
) -> Result<RunResult, SandboxError> {
    let id = new_id()?;
    let directory = read::directory(state, id);
    let log = Log::create(&directory, id, clock()).map_err(SandboxError::from)?;
    let log = match watcher {
        Some(watcher) => log.watched(watcher),
        None => log,
    };
    let mut course = Course::new(log, id, &request);
    course.keeps_home(request.sandbox.home.as_deref());
    let mut request = request;
    request.sandbox.id = Some(id);
    request.sandbox.compare = Compare::Yes;
    let mut stop = std::pin::pin!(stop);
    match make(engine, &request, &mut course, stop.as_mut()).await {
        Err(stopped) => course.fail(stopped),
        Ok((ready, sandbox)) => {
            if let Err(stopped) = work(&ready, &request, &sandbox, &mut course, stop.as_mut()).await {
                course.fail(stopped);
            }
            put_in_order(&sandbox, &mut course).await;
        }
    }
    Ok(course.finish(&directory))
}

/// Why a run cannot continue.
struct Stopped {
    reason: StopReason,
    error: SandboxError,
}

impl Stopped {
    fn sandbox(error: SandboxError) -> Stopped {
        Stopped { reason: StopReason::ErrorSandbox, error }
    }

    fn cancelled() -> Stopped {
        let error = ErrorCode::Aborted.error("the run was stopped before the agent was started");
        Stopped { reason: StopReason::ErrorCancelled, error }
    }

    fn start(error: SandboxError) -> Stopped {
        Stopped { reason: StopReason::ErrorStart, error }
    }
}

/// Who will run, and how it is found inside.
struct Ready {
    adapter: &'static Adapter,
    found: Found,
}

/// Everything before the agent: whether it may, and the place for it.
async fn make(
    engine: &Engine,
    request: &RunRequest,
    course: &mut Course<'_>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(Ready, Sandbox), Stopped> {
    course.begin(Step::Policy);
    let ready = ready(request).map_err(Stopped::start)?;
    let mut spec = request.sandbox.clone();
    for needed in &ready.found.needs {
        spec.shared.push(SharedPath { path: needed.clone(), permission: Permission::Read });
    }
    let (tell, mut stages) = unbounded_channel();
    let watching = engine.clone().watched(std::sync::Arc::new(move |stage| {
        let _ = tell.send(stage);
    }));
    let mut making = std::pin::pin!(watching.create(spec));
    let made = loop {
        tokio::select! {
            biased;
            Some(stage) = stages.recv() => course.begin(step(stage)),
            // The engine removes the half-made sandbox, as soon as it is there.
            () = stop.as_mut() => return Err(Stopped::cancelled()),
            made = &mut making => break made,
        }
    };
    // The step that an error came from is the last one that was told.
    while let Ok(stage) = stages.try_recv() {
        course.begin(step(stage));
    }
    let sandbox = made.map_err(Stopped::sandbox)?;
    course.made(&sandbox);
    Ok((ready, sandbox))
}

fn step(stage: Stage) -> Step {
    match stage {
        Stage::Credentials => Step::Credentials,
        Stage::Workspace => Step::Workspace,
        Stage::Sandbox => Step::Sandbox,
    }
}

/// Whether it could run here, as far as that can be known before anything is made.
pub(crate) fn check(request: &RunRequest) -> Result<(), SandboxError> {
    ready(request).map(|_| ())
}

fn ready(request: &RunRequest) -> Result<Ready, SandboxError> {
    let (adapter, found) = match &request.agent {
        Agent::Known(adapter) => (*adapter, adapter::find(adapter, &request.path)?),
        Agent::Program(path) => (&adapter::program::PROGRAM, adapter::program::found(path)?),
    };
    let Some(route) = &request.sandbox.llm else {
        let message = format!("{} needs a model, and the sandbox has no route to one", adapter.title);
        return Err(ErrorCode::RequestConflict.error(message).hint(hint!(
            "name one with {}, or a server with {} and {}",
            Term::Model.to("provider/model"),
            Term::LlmUrl.to("URL"),
            Term::LlmKey.to("REF")
        )));
    };
    adapter.can_ask(route.kind, request.model.as_ref())?;
    if let Some(effort) = request.effort {
        adapter.can_think(effort)?;
    }
    Ok(Ready { adapter, found })
}

/// What the agent finds when it starts, and what is started.
pub(crate) async fn set_up(
    adapter: &Adapter,
    found: &Found,
    request: &RunRequest,
    sandbox: &Sandbox,
    kind: fn(&Adapter) -> fn(&Task) -> Setup,
) -> Result<Command, SandboxError> {
    let Some(route) = &request.sandbox.llm else {
        return Err(ErrorCode::RequestConflict.error("the sandbox has no route to a model"));
    };
    let home = sandbox.variable("HOME").and_then(|home| home.to_str()).unwrap_or("/");
    let base = format!("http://127.0.0.1:{}", route.port);
    let attached: Vec<String> =
        request.attached.iter().map(|file| format!("{home}/{ATTACHED}/{}", file.name)).collect();
    let prompt = with_attached(&request.prompt, &attached);
    let setup = kind(adapter)(&Task {
        program: &found.program,
        home,
        workspace: sandbox.workspace(),
        prompt: Some(prompt.as_str()).filter(|prompt| !prompt.is_empty()),
        attached: (!attached.is_empty()).then(|| format!("{home}/{ATTACHED}")),
        messages: request.messages.as_slice(),
        model: request.model.as_ref(),
        effort: request.effort,
        web_search: request.web_search,
        route: &base,
        upstream: route.kind,
        own_arguments: &request.own_arguments,
        resume: match &request.conversation {
            Conversation::New => Resume::No,
            Conversation::Latest => Resume::Latest,
            Conversation::Named(name) => Resume::Named(name),
        },
    });
    let text = context::context(&request.sandbox, sandbox.workspace(), &request.context);
    let context = [(adapter.context.to_string(), text)];
    let passed = context.iter().filter(|(path, _)| !path.is_empty());
    for (path, content) in setup.files.iter().chain(passed) {
        let path = format!("{home}/{path}");
        if let Some((folder, _)) = path.rsplit_once('/') {
            sandbox.mkdir(folder, true).await?;
        }
        sandbox.write_file(&path, content.as_bytes()).await?;
    }
    if !attached.is_empty() {
        sandbox.mkdir(&format!("{home}/{ATTACHED}"), true).await?;
    }
    for (path, file) in attached.iter().zip(&request.attached) {
        sandbox.write_file(path, &file.content).await?;
    }
    let mut command = Command::new(&setup.argv).map_err(|error| {
        ErrorCode::RequestValue
            .error(format!("{} cannot be started like this: {error}", adapter.title))
            .hint("a prompt that is so long goes into a file of the workspace, and the prompt names it")
            .caused_by(error)
    })?;
    command.env = setup.env;
    if !found.path.is_empty()
        && let Some(path) = path_inside(found, sandbox)
    {
        command.env.push(path);
    }
    command.stdin = Stdin::Bytes(setup.stdin);
    command.cwd.clone_from(&request.cwd);
    Ok(command)
}

/// A prompt, and where the files are that it comes with.
fn with_attached(prompt: &str, paths: &[String]) -> String {
    let list = |path: &String| format!("\n- {path}");
    match paths {
        [] => prompt.to_string(),
        paths => format!("{prompt}\n\nAttached files:{}", paths.iter().map(list).collect::<String>()),
    }
}

/// PATH, with what the agent needs at its front.
fn path_inside(found: &Found, sandbox: &Sandbox) -> Option<(EnvName, OsString)> {
    let usual = sandbox.variable("PATH").unwrap_or_default();
    let all = found.path.iter().cloned().chain(std::env::split_paths(&usual));
    Some(("PATH".parse().ok()?, std::env::join_paths(all).ok()?))
}

/// Below the home: not in the workspace, whose changes are the agent's.
const ATTACHED: &str = "attached";

async fn work(
    ready: &Ready,
    request: &RunRequest,
    sandbox: &Sandbox,
    course: &mut Course<'_>,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Stopped> {
    course.begin(Step::Context);
    let command = set_up(ready.adapter, &ready.found, request, sandbox, |adapter| adapter.headless)
        .await
        .map_err(Stopped::sandbox)?;
    course.begin(Step::Agent);
    let timeout = sandbox.limits().time_for(request.time);
    let stream = Stream::new((ready.adapter.parser)());
    let attended =
        attend(sandbox, &command, stream, course, timeout, stop).await.map_err(Stopped::sandbox)?;
    let (reason, error) = judged(ready.adapter, &attended, sandbox);
    course.attended(reason, error, attended);
    Ok(())
}

fn judged(adapter: &Adapter, attended: &Attended, sandbox: &Sandbox) -> (StopReason, Option<String>) {
    let facts = Facts {
        ended: attended.ended.clone(),
        torn: attended.torn,
        calls: sandbox.llm_outcomes().unwrap_or_default(),
        needs_model: adapter.name != adapter::program::PROGRAM.name,
    };
    judge(&facts, &attended.claims)
}

/// Looks at what the agent did, and removes the sandbox.
async fn put_in_order(sandbox: &Sandbox, course: &mut Course<'_>) {
    course.begin(Step::Teardown);
    sandbox.dispose().await;
    course.begin(Step::Collect);
    let refused = sandbox.refused_report();
    course.collect(sandbox.llm(), sandbox.llm_outcomes(), refused);
    course.answered_by(sandbox.llm_models());
    match sandbox.changes() {
        None => {}
        Some(Ok(changes)) => course.changed(changes, sandbox.touched()),
        Some(Err(error)) => course.fail(Stopped::sandbox(error)),
    }
    course.done();
}

impl Course<'_> {
    /// Which home it has, if that is kept.
    fn keeps_home(&mut self, home: Option<&Path>) {
        self.result.kept_home = home.and_then(crate::home::name_of);
    }

    /// Which models answered.
    fn answered_by(&mut self, models: Vec<String>) {
        self.result.models_used = models;
    }

    /// What runs, and where.
    fn made(&mut self, sandbox: &Sandbox) {
        let backend = sandbox.backend().to_string();
        self.result.backend = Some(backend.clone());
        let init = System::Init {
            agent: self.result.agent.clone(),
            model: self.result.model.clone(),
            backend: Some(backend),
            cwd: sandbox.workspace().to_string(),
        };
        self.write(Entry::System(init));
        if let Some(text) = sandbox.warning() {
            self.write(Entry::System(System::Warning { text }));
        }
    }

    /// Notes how the agent ended.
    fn attended(&mut self, reason: StopReason, error: Option<String>, attended: Attended) {
        let Attended { claims, ended, stderr, elapsed, .. } = attended;
        let Claims { output: answer, .. } = &claims;
        self.result.output = answer.clone().unwrap_or_default();
        self.result.stop_reason = reason;
        self.result.success = reason == StopReason::Success;
        self.result.step = (!self.result.success).then_some(Step::Agent);
        self.result.error = error;
        self.result.exit_code = ended.exit_code;
        self.result.signal = ended.signal;
        self.result.limit = ended.limit;
        self.result.agent_duration_ms = elapsed.as_millis() as u64;
        self.result.claims = claims;
        if !stderr.is_empty() {
            self.write(Entry::System(System::Stderr { text: stderr.clone() }));
        }
        self.result.stderr = stderr;
    }
}

//! Phases, one after the other. Each has a sandbox of its own; what they share is the workspace, and answers that a prompt
//! names.

use super::{Phase, answers};
use crate::entry::Line;
use crate::log::Watcher;
use crate::run::{Conversation, RunRequest, RunResult, check, run};
use belljar_engine::Engine;
use belljar_spec::llm::CostUnknown;
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{ErrorCode, SandboxError, SandboxSpec, Term, hint};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

/// Is told how the phases proceed.
pub trait Audience: Send {
    /// A phase begins; `number` of `all`, counted from one.
    fn begins(&mut self, phase: &Phase, number: usize, all: usize);
    /// A line of the current run's log, and its text there.
    fn line(&mut self, line: &Line, text: &str);
    fn ended(&mut self, phase: &Phase, result: &RunResult);
}

/// What all of them came to.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhasesResult {
    /// Every phase ran, and ended well.
    pub success: bool,
    pub phases: Vec<PhaseResult>,
    /// Those that did not run, because one before them failed.
    pub skipped: Vec<String>,
    pub turns: u64,
    /// In dollars; `null` when the cost of a call is not known.
    pub cost_usd: Option<f64>,
    /// Why it is not known: of the first phase where it is not.
    pub cost_unknown: Option<CostUnknown>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub duration_ms: u64,
}

/// What one of them came to.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseResult {
    pub phase: String,
    #[serde(flatten)]
    pub result: RunResult,
}

/// Runs phases until one fails. Each comes with the place that it runs in; all of these must be of one workspace. `path` is
/// where agents are looked for, `state` where runs are kept; `stop` ends the phase that runs, and all after it.
pub async fn run_phases(
    engine: &Engine,
    phases: Vec<(Phase, SandboxSpec)>,
    path: &OsStr,
    state: &Path,
    audience: &mut dyn Audience,
    stop: impl Future<Output = ()>,
) -> Result<PhasesResult, SandboxError> {
    for (phase, place) in &phases {
        // A phase that cannot run is known before one is paid for.
        let could_run = request(phase, place.clone(), path, &[]).and_then(|request| check(&request));
        could_run.map_err(|error| {
            let message = format!("phase `{}`: {}", phase.name, error.message);
            error.with_message(message)
        })?;
    }
    let since = Instant::now();
    let mut stop = std::pin::pin!(stop);
    let mut done: Vec<PhaseResult> = Vec::new();
    let all = phases.len();
    for (number, (phase, place)) in (1..).zip(&phases) {
        audience.begins(phase, number, all);
        let request = request(phase, place.clone(), path, &done)?;
        let watcher: Watcher<'_> = Box::new(|line, text| audience.line(line, text));
        let result = run(engine, request, state, Some(watcher), stop.as_mut()).await?;
        audience.ended(phase, &result);
        let is_over = !result.success;
        done.push(PhaseResult { phase: phase.name.clone(), result });
        if is_over {
            break;
        }
    }
    let skipped = phases.iter().skip(done.len()).map(|(phase, _)| phase.name.clone()).collect();
    Ok(PhasesResult { duration_ms: since.elapsed().as_millis() as u64, skipped, ..total(done) })
}

fn request(
    phase: &Phase,
    mut place: SandboxSpec,
    path: &OsStr,
    done: &[PhaseResult],
) -> Result<RunRequest, SandboxError> {
    place.mode = continued(place.mode, done.last().map(|last| &last.result))?;
    let answer = |name: &str| {
        let earlier = done.iter().find(|one| one.phase == name);
        earlier.map(|one| one.result.output.as_str())
    };
    Ok(RunRequest {
        agent: phase.agent.clone(),
        prompt: answers::fill(&phase.prompt, answer),
        messages: Default::default(),
        model: phase.model.clone(),
        effort: phase.effort,
        web_search: phase.web_search.is_some(),
        context: phase.context.clone(),
        attached: Vec::new(),
        cwd: None,
        time: [phase.budget.time, place.limits.timeout].into_iter().flatten().min(),
        conversation: Conversation::New,
        own_arguments: Vec::new(),
        path: path.to_os_string(),
        sandbox: place,
    })
}

/// Where the next phase continues: in the layer that the last one left, in the folder, or on the branch.
fn continued(mode: WorkspaceMode, last: Option<&RunResult>) -> Result<WorkspaceMode, SandboxError> {
    match (mode, last) {
        (WorkspaceMode::Clone(_), _) => {
            let message = "phases cannot share a clone: the host makes a fresh one for each sandbox";
            Err(ErrorCode::RequestConflict
                .error(message)
                .hint(hint!("clone the repository yourself, and use {} in it", Term::Branch.to("NAME"))))
        }
        (WorkspaceMode::Overlay { .. }, Some(last)) => {
            // One in which nothing was changed is not kept.
            let kept = last.workspace.as_ref().and_then(|workspace| workspace["layer"].as_str());
            Ok(WorkspaceMode::Overlay { layer: kept.map(str::to_string) })
        }
        (mode, _) => Ok(mode),
    }
}

fn total(phases: Vec<PhaseResult>) -> PhasesResult {
    let sum = |count: fn(&RunResult) -> u64| phases.iter().map(|phase| count(&phase.result)).sum();
    // In millionths, so that a tenth and two tenths are three.
    let cost: Option<u64> =
        phases.iter().map(|phase| phase.result.cost_usd.map(|cost| (cost * 1e6).round() as u64)).sum();
    PhasesResult {
        success: phases.iter().all(|phase| phase.result.success),
        skipped: Vec::new(),
        turns: sum(|result| result.turns),
        cost_usd: cost.map(|cost| cost as f64 / 1e6),
        cost_unknown: phases.iter().find_map(|phase| phase.result.cost_unknown),
        input_tokens: sum(|result| result.input_tokens),
        output_tokens: sum(|result| result.output_tokens),
        cache_read_input_tokens: sum(|result| result.cache_read_input_tokens),
        cache_creation_input_tokens: sum(|result| result.cache_creation_input_tokens),
        duration_ms: 0,
        phases,
    }
}

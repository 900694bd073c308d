//! Choosing a wall and starting a sandbox behind it.

use crate::exec::{check_size, request};
use crate::{Sandbox, machine};
use belljar_backend::{Backend, Plan, Wall, backend, new_id, sweep};
use belljar_spec::{Assurance, BackendChoice, BackendName, Command, Limits, SandboxError, SandboxSpec};
use std::sync::OnceLock;

/// Makes sandboxes. The first one of a process also removes what earlier processes left behind.
#[derive(Debug, Default)]
pub struct Engine(());

/// Whether a wall works here.
#[derive(Debug)]
pub struct WallReport {
    pub backend: BackendName,
    pub assurance: Assurance,
    /// Why not, and what to do.
    pub outcome: Result<(), SandboxError>,
}

impl Engine {
    /// An engine.
    pub fn new() -> Engine {
        Engine(())
    }

    /// Makes a sandbox.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Sandbox, SandboxError> {
        // Building a wall blocks for some milliseconds.
        match tokio::task::spawn_blocking(move || create(&spec, None)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(SandboxError::runtime("start_failed", "starting the sandbox was interrupted")),
        }
    }

    /// The same, on this thread.
    pub fn create_blocking(&self, spec: &SandboxSpec) -> Result<Sandbox, SandboxError> {
        create(spec, None)
    }

    /// Makes a sandbox whose first command starts with it; [`Sandbox::first_command`] has it.
    pub fn create_running(&self, spec: &SandboxSpec, command: &Command) -> Result<Sandbox, SandboxError> {
        create(spec, Some(command))
    }

    /// Tries every wall.
    pub fn walls(&self) -> Vec<WallReport> {
        let report = |name: BackendName| WallReport {
            backend: name,
            assurance: name.assurance(),
            outcome: backend(name).check(),
        };
        BackendName::ALL.into_iter().map(report).collect()
    }
}

fn create(spec: &SandboxSpec, first: Option<&Command>) -> Result<Sandbox, SandboxError> {
    let limits = Limits::understand(&spec.limits, machine());
    match spec.backend {
        BackendChoice::Named(name) => {
            strong_enough(name, spec)?;
            start(backend(name), spec, limits, first)
        }
        BackendChoice::Auto => auto(spec, limits, first),
    }
}

/// The strongest wall that works here; a wall that does not is no reason to go on without one.
fn auto(spec: &SandboxSpec, limits: Limits, first: Option<&Command>) -> Result<Sandbox, SandboxError> {
    let mut refusals = Vec::new();
    for name in BackendName::AUTO {
        if let Err(refusal) = strong_enough(name, spec) {
            refusals.push((name, refusal));
            continue;
        }
        match start(backend(name), spec, limits.clone(), first) {
            Err(refusal) if WALL_REFUSED.contains(&refusal.code) => {
                refusals.push((name, refusal));
            }
            outcome => return outcome,
        }
    }
    Err(no_wall(&refusals, spec))
}

fn no_wall(refusals: &[(BackendName, SandboxError)], spec: &SandboxSpec) -> SandboxError {
    if let Some(least) = spec.at_least
        && refusals.iter().all(|(_, refusal)| refusal.code == TOO_WEAK)
    {
        let message = format!(
            "no wall here has the assurance {least}: the strongest that belljar can choose is native (namespace)"
        );
        return SandboxError::unavailable(TOO_WEAK, message)
            .hint("ask for less with `--at-least`, or use a machine that has a stronger wall");
    }
    let reasons: Vec<String> = refusals.iter().map(|(name, refusal)| format!("{name}: {refusal}")).collect();
    let hint = refusals.iter().find_map(|(_, refusal)| refusal.hint.clone());
    let message =
        format!("no wall works here, and belljar runs nothing without one ({})", reasons.join("; "));
    SandboxError::unavailable("no_wall", message)
        .hint(hint.unwrap_or_else(|| "`belljar doctor` says what to do for each of them".into()))
}

fn strong_enough(name: BackendName, spec: &SandboxSpec) -> Result<(), SandboxError> {
    match spec.at_least {
        Some(least) if name.assurance() < least => {
            let message =
                format!("the backend {name} gives the assurance {}, below {least}", name.assurance());
            Err(SandboxError::unavailable(TOO_WEAK, message)
                .hint("ask for less with `--at-least`, or use a machine that has a stronger wall"))
        }
        _ => Ok(()),
    }
}

fn start(
    backend: &'static dyn Backend,
    spec: &SandboxSpec,
    limits: Limits,
    first: Option<&Command>,
) -> Result<Sandbox, SandboxError> {
    let id = new_id()?;
    let wall = if backend.name().assurance() < Assurance::Namespace { Wall::Absent } else { Wall::Own };
    let mut plan = Plan::new(id, spec.clone(), limits.clone(), wall);
    if let Some(command) = first.cloned() {
        check_size(&command)?;
        plan = plan
            .with_first(Box::new(move |environment, workspace| request(&command, environment, workspace)));
    }
    let guest = backend.launch(&plan);
    // The first start of a process also takes away what earlier ones left, however they ended.
    static SWEPT: OnceLock<usize> = OnceLock::new();
    SWEPT.get_or_init(sweep);
    let guest = guest?;
    Sandbox::new(id, backend.name(), guest, &plan, limits)
}

/// Refusals of a wall as such. Any other is about what was asked for, and no weaker wall is the answer to that.
const WALL_REFUSED: [&str; 4] = ["namespaces_refused", "bwrap_missing", "bwrap_failed", "not_in_container"];
/// The code of a refusal because of `at_least`.
const TOO_WEAK: &str = "assurance_too_low";

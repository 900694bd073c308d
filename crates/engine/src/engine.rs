//! Choosing a backend and starting a sandbox with it.

mod describe;
mod plan;

pub use describe::{Description, describe};

use self::plan::Planned;
use crate::credentials::Prepared;
use crate::egress_reach;
use crate::exec::{check_size, request};
use crate::git_session::GitSession;
use crate::neighbours::{self, Neighbours};
use crate::observe::{self, Observer};
use crate::record::{self, Record};
use crate::roots::{self, PreparedRoot};
use crate::sandbox::{Outside, Suspended};
use crate::steering::{Steered, Steering};
use crate::workspace::Workspace;
use crate::{Sandbox, credentials, llm, logged_words, persistent, pushes, relay, remote, sweep};
use belljar_backend::{Backend, Isolation, Remote, RootTree, Service, backend};
use belljar_config::machine;
use belljar_gateway::{Gateway, Served, Terms};
use belljar_spec::egress::{EgressPolicy, Mode};
use belljar_spec::workspace::{View, WorkspaceMode};
use belljar_spec::{
    Assurance, BackendChoice, BackendName, Command, ErrorCode, Hint, Limits, Runtime, SandboxError,
    SandboxId, SandboxSpec, Term, hint,
};
use belljar_state::state_directory;
use belljar_vault::HostSecrets;
use belljar_vault::SecretStore;
use belljar_workspace::inert::Leash;
use belljar_workspace::managed::Sharing;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::{Span, debug, debug_span, info};

/// Makes sandboxes. The first one of a process also removes what earlier processes left behind.
#[derive(Clone, Default)]
pub struct Engine {
    /// Serves every sandbox that this engine makes; started with the first one that has egress.
    gateway: Arc<OnceLock<Gateway>>,
    /// Where records are kept, if not at the usual place.
    records: Option<PathBuf>,
    /// Where layers and clones are kept, if not at the usual place.
    state: Option<PathBuf>,
    /// Where values of secrets come from, if not from the usual store.
    secrets: Option<Arc<dyn SecretStore>>,
    /// How workspaces are shown, if not as their specification says.
    view: Option<View>,
    /// What sandboxes have as their root, if not what their specification says.
    root: Option<RootTree>,
    /// Called for each stage of making a sandbox.
    watcher: Option<Watcher>,
    /// The future that waits for the sandbox, if it can be dropped.
    waiting: Option<Weak<()>>,
    /// Counts what happens.
    observer: Option<Observer>,
    /// The service elsewhere, if not the configured one.
    service: Option<Arc<Service>>,
}

/// What is told of each stage that begins.
pub type Watcher = Arc<dyn Fn(Stage) + Send + Sync>;

/// A stage of making a sandbox, in order. Where a folder changes while it is looked at, the last two begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Secrets are read, and tokens minted.
    Credentials,
    /// Files are made ready, or cloned.
    Workspace,
    /// The backend builds the sandbox.
    Sandbox,
}

/// A sandbox that is being made: what does not depend on the backend while several are tried.
struct Making<'m> {
    prepared: &'m Prepared,
    record: &'m Record,
    first: Option<&'m Command>,
    /// Which managed clone its workspace may be in.
    sharing: Cell<Sharing>,
}

/// Whether a backend works here.
#[derive(Debug)]
pub struct BackendReport {
    pub backend: BackendName,
    pub assurance: Assurance,
    /// Why not, and what to do.
    pub outcome: Result<(), SandboxError>,
}

impl Engine {
    /// An engine.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Keeps the records of its sandboxes in this directory.
    #[must_use]
    pub fn with_records(mut self, directory: impl Into<PathBuf>) -> Engine {
        self.records = Some(directory.into());
        self
    }

    /// Keeps layers and clones in this directory.
    #[must_use]
    pub fn with_state(mut self, directory: impl Into<PathBuf>) -> Engine {
        self.state = Some(directory.into());
        self
    }

    /// Takes the values of secrets from here.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Arc<dyn SecretStore>) -> Engine {
        self.secrets = Some(secrets);
        self
    }

    /// Shows the workspaces of its sandboxes like this, whatever their specification says of modes and protected paths. For
    /// tests of backends.
    #[doc(hidden)]
    #[must_use]
    pub fn with_view(mut self, view: View) -> Engine {
        self.view = Some(view);
        self
    }

    /// Makes the sandboxes of the backend `e2b` in this service. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_service(mut self, service: Arc<Service>) -> Engine {
        self.service = Some(service);
        self
    }

    /// Gives its sandboxes this root: one that is being built.
    #[must_use]
    pub(crate) fn with_root(mut self, root: RootTree) -> Engine {
        self.root = Some(root);
        self
    }

    /// Calls the watcher for each stage that begins, on the thread that makes the sandbox. The last stage it was called for
    /// is the one that an error came from.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Engine {
        self.watcher = Some(watcher);
        self
    }

    /// Tells an observer of what happens in its sandboxes.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Engine {
        self.observer = Some(observer);
        self
    }

    /// Makes a sandbox. Where the future is dropped, what was made so far is removed, and nothing more is begun.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Sandbox, SandboxError> {
        // Building a sandbox blocks for some milliseconds.
        let waiting = Arc::new(());
        let engine = Engine { waiting: Some(Arc::downgrade(&waiting)), ..self.clone() };
        match tokio::task::spawn_blocking(move || engine.make(&spec, None)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ErrorCode::Internal.error("starting the sandbox was interrupted")),
        }
    }

    /// The same, on this thread.
    pub fn create_blocking(&self, spec: &SandboxSpec) -> Result<Sandbox, SandboxError> {
        self.make(spec, None)
    }

    /// Makes a suspended sandbox again, with the files that are there now.
    pub fn continue_blocking(
        &self,
        spec: &SandboxSpec,
        suspended: &Suspended,
    ) -> Result<Sandbox, SandboxError> {
        let mut spec = spec.clone();
        // What a start chose for its whole life.
        spec.backend = BackendChoice::Named(suspended.backend);
        let counter = observe::counter(self.observer.as_ref());
        let record = Record::continued(
            self.records()?,
            suspended.id,
            &suspended.recorder,
            suspended.rules.clone(),
            counter,
        );
        let _within = debug_span!("sandbox", sandbox.id = %record.id).entered();
        self.make_recorded(&spec, None, &record)
    }

    /// Makes a sandbox whose first command starts with it; [`Sandbox::first_command`] has it.
    pub fn create_running(&self, spec: &SandboxSpec, command: &Command) -> Result<Sandbox, SandboxError> {
        self.make(spec, Some(command))
    }

    /// Removes what a persistent sandbox of this name left beside its folder: its layer, its clone. It must no longer be in use.
    pub fn forget(&self, name: &str) -> Result<(), SandboxError> {
        let state = self.state()?;
        remote::forget(&state, name, || self.secrets())?;
        persistent::forget(&state, name)
    }

    /// Tries every backend.
    pub fn backends(&self) -> Vec<BackendReport> {
        let report = |name: BackendName| BackendReport {
            backend: name,
            assurance: name.assurance(),
            outcome: self.check(name),
        };
        BackendName::ALL.into_iter().map(report).collect()
    }

    fn check(&self, name: BackendName) -> Result<(), SandboxError> {
        match name {
            BackendName::E2b => self.remote()?.service.check(),
            other => backend(other).check(),
        }
    }

    fn make(&self, spec: &SandboxSpec, first: Option<&Command>) -> Result<Sandbox, SandboxError> {
        let began = Instant::now();
        let record = Record::new(self.records()?, spec.id, observe::counter(self.observer.as_ref()))?;
        let _within = debug_span!("sandbox", sandbox.id = %record.id).entered();
        let outcome = self.make_recorded(spec, first, &record);
        observe::started(self.observer.as_ref(), &outcome, began.elapsed());
        outcome
    }

    fn make_recorded(
        &self,
        spec: &SandboxSpec,
        first: Option<&Command>,
        record: &Record,
    ) -> Result<Sandbox, SandboxError> {
        // Before anything is started: a secret that cannot be read starts nothing.
        self.begins(Stage::Credentials)?;
        let prepared = step("credentials", || Prepared::new(spec, &self.gateway, || self.secrets()))?;
        let sharing = Cell::new(sharing_for(spec));
        let making = Making { prepared: &prepared, record, first, sharing };
        let outcome = self.make_in_workspace(&making);
        if outcome.is_err() {
            record.end();
            prepared.give_back(&self.gateway);
        }
        outcome
    }

    fn make_in_workspace(&self, making: &Making<'_>) -> Result<Sandbox, SandboxError> {
        // Before the first try and not with each: where commits are kept is said once, also when the start fails.
        let state = self.state()?;
        let recovered = GitSession::recover(&state, &state);
        match self.make_in_unchanged_workspace(making) {
            Ok(mut sandbox) => {
                sandbox.recovered = recovered;
                Ok(sandbox)
            }
            Err(error) => {
                let hints = error.hint.iter().cloned().chain(recovered.into_iter().map(Hint::from));
                let all = hints.reduce(|all, more| hint!("{}; {}", all, more));
                Err(match all {
                    Some(all) => error.hint(all),
                    None => error,
                })
            }
        }
    }

    fn make_in_unchanged_workspace(&self, making: &Making<'_>) -> Result<Sandbox, SandboxError> {
        let mut tries = TRIES;
        loop {
            self.begins(Stage::Workspace)?;
            persistent::make(&making.prepared.spec, || self.state())?;
            let sharing = making.sharing.get();
            let workspace = step("workspace", || {
                let secrets = || self.secrets();
                let (spec, id) = (&making.prepared.spec, making.record.id);
                Workspace::prepare(spec, id, || self.state(), secrets, sharing)
            })?;
            match self.begins(Stage::Sandbox).and_then(|()| self.make_with(making, &workspace)) {
                Ok(sandbox) => {
                    sandbox.keep(workspace);
                    return Ok(sandbox);
                }
                Err(error) => {
                    // Nothing ran in it, so there is nothing to tell.
                    let _ = workspace.finish(None);
                    // A weaker backend is tried, which needs another workspace.
                    if making.sharing.get() != sharing {
                        continue;
                    }
                    tries -= 1;
                    // Another sandbox of the same folder ended meanwhile, and removed its mount points.
                    if error.code != ErrorCode::ChangedMeanwhile || tries == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn make_with(&self, making: &Making<'_>, workspace: &Workspace) -> Result<Sandbox, SandboxError> {
        let spec = &making.prepared.spec;
        let limits = Limits::understand(&spec.limits, machine());
        match spec.backend {
            BackendChoice::Named(name) => {
                strong_enough(name, spec)?;
                if is_shared_wrongly(name, making) {
                    return Err(ErrorCode::Internal.error("the workspace was made for another backend"));
                }
                self.start(backend(name), making, workspace, limits)
            }
            BackendChoice::Auto => self.auto(making, workspace, &limits),
        }
    }

    /// The strongest backend that works here; one that does not work is no reason to continue without isolation.
    fn auto(
        &self,
        making: &Making<'_>,
        workspace: &Workspace,
        limits: &Limits,
    ) -> Result<Sandbox, SandboxError> {
        let spec = &making.prepared.spec;
        let mut refusals = Vec::new();
        for name in BackendName::AUTO {
            if let Err(refusal) = strong_enough(name, spec) {
                refusals.push((name, refusal));
                continue;
            }
            if is_shared_wrongly(name, making) {
                making.sharing.set(sharing_of(name));
                return Err(
                    ErrorCode::ChangedMeanwhile.error("the workspace is made anew for another backend")
                );
            }
            match self.start(backend(name), making, workspace, limits.clone()) {
                // Any other error is about what was asked for, and no weaker backend is the answer to that.
                Err(refusal) if refusal.code == ErrorCode::BackendUnavailable => {
                    info!(backend = name.as_str(), error = %refusal, "the backend does not work here");
                    refusals.push((name, refusal));
                }
                outcome => return outcome,
            }
        }
        Err(no_backend(&refusals, spec))
    }

    fn start(
        &self,
        backend: &'static dyn Backend,
        making: &Making<'_>,
        workspace: &Workspace,
        limits: Limits,
    ) -> Result<Sandbox, SandboxError> {
        let Making { prepared, record, first, .. } = *making;
        let (spec, id) = (&prepared.spec, record.id);
        let root = step("root", || self.root(spec, backend.name()))?;
        // An image may have taken long to come.
        self.must_be_wanted()?;
        let Planned { plan, spec, policy, authority, secrets } = step("plan", || {
            let credentials = &prepared.credentials;
            self.plan(backend.name(), spec, id, &record.directory, workspace, &root, &limits, credentials)
        })?;
        let (spec, mut plan, directory) = (&spec, plan, &record.directory);
        let repository = workspace.repository.as_ref().filter(|_| plan.isolation().holds());
        if let Some(command) = first.cloned() {
            plan = plan.with_first(Box::new(move |environment, workspace| {
                request(&command, environment, workspace)
            }));
        }
        // What a service elsewhere is told to hold.
        let told = (plan.isolation() == Isolation::Remote).then(|| spec.egress.clone().unwrap_or_default());
        let view = workspace.view.as_ref();
        let shown = workspace.repository.as_ref().map(|repository| repository.directory.as_path());
        if let Ok(state) = self.state() {
            neighbours::refuse_contested(&state, spec, view, shown)?;
        }
        // What the sandbox needs outside of it is made while the guest builds what it needs inside. A sandbox that
        // cannot be recorded runs nothing.
        let meanwhile = || {
            // Not before: what the sandbox sees, its variables among it, is found out while the guest starts.
            first.map(|command| check_size(command, plan.environment()?)).transpose()?;
            record.begin(backend.name(), spec, policy.as_ref().or(told.as_ref()))?;
            if plan.has_egress() {
                // `egress_reach::serve` reports it if this failed.
                let _ = egress_reach::start(&self.gateway);
            }
            sweep::at_first_start(backend.name());
            Ok(())
        };
        let mut guest = step("launch", || backend.launch(&plan, &meanwhile))?;
        let recorder = record.recorder().expect("a backend that started a guest has called `meanwhile`");
        let recorder = Arc::clone(recorder);
        let route = match &secrets {
            Some(secrets) => {
                step("model", || llm::open(spec, id, secrets, &recorder, prepared.proxy.clone()))?
            }
            None => None,
        };
        // Of every git that works for it on the host, whichever part of belljar starts that git.
        let session = workspace.git_session();
        let leash = match policy.is_some() || repository.is_some() || session.is_some() {
            true => Leash::of_sandbox(guest.cgroup_entry(&limits, id)?),
            false => Leash::of_sandbox(None),
        };
        session.into_iter().for_each(|session| session.hold_to(&leash));
        // The first command is running by now. What it dials waits until the gateway serves it.
        let egress_reach::Open { served, egress_reach, relay: listeners } = match &policy {
            Some(policy) => {
                let terms = Terms {
                    policy: policy.clone(),
                    recorder: Arc::clone(&recorder),
                    llm: route.clone(),
                    credentials: Arc::clone(&prepared.credentials),
                    authority,
                    pushes: Some(pushes::pushes(spec, directory, &leash)),
                    proxy: prepared.proxy.clone(),
                    rules: record.rules.clone(),
                    ports: None,
                };
                egress_reach::serve(&self.gateway, &mut guest, terms)?
            }
            None => egress_reach::Open::NOTHING,
        };
        let relay = match repository {
            Some(repository) => {
                let policy = spec.pushes.to_host(&repository.branch);
                Some(relay::serve(listeners, repository, policy, self.state()?, leash, &recorder)?)
            }
            None => None,
        };
        let unreached = policy.as_ref().and_then(|policy| egress_reach::warning(egress_reach, policy));
        let state = self.state().ok();
        let join =
            |state: PathBuf| Neighbours::join(&state, id, spec, view, shown, policy.as_ref(), &recorder);
        let neighbours = state.map(join).transpose()?;
        let steering = self.steering(id, spec, backend.name(), served.as_ref(), policy.as_ref())?;
        let known = credentials::real_values(spec);
        let neighbours = Mutex::new(neighbours);
        let relay = Mutex::new(relay);
        Sandbox::new(
            id,
            backend.name(),
            guest,
            &plan,
            limits,
            Outside {
                served,
                egress_reach,
                unreached,
                recorder,
                route,
                relay,
                steering: Mutex::new(steering),
                neighbours,
                root: Mutex::new(Some(root)),
                span: Span::current(),
                first_words: first.map(|first| logged_words::shown(first.argv(), &known)).unwrap_or_default(),
                secrets: known,
                observer: self.observer.clone(),
            },
        )
    }

    /// Has a sandbox take orders, where it has a policy that could be changed. One whose questions nobody could answer is not started.
    fn steering(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        backend: BackendName,
        served: Option<&Served>,
        policy: Option<&EgressPolicy>,
    ) -> Result<Option<Steering>, SandboxError> {
        let (Some(served), Some(policy)) = (served, policy) else { return Ok(None) };
        if policy.mode == Mode::None {
            return Ok(None);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let steered = Steered {
            id: id.to_string(),
            name: spec.persistent.as_ref().map(|persistent| persistent.name.clone()),
            key: spec.persistent.as_ref().map(|persistent| persistent.key.clone()),
            folder: spec.workspace.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
            backend: backend.to_string(),
            asks: policy.mode == Mode::Ask,
            started_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            pid: std::process::id(),
        };
        let begun = self.state().and_then(|state| {
            Steering::begin(&state, &steered, served).map_err(|error| {
                let message = format!("the questions of the sandbox could not be answered: {error}");
                ErrorCode::StateFailed.error(message).caused_by(error)
            })
        });
        match begun {
            Ok(steering) => Ok(Some(steering)),
            Err(error) if policy.mode == Mode::Ask => Err(error),
            // Its policy stays what it is.
            Err(error) => {
                debug!(error = %error, "the policy cannot be changed while the sandbox lives");
                Ok(None)
            }
        }
    }

    /// The service elsewhere that makes sandboxes.
    fn remote(&self) -> Result<Remote, SandboxError> {
        remote::remote(&self.state()?, self.service.as_ref(), || self.secrets())
    }

    /// The root of a sandbox with this backend, held for as long as the returned value lives.
    fn root(&self, spec: &SandboxSpec, name: BackendName) -> Result<PreparedRoot, SandboxError> {
        match &self.root {
            Some(root) => Ok(PreparedRoot::of(root.clone())),
            None => roots::prepare(spec, name, || self.state()),
        }
    }

    fn begins(&self, stage: Stage) -> Result<(), SandboxError> {
        self.must_be_wanted()?;
        if let Some(watcher) = &self.watcher {
            watcher(stage);
        }
        Ok(())
    }

    fn must_be_wanted(&self) -> Result<(), SandboxError> {
        let is_alone = self.waiting.as_ref().is_some_and(|waiting| waiting.strong_count() == 0);
        if is_alone { Err(unwanted()) } else { Ok(()) }
    }

    /// Opened where a sandbox uses one, and not before: who holds secrets leaves no core behind.
    fn secrets(&self) -> Arc<dyn SecretStore> {
        self.secrets.clone().unwrap_or_else(|| Arc::new(HostSecrets::open()))
    }

    fn records(&self) -> Result<PathBuf, SandboxError> {
        match &self.records {
            Some(directory) => Ok(directory.clone()),
            None => belljar_audit::directory().map_err(record::failed),
        }
    }

    /// Where belljar keeps work that outlives a sandbox.
    fn state(&self) -> Result<PathBuf, SandboxError> {
        match &self.state {
            Some(directory) => Ok(directory.clone()),
            None => state_directory().map_err(|error| {
                ErrorCode::StateFailed
                    .error(format!("changes cannot be kept: {error}"))
                    .hint(error.hint())
                    .caused_by(error)
            }),
        }
    }
}

/// One step of a start, in a span of its own.
fn step<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let _within = debug_span!("start", start.step = name).entered();
    let began = Instant::now();
    let outcome = work();
    debug!(duration_us = began.elapsed().as_micros() as u64, "done");
    outcome
}

/// The caller cancelled the start.
pub(crate) fn unwanted() -> SandboxError {
    ErrorCode::Aborted.error("cancelled while the sandbox was starting")
}

fn no_backend(refusals: &[(BackendName, SandboxError)], spec: &SandboxSpec) -> SandboxError {
    if let Some(least) = spec.at_least
        && refusals.iter().all(|(_, refusal)| refusal.code == ErrorCode::AssuranceTooLow)
    {
        let message = format!(
            "no backend here has the assurance {least}: the strongest that belljar can choose is native (namespace)"
        );
        return ErrorCode::AssuranceTooLow.error(message).hint(hint!(
            "ask for less with {}, or use a machine that has a stronger backend",
            Term::AtLeast
        ));
    }
    let mut lines: Vec<String> =
        refusals.iter().map(|(name, refusal)| format!("\n  {name}: {refusal}")).collect();
    lines.extend(NAMED.into_iter().filter(|name| strong_enough(*name, spec).is_ok()).map(line_of_named));
    let hint = refusals.iter().find_map(|(_, refusal)| refusal.hint.clone());
    let message = format!("no backend works here, and belljar runs nothing without one{}", lines.concat());
    ErrorCode::BackendUnavailable
        .error(message)
        .hint(hint.unwrap_or_else(|| hint!("{} says what to do for each of them", Term::Capabilities)))
}

/// Whether a backend that only its name chooses works here.
fn line_of_named(name: BackendName) -> String {
    match backend(name).check() {
        Err(refusal) => format!("\n  {name}: {refusal}"),
        Ok(()) if !name.assurance().isolates() => {
            format!("\n  {name}: works, but isolates nothing; used only if named")
        }
        Ok(()) => format!("\n  {name}: works; used only if named"),
    }
}

/// What `auto` never chooses.
const NAMED: [BackendName; 3] =
    [BackendName::Docker(Runtime::Runc), BackendName::Container, BackendName::Host];

/// Which managed clone the workspace of a sandbox is made in: of the backends that may be taken, the first that works says.
fn sharing_for(spec: &SandboxSpec) -> Sharing {
    let is_managed = matches!(spec.mode, WorkspaceMode::ManagedClone { .. });
    let works = |name: &BackendName| strong_enough(*name, spec).is_ok() && backend(*name).check().is_ok();
    match spec.backend {
        BackendChoice::Named(name) => sharing_of(name),
        BackendChoice::Auto if !is_managed => Sharing::AllBranches,
        BackendChoice::Auto => {
            BackendName::AUTO.into_iter().find(works).map_or(Sharing::AllBranches, sharing_of)
        }
    }
}

/// Which managed clone a backend may work in. What cannot hold the parts of one that git runs for all branches (config, hooks) gets one
/// for each branch.
fn sharing_of(backend: BackendName) -> Sharing {
    match backend {
        BackendName::Landlock => Sharing::OneBranch,
        // The last two hold nothing at all.
        BackendName::Native
        | BackendName::Bwrap
        | BackendName::Docker(_)
        | BackendName::E2b
        | BackendName::Container
        | BackendName::Host => Sharing::AllBranches,
    }
}

fn is_shared_wrongly(backend: BackendName, making: &Making<'_>) -> bool {
    let is_managed = matches!(making.prepared.spec.mode, WorkspaceMode::ManagedClone { .. });
    is_managed && making.sharing.get() == Sharing::AllBranches && sharing_of(backend) == Sharing::OneBranch
}

fn strong_enough(name: BackendName, spec: &SandboxSpec) -> Result<(), SandboxError> {
    match spec.at_least {
        Some(least) if !name.assurance().is_at_least(least) => {
            let ours = name.assurance();
            let relation = match ours == Assurance::Remote || least == Assurance::Remote {
                true => "which does not compare with",
                false => "below",
            };
            let message = format!("the backend {name} gives the assurance {ours}, {relation} {least}");
            Err(ErrorCode::AssuranceTooLow.error(message).hint(hint!(
                "ask for less with {}, or use a machine that has a stronger backend",
                Term::AtLeast
            )))
        }
        _ => Ok(()),
    }
}

/// So often is a workspace looked at anew that changed while the sandbox was being made.
const TRIES: u32 = 8;

//! A running sandbox: the contract that every backend keeps.

use crate::EgressReach;
use crate::faults::disposed;
use crate::held::Held;
use crate::logged_words;
use crate::neighbours::Neighbours;
use crate::observe::{CommandObservation, Observer};
use crate::relay::Serving;
use crate::steering::{Notices, Steering, live_report};
use crate::stream::{self, FromGuest, ToGuest};
use crate::workspace::{Changes, Finished, Workspace};
use belljar_audit::Event;
use belljar_backend::{Guest, Plan};
use belljar_gateway::llm::Route;
use belljar_gateway::{FetchError, LivePolicy, LiveRule, Recorder, Served};
use belljar_spec::egress::{EgressPolicy, Printable, Refused};
use belljar_spec::egress::{PolicyReport, Reason};
use belljar_spec::llm::{LlmOutcomes, LlmTotals};
use belljar_spec::{
    Assurance, BackendName, Command, ErrorCode, Limits, SandboxError, SandboxId, SnapshotName, Term, hint,
};
use belljar_spec::{FetchRequest, FetchResponse};
use belljar_vault::Secret;
use belljar_workspace::touched::Compared;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::Span;

/// A running sandbox. Dropped, it is disposed of.
pub struct Sandbox {
    id: SandboxId,
    backend: BackendName,
    workspace: String,
    environment: Vec<(OsString, OsString)>,
    limits: Limits,
    landlock_abi: u32,
    guest: Held,
    /// Held while it is paused or resumed: one change at a time.
    pausing: tokio::sync::Mutex<()>,
    outside: Outside,
    /// Where commits of sandboxes are that were killed together with belljar, in words.
    pub(crate) recovered: Vec<String>,
    files: Mutex<Files>,
    commands: AtomicU64,
    /// Its audit log is continued by another one.
    is_suspended: AtomicBool,
}

/// A sandbox between two sets of processes.
pub struct Suspended {
    pub(crate) id: SandboxId,
    pub(crate) backend: BackendName,
    pub(crate) recorder: Arc<Recorder>,
    /// What was changed of its policy while it lived.
    pub(crate) rules: Vec<LiveRule>,
}

impl Suspended {
    /// Nothing comes after it.
    pub fn end(&self) {
        self.recorder.end();
    }
}

/// What was done with the files of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snapshotted {
    Taken { copied: bool },
    Restored,
}

/// Where a sandbox's workspace is in its life.
enum Files {
    /// Being worked on.
    Open(Box<Workspace>),
    /// Being put in order, or nothing ever was to be.
    Closed,
    /// In order.
    Done(Box<Finished>),
}

/// What of a sandbox is outside of it.
pub(crate) struct Outside {
    /// Its egress, if it has any.
    pub(crate) served: Option<Served>,
    pub(crate) egress_reach: EgressReach,
    /// What its policy allows and its egress cannot reach, in words.
    pub(crate) unreached: Option<String>,
    /// Its record.
    pub(crate) recorder: Arc<Recorder>,
    /// Its route to a model, if it has one.
    pub(crate) route: Option<Arc<Route>>,
    /// Who serves the host's repository to it, if it has one.
    pub(crate) relay: Mutex<Option<Serving>>,
    /// Who takes orders for it, until it ends.
    pub(crate) steering: Mutex<Option<Steering>>,
    /// The others that can write where it can, until it ends.
    pub(crate) neighbours: Mutex<Option<Neighbours>>,
    /// Keeps what its root is made of where it is, until it is suspended.
    pub(crate) root: Mutex<Option<crate::roots::PreparedRoot>>,
    /// What is logged of it is below this.
    pub(crate) span: Span,
    /// Real values that are inside: no line of the log has them.
    pub(crate) secrets: Vec<Secret>,
    /// The words of the command that it is made with.
    pub(crate) first_words: Vec<Printable>,
    pub(crate) observer: Option<Observer>,
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        backend: BackendName,
        guest: Guest,
        plan: &Plan,
        limits: Limits,
        outside: Outside,
    ) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox {
            id,
            backend,
            workspace: plan.workspace()?.to_string(),
            environment: plan.environment()?.to_vec(),
            limits,
            landlock_abi: guest.landlock_abi(),
            guest: Held::new(guest),
            pausing: tokio::sync::Mutex::default(),
            outside,
            recovered: Vec::new(),
            files: Mutex::new(Files::Closed),
            commands: AtomicU64::new(0),
            is_suspended: AtomicBool::new(false),
        })
    }

    /// Puts this workspace in order when the sandbox has ended.
    pub(crate) fn keep(&self, workspace: Workspace) {
        if let Some(session) = workspace.git_session() {
            session.watch(&self.guest, &self.outside.recorder);
        }
        *self.files() = Files::Open(Box::new(workspace));
    }

    /// What a person should know before anything runs in it.
    pub fn warning(&self) -> Option<String> {
        let neighbours = self.outside.neighbours.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = neighbours.as_ref().and_then(Neighbours::warning);
        let all: Vec<String> = self
            .workspace_warning()
            .into_iter()
            .chain(self.outside.unreached.clone())
            .chain(beside)
            .chain(self.recovered.iter().cloned())
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The same, of its workspace alone.
    pub fn workspace_warning(&self) -> Option<String> {
        match &*self.files() {
            Files::Open(workspace) => workspace.warning(),
            Files::Closed | Files::Done(_) => None,
        }
    }

    /// What became of its workspace, once it is disposed of; nothing before.
    pub fn changes(&self) -> Option<Result<Changes, SandboxError>> {
        match &*self.files() {
            Files::Done(finished) => Some(finished.changes.clone()),
            Files::Open(_) | Files::Closed => None,
        }
    }

    /// What was changed in a folder that was worked in itself, once it is disposed of, where its specification asks for
    /// that.
    pub fn touched(&self) -> Option<Compared> {
        match &*self.files() {
            Files::Done(finished) => finished.compared.clone(),
            Files::Open(_) | Files::Closed => None,
        }
    }

    /// Records that a snapshot of its files was taken, or that they are those of one.
    pub fn record_snapshot(&self, snapshot: &SnapshotName, what: Snapshotted) {
        let snapshot = snapshot.to_string();
        // A log that takes no more lines ends the sandbox by itself.
        let _ = self.outside.recorder.write(&match what {
            Snapshotted::Taken { copied } => Event::SnapshotTaken { snapshot, copied },
            Snapshotted::Restored => Event::SnapshotRestored { snapshot },
        });
    }

    /// How a command that begins now is told, and that it begins.
    pub(crate) fn observation(&self, words: Vec<Printable>) -> CommandObservation {
        let number = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        let recorder = &self.outside.recorder;
        recorder.write_command(&Event::CommandStarted { command: number, words });
        CommandObservation {
            sandbox: self.outside.span.clone(),
            id: number.to_string(),
            observer: self.outside.observer.clone(),
            began: Instant::now(),
            recorded: Some((number, Arc::clone(recorder))),
        }
    }

    /// The words of the command that it was made with.
    pub(crate) fn first_words(&self) -> Vec<Printable> {
        self.outside.first_words.clone()
    }

    /// The words of a command as the audit log has them.
    pub(crate) fn logged_words(&self, command: &Command) -> Vec<Printable> {
        logged_words::shown(command.argv(), &self.outside.secrets)
    }

    /// Its name.
    pub fn id(&self) -> SandboxId {
        self.id
    }

    /// Which backend it got. For people and logs: what a sandbox can do does not depend on it.
    pub fn backend(&self) -> BackendName {
        self.backend
    }

    /// How strong its isolation is.
    pub fn assurance(&self) -> Assurance {
        self.backend.assurance()
    }

    /// Where relative paths start, as a path inside.
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// A variable that every command inside has, if it has one of this name.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The version of Landlock in force inside; 0 for none.
    pub fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// How its connections reach the gateway.
    pub fn egress_reach(&self) -> EgressReach {
        self.outside.egress_reach
    }

    /// The policy that decides now; `None` where no gateway serves it.
    pub(crate) fn egress_policy(&self) -> Option<EgressPolicy> {
        self.live_policy().map(|policy| EgressPolicy::clone(&policy.state().version))
    }

    /// What its policy is now; `None` where no gateway serves it.
    pub fn policy(&self) -> Option<PolicyReport> {
        self.live_policy().map(|policy| live_report(&policy.state()))
    }

    /// What happens to its policy, and what a person is asked, from now on.
    pub fn notices(&self) -> Option<Notices> {
        self.live_policy().map(|policy| Notices::of(policy))
    }

    /// The same, to be changed.
    pub(crate) fn live_policy(&self) -> Option<&Arc<LivePolicy>> {
        self.outside.served.as_ref().map(Served::policy)
    }

    /// What it tried to reach and may not, so far.
    pub fn refused(&self) -> Vec<Refused> {
        self.outside.recorder.refused()
    }

    /// What it has used of its model so far; `None` without a route to one. All that ended before it was disposed of is
    /// in it afterwards.
    pub fn llm(&self) -> Option<LlmTotals> {
        self.outside.route.as_ref().map(|route| route.totals())
    }

    /// The models that answered it so far, as the upstream calls them.
    pub fn llm_models(&self) -> Vec<String> {
        self.outside.route.as_ref().map(|route| route.models()).unwrap_or_default()
    }

    /// What became of its calls to the model so far; `None` without a route to one.
    pub fn llm_outcomes(&self) -> Option<LlmOutcomes> {
        self.outside.route.as_ref().map(|route| route.outcomes())
    }

    /// Fetches something for the sandbox, from outside of it: the same policy, the same record.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, SandboxError> {
        if self.guest.is_disposed() {
            return Err(disposed());
        }
        let served =
            self.outside.served.as_ref().filter(|_| self.outside.egress_reach != EgressReach::Absent);
        let Some(served) = served else { return Err(no_egress(self.backend)) };
        served.fetch(request).await.map_err(not_fetched)
    }

    /// Ends every command and removes the sandbox. Operations after this fail. Doing it twice is fine.
    pub async fn dispose(&self) {
        let guest = self.guest.take();
        let neighbours = self.close();
        // Waiting for processes to die blocks for a moment, and so does looking at what they changed.
        let workspace = self.close_files();
        let recorder = Arc::clone(&self.outside.recorder);
        let is_suspended = self.is_suspended.load(Ordering::Relaxed);
        let work = tokio::task::spawn_blocking(move || {
            drop(guest);
            let finished = workspace.map(|workspace| workspace.finish(Some(&recorder)));
            drop(neighbours);
            if !is_suspended {
                recorder.end();
            }
            finished
        });
        if let Ok(Some(finished)) = work.await {
            *self.files() = Files::Done(Box::new(finished));
        }
    }

    /// The same, on this thread.
    pub fn dispose_blocking(&self) {
        let guest = self.guest.take();
        let neighbours = self.close();
        drop(guest);
        self.finish_files();
        drop(neighbours);
        self.end_record();
    }

    /// Ends everything inside as [`Sandbox::dispose_blocking`] does, and keeps its name and its audit log for what comes next:
    /// [`crate::Engine::continue_blocking`].
    pub fn suspend_blocking(&self) -> Suspended {
        self.is_suspended.store(true, Ordering::Relaxed);
        let rules = self.live_policy().map(|policy| policy.state().rules).unwrap_or_default();
        let guest = self.guest.take();
        let neighbours = self.close();
        drop(guest);
        self.finish_files();
        drop(neighbours);
        // The next one changes the same root.
        drop(self.outside.root.lock().unwrap_or_else(PoisonError::into_inner).take());
        Suspended { id: self.id, backend: self.backend, recorder: Arc::clone(&self.outside.recorder), rules }
    }

    /// The same, for a process that is about to exit: does not wait for what the kernel finishes by itself. A guest that was
    /// unresponsive may not die at once either, as one in a paused container does not.
    pub fn abandon(&self) {
        let has_an_end = matches!(&*self.files(), Files::Open(workspace) if workspace.has_an_end());
        if has_an_end || self.guest.is_unresponsive() {
            return self.dispose_blocking();
        }
        let guest = self.guest.take();
        // It dies while its record is ended. With connections it waits for that: the record is to say that the
        // sandbox's end closed them, and not a process inside.
        if self.outside.served.as_ref().is_none_or(|served| !served.is_busy()) {
            guest.iter().for_each(Guest::kill);
        }
        let neighbours = self.close();
        self.end_record();
        if let Some(guest) = guest {
            guest.abandon();
        }
        self.finish_files();
        drop(neighbours);
    }

    pub(crate) fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    pub(crate) fn open_stream(&self) -> Result<(ToGuest, FromGuest), SandboxError> {
        stream::open(self.guest.open_stream()?)
    }

    pub(crate) fn take_first(&self) -> Result<(ToGuest, FromGuest), SandboxError> {
        stream::open(self.guest.take_first()?)
    }

    pub(crate) fn pausing(&self) -> &tokio::sync::Mutex<()> {
        &self.pausing
    }

    /// Whether its first process has ended by itself, or no longer responds: nothing inside will ever answer again.
    pub fn is_gone(&self) -> bool {
        self.guest.is_gone()
    }

    pub(crate) fn guest(&self) -> &Held {
        &self.guest
    }

    /// Ends its connections. The record ends when its workspace is in order: commits may still come out, and until they have, no sandbox
    /// may start around the repository. So what is returned is kept until then.
    #[must_use]
    fn close(&self) -> Option<Neighbours> {
        drop(self.outside.steering.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(served) = &self.outside.served {
            served.stop();
        }
        // It waits for a push that is landing, and takes no other.
        drop(self.outside.relay.lock().unwrap_or_else(PoisonError::into_inner).take());
        let neighbours = self.outside.neighbours.lock().unwrap_or_else(PoisonError::into_inner).take();
        neighbours.inspect(Neighbours::record)
    }

    /// Call this only when no process inside is alive any more.
    fn finish_files(&self) {
        if let Some(workspace) = self.close_files() {
            let finished = workspace.finish(Some(&self.outside.recorder));
            *self.files() = Files::Done(Box::new(finished));
        }
    }

    fn end_record(&self) {
        if !self.is_suspended.load(Ordering::Relaxed) {
            self.outside.recorder.end();
        }
    }

    fn close_files(&self) -> Option<Workspace> {
        let mut files = self.files();
        match std::mem::replace(&mut *files, Files::Closed) {
            Files::Open(workspace) => Some(*workspace),
            other => {
                *files = other;
                None
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.dispose_blocking();
    }
}

fn no_egress(backend: BackendName) -> SandboxError {
    if !backend.assurance().isolates() {
        let message = format!("the backend {backend} has no gateway that could fetch for it");
        return ErrorCode::NotSupported.error(message).hint(hint!("use {}", Term::Backend.to("native")));
    }
    let reason = Reason::EgressOff;
    ErrorCode::EgressRefused
        .error(reason.sentence())
        .hint(hint!("make the sandbox with {}", Term::Egress.to("strict")))
}

fn not_fetched(error: FetchError) -> SandboxError {
    let converted = |code: ErrorCode| code.error(error.to_string());
    let converted = match &error {
        FetchError::Refused(refusal) => match refusal.remedy() {
            Some(remedy) => converted(ErrorCode::EgressRefused).hint(format!("allow it with `{remedy}`")),
            None => converted(ErrorCode::EgressRefused),
        },
        FetchError::Invalid(_) | FetchError::Failed(_) => converted(ErrorCode::ConnectionFailed),
    };
    converted.caused_by(error)
}

//! The git directories of a living sandbox: watched, so that the host sees commits at once and the sandbox sees the user's, and
//! imported a last time at its end.

use crate::faults::with_causes;
use crate::held::Held as HeldGuest;
use crate::neighbours;
use belljar_audit::Event;
use belljar_gateway::Recorder;
use belljar_overlay::{Held, LayerId};
use belljar_spec::git::{PushRules, RefPolicy};
use belljar_spec::workspace::ProtectedPath;
use belljar_spec::{ErrorCode, Printable, SandboxError, SandboxId};
use belljar_workspace::inert::{Git, Leash};
use belljar_workspace::private_git::{
    self, HostGit, ImportMode, ImportReport, Importer, Inflow, Life, Noticed, PrivateGit, RefWatch,
    Repository, SetupError, has_moved, has_objects, obstacle,
};
use belljar_workspace::quarantine::HostRepository;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::PipeWriter;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The git directories of one sandbox.
pub(crate) struct GitSession {
    shared: Arc<Shared>,
    watching: Mutex<Option<Watching>>,
}

/// What the watching thread and the end of the sandbox both use, one at a time.
struct Shared {
    git: PrivateGit,
    state: PathBuf,
    policy: RefPolicy,
    mode: ImportMode,
    protected: Vec<ProtectedPath>,
    /// Of every git that reads what the sandbox made, while its cgroup is there.
    leash: OnceLock<Leash>,
    /// Whether commits that it began on are pinned.
    pinned: AtomicBool,
    /// What was imported so far.
    report: Mutex<ImportReport>,
    /// The host's repositories that were asked about so far, by their git directory.
    hosts: Mutex<HashMap<PathBuf, HostRepository>>,
}

struct Watching {
    stop: PipeWriter,
    /// Disconnected when no thread uses anything of the session any more.
    done: Receiver<()>,
}

/// What a watching thread has of the session, let go of in this order.
struct Watched {
    shared: Arc<Shared>,
    _done: Sender<()>,
}

impl Watched {
    /// Ends the sandbox when the host puts another `.git` in the place of one of its own: the kernel removed the mount that was over
    /// it, and nothing inside may write to the new one.
    fn until_replaced(self, tops: Vec<PathBuf>, stop: BorrowedFd<'_>, end: impl FnOnce()) {
        let mut watch = None;
        for looks in 0.. {
            // Before the look, so that nothing happens between the two.
            if looks == FIRST_LOOKS {
                watch = RefWatch::on(Vec::new(), tops.clone()).ok();
            }
            if self.shared.is_replaced() {
                end();
                break;
            }
            let noticed = match &mut watch {
                Some(watch) => watch.wait(stop, None),
                None => private_git::pause(stop, FIRST_LOOKS_INTERVAL),
            };
            if noticed == Noticed::Stop {
                break;
            }
        }
        self.let_go(watch);
    }

    /// Imports commits as they are made.
    fn import_as_it_comes(self, directories: Vec<PathBuf>, stop: BorrowedFd<'_>, recorder: &Recorder) {
        if private_git::pause(stop, FIRST_LOOKS_INTERVAL * FIRST_LOOKS) == Noticed::Stop {
            return;
        }
        let Ok(mut watch) = RefWatch::on(directories, Vec::new()) else { return };
        let mut most = Some(PIN_AFTER);
        let mut pace = Pace::new();
        while !self.shared.is_replaced() {
            // Also before anything was noticed: the first command began before the watch did.
            let began = Instant::now();
            self.shared.import(Some(recorder), Moment::Living);
            if pace.rest(began.elapsed(), stop) == Noticed::Stop {
                break;
            }
            match watch.wait(stop, most) {
                Noticed::Events => {}
                Noticed::Nothing => {
                    self.shared.pin();
                    most = None;
                }
                Noticed::Stop => break,
            }
        }
        self.let_go(Some(watch));
    }

    /// The kernel takes some milliseconds to close a watch: the end of the sandbox continues meanwhile.
    fn let_go(self, watch: Option<RefWatch>) {
        drop(self);
        drop(watch);
    }
}

/// Without a thread commits are imported at the end.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name(name.to_string()).spawn(work));
}

impl GitSession {
    /// Imports what is in git directories of sandboxes that were killed together with belljar, or whose last import failed, and says
    /// so. Nothing follows: what those sandboxes were allowed is not known any more. They are looked for in `place`, a layer or the state
    /// directory.
    pub(crate) fn recover(place: &Path, state: &Path) -> Vec<String> {
        let private_git::Abandoned { gits, damaged } = private_git::abandoned(place);
        let leash = Leash::before_start();
        let mut notes: Vec<String> = damaged.iter().map(|place| unreadable_place(place)).collect();
        for git in gits {
            let (policy, mode) = (PushRules::default().to_folder(), ImportMode::Overlay);
            let id = git.id().to_string();
            if let Some(repository) = git.replaced() {
                let dot_git = repository.host.top.join(".git");
                let (dot_git, place) = (dot_git.display().to_string(), git.keep_refused());
                notes.push(format!(
                    "sandbox {id} ended before belljar looked for commits in it, and `{dot_git}` is another repository now: what it committed is kept \
                     in `{}`; run no git there outside of a sandbox",
                    place.display()
                ));
                continue;
            }
            let report = GitSession::new(git, state.to_path_buf(), policy, mode, Vec::new())
                .finish(End::Killed(&leash));
            let kept = report.set_aside.iter().filter_map(|one| one.kept_as.as_deref()).collect::<Vec<_>>();
            if report.is_partial {
                notes.extend(
                    report
                        .notes
                        .iter()
                        .map(|note| format!("sandbox {id} ended before its commits were imported; {note}")),
                );
            }
            if !kept.is_empty() {
                notes.push(format!(
                    "sandbox {id} ended before its commits were imported; they are kept as {}",
                    kept.join(", ")
                ));
            }
        }
        notes
    }

    /// Holds every git that reads what the sandbox made to the sandbox's limits.
    pub(crate) fn hold_to(&self, leash: &Leash) {
        let _ = self.shared.leash.set(leash.clone());
    }

    /// The same for a persistent sandbox that is removed: it may have been killed, and what it committed last is nowhere else.
    pub(crate) fn release(state: &Path, id: SandboxId) -> Result<(), SandboxError> {
        if let Some(mut git) = private_git::open(state, id).map_err(unreadable)? {
            git.release().map_err(unreadable)?;
            let policy = PushRules::default().to_folder();
            GitSession::new(git, state.to_path_buf(), policy, ImportMode::Overlay, Vec::new())
                .finish(End::Killed(&Leash::after_end()));
        }
        Ok(())
    }

    /// The repository that is at the place of one of these now, if another one was put there.
    pub(crate) fn replaced(&self) -> Option<PathBuf> {
        self.shared.git.replaced().map(|repository| repository.host.top.join(".git"))
    }

    /// Those of a layer that no sandbox works in, where it has some. What follows on the host is for `mode` to say.
    pub(crate) fn of_layer(
        state: &Path,
        layer: &Held,
        mode: ImportMode,
    ) -> Result<Option<GitSession>, SandboxError> {
        let policy = PushRules::default().to_folder();
        let git = private_git::open(&layer.directory, name_of(layer.id)).map_err(unreadable)?;
        let (state, protected) = (state.to_path_buf(), layer.protected.clone());
        Ok(git.map(|git| GitSession::new(git, state, policy, mode, protected)))
    }

    /// Removes what the host keeps of the sandbox's commits, and says what had to stay.
    pub(crate) fn forget(&self) -> Result<Vec<String>, SandboxError> {
        let failed = |error: &dyn std::error::Error| {
            let message = format!("commits of {} cannot be removed: {error}", self.shared.git.id());
            ErrorCode::WorkspaceFailed.error(message)
        };
        let git = Git::find().map_err(|error| failed(&error))?;
        let mut notes = Vec::new();
        for repository in self.shared.git.repositories() {
            // Git would write where a link leads; refs that stay harm nothing.
            if let Some(obstacle) = obstacle(&repository.host) {
                let id = self.shared.git.id();
                notes.push(format!(
                    "refs below `refs/belljar/{id}` of the repository, if there are some, stay: {obstacle}"
                ));
                continue;
            }
            // A repository that is gone has no refs.
            let Ok(host) = HostRepository::open_exactly(&git, &repository.host.common) else { continue };
            private_git::forget(&host, self.shared.git.id()).map_err(|error| failed(&error))?;
        }
        Ok(notes)
    }

    /// Something that a person should know at the end.
    pub(crate) fn note(&self, notes: Vec<String>) {
        self.shared.report().notes.extend(notes);
    }

    pub(crate) fn new(
        git: PrivateGit,
        state: PathBuf,
        policy: RefPolicy,
        mode: ImportMode,
        protected: Vec<ProtectedPath>,
    ) -> GitSession {
        let shared = Shared {
            git,
            state,
            policy,
            mode,
            protected,
            leash: OnceLock::new(),
            pinned: AtomicBool::new(false),
            report: Mutex::default(),
            hosts: Mutex::default(),
        };
        GitSession { shared: Arc::new(shared), watching: Mutex::new(None) }
    }

    /// Imports commits as they are made, from now on. Without a watch they are imported at the end.
    pub(crate) fn watch(&self, guest: &HeldGuest, recorder: &Arc<Recorder>) {
        let repositories = self.shared.git.repositories();
        let mut directories: Vec<PathBuf> =
            repositories.iter().map(|one| self.shared.git.directory(one)).collect();
        if self.shared.mode == ImportMode::Bind {
            directories
                .extend(repositories.iter().flat_map(|one| [one.host.own.clone(), one.host.common.clone()]));
        }
        let tops = repositories.iter().map(|one| one.host.top.clone()).collect();
        let Ok((stopping, stop)) = std::io::pipe() else { return };
        let (sender, done) = mpsc::channel();
        if self.shared.mode == ImportMode::Bind {
            let Ok(stopping) = stopping.try_clone() else { return };
            let watched = Watched { shared: Arc::clone(&self.shared), _done: sender.clone() };
            let guest = guest.clone();
            // In a thread of its own: an import takes as long as the agent makes it.
            spawn("git-guard", move || watched.until_replaced(tops, stopping.as_fd(), || drop(guest.take())));
        }
        let watched = Watched { shared: Arc::clone(&self.shared), _done: sender };
        let recorder = Arc::clone(recorder);
        spawn("git-import", move || watched.import_as_it_comes(directories, stopping.as_fd(), &recorder));
        *self.watching.lock().unwrap_or_else(PoisonError::into_inner) = Some(Watching { stop, done });
    }

    /// Imports what is left, when no process inside is alive, and says what became of all commits.
    pub(crate) fn finish(self, end: End<'_>) -> ImportReport {
        let watching = self.watching.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(Watching { stop, done }) = watching {
            drop(stop);
            // Nothing is ever sent.
            let _ = done.recv();
        }
        let Some(shared) = Arc::into_inner(self.shared) else { return ImportReport::default() };
        let began = Instant::now();
        let is_whole = match end {
            End::Ended(recorder) => shared.import(Some(recorder), Moment::Ended(&Leash::after_end())),
            End::Killed(leash) => shared.import(None, Moment::Ended(leash)),
            End::NeverStarted => true,
        };
        let mut report = shared.report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.is_partial |= !is_whole;
        match (is_whole, shared.git.life()) {
            (true, Life::OneShot) if report.leaves_some_inside() => {
                let place = shared.git.keep_refused();
                report.notes.push(format!(
                    "what was not taken over is kept in `{}`; run no git there outside of a sandbox: its config is the sandbox's",
                    place.display()
                ));
            }
            (true, Life::OneShot) => drop(shared.git.remove()),
            // The next start would take as long for nothing.
            (false, Life::OneShot) if began.elapsed() > MAX_RETRY_TIME => {
                let place = shared.git.keep_refused();
                report.notes.push(format!(
                    "it took too long to be tried again: what the sandbox committed is kept in `{}`; run no git there outside of a sandbox",
                    place.display()
                ));
            }
            // What could not be imported stays, and the next start tries again.
            (false, _) | (_, Life::Persistent | Life::Refused) => {}
        }
        report
    }
}

/// What to say of git directories whose record cannot be read.
pub(crate) fn unreadable_place(place: &Path) -> String {
    format!(
        "`{}` may have commits of a sandbox: its record is damaged, or of another version of belljar; it is kept, and nothing was \
         imported from it",
        place.display()
    )
}

/// The name that a layer's commits have on the host.
pub(crate) fn name_of(layer: LayerId) -> SandboxId {
    SandboxId::parse(&layer.to_string()).expect("sixteen digits name a sandbox")
}

fn unreadable(error: SetupError) -> SandboxError {
    let message = format!("the git directories of the sandbox cannot be used: {}", with_causes(&error));
    ErrorCode::WorkspaceFailed.error(message)
}

/// How a sandbox ended.
#[derive(Clone, Copy)]
pub(crate) enum End<'r> {
    /// By itself, or it was ended; this is its record.
    Ended(&'r Recorder),
    /// With the process that held it; its record has ended too. Every git that imports from it is on this leash.
    Killed(&'r Leash),
    /// No command ever ran in it.
    NeverStarted,
}

/// When an import is made.
#[derive(Clone, Copy)]
enum Moment<'l> {
    Living,
    /// The cgroup is gone: this is the leash instead.
    Ended(&'l Leash),
}

impl Shared {
    /// Whether the host put another `.git` in the place of one that the sandbox's is shown at.
    fn is_replaced(&self) -> bool {
        if self.mode == ImportMode::Overlay {
            return false;
        }
        let Some(repository) = self.git.replaced() else { return false };
        let note = format!(
            "`{}` was removed or replaced on the host while the sandbox ran, and the sandbox was ended; look at its config and \
             hooks before you use git there",
            repository.host.top.join(".git").display()
        );
        let mut report = self.report();
        if !report.notes.contains(&note) {
            report.notes.push(note);
        }
        true
    }

    /// Brings both sides together. Says whether everything that is worth keeping is on the host.
    fn import(&self, recorder: Option<&Recorder>, moment: Moment<'_>) -> bool {
        let mut is_whole = true;
        // A superproject's commit names commits of its submodules, which come after it in the list.
        for repository in self.git.repositories().iter().rev() {
            match self.import_one(repository, moment) {
                Ok(report) => {
                    recorder.into_iter().for_each(|recorder| record(recorder, &report));
                    self.report().join(report);
                }
                Err(why) => {
                    is_whole = false;
                    let note = format!(
                        "commits in `{}` of the sandbox were not taken over: {why}",
                        repository.dot_git
                    );
                    let detail = Printable::from(note.as_str());
                    if let Some(recorder) = recorder {
                        recorder.write_relayed(&Event::HostRelayBroken { detail });
                    }
                    if matches!(moment, Moment::Ended(_)) {
                        self.report().notes.push(note);
                    }
                }
            }
        }
        is_whole
    }

    fn import_one(&self, repository: &Repository, moment: Moment<'_>) -> Result<ImportReport, String> {
        let from = self.git.open(repository).map_err(|error| with_causes(&error))?;
        let before = self.git.synced(repository).ok_or("its record of the last import cannot be read")?;
        let mut synced = before.clone();
        let mut notes = Vec::new();
        if self.mode == ImportMode::Bind && matches!(moment, Moment::Living) {
            let scratch = self.git.scratch("index.copy");
            let leash = self.leash.get();
            let inflow = Inflow { host: &repository.host, into: &from, scratch: &scratch, leash };
            // What the agent made of its git directory keeps nothing from coming out.
            notes = inflow.carry_in(&mut synced).unwrap_or_else(|error| {
                let (dot_git, error) = (&repository.dot_git, with_causes(&error));
                vec![format!("what changed in `{dot_git}` on the host is not seen inside: {error}")]
            });
            if synced != before {
                self.git.write_synced(repository, &synced).map_err(|error| with_causes(&error))?;
            }
        }
        let is_needed = match moment {
            Moment::Living => has_moved(&from, &synced).map_err(|error| with_causes(&error))?,
            Moment::Ended(_) => {
                has_objects(&from)
                    || self.pinned.load(Ordering::Acquire)
                    || has_moved(&from, &synced).map_err(|error| with_causes(&error))?
            }
        };
        if !is_needed {
            return Ok(ImportReport { notes, ..ImportReport::default() });
        }
        let leash = match moment {
            Moment::Living => self.leash.get(),
            Moment::Ended(leash) => Some(leash),
        };
        let host = self.believed_host(repository, leash)?;
        let importer = Importer {
            host: &repository.host,
            repository: &host,
            from: &from,
            id: self.git.id(),
            state: &self.state,
            policy: &self.policy,
            mode: self.mode,
            // Their names are those of the workspace.
            protected: if repository.dot_git == ".git" { &self.protected } else { &[] },
            leash,
        };
        let imported = match moment {
            Moment::Living => importer.import(&mut synced),
            Moment::Ended(_) => importer.finish(&mut synced),
        };
        let mut report = imported.map_err(|error| with_causes(&error))?;
        if let Some(what) = report.unfinished.filter(|_| matches!(moment, Moment::Ended(_))) {
            report.notes.push(format!(
                "git in the sandbox was in the middle of {what}: files may have conflict marks that git here knows nothing of"
            ));
        }
        if matches!(moment, Moment::Ended(_)) {
            // Pins that stay keep objects longer than needed, and nothing else.
            let _ = private_git::unpin(&host, self.git.id());
        }
        self.git.write_synced(repository, &synced).map_err(|error| with_causes(&error))?;
        report.notes.extend(notes);
        Ok(report)
    }

    /// The host's side of a repository, unless a sandbox may have prepared it since this one started: another one that works around it,
    /// or this one in an earlier life.
    fn believed_host(
        &self,
        repository: &Repository,
        leash: Option<&Leash>,
    ) -> Result<HostRepository, String> {
        let HostGit { own, common, .. } = &repository.host;
        let writer = [own, common].into_iter().find_map(|path| neighbours::writer(&self.state, path));
        if let Some(id) = writer {
            return Err(format!("sandbox {id} is running and can change the repository meanwhile"));
        }
        match obstacle(&repository.host) {
            Some(obstacle) => Err(obstacle),
            None => self.host(repository, leash),
        }
    }

    /// The host's side of a repository. Git is asked about it once: what it says stays so while the sandbox lives.
    fn host(&self, repository: &Repository, leash: Option<&Leash>) -> Result<HostRepository, String> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(&repository.host.common) {
            return Ok(host.clone());
        }
        let git = Git::find().map_err(|error| with_causes(&error))?;
        let leashed = leash.map_or(git.clone(), |leash| git.on_leash(leash));
        let host = HostRepository::open_exactly(&leashed, &repository.host.common)
            .map_err(|error| with_causes(&error))?;
        // It is kept for later imports, which have leashes of their own.
        let host = host.with(git);
        hosts.insert(repository.host.common.clone(), host.clone());
        Ok(host)
    }

    /// Keeps the host's `git gc` from removing objects that the sandbox borrows. Git keeps those that are younger than two weeks, and
    /// so a sandbox of a few seconds needs no pin.
    fn pin(&self) {
        self.pinned.store(true, Ordering::Release);
        for repository in self.git.repositories() {
            let commit = self.git.synced(repository).and_then(|synced| synced.commit());
            if let (Some(commit), Ok(host)) = (commit, self.believed_host(repository, self.leash.get())) {
                // Without it the sandbox works as well, until the user prunes.
                let _ = private_git::pin(&host, self.git.id(), &commit);
            }
        }
    }

    fn report(&self) -> MutexGuard<'_, ImportReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that ends within these gets no watch, which takes the kernel 8 to 20 ms to close: its commits are imported at its end.
const FIRST_LOOKS: u32 = 10;
const FIRST_LOOKS_INTERVAL: Duration = Duration::from_millis(5);
/// What failed after so long is not tried again at the next start.
const MAX_RETRY_TIME: Duration = Duration::from_secs(15);
/// Holds imports to a part of one processor: what reads refs outside is in no cgroup, and an agent moves them without end.
struct Pace {
    /// Time that was used beyond the part that is allowed.
    used: Duration,
    last: Instant,
}

impl Pace {
    fn new() -> Pace {
        Pace { used: Duration::ZERO, last: Instant::now() }
    }

    /// An import took so long; rests if it was too much lately.
    fn rest(&mut self, took: Duration, stop: BorrowedFd<'_>) -> Noticed {
        self.used = (self.used + took).saturating_sub(self.last.elapsed() / PART);
        self.last = Instant::now();
        match self.used > BURST {
            true => private_git::pause(stop, took.saturating_mul(PART).min(MAX_REST_TIME)),
            false => Noticed::Nothing,
        }
    }
}

/// One in so many.
const PART: u32 = 5;
/// What may be used at once: some hundred commits.
const BURST: Duration = Duration::from_secs(20);
const MAX_REST_TIME: Duration = Duration::from_secs(10);
/// A sandbox that lives longer pins the commit that it began on.
const PIN_AFTER: Duration = Duration::from_secs(10);

/// What came out of the sandbox, in its audit log.
fn record(recorder: &Recorder, report: &ImportReport) {
    let printable = |text: &dyn Display| Printable::from(text.to_string().as_str());
    let id = |id: Option<&str>| printable(&id.unwrap_or("none"));
    for one in &report.followed {
        // It has happened: a record that takes no more lines changes nothing about it.
        let _ = recorder.write(&Event::HostPushed {
            reference: printable(&one.reference),
            landed: printable(&one.reference),
            old: id(one.old.as_ref().map(|id| id.as_str())),
            new: id(one.new.as_ref().map(|id| id.as_str())),
        });
    }
    for one in &report.set_aside {
        match &one.kept_as {
            Some(kept_as) => drop(recorder.write(&Event::HostPushed {
                reference: one.reference.clone(),
                landed: printable(kept_as),
                old: id(None),
                new: id(Some(one.commit.as_str())),
            })),
            None => recorder.write_relayed(&Event::HostPushRefused {
                reference: one.reference.clone(),
                reason: printable(&"refused"),
                detail: printable(&one.reason),
            }),
        }
    }
}

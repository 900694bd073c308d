//! A sandbox's workspace: made ready before it starts, put in order after it ended.

use crate::faults::with_causes;
use crate::git_session::{End, GitSession, name_of};
use crate::neighbours;
use crate::persistent;
use crate::publish::token;
use crate::relay::Repository;
use belljar_gateway::Recorder;
use belljar_overlay::{Commits, Held, Layer, LayerId, Layers, Outcome, Summary};
use belljar_spec::git::{BranchName, PushLimits};
use belljar_spec::workspace::{
    GitAccess, Layer as LayerOnDisk, LinkedGit, ProtectedPath, View, WorkspaceMode,
};
use belljar_spec::{
    Admin, Assurance, BackendChoice, CommandLine, Compare, ErrorCode, SandboxError, SandboxId, SandboxSpec,
    Term, hint,
};
use belljar_state::new_id;
use belljar_vault::SecretStore;
use belljar_workspace::HostFiles;
use belljar_workspace::clone::{self, Cloned, Collected};
use belljar_workspace::foreign::{Foreign, Head};
use belljar_workspace::managed::{self, HostWorktree, LeftInManagedClone, Provisioned, Sharing};
use belljar_workspace::private_git::{self, HostGit, ImportMode, ImportReport, Life, PrivateGit, SetupError};
use belljar_workspace::protect::{self, Baseline, Findings, LeftKind, Memory, Nested, Policy};
use belljar_workspace::touched::{Compared, Look};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A workspace that is ready. Dropped, it is put in order.
pub(crate) struct Workspace {
    /// What a backend shows; nothing for an empty one that ends with the sandbox.
    pub(crate) view: Option<View>,
    /// The host's repository, where a sandbox reaches it as the remote `host`: it works beside it, not in it.
    pub(crate) repository: Option<Repository>,
    held: What,
    /// The sandbox writes the folder's own git directory, because the caller said so.
    shares_git: bool,
    /// The state of a folder that is worked in, before the sandbox starts, where the specification asks what changed.
    look: Option<Look>,
}

/// What has to be put in order at the end.
enum What {
    /// Nothing but what it was like before it was worked on, and the sandbox's own git directories.
    Folder {
        baseline: Option<Box<Baseline>>,
        git: Option<Box<GitSession>>,
    },
    Layer {
        held: Box<Held>,
        git: Option<Box<GitSession>>,
        /// It was made for this sandbox.
        is_new: bool,
    },
    ManagedClone(Box<Provisioned>),
    Clone(Box<Clone>),
}

/// A clone that is worked in.
struct Clone {
    id: SandboxId,
    state: PathBuf,
    made: Cloned,
    limits: PushLimits,
}

/// What became of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// Nothing that a person would have to look at: nothing was changed, or nothing is kept.
    None,
    /// The folder itself was worked on: a person should know of `findings` before they work in it, and `git` is what became of
    /// commits.
    Folder { findings: Findings, git: ImportReport },
    /// They are kept in this layer; `git` is what became of commits, and `unnoted` is why what is known of the layer could not be
    /// written down beside it.
    Layer { id: LayerId, summary: Summary, git: ImportReport, unnoted: Option<String> },
    /// They are on this branch of a managed clone, whose worktree is `folder`; `left` says what of them the host does not have.
    ManagedClone { clone_name: String, branch: BranchName, folder: PathBuf, left: LeftInManagedClone },
    /// They were collected from this clone of `url`.
    Clone { id: SandboxId, url: String, collected: Box<Collected> },
}

/// What is known of a workspace that is in order.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) changes: Result<Changes, SandboxError>,
    pub(crate) compared: Option<Compared>,
}

impl Workspace {
    /// Makes it ready. What is kept is kept below `state`.
    pub(crate) fn prepare(
        spec: &SandboxSpec,
        id: SandboxId,
        state: impl FnOnce() -> Result<PathBuf, SandboxError>,
        secrets: impl FnOnce() -> Arc<dyn SecretStore>,
        sharing: Sharing,
    ) -> Result<Workspace, SandboxError> {
        let mut workspace = Workspace::made(spec, id, state, secrets, sharing)?;
        if spec.admin != Admin::No
            && let Some(view) = &mut workspace.view
        {
            // The one whose machine it is may change what an agent may not.
            view.shields.clear();
            view.git.iter_mut().for_each(|git| git.shields.clear());
        }
        workspace.shares_git = spec.git == GitAccess::Share;
        // A layer is itself what is different.
        if spec.compare == Compare::Yes && !matches!(workspace.held, What::Layer { .. }) {
            workspace.look = workspace.view.as_ref().map(Look::at);
        }
        Ok(workspace)
    }

    /// The same for a sandbox that is only described. What it makes is removed by [`Workspace::finish`], since nothing works in
    /// it; where that would be much, it is refused.
    pub(crate) fn sketch(
        spec: &SandboxSpec,
        state: impl FnOnce() -> Result<PathBuf, SandboxError>,
        secrets: impl FnOnce() -> Arc<dyn SecretStore>,
    ) -> Result<Workspace, SandboxError> {
        match &spec.mode {
            WorkspaceMode::Bind | WorkspaceMode::Own(_) | WorkspaceMode::Overlay { .. } => {
                Workspace::prepare(spec, new_id()?, state, secrets, Sharing::AllBranches)
            }
            WorkspaceMode::ManagedClone { .. } | WorkspaceMode::Clone(_) => {
                let message = "a worktree or a clone has to be made before anything can be said of it";
                Err(ErrorCode::NotSupported.error(message).hint(hint!(
                    "omit {} and {} to see the rest",
                    Term::Branch,
                    Term::Clone
                )))
            }
        }
    }

    fn made(
        spec: &SandboxSpec,
        id: SandboxId,
        state: impl FnOnce() -> Result<PathBuf, SandboxError>,
        secrets: impl FnOnce() -> Arc<dyn SecretStore>,
        sharing: Sharing,
    ) -> Result<Workspace, SandboxError> {
        let policy = Policy { protect: &spec.protected, unprotect: &spec.unprotected };
        match &spec.mode {
            WorkspaceMode::Bind => {
                // The backend that shows it reports what is wrong with it.
                let folder = spec.workspace.as_ref().filter(|folder| std::fs::read_dir(folder).is_ok());
                let state = state();
                let memory = state.as_ref().ok().map(|state| Memory::at(state));
                let Some(folder) = folder else { return Ok(Workspace::of_folder(None)) };
                let is_private = has_private_git(spec);
                let nested = if is_private { Nested::ReadOnly } else { Nested::Shared };
                let view = protect::view_of_itself(folder, policy, memory.as_ref(), nested)?;
                if !is_private {
                    return Ok(Workspace::of_folder(Some(view)));
                }
                let id = persistent::work_of(spec).unwrap_or(id);
                let life = if spec.home.is_some() { Life::Persistent } else { Life::OneShot };
                let private = Private { id, life, mode: ImportMode::Bind, place: None };
                let (baseline, view, git) =
                    Baseline::take_beside(view, |view| with_private_git(view, spec, private, || state))?;
                let held = What::Folder { baseline: Some(Box::new(baseline)), git };
                Ok(Workspace::new(Some(view), None, held))
            }
            // It belongs to the sandbox: no program of the host works there, and git inside may make a repository of it.
            WorkspaceMode::Own(folder) if spec.protected.is_empty() => {
                // What is wrong with it is said by the backend, which opens it.
                let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                let held = What::Folder { baseline: None, git: None };
                Ok(Workspace::new(Some(View::plain(folder)), None, held))
            }
            WorkspaceMode::Own(folder) => Ok(Workspace::of_folder(Some(protect::view(folder, policy)?))),
            WorkspaceMode::Overlay { layer } => {
                let folder = folder(spec, "an overlay")?;
                if spec.git == GitAccess::Share {
                    let message = "an overlay leaves the folder's `.git` as it is, and sharing lets the sandbox write it";
                    return Err(ErrorCode::RequestConflict
                        .error(message)
                        .hint(hint!("omit {}: commits come out when the layer is applied", Term::ShareGit)));
                }
                let view = protect::view(folder, policy)?;
                let repository = checked_out(&view).filter(|_| planted(&view).is_none());
                let state = state()?;
                let layers = Layers::at(&state);
                let held = protect::held_paths(&view);
                let (held, is_new) = match (layer, persistent::work_of(spec)) {
                    (Some(name), _) => (find(&layers, name, &view.folder)?.hold()?.resume()?, false),
                    (None, Some(work)) => (continued(&layers, work, &view.folder, &held)?, false),
                    (None, None) => (layers.create(&view.folder, &held)?, true),
                };
                let private = Private {
                    id: name_of(held.id),
                    life: Life::Persistent,
                    mode: ImportMode::Overlay,
                    place: Some(&held.directory),
                };
                let (mut view, git) = with_private_git(view, spec, private, || Ok(state.clone()))?;
                if let Some(git) = git.as_deref().filter(|_| !is_new) {
                    git.note(GitSession::recover(&held.directory, &state));
                }
                view.layer = Some(LayerOnDisk { upper: held.upper.clone(), work: held.work.clone() });
                Ok(Workspace::new(Some(view), repository, What::Layer { held: Box::new(held), git, is_new }))
            }
            WorkspaceMode::ManagedClone { branch } => {
                let folder = folder(spec, "a managed clone")?;
                refuse_planted(folder)?;
                let state = state()?;
                refuse_unfit(&state, &HostWorktree::find(folder)?.top, &spec.alternates)?;
                let made = managed::provision_in(&state, folder, branch.as_ref(), sharing)?;
                let LinkedGit { common, own, .. } = &made.git;
                let mut view = protect::view_of_worktree(&made.folder, common, own, policy)?;
                view.host_folder = Some(HostWorktree::find(folder)?.top);
                let repository = Repository { directory: made.host.clone(), branch: made.branch.clone() };
                let held = What::ManagedClone(Box::new(made));
                Ok(Workspace::new(Some(view), Some(repository), held))
            }
            WorkspaceMode::Clone(clone_request) => {
                // One that was made before is used again.
                let (id, state) = (persistent::work_of(spec).map_or_else(new_id, Ok)?, state()?);
                if let Some(path) = clone::local_path(&clone_request.url) {
                    refuse_unfit(&state, &path, &spec.alternates)?;
                }
                let token = token(&clone_request.url, &spec.credentials, secrets)?;
                let made = clone::make(&state, id, clone_request, token)?;
                let view = protect::view(&made.folder, policy)?;
                let repository =
                    Repository { directory: made.repository.clone(), branch: made.branch.clone() };
                let limits = spec.pushes.to_network().limits;
                let held = What::Clone(Box::new(Clone { id, state, made, limits }));
                Ok(Workspace::new(Some(view), Some(repository), held))
            }
        }
    }

    fn new(view: Option<View>, repository: Option<Repository>, held: What) -> Workspace {
        Workspace { view, repository, held, shares_git: false, look: None }
    }

    /// A folder that is worked on itself. What it is like is looked at now, also for an administrator, who may change all of it.
    fn of_folder(view: Option<View>) -> Workspace {
        let baseline = view.as_ref().map(|view| Box::new(Baseline::take(view)));
        Workspace::new(view, None, What::Folder { baseline, git: None })
    }

    /// The sandbox's own git directories, if it has some.
    pub(crate) fn git_session(&self) -> Option<&GitSession> {
        match &self.held {
            What::Folder { git, .. } | What::Layer { git, .. } => git.as_deref(),
            What::ManagedClone(_) | What::Clone(_) => None,
        }
    }

    /// What a person should know before anything runs in it.
    pub(crate) fn warning(&self) -> Option<String> {
        match &self.held {
            What::ManagedClone(made) => {
                let trap = made.held_up.as_ref()?;
                Some(format!("the worktree stays where it was, though the host went on: {trap}"))
            }
            What::Folder { .. } if self.shares_git => Some(SHARED_GIT.to_string()),
            What::Folder { .. } | What::Layer { .. } | What::Clone(_) => None,
        }
    }

    /// Whether the sandbox has to be gone, to its last process, before it is put in order.
    pub(crate) fn has_an_end(&self) -> bool {
        self.look.is_some() || !matches!(self.held, What::Folder { git: None, .. })
    }

    /// Puts it in order. No process inside is alive any more; without a recorder, none ever was.
    pub(crate) fn finish(self, recorder: Option<&Recorder>) -> Finished {
        let compared = self.look.as_ref().map(Look::compare);
        Finished { changes: self.changes(recorder), compared }
    }

    fn changes(self, recorder: Option<&Recorder>) -> Result<Changes, SandboxError> {
        match self.held {
            What::Folder { baseline, git } => {
                let git = ended(git, recorder);
                let findings = baseline.map(|baseline| baseline.compare()).unwrap_or_default();
                let is_quiet = findings.is_empty() && git == ImportReport::default();
                Ok(if is_quiet { Changes::None } else { Changes::Folder { findings, git } })
            }
            What::Layer { held, git, is_new } => {
                let id = held.id;
                let git = ended(git, recorder);
                // A start that failed says nothing of what is in a layer that was there before.
                let is_unknown = recorder.is_none() && !is_new;
                let has_commits = !git.set_aside.is_empty()
                    || git.leaves_some_inside()
                    || git.is_partial
                    || is_unknown
                    || !private_git::put_aside_in(&held.directory, name_of(id)).is_empty();
                match held.finish(if has_commits { Commits::Some } else { Commits::None })? {
                    Outcome::Unchanged if git.notes.is_empty() => Ok(Changes::None),
                    Outcome::Unchanged => Ok(Changes::Folder { findings: Findings::default(), git }),
                    Outcome::Changed { summary, unnoted } => {
                        let unnoted = unnoted.map(|error| with_causes(&error));
                        Ok(Changes::Layer { id, summary, git, unnoted })
                    }
                }
            }
            What::ManagedClone(made) => {
                let left = made.left()?;
                let Provisioned { clone_name, branch, folder, .. } = *made;
                Ok(Changes::ManagedClone { clone_name, branch, folder, left })
            }
            What::Clone(clone) => {
                let Clone { id, state, made, limits } = *clone;
                let collected =
                    clone::collect(&state, id, limits).map_err(|error| not_collected(id, error.into()))?;
                // A commit, reset or stash has left a trace there.
                let git = made.folder.join(".git");
                let untouched = !git.join("logs/HEAD").exists() && !git.join("refs/stash").exists();
                if collected.is_empty() && untouched {
                    drop(made.hold);
                    clone::remove(&state, id)?;
                    return Ok(Changes::None);
                }
                Ok(Changes::Clone { id, url: made.url, collected: Box::new(collected) })
            }
        }
    }
}

/// Says that nothing is lost.
fn not_collected(id: SandboxId, error: SandboxError) -> SandboxError {
    match error.hint {
        Some(_) => error,
        None => error.hint(hint!(
            "all of it is kept in the clone {}: {} lists it, {} removes it",
            id.to_string(),
            CommandLine::Layers,
            CommandLine::Discard.of(id)
        )),
    }
}

/// What became of commits in a sandbox that has ended.
fn ended(session: Option<Box<GitSession>>, recorder: Option<&Recorder>) -> ImportReport {
    let end = recorder.map_or(End::NeverStarted, End::Ended);
    session.map(|session| session.finish(end)).unwrap_or_default()
}

const SHARED_GIT: &str =
    "this folder's own .git is shared with the sandbox, and git here believes what is written there";

/// Whether the sandbox gets git directories of its own. An administrator changes the host's, and without isolation everything of the
/// host is in reach.
fn has_private_git(spec: &SandboxSpec) -> bool {
    let is_isolated = match spec.backend {
        BackendChoice::Named(name) => name.assurance().is_at_least(Assurance::Namespace),
        BackendChoice::Auto => true,
    };
    spec.git == GitAccess::Private && spec.admin == Admin::No && is_isolated
}

/// Git directories that a sandbox is to have.
struct Private<'p> {
    /// The name that its commits have on the host.
    id: SandboxId,
    life: Life,
    mode: ImportMode,
    /// The directory that they are kept below, where it is not belljar's own: that of a layer.
    place: Option<&'p Path>,
}

/// Replaces the git directories of a view by the sandbox's own, if the folder is a repository.
fn with_private_git(
    view: View,
    spec: &SandboxSpec,
    Private { id, life, mode, place }: Private<'_>,
    state: impl FnOnce() -> Result<PathBuf, SandboxError>,
) -> Result<(View, Option<Box<GitSession>>), SandboxError> {
    if !protect::is_repository(&view) {
        return Ok((view, None));
    }
    let state = state()?;
    let (mut view, requests) = protect::without_git(view, &spec.alternates)?;
    for one in &requests {
        refuse_written(&state, &one.host)?;
    }
    let mut notes = Vec::new();
    if mode == ImportMode::Bind {
        notes = protect::hold_gitlinks_of_branches(&mut view, &requests, &state)?;
    }
    let placeholders = protect::placeholders(&view);
    let made =
        PrivateGit::create(place.unwrap_or(&state), id, life, &requests, &placeholders, &HostFiles::real());
    let (git, views) = made.map_err(|error| no_private_git(&view.folder, &error))?;
    view.private_git = views;
    let protected = protect::held_paths(&view);
    let session = GitSession::new(git, state, spec.pushes.to_folder(), mode, protected);
    session.note(notes);
    Ok((view, Some(Box::new(session))))
}

/// An agent may have made a repository on this machine: what it leads to elsewhere is not for a sandbox, and git of the host does not
/// follow it.
fn refuse_unfit(state: &Path, path: &Path, alternates: &[PathBuf]) -> Result<(), SandboxError> {
    let judged = protect::local_repository(path, alternates).map_err(|why| {
        let message = format!("the repository `{}` cannot be given to a sandbox: {why}", path.display());
        ErrorCode::NotSupported.error(message)
            .hint("look at it; `[git] alternates` in your configuration names directories that a repository may borrow from")
    })?;
    judged.iter().try_for_each(|host| refuse_written(state, host))?;
    // Who can write to the folder around it can put another one there, or a link.
    match path.parent().and_then(|parent| neighbours::writer(state, parent)) {
        Some(id) => Err(neighbours::contested(&id, path)),
        None => Ok(()),
    }
}

/// Git of the host would work in it while an agent changes what it reads.
fn refuse_written(state: &Path, host: &HostGit) -> Result<(), SandboxError> {
    let HostGit { own, common, .. } = host;
    match [own, common].into_iter().find_map(|path| Some((neighbours::writer(state, path)?, path))) {
        Some((id, path)) => Err(neighbours::contested(&id, path)),
        None => Ok(()),
    }
}

fn no_private_git(folder: &Path, error: &SetupError) -> SandboxError {
    let message = format!("the repository `{}` cannot be given to a sandbox: {error}", folder.display());
    if let SetupError::Make { .. } = error {
        // The state directory, and not the repository, is what cannot be written.
        let hint = "is there room, and may you write there? XDG_STATE_HOME names another folder";
        return ErrorCode::NotSupported.error(message).hint(hint);
    }
    ErrorCode::NotSupported.error(message).hint(hint!(
        "work on a clone with {}, or, if you trust what runs, let it write this repository with {}",
        Term::Branch.to("NAME"),
        Term::ShareGit
    ))
}

fn folder<'s>(spec: &'s SandboxSpec, what: &str) -> Result<&'s PathBuf, SandboxError> {
    spec.workspace.as_ref().ok_or_else(|| {
        ErrorCode::RequestConflict
            .error(format!("{what} needs a folder to be made of"))
            .hint(hint!("name one with {}", Term::Folder.to("DIR")))
    })
}

/// git on the host writes and reads through links in a git directory, wherever they lead. An agent that worked in the folder
/// itself may have left one.
fn refuse_planted(folder: &Path) -> Result<(), SandboxError> {
    let top = HostWorktree::find(folder)?.top;
    match planted(&protect::view(&top, Policy::default())?) {
        None => Ok(()),
        Some(link) => {
            let message =
                format!("`{}` is a link in a git directory, and git would follow it", link.display());
            Err(ErrorCode::PathRefused
                .error(message)
                .hint("look where it leads, and remove it if you did not make it"))
        }
    }
}

fn planted(view: &View) -> Option<PathBuf> {
    protect::left(view).into_iter().find(|one| one.what == LeftKind::Link).map(|one| one.path)
}

/// The repository that a folder is a worktree of, and the branch that is checked out there; nothing where git would not say
/// one either.
fn checked_out(view: &View) -> Option<Repository> {
    let (directory, own) = match &view.git {
        Some(git) => (git.common.clone(), git.own.as_str()),
        None => (view.folder.join(".git"), ""),
    };
    match Foreign::open(&directory).ok()?.head(own).ok()? {
        Head::Branch(branch) => Some(Repository { directory, branch }),
        Head::Detached(_) => None,
    }
}

/// The layer that a kept sandbox had in its last life, or a new one.
fn continued(
    layers: &Layers,
    work: SandboxId,
    folder: &Path,
    protected: &[ProtectedPath],
) -> Result<Held, SandboxError> {
    match layers.beginning(&work.to_string())?.is_empty() {
        true => Ok(layers.create_as(persistent::layer_of(work), folder, protected)?),
        false => Ok(find(layers, &work.to_string(), folder)?.hold()?.resume()?),
    }
}

/// The layer that was named, if it is one of this folder.
fn find(layers: &Layers, name: &str, folder: &Path) -> Result<Layer, SandboxError> {
    let mut found = layers.beginning(name)?;
    let hint = hint!("{} shows what there is", CommandLine::Layers);
    match (found.pop(), found.len()) {
        (None, _) => {
            let message = format!("there is no layer `{}`", name.escape_debug());
            Err(ErrorCode::WorkNotFound.error(message).hint(hint))
        }
        (Some(layer), 0) if layer.folder == folder => Ok(layer),
        (Some(layer), 0) => {
            let message = format!("the layer {} has changes of `{}`", layer.id, layer.folder.display());
            Err(ErrorCode::WorkNotFound
                .error(message)
                .hint(hint!("add {}", Term::Folder.to(layer.folder.display()))))
        }
        (Some(_), more) => {
            let message = format!("{} layers begin with `{}`", more + 1, name.escape_debug());
            Err(ErrorCode::RequestValue.error(message).hint(hint))
        }
    }
}

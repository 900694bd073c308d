//! Resolves a request to a spec: the files' settings are added here, so that the same request gives the same sandbox whether it
//! comes from flags, a program or a stored record.

use crate::load::{filled, load_then};
use crate::secret_files;
use crate::{ConfigPaths, CredentialFlags, EgressFlags, LlmLayers, Note, machine, prices};
use belljar_spec::egress::RuleSource;
use belljar_spec::request::{EnvValue, HostPath, LlmRequest, WorkspaceRequest};
use belljar_spec::secret::SecretName;
use belljar_spec::workspace::{CloneSpec, GitAccess, WorkspaceMode};
use belljar_spec::{
    Admin, Compare, Cpus, EnvName, ErrorCode, Nesting, Permission, PersistentIdentity, SandboxError,
    SandboxId, SandboxRequest, SandboxSpec, SharedPath, Volume, WorkspacePath,
};
use belljar_vault::HostSecrets;
use std::ffi::OsString;
use std::path::PathBuf;

/// The parts of a sandbox that are not in its request: where belljar stores its files, and options that only a user at this machine
/// can request.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Its id; without one a new one is made.
    pub id: Option<SandboxId>,
    pub persistent: Option<PersistentIdentity>,
    /// Its home, if that outlives it.
    pub home: Option<PathBuf>,
    /// The workspace of a sandbox without a folder of the host.
    pub workspace: PathBuf,
    /// The directory of all volumes.
    pub volumes: PathBuf,
    /// Volumes beside those of the request.
    pub more_volumes: Vec<Volume>,
    /// The folder whose configuration counts, if it is not the workspace.
    pub configured_by: Option<PathBuf>,
    /// The source of the request's rules.
    pub rule_source: RuleSource,
    /// The change set that an overlay continues with.
    pub layer: Option<String>,
    /// Secrets that the sandbox really holds.
    pub forward: Vec<SecretName>,
    /// Whether it holds the key of the GitHub App.
    pub danger_forward_app_key: bool,
    /// Whether the profile that files name fills in what the request leaves out.
    pub default_profile: DefaultProfile,
    /// Whether what the user's file opens of reserved ranges counts.
    pub users_network: UsersNetwork,
}

/// The reserved ranges and the ports of this machine that a user's own file opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsersNetwork {
    /// The user's own sandbox.
    Applied,
    /// One of another caller: the user opened them for sandboxes of their own.
    #[default]
    Ignored,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultProfile {
    /// A user at a command line: the profile of the user's files applies.
    Applied,
    /// A program, or a sandbox of the daemon: the caller has already applied a profile.
    #[default]
    Ignored,
}

/// Resolves a request to a sandbox, with notes for the user. Makes nothing.
pub fn resolve(
    request: SandboxRequest,
    surroundings: Surroundings,
) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
    resolve_with(request, surroundings, |llm, _| Ok(llm))
}

/// The same. `route` decides the route to a model, after files have been read.
pub fn resolve_with(
    request: SandboxRequest,
    surroundings: Surroundings,
    route: impl FnOnce(LlmRequest, &LlmLayers) -> Result<LlmRequest, SandboxError>,
) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
    request.check()?;
    let folder = request.workspace.folder.clone().map(HostPath::into_path_buf);
    let configured_by = surroundings.configured_by.as_ref().or(folder.as_ref()).map(PathBuf::as_path);
    let mut request = Some(request);
    let mut loaded = load_then(&ConfigPaths::real(), configured_by, surroundings.users_network, |profile| {
        let profile = profile.filter(|_| surroundings.default_profile == DefaultProfile::Applied);
        let filled = filled(request.take().unwrap_or_default(), profile);
        EgressFlags::of(&request.insert(filled).egress, &surroundings.rule_source)
    })?;
    let request = request.unwrap_or_default();
    // Destructured, so that no option is forgotten.
    let SandboxRequest {
        backend,
        at_least,
        rootfs,
        // The fleet has put its files in place.
        snapshot,
        workspace,
        // It was handled above, with the files' settings.
        egress: _,
        llm,
        secrets,
        web_search,
        github,
        env: variables,
        mut limits,
        // The fleet forwards them.
        ports: _,
        forward_ports,
        nested,
        volumes,
        user,
        admin,
        root: as_root,
    } = request;
    if snapshot.is_some() && surroundings.persistent.is_none() {
        let message = "`snapshot`: a sandbox of one command does not begin with a snapshot";
        return Err(ErrorCode::RequestConflict
            .error(message)
            .hint("make a sandbox from it, and run the command there"));
    }
    let mode = mode(&workspace, &surroundings);
    let WorkspaceRequest {
        folder: _,
        // These four are the mode.
        overlay: _,
        branch: _,
        clone: _,
        depth: _,
        same_path,
        ro,
        rw,
        protect,
        hide,
        placeholders,
        push,
        share_git,
        agent_context: more_context,
    } = workspace;
    let paths = |paths: Vec<HostPath>| paths.into_iter().map(HostPath::into_path_buf);
    let share = |permission: Permission| move |path: PathBuf| SharedPath { path, permission };
    let protected = loaded.protected().into_iter().map(|path| path.value).chain(protect).collect();
    let unprotected = loaded.unprotected().into_iter().map(|path| path.value).collect();
    let hidden: Vec<_> = loaded.hidden().into_iter().chain(hide).collect();
    let placeholders: Vec<_> = loaded.placeholders().into_iter().chain(placeholders).collect();
    let known: Vec<_> = hidden.iter().chain(&placeholders).cloned().chain(loaded.visible()).collect();
    let suggestion =
        folder.as_deref().filter(|_| !admin).and_then(|folder| secret_files::note(folder, &known));
    let mut agent_context = loaded.agent_context(configured_by);
    agent_context.extend(paths(more_context));
    let pushes = loaded.pushes(&push);
    let admin = match (admin, as_root) {
        (false, _) => Admin::No,
        (true, false) => Admin::User,
        (true, true) => Admin::Root,
    };
    // The request's own values come later, and win.
    let written = loaded.sandbox();
    let root = rootfs.or(written.rootfs).unwrap_or_default();
    // An administrator's sandbox may change protected files, and must not start programs through a variable that was meant for
    // other sandboxes.
    let written = written.env.into_iter().filter(|_| admin == Admin::No);
    let mut env: Vec<(EnvName, OsString)> = written.map(|(name, value)| (name, value.into())).collect();
    let mut credentials = CredentialFlags {
        secrets,
        web_search,
        variables: Vec::new(),
        forward: surroundings.forward,
        github,
        danger_forward_app_key: surroundings.danger_forward_app_key,
    };
    for (name, value) in variables {
        match value {
            EnvValue::Text(value) => env.push((name, value)),
            EnvValue::Secret(key) => credentials.variables.push((name, key)),
        }
    }
    if credentials != CredentialFlags::default() {
        loaded = loaded.with_credentials(&credentials, &HostSecrets::open())?;
    }
    let llm = route(llm.unwrap_or_default(), &loaded.llm)?;
    let llm = loaded.llm.route(&llm)?;
    if let Some(llm) = &llm {
        prices::check_allowed(&llm.route)?;
    }
    // More processors than exist means all of them.
    limits.cpus = limits.cpus.map(|cpus| cpus.min(Cpus::whole(machine().cpus)));
    let own = volumes
        .into_iter()
        .map(|(name, target)| Volume { source: surroundings.volumes.join(name.as_str()), target });
    let mut volumes: Vec<Volume> = own.collect();
    volumes.sort_by(|a, b| a.target.cmp(&b.target));
    volumes.extend(surroundings.more_volumes);
    let spec = SandboxSpec {
        id: surroundings.id,
        backend: backend.unwrap_or_default(),
        at_least,
        root,
        workspace: folder,
        mode,
        git: if share_git { GitAccess::Share } else { GitAccess::Private },
        compare: Compare::No,
        protected,
        unprotected,
        hidden,
        placeholders,
        agent_context,
        alternates: loaded.alternates(),
        pushes,
        workspace_path: match same_path {
            true => WorkspacePath::SameAsHost,
            false => WorkspacePath::Standard,
        },
        shared: paths(ro)
            .map(share(Permission::Read))
            .chain(paths(rw).map(share(Permission::Write)))
            .collect(),
        env,
        limits,
        nesting: if nested == Some(true) { Nesting::Allowed } else { Nesting::Denied },
        egress: loaded.policy,
        credentials: loaded.credentials,
        github: loaded.github,
        forwarded: loaded.forwarded,
        llm: llm.map(|llm| llm.route),
        persistent: surroundings.persistent,
        volumes,
        home: surroundings.home,
        admin,
        user: user.unwrap_or_default(),
        forward_ports,
    };
    let mut notes = loaded.notes;
    notes.extend(suggestion);
    Ok((spec, notes))
}

/// The workspace mode. That a request does not have two of them was checked before.
fn mode(request: &WorkspaceRequest, surroundings: &Surroundings) -> WorkspaceMode {
    let WorkspaceRequest { clone, branch, depth, .. } = request;
    match (clone, branch) {
        (Some(url), branch) => {
            WorkspaceMode::Clone(CloneSpec { url: url.clone(), branch: branch.clone(), depth: *depth })
        }
        (None, Some(branch)) => WorkspaceMode::ManagedClone { branch: Some(branch.clone()) },
        (None, None) if request.overlay => WorkspaceMode::Overlay { layer: surroundings.layer.clone() },
        (None, None) if request.folder.is_some() => WorkspaceMode::Bind,
        // An empty one that ends with the sandbox.
        (None, None) if surroundings.workspace.as_os_str().is_empty() => WorkspaceMode::Bind,
        (None, None) => WorkspaceMode::Own(surroundings.workspace.clone()),
    }
}

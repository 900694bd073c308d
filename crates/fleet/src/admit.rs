//! A request beside the rules of a grant, as far as the machine has to be looked at: folders, and which limits can be held. The rest is
//! decided by [`SandboxRequest::must_be_granted`] and [`SandboxRequest::within`].

use belljar_spec::request::{
    GrantRules, HostPath, LimitsRequest, SandboxRequest, WorkspaceRequest, not_granted,
};
use belljar_spec::{BackendName, ErrorCode, Root, SandboxError, Term, hint};
use std::path::{Path, PathBuf};

/// What the caller wrote, if it may; with folders as the real paths that were judged.
pub(crate) fn admit(rules: &GrantRules, mut request: SandboxRequest) -> Result<SandboxRequest, SandboxError> {
    request.must_be_granted(rules)?;
    let granted = Folders::of(rules);
    let WorkspaceRequest { folder, branch, ro, rw, .. } = &mut request.workspace;
    let named = folder.iter_mut().map(|path| ("workspace.folder", path));
    let read = ro.iter_mut().map(|path| ("workspace.ro", path));
    let written = rw.iter_mut().map(|path| ("workspace.rw", path));
    for (field, path) in named.chain(read).chain(written) {
        *path = granted.judge(field, path)?;
    }
    if let (Some(_), Some(folder)) = (branch, folder) {
        granted.judge_repository(folder)?;
    }
    Ok(request)
}

/// What the owner asked for, with the folders as they really are: what is used later is what was named now.
pub(crate) fn as_they_are(mut request: SandboxRequest) -> SandboxRequest {
    let WorkspaceRequest { folder, ro, rw, .. } = &mut request.workspace;
    // What is wrong with one is said when it is used.
    for path in folder.iter_mut().chain(ro).chain(rw) {
        if let Some(real) = real(path) {
            *path = real;
        }
    }
    if let Some(Root::Directory(path)) = &mut request.rootfs
        && let Ok(real) = path.canonicalize()
        // A root is written as text: one that is not valid UTF-8 stays as it was named.
        && real.to_str().is_some()
    {
        *path = real;
    }
    request
}

fn real(path: &Path) -> Option<HostPath> {
    HostPath::try_from(path.canonicalize().ok()?).ok()
}

/// Folders that were granted, as they really are.
struct Folders(Vec<PathBuf>);

impl Folders {
    fn of(rules: &GrantRules) -> Folders {
        Folders(rules.folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect())
    }

    /// The real path of one that was asked for. One that is not there and one that may not be seen are refused alike.
    fn judge(&self, field: &str, request: &Path) -> Result<HostPath, SandboxError> {
        let granted = real(request).filter(|real| self.0.iter().any(|folder| real.starts_with(folder)));
        granted.ok_or_else(|| not_granted(field, &request.display().to_string()))
    }

    /// A branch is one of the whole repository that a folder lies in, with all its files.
    fn judge_repository(&self, folder: &Path) -> Result<(), SandboxError> {
        let top = folder.ancestors().find(|part| part.join(".git").symlink_metadata().is_ok());
        match top.filter(|top| !self.0.iter().any(|granted| top.starts_with(granted))) {
            None => Ok(()),
            Some(_) => Err(not_granted("workspace.branch", &folder.display().to_string())),
        }
    }
}

/// Whether the limits can be held on this machine: a grant whose every request fails is not made. Docker holds them by itself.
pub(crate) fn can_be_held(limits: &LimitsRequest) -> Result<(), SandboxError> {
    let unheld = not_held(limits);
    let by_docker = || {
        let mut backends = belljar_engine::Engine::new().backends().into_iter();
        backends
            .any(|isolation| matches!(isolation.backend, BackendName::Docker(_)) && isolation.outcome.is_ok())
    };
    if unheld.is_empty() || by_docker() {
        return Ok(());
    }
    let message = format!(
        "a limit on {} cannot be enforced on this machine: no cgroup is delegated to belljar",
        unheld.join(" and ")
    );
    Err(ErrorCode::LimitUnavailable.error(message).hint(hint!(
        "make the grant without it, or see {} for how a cgroup becomes available",
        Term::Capabilities
    )))
}

/// Which of the limits that need a cgroup have none here.
pub(crate) fn not_held(limits: &LimitsRequest) -> Vec<&'static str> {
    if limits.memory.is_none() && limits.cpus.is_none() {
        return Vec::new();
    }
    let held = belljar_engine::limits_held(limits);
    let unheld =
        [("memory", limits.memory.is_some() && !held.memory), ("cpus", limits.cpus.is_some() && !held.cpus)];
    unheld.into_iter().filter(|(_, unheld)| *unheld).map(|(name, _)| name).collect()
}

#[cfg(test)]
#[path = "admit/tests.rs"]
mod tests;

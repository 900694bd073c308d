//! A sandbox, planned: everything that is decided before anything starts. Starting a sandbox and describing one both use it.

use super::Engine;
use crate::roots::{self, PreparedRoot};
use crate::workspace::Workspace;
use crate::{credentials, egress_reach, llm, relay, snapshots};
use belljar_backend::{GitInside, Isolation, Plan, WORKSPACE, context_git_config};
use belljar_config as config;
use belljar_gateway::{Authority, Credentials};
use belljar_spec::egress::EgressPolicy;
use belljar_spec::{
    BackendName, ErrorCode, Limits, SandboxError, SandboxId, SandboxSpec, Term, WorkspacePath, hint,
};
use belljar_vault::SecretStore;
use belljar_workspace::context;
use belljar_workspace::inside::{self, Person, Remote};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was decided.
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// With what a route to a model adds to it.
    pub(super) spec: SandboxSpec,
    pub(super) policy: Option<EgressPolicy>,
    pub(super) authority: Option<Arc<Authority>>,
    /// Where a route reads its key.
    pub(super) secrets: Option<Arc<dyn SecretStore>>,
}

impl Engine {
    /// Plans a sandbox with this backend.
    #[expect(clippy::too_many_arguments, reason = "each of them was made by another function before")]
    pub(super) fn plan(
        &self,
        backend: BackendName,
        spec: &SandboxSpec,
        id: SandboxId,
        records: &Path,
        workspace: &Workspace,
        root: &PreparedRoot,
        limits: &Limits,
        credentials: &Arc<Credentials>,
    ) -> Result<Planned, SandboxError> {
        let isolation = match backend {
            BackendName::Landlock => Isolation::Confined,
            BackendName::E2b => Isolation::Remote,
            _ if backend.assurance().isolates() => Isolation::Own,
            _ => Isolation::Absent,
        };
        let hides = !spec.hidden.is_empty() || !spec.placeholders.is_empty();
        if isolation != Isolation::Own && hides {
            let message =
                format!("the backend {backend} mounts nothing over files, and so hides none in a folder");
            let omitted = if spec.hidden.is_empty() { Term::Placeholders } else { Term::Hide };
            return Err(ErrorCode::NotSupported.error(message).hint(hint!(
                "use {}, or omit {}, also in belljar.toml",
                Term::Backend.to("native"),
                omitted
            )));
        }
        let policy = egress(backend, isolation, spec)?;
        let secrets = spec.llm.as_ref().map(|_| self.secrets());
        let with_route = match (&spec.llm, &secrets) {
            (Some(route), Some(secrets)) => Some(llm::prepare(spec, route, backend, isolation, &**secrets)?),
            _ => None,
        };
        let spec = with_route.unwrap_or_else(|| spec.clone());
        let own = self.own(records, &spec);
        let root = roots::understand(&spec, root, isolation, &own)?;
        let mut plan = Plan::new(id, spec.clone(), limits.clone(), isolation).behind(backend).keeping(own);
        if let Some(root) = root {
            plan = plan.with_root(root);
        }
        let state = belljar_state::state_directory().ok();
        if let Some(state) = &state {
            plan = plan.with_mountpoints(state.join("stubs")).with_containers(state.join("docker"));
            plan = plan.with_prepared(crate::sweep::prepared_roots(state));
            plan = plan.with_private(state.join("private"));
        }
        if isolation == Isolation::Remote {
            plan = plan.made_by(self.remote()?);
        }
        if spec.home.is_some() {
            plan = plan.over_layers(snapshots::sealed(&spec, backend, &self.state()?)?);
        }
        if let Some(view) = self.view.as_ref().or(workspace.view.as_ref()) {
            plan = plan.with_workspace(view.clone());
        }
        let context = context::of(&spec.agent_context, workspace.view.as_ref())?;
        if let Some(context) = &context {
            plan = plan.with_context(context.clone());
        }
        if !spec.placeholders.is_empty() {
            plan = plan.with_env_files(credentials::in_env_files(credentials));
        }
        let repository = workspace.repository.as_ref().filter(|_| isolation.holds());
        let relay = repository.map(|_| relay::PORT);
        if isolation.holds() {
            let person = Person::of_host(
                workspace.view.as_ref(),
                repository.map(|repository| repository.directory.as_path()),
            );
            // A managed clone and a clone have it in a config of their own; with two of them, git would push twice.
            let is_layered = workspace.view.as_ref().is_some_and(|view| view.layer.is_some());
            let remote = repository
                .filter(|_| is_layered)
                .map(|repository| Remote { port: relay::PORT, branch: repository.without_upstream() });
            let mut config = inside::config(&person, remote.as_ref());
            if isolation == Isolation::Confined {
                config = config.replacen(inside::HOSTS_CONFIG, "", 1);
            }
            config.push_str(&inside::helpers(&spec.credentials));
            if context.is_some() || hides {
                config.push_str(&context_git_config(&seen_at(&spec)));
            }
            plan = plan.with_git(GitInside { config });
        }
        if let Some(egress_reach) =
            policy.as_ref().and_then(|policy| egress_reach::plan(policy, spec.llm.as_ref(), relay))
        {
            plan = plan.with_egress(egress_reach);
        }
        let authority =
            policy.as_ref().map(|policy| egress_reach::authority(id, &spec, policy)).transpose()?.flatten();
        if let Some(authority) = &authority {
            plan = plan.with_authority(authority.certificate_pem().to_string());
        }
        Ok(Planned { plan, spec, policy, authority, secrets })
    }

    /// What this sandbox may not be given: what belljar keeps, and files with the values that it holds placeholders for.
    fn own(&self, records: &Path, spec: &SandboxSpec) -> Vec<PathBuf> {
        let mut own = vec![records.to_path_buf()];
        own.extend(self.state.clone());
        own.extend(belljar_state::state_directory().ok());
        own.extend(belljar_vault::named_key_file());
        own.extend(credentials::files(spec));
        // What the user's file says counts at the next start, and so does what a link there leads to.
        let places = config::ConfigPaths::real();
        if let Some(file) = places.user {
            own.extend(file.parent().map(Path::to_path_buf));
            own.push(file);
        }
        // The operator's folder is the system's; elsewhere it is only by a link.
        own.extend(Some(places.operator).filter(|file| file.canonicalize().is_ok_and(|real| real != *file)));
        own
    }
}

/// Where the workspace is seen, for git.
fn seen_at(spec: &SandboxSpec) -> String {
    let same = spec.workspace.as_ref().filter(|_| spec.workspace_path == WorkspacePath::SameAsHost);
    let same = same.and_then(|folder| folder.canonicalize().ok()?.into_os_string().into_string().ok());
    same.unwrap_or_else(|| WORKSPACE.into())
}

/// What a sandbox may reach; `None` where there is no isolation that could enforce it.
fn egress(
    name: BackendName,
    isolation: Isolation,
    spec: &SandboxSpec,
) -> Result<Option<EgressPolicy>, SandboxError> {
    if let (Isolation::Absent, Some(port)) = (isolation, spec.forward_ports.first()) {
        let message = format!(
            "the backend {name} has no network of its own: nothing leads to its port {}",
            port.inside
        );
        return Err(ErrorCode::NotSupported
            .error(message)
            .hint(hint!("use {}, or connect to the port on this machine", Term::Backend.to("native"))));
    }
    match (isolation, &spec.egress) {
        (Isolation::Own | Isolation::Confined, policy) => Ok(Some(policy.clone().unwrap_or_default())),
        // The service holds it.
        (Isolation::Remote, _) | (Isolation::Absent, None) => Ok(None),
        (Isolation::Absent, Some(_)) => {
            let message = format!("the backend {name} does not isolate, and cannot control the network");
            Err(ErrorCode::NotSupported.error(message).hint(hint!(
                "use {}, or omit all egress settings, also in belljar.toml",
                Term::Backend.to("native")
            )))
        }
    }
}

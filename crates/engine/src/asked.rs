//! A sandbox as it was asked for. Whoever hears the words, a command line or a server, understands each of them; what files have to
//! say of the sandbox is added here, so that the same words come to the same sandbox.

use crate::config::{self, CredentialFlags, EgressFlags, LlmFlags, LlmLayers, Note};
use crate::machine;
use belljar_spec::git::RefPattern;
use belljar_spec::secret::SecretName;
use belljar_spec::workspace::{GitAccess, ProtectedPath, WorkspaceMode};
use belljar_spec::{
    Admin, Assurance, BackendChoice, Compare, Cpus, EnvName, Kept, LimitsSpec, Nesting, Root, SandboxError,
    SandboxId, SandboxSpec, SharedPath, Volume, WorkspacePath,
};
use belljar_vault::HostSecrets;
use std::ffi::OsString;
use std::path::PathBuf;

/// What was said of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub id: Option<SandboxId>,
    pub backend: BackendChoice,
    pub at_least: Option<Assurance>,
    /// What `/` is made of; left open, a trusted repository may say it.
    pub root: Option<Root>,
    /// The folder whose configuration counts. It is worked on, unless `mode` brings its files itself.
    pub folder: Option<PathBuf>,
    pub mode: WorkspaceMode,
    pub git: GitAccess,
    pub protect: Vec<ProtectedPath>,
    pub agent_context: Vec<PathBuf>,
    pub push: Vec<RefPattern>,
    pub workspace_path: WorkspacePath,
    pub shared: Vec<SharedPath>,
    pub env: Vec<(EnvName, Value)>,
    pub limits: LimitsSpec,
    pub nesting: Nesting,
    pub egress: EgressFlags,
    pub secrets: CredentialFlags,
    pub llm: LlmFlags,
    pub kept: Option<Kept>,
    pub volumes: Vec<Volume>,
    pub home: Option<PathBuf>,
    pub admin: Admin,
}

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(OsString),
    /// What stands for a secret.
    Secret(SecretName),
}

impl Value {
    /// `secret:NAME` is a placeholder, everything else is what it says.
    pub fn parse(text: OsString) -> Result<Value, belljar_spec::secret::SecretNameError> {
        use std::os::unix::ffi::OsStrExt;
        match text.as_bytes().strip_prefix(b"secret:") {
            Some(name) => String::from_utf8_lossy(name).parse().map(Value::Secret),
            None => Ok(Value::Text(text)),
        }
    }
}

impl Asked {
    /// The sandbox, with what configuration says of it, and what a person should know.
    pub fn understand(self) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
        self.understand_with(|llm, _| Ok(llm))
    }

    /// The same. `route` has the last word on the route to a model, when files have been read.
    pub fn understand_with(
        mut self,
        route: impl FnOnce(LlmFlags, &LlmLayers) -> Result<LlmFlags, SandboxError>,
    ) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
        let mut loaded = config::load(self.folder.as_deref(), self.egress)?;
        let protected = loaded.protected().into_iter().map(|path| path.value).chain(self.protect).collect();
        let unprotected = loaded.unprotected().into_iter().map(|path| path.value).collect();
        let mut agent_context = loaded.agent_context(self.folder.as_deref());
        agent_context.extend(self.agent_context);
        let pushes = loaded.pushes(&self.push);
        // What was said for this sandbox comes later, and wins.
        let written = loaded.sandbox();
        let root = self.root.or(written.rootfs).unwrap_or_default();
        // An administrator's sandbox changes what others may not, and starts nothing by a variable that was meant for those.
        let written = written.env.into_iter().filter(|_| self.admin == Admin::No);
        let mut env: Vec<(EnvName, OsString)> = written.map(|(name, value)| (name, value.into())).collect();
        for (name, value) in self.env {
            match value {
                Value::Text(value) => env.push((name, value)),
                Value::Secret(key) => self.secrets.variables.push((name, key)),
            }
        }
        if self.secrets != CredentialFlags::default() {
            loaded = loaded.with_credentials(&self.secrets, &HostSecrets::open())?;
        }
        let llm = loaded.llm.route(&route(self.llm, &loaded.llm)?)?;
        let mut limits = self.limits;
        // More than there are is all of them.
        limits.cpus = limits.cpus.map(|cpus| cpus.min(Cpus::whole(machine().cpus)));
        // What the host brings itself is worked on instead of a folder.
        let takes_folder = !matches!(self.mode, WorkspaceMode::Clone(_) | WorkspaceMode::Own(_));
        let spec = SandboxSpec {
            id: self.id,
            backend: self.backend,
            at_least: self.at_least,
            root,
            workspace: self.folder.filter(|_| takes_folder),
            mode: self.mode,
            git: self.git,
            compare: Compare::No,
            protected,
            unprotected,
            agent_context,
            alternates: loaded.alternates(),
            pushes,
            workspace_path: self.workspace_path,
            shared: self.shared,
            env,
            limits,
            nesting: self.nesting,
            egress: loaded.policy,
            credentials: loaded.credentials,
            github: loaded.github,
            forwarded: loaded.forwarded,
            llm: llm.map(|llm| llm.route),
            kept: self.kept,
            volumes: self.volumes,
            home: self.home,
            admin: self.admin,
        };
        Ok((spec, loaded.notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_can_stand_for_a_secret() {
        assert_eq!(Value::parse("plain".into()), Ok(Value::Text("plain".into())));
        assert_eq!(Value::parse("secret:key".into()), Ok(Value::Secret("key".parse().unwrap())));
        assert!(Value::parse("secret:no such name".into()).is_err());
    }
}

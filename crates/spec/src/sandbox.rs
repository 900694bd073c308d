//! A sandbox to make.

use crate::egress::EgressPolicy;
use crate::git::PushRules;
use crate::llm::LlmRoute;
use crate::secret::{Credential, Forwarded, GitHubGrant};
use crate::workspace::{GitAccess, HidePattern, ProtectedPath, WorkspaceMode};
use crate::{
    Admin, Assurance, BackendChoice, ForwardedPort, LimitsRequest, PersistentIdentity, Root, SandboxId,
    UserName, Volume,
};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What a caller wants. The rest has a default.
#[derive(Debug, Clone, Default)]
pub struct SandboxSpec {
    /// The name it gets; without one a new one is made.
    pub id: Option<SandboxId>,
    /// Which backend.
    pub backend: BackendChoice,
    /// The weakest isolation that will do.
    pub at_least: Option<Assurance>,
    /// What its `/` is made of.
    pub root: Root,
    /// The folder to work on; without one the workspace is empty and ends with the sandbox.
    pub workspace: Option<PathBuf>,
    /// How its files get in and its changes out.
    pub mode: WorkspaceMode,
    /// Which git directory it has, where the folder is a repository.
    pub git: GitAccess,
    /// Whether the caller wants to know afterwards what was changed in a folder that is worked in itself.
    pub compare: Compare,
    /// More paths below it that no process inside may change.
    pub protected: Vec<ProtectedPath>,
    /// Settings below it that may be changed inside, though they are protected by default.
    pub unprotected: Vec<ProtectedPath>,
    /// What of it no process inside can read, as far as it is there at the start.
    pub hidden: Vec<HidePattern>,
    /// Files of variables in it that are seen with placeholders in the place of their values.
    pub placeholders: Vec<HidePattern>,
    /// Directories whose `*.md` agents are told beside what the repository says: seen in its `AGENTS.md`.
    pub agent_context: Vec<PathBuf>,
    /// Directories whose objects its repositories may borrow, and so it is shown.
    pub alternates: Vec<PathBuf>,
    /// What may be pushed, to the host's repository and to hosts that are looked into.
    pub pushes: PushRules,
    /// Where the workspace is seen inside.
    pub workspace_path: WorkspacePath,
    /// More of the host, at the same paths inside.
    pub shared: Vec<SharedPath>,
    /// Added to the environment of every command.
    pub env: Vec<(EnvName, OsString)>,
    /// What it may use.
    pub limits: LimitsRequest,
    /// Whether it may make user namespaces.
    pub nesting: Nesting,
    /// What it may reach. Nothing said means nothing reached, with every backend that can enforce that.
    pub egress: Option<EgressPolicy>,
    /// The secrets it may use without holding them.
    pub credentials: Vec<Credential>,
    /// Its route to a model, if it has one.
    pub llm: Option<LlmRoute>,
    /// What its token for GitHub may do, if it has one.
    pub github: Option<GitHubGrant>,
    /// The secrets that it really holds. Each is recorded.
    pub forwarded: Vec<Forwarded>,
    /// Who it is among those that are kept, if it is one of them.
    pub persistent: Option<PersistentIdentity>,
    /// What outlives it, beside the workspace.
    pub volumes: Vec<Volume>,
    /// Its home, if that outlives it: a directory that belljar keeps. Its disk limit does not count there.
    pub home: Option<PathBuf>,
    /// Who works in it. All but the usual user is recorded.
    pub admin: Admin,
    /// The name of the user that commands run as.
    pub user: UserName,
    /// Ports of the host that lead to ports inside.
    pub forward_ports: Vec<ForwardedPort>,
}

impl SandboxSpec {
    /// Whether the backend that was named isolates; `auto` always does.
    pub fn backend_isolates(&self) -> bool {
        match self.backend {
            BackendChoice::Auto => true,
            BackendChoice::Named(name) => name.assurance().isolates(),
        }
    }

    /// Whether paths of the workspace are covered inside by something else: protected, hidden, or shown with placeholders.
    pub fn covers_paths(&self) -> bool {
        !self.protected.is_empty() || !self.hidden.is_empty() || !self.placeholders.is_empty()
    }
}

/// Whether a folder is looked at before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// It is not, and costs nothing.
    #[default]
    No,
    /// It is, at some milliseconds for a thousand files; one with very many at first is not compared.
    Yes,
}

/// Where the workspace is seen inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspacePath {
    /// `/workspace`.
    #[default]
    Standard,
    /// Where it is on the host.
    SameAsHost,
}

/// A path of the host that the sandbox sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPath {
    pub path: PathBuf,
    pub permission: Permission,
}

/// What the sandbox may do with a shared path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read and run.
    Read,
    /// Write too.
    Write,
}

/// Whether commands may make user namespaces of their own. They widen what of the kernel can be attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nesting {
    /// They may not.
    #[default]
    Denied,
    /// They may: browsers and some build tools need it.
    Allowed,
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(String);

impl EnvName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an environment variable: it must have letters, and no `=` or zero byte")]
pub struct EnvNameError(String);

crate::text::serde_as_text!(EnvName);

impl FromStr for EnvName {
    type Err = EnvNameError;

    fn from_str(text: &str) -> Result<EnvName, EnvNameError> {
        if text.is_empty() || text.contains(['=', '\0']) {
            return Err(EnvNameError(text.to_string()));
        }
        Ok(EnvName(text.to_string()))
    }
}

//! A sandbox elsewhere: nothing of the host is seen in it.

use super::{Layout, environment};
use belljar_e2b_client::{HOME, USER, WORKSPACE};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{
    Admin, AgentContext, ErrorCode, Hint, Nesting, SandboxError, SandboxSpec, Term, UserName, hint,
};

impl Layout {
    /// Refuses whatever would show something of the host.
    pub(crate) fn remote(spec: &SandboxSpec, context: Option<&AgentContext>) -> Result<Layout, SandboxError> {
        let is_own = matches!(spec.mode, WorkspaceMode::Own(_));
        let native = Term::Backend.to("native");
        let seen: Option<(&str, Hint)> = match spec {
            spec if spec.workspace.is_some() && !is_own => Some((
                "a folder of this machine is not in it",
                hint!("omit {}, and put files in over the API, or use {}", Term::Folder, native),
            )),
            spec if !matches!(spec.mode, WorkspaceMode::Bind | WorkspaceMode::Own(_)) => Some((
                "no clone and no layer of this machine is in it",
                hint!("omit {}, {} and {}, or use {}", Term::Overlay, Term::Branch, Term::Clone, native),
            )),
            spec if !spec.shared.is_empty() => Some((
                "no path of this machine is in it",
                hint!("omit {} and {}, or use {}", Term::Ro, Term::Rw, native),
            )),
            spec if !spec.volumes.is_empty() => {
                Some(("volumes are directories of this machine", hint!("omit `volumes`, or use {}", native)))
            }
            spec if spec.admin == Admin::Root => {
                Some(("commands run as its template's user", hint!("omit `root`, or use {}", native)))
            }
            spec if spec.nesting == Nesting::Allowed => Some((
                "whether commands may make namespaces is its template's to say",
                hint!("omit {}, or use {}", Term::Nested, native),
            )),
            spec if spec.user != UserName::default() && spec.user.as_str() != USER => {
                Some(("its user is `user`", hint!("omit `user`, or use {}", native)))
            }
            _ if context.is_some() => Some((
                "agent context is mounted beside a folder",
                hint!("omit {} and `[agent] context`, or use {}", Term::AgentContext, native),
            )),
            _ => None,
        };
        if let Some((why, hint)) = seen {
            let message = format!("a sandbox of an E2B-compatible service is elsewhere: {why}");
            return Err(ErrorCode::NotSupported.error(message).hint(hint));
        }
        let asked = super::asked_environment(spec);
        let environment = environment::remote(HOME, USER, &asked);
        Ok(Layout { environment, workspace: WORKSPACE.into(), ..Layout::default() })
    }
}

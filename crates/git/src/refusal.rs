//! Why a push does not arrive.

use crate::RefName;
use belljar_spec::ByteSize;
use belljar_spec::egress::is_control;
use belljar_spec::git::{BranchName, RefPattern};
use std::fmt;

/// Why an update is refused: a closed list. The text is one line, made for git's own `! [remote rejected] a -> b (...)`, and says
/// what to do if the user can do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushRefusal {
    /// The policy does not allow this branch.
    Branch { branch: BranchName, allowed: Vec<RefPattern> },
    /// It would be new, and its name has characters that are special to a shell or a terminal.
    Name,
    /// Neither a branch nor a tag.
    NotABranch,
    /// Tags may not be created.
    Tag,
    /// It would be deleted.
    Delete,
    /// It would lose commits.
    Force,
    /// The received objects do not show whether it would lose commits.
    ForceUnknown,
    /// It changes files that a git host's CI runs.
    Workflows,
    /// The received objects do not show whether it changes those files.
    WorkflowsUnknown,
    /// More bytes than the policy allows.
    Bytes { most: ByteSize },
    /// More bytes than the policy allows for all pushes of a sandbox.
    Total { most: ByteSize },
    /// More objects than the policy allows.
    Objects { most: u64 },
    /// The objects are incomplete, malformed or missing. Has git's message.
    Pack { detail: String },
    /// The ref is not at the commit that the client expects.
    Stale,
    /// There is a ref whose name is a parent folder of this one's, or the other way around.
    InTheWay { other: String },
    /// The name is a symbolic ref.
    Symbolic,
    /// The branch to be deleted is in use on the host.
    InUse,
    /// The branch is in use, and this push lacks the commits that landed beside it.
    NotTaken { landed: RefName },
    /// The commands are not what a git client writes.
    Malformed { detail: String },
    /// Another ref of the same push was refused.
    Together,
    /// An error on our side.
    Failed { detail: String },
}

impl PushRefusal {
    /// A code for programs: the same in answers and in the audit log.
    pub fn code(&self) -> &'static str {
        match self {
            PushRefusal::Branch { .. } => "push_branch",
            PushRefusal::Name => "push_name",
            PushRefusal::NotABranch => "push_not_a_branch",
            PushRefusal::Tag => "push_tag",
            PushRefusal::Delete => "push_delete",
            PushRefusal::Force => "push_force",
            PushRefusal::ForceUnknown => "push_force_unknown",
            PushRefusal::Workflows => "push_workflows",
            PushRefusal::WorkflowsUnknown => "push_workflows_unknown",
            PushRefusal::Bytes { .. } => "push_bytes",
            PushRefusal::Total { .. } => "push_total",
            PushRefusal::Objects { .. } => "push_objects",
            PushRefusal::Pack { .. } => "push_pack",
            PushRefusal::Stale => "push_stale",
            PushRefusal::InTheWay { .. } => "push_in_the_way",
            PushRefusal::Symbolic => "push_symbolic",
            PushRefusal::InUse => "push_in_use",
            PushRefusal::NotTaken { .. } => "push_not_taken",
            PushRefusal::Malformed { .. } => "push_malformed",
            PushRefusal::Together => "push_together",
            PushRefusal::Failed { .. } => "push_failed",
        }
    }

    /// What the sandbox's owner can do; an agent cannot.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            PushRefusal::Branch { .. } => Some("[git] push in belljar.toml"),
            PushRefusal::Tag => Some("[git] tags in belljar.toml"),
            PushRefusal::Delete => Some("[git] delete in belljar.toml"),
            PushRefusal::Force | PushRefusal::ForceUnknown => Some("[git] force in belljar.toml"),
            PushRefusal::Workflows | PushRefusal::WorkflowsUnknown => Some("[git] workflows in belljar.toml"),
            PushRefusal::Bytes { .. } | PushRefusal::Total { .. } => Some("[git] bytes in belljar.toml"),
            PushRefusal::Objects { .. } => Some("[git] objects in belljar.toml"),
            PushRefusal::Name
            | PushRefusal::NotABranch
            | PushRefusal::Pack { .. }
            | PushRefusal::Stale
            | PushRefusal::InTheWay { .. }
            | PushRefusal::Symbolic
            | PushRefusal::InUse
            | PushRefusal::NotTaken { .. }
            | PushRefusal::Malformed { .. }
            | PushRefusal::Together
            | PushRefusal::Failed { .. } => None,
        }
    }

    fn what(&self) -> String {
        match self {
            PushRefusal::Branch { branch, allowed } if allowed.is_empty() => {
                format!("branch {branch} may not be pushed from a sandbox; none may")
            }
            PushRefusal::Branch { branch, allowed } => {
                let allowed = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("branch {branch} may not be pushed from a sandbox; allowed: {allowed}")
            }
            PushRefusal::Name => "a new name has letters that a shell or a terminal obeys".to_string(),
            PushRefusal::NotABranch => "only branches may be pushed from a sandbox".to_string(),
            PushRefusal::Tag => "tags may not be pushed from a sandbox".to_string(),
            PushRefusal::Delete => "nothing may be deleted from a sandbox".to_string(),
            PushRefusal::Force => "not a fast-forward: pull, then push again".to_string(),
            PushRefusal::ForceUnknown => {
                "cannot be shown to be a fast-forward; push a merge with the branch as it is".to_string()
            }
            PushRefusal::Workflows => "changes files below .github/workflows".to_string(),
            PushRefusal::WorkflowsUnknown => {
                "cannot be shown to leave .github/workflows as it is".to_string()
            }
            PushRefusal::Bytes { most } => format!("larger than {most}"),
            PushRefusal::Total { most } => format!("all pushes of this sandbox are larger than {most}"),
            PushRefusal::Objects { most } => format!("more than {most} objects"),
            PushRefusal::Pack { detail } => format!("bad pack: {detail}"),
            PushRefusal::Stale => "it moved meanwhile: fetch, then push again".to_string(),
            PushRefusal::InTheWay { other } => format!("`{other}` is in the way: choose another name"),
            PushRefusal::Symbolic => "it stands for another ref: push to that one".to_string(),
            PushRefusal::InUse => "it is checked out on the host".to_string(),
            PushRefusal::NotTaken { landed } => {
                format!(
                    "earlier commits wait at {landed} on the host and are not in this push: build on them"
                )
            }
            PushRefusal::Malformed { detail } => format!("not understood: {detail}"),
            PushRefusal::Together => "refused with another ref of the same push".to_string(),
            PushRefusal::Failed { detail } => format!("belljar failed: {detail}"),
        }
    }
}

impl fmt::Display for PushRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.what();
        if let Some(remedy) = self.remedy() {
            text = format!("{text} ({remedy})");
        }
        // Details are foreign text: made one line, without terminal controls.
        text.chars().take(MAX_LINE_CHARS).try_for_each(|char| match is_control(char) {
            true => write!(f, " "),
            false => write!(f, "{char}"),
        })
    }
}

/// A line that git prints as it is.
const MAX_LINE_CHARS: usize = 400;

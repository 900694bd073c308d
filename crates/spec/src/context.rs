//! What an agent is told beside what its repository says.

/// A file of the workspace as agents see it: what the repository's own says, and behind it what was added for this sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentContext {
    /// Below the workspace.
    pub path: String,
    /// All of it.
    pub text: Vec<u8>,
    /// What is there without it; nothing where there is no such file.
    pub own: Option<Vec<u8>>,
}

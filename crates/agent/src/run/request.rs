//! A run to make.

use crate::adapter::{self, Adapter, Effort, ModelName};
use crate::messages::Messages;
use belljar_spec::{SandboxError, SandboxSpec};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What a caller wants done, by which agent, and where.
pub struct RunRequest {
    pub agent: Agent,
    pub prompt: String,
    /// The conversation that the prompt is the end of, for a program of one's own; empty: the prompt alone.
    pub messages: Messages,
    /// Nothing said, the agent's own choice.
    pub model: Option<ModelName>,
    pub effort: Option<Effort>,
    pub web_search: bool,
    /// What the agent should know beside the folder's own AGENTS.md: names and texts.
    pub context: Vec<(String, String)>,
    /// Files that the prompt comes with.
    pub attached: Vec<Attached>,
    /// Where in the workspace it starts, if not at its top.
    pub cwd: Option<String>,
    /// How long the agent may run; the sandbox's wall time by default.
    pub time: Option<Duration>,
    /// Which conversation goes on. One that does needs the home that it was in.
    pub conversation: Conversation,
    /// Arguments of the agent's own, beside those that belljar gives it.
    pub own_arguments: Vec<OsString>,
    /// Where agents are looked for: PATH, as a rule.
    pub path: OsString,
    /// The place: workspace, egress, credentials, limits. Its route to a model must be set.
    pub sandbox: SandboxSpec,
}

/// A file beside a prompt: an image, a log. Inside it lies in the home, below `attached`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Of the file itself, without its folder.
    pub name: String,
    pub content: Vec<u8>,
}

/// Which conversation a prompt belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Conversation {
    #[default]
    New,
    /// The last one in the agent's home.
    Latest,
    /// This one, as the agent calls it.
    Named(String),
}

/// The agent that is to run.
#[derive(Clone)]
pub enum Agent {
    /// One that belljar knows.
    Known(&'static Adapter),
    /// A program of one's own that keeps the contract of `program`.
    Program(PathBuf),
}

impl Agent {
    /// The one of this name; with a slash in it, a program of one's own.
    pub fn named(name: &str) -> Result<Agent, SandboxError> {
        // A package of npm has a slash too, and is told what it is called here.
        match name.contains('/') && !name.starts_with('@') {
            true => Ok(Agent::Program(PathBuf::from(name))),
            false => adapter::named(name).map(Agent::Known),
        }
    }

    /// As it is named on the command line.
    pub fn name(&self) -> String {
        match self {
            Agent::Known(adapter) => adapter.name.to_string(),
            Agent::Program(path) => path.display().to_string(),
        }
    }
}

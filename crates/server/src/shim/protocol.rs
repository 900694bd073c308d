//! What the daemon and a shim it starts tell each other: one line of JSON each way. Both are the same build.

use super::agent_run::AgentPlan;
use super::contact::Contact;
use belljar_api::{ApiError, RunOnce};
use belljar_fleet::ShimPlan;
use serde::{Deserialize, Serialize};

/// What a shim is to do, when everything was allowed: the first line of its standard input. Requests hold what the profile and the grant
/// say of the sandbox.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plan {
    /// A sandbox that lives until it is stopped, whatever becomes of the daemon.
    Sandbox(Box<ShimPlan>),
    /// One command in a sandbox of its own.
    OneShot(Box<RunOnce>),
    /// One run of an agent.
    AgentRun(Box<AgentPlan>),
}

impl Plan {
    /// Whether it ends with its caller, and its directory with it.
    pub(crate) fn is_run(&self) -> bool {
        match self {
            Plan::Sandbox(_) => false,
            Plan::OneShot(_) | Plan::AgentRun(_) => true,
        }
    }
}

/// What a shim answers: a line of its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The sandbox lives, and is reached like this.
    Ready(Box<Contact>),
    /// The agent runs; its log has this id.
    Run(String),
    /// The one-shot run is over. Its result follows, in so many bytes.
    Result(u64),
    /// There is no sandbox, or no run.
    Error(ApiError),
}

/// The exit code of a shim whose client took nothing of the result for too long.
pub(crate) const UNREAD: u8 = 3;

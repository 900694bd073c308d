//! Several runs in sequence over one workspace: a small file says which, each in a fresh sandbox.
//!
//! ```text
//! file (as written) ─> phases (understood) ─> sequence: run, run, run … until one fails
//! ```
//!
//! What one phase may do says nothing of the next: agent, model, egress, web search, GitHub and budget are each phase's own,
//! with defaults at the top of the file. Open egress has no default: it is chosen by the phase that needs it.

mod answers;
mod file;
mod sequence;
#[cfg(test)]
mod tests;

pub use file::read;
pub use sequence::{Audience, PhaseResult, PhasesResult, run_phases};

use crate::adapter::{Effort, ModelName};
use crate::budget::RunBudget;
use crate::run::Agent;
use belljar_spec::request::{EgressRequest, GitHubRequest, WebSearch};

/// One of them. Every value is one that makes sense by itself.
#[derive(Clone)]
pub struct Phase {
    /// What it is called; no other has the same.
    pub name: String,
    pub agent: Agent,
    /// May name earlier phases, as in `{{plan}}`: there stands what they answered.
    pub prompt: String,
    pub model: Option<ModelName>,
    pub effort: Option<Effort>,
    pub egress: EgressRequest,
    pub web_search: Option<WebSearch>,
    pub github: Option<GitHubRequest>,
    pub budget: RunBudget,
    /// Names and texts.
    pub context: Vec<(String, String)>,
}

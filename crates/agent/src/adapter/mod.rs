//! What belljar knows of each agent: where it is found, how it is started, how it is told where its model is. One file an
//! agent, each a table and two functions.

use crate::parse::Parser;
use belljar_spec::EnvName;
use belljar_spec::llm::UpstreamKind;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An agent that belljar knows.
pub struct Adapter {
    /// As it is named on the command line: `claude`.
    pub name: &'static str,
    /// As people call it.
    pub title: &'static str,
    /// The npm package, and the version that was tried.
    pub package: &'static str,
    pub version: &'static str,
    /// What its program is called.
    pub program: &'static str,
    /// Whether node runs it, and the oldest that does.
    pub node: Option<(u32, u32)>,
    /// In whose words it speaks to a model, best first.
    pub speaks: &'static [UpstreamKind],
    /// How much thought it can be asked for.
    pub efforts: &'static [Effort],
    /// A whole run, without a person.
    pub headless: fn(&Task) -> Setup,
    /// Its own terminal interface.
    pub interactive: fn(&Task) -> Setup,
    pub parser: fn() -> Box<dyn Parser>,
    /// Where below the home it reads what it should know, whatever the folder.
    pub context: &'static str,
}

/// What it is to do, and where.
pub struct Task<'t> {
    /// As a path inside.
    pub program: &'t Path,
    /// Its home inside.
    pub home: &'t str,
    /// Nothing for an interactive one without a first prompt.
    pub prompt: Option<&'t str>,
    pub model: Option<&'t ModelName>,
    pub effort: Option<Effort>,
    pub web_search: bool,
    /// The route to its model inside: `http://127.0.0.1:8080`.
    pub route: &'t str,
    /// What is spoken at the end of the route.
    pub upstream: UpstreamKind,
}

/// What to start, and what has to be there before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    pub argv: Vec<OsString>,
    pub env: Vec<(EnvName, OsString)>,
    /// Files below its home: path and content.
    pub files: Vec<(String, String)>,
    /// What it reads; nothing is an end of file at once.
    pub stdin: Vec<u8>,
}

/// Where an agent was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What to start.
    pub program: PathBuf,
    /// Folders that it needs, to be shown read-only where the sandbox does not see them anyway.
    pub needs: Vec<PathBuf>,
    /// Folders that have to come first in PATH inside: the node that runs it.
    pub path: Vec<PathBuf>,
    pub version: Option<String>,
}

/// `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    pub provider: String,
    /// What comes behind the first slash; may have slashes: `openrouter/anthropic/claude-3`.
    pub model: String,
}

/// How much thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

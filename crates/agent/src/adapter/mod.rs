//! What belljar knows of each agent: where it is found, how it is started, how it is told where its model is. One file an
//! agent, each a table and two functions. Nothing is started here.
//!
//! Whatever the agent, its model is at the other end of the route, and its key is a word that opens nothing. Settings that
//! matter to a run go where a folder's own settings do not reach: arguments, variables, the home.

pub mod catalog;
mod claude;
mod codex;
mod dialect;
mod effort;
mod find;
mod gemini;
mod model;
mod node;
mod opencode;
mod pi;
#[cfg(test)]
mod pinned;
pub mod program;

pub use effort::{Effort, EffortError};
pub use find::find;
pub use model::{ModelName, ModelNameError};

use crate::messages::Message;
use crate::parse::Parser;
use belljar_spec::llm::UpstreamKind;
use belljar_spec::{EnvName, ErrorCode, Printable, SandboxError, Term, hint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Every agent with a name.
pub static ALL: [&Adapter; 5] =
    [&claude::CLAUDE, &codex::CODEX, &opencode::OPENCODE, &pi::PI, &gemini::GEMINI];

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
    /// Where a program of its own lies among npm's packages, if it has one; `CPU` is x64 or arm64, `ARCH` what Rust calls it.
    pub native: &'static [&'static str],
    /// Files that a program without a package needs next to it.
    pub beside: &'static [&'static str],
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
    /// The folder it works in, inside.
    pub workspace: &'t str,
    /// Nothing for an interactive one without a first prompt.
    pub prompt: Option<&'t str>,
    /// The conversation that the prompt is the end of; empty: the prompt alone.
    pub messages: &'t [Message],
    /// Where the files are that the prompt comes with, if there are any.
    pub attached: Option<String>,
    pub model: Option<&'t ModelName>,
    pub effort: Option<Effort>,
    pub web_search: bool,
    /// The route to its model inside: `http://127.0.0.1:14180`.
    pub route: &'t str,
    /// What is spoken at the end of the route.
    pub upstream: UpstreamKind,
    pub resume: Resume<'t>,
    /// What the user tells the agent itself.
    pub own_arguments: &'t [OsString],
}

/// Which conversation of its home goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume<'t> {
    No,
    Latest,
    /// As the agent calls it.
    Named(&'t str),
}

impl<'t> Resume<'t> {
    /// As arguments: one word for the last, a flag before a name.
    fn words(self, latest: &[&'t str], named: &'t str) -> Vec<&'t str> {
        match self {
            Resume::No => Vec::new(),
            Resume::Latest => latest.to_vec(),
            Resume::Named(name) => vec![named, name],
        }
    }
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
    /// What to start; inside it is where it is outside.
    pub program: PathBuf,
    /// Folders and files that it needs, to be shown read-only. What a sandbox sees of every machine is not among them.
    pub needs: Vec<PathBuf>,
    /// Folders that have to come first in PATH inside: the node that runs it.
    pub path: Vec<PathBuf>,
    pub version: Option<String>,
}

/// The agent of this name.
pub fn named(name: &str) -> Result<&'static Adapter, SandboxError> {
    if let Some(known) = ALL.into_iter().find(|known| known.name == name) {
        return Ok(known);
    }
    let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
    // `claude-code`, and the like.
    let longer = |known: &&Adapter| {
        name.strip_prefix(known.name).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    let meant = ALL.into_iter().find(|known| longer(known) || name == known.package).or_else(|| {
        let distance = |known: &&Adapter| strsim::damerau_levenshtein(name, known.name);
        ALL.into_iter().filter(|known| distance(known) <= known.name.len() / 3).min_by_key(distance)
    });
    let message = format!("there is no agent `{}`", Printable::from(name));
    let known = format!(
        "the agents are {}; a program of your own is written with a slash: `./agent`",
        names.join(", ")
    );
    Err(ErrorCode::NameUnknown.error(message).hint(match meant {
        Some(meant) => format!("did you mean `{}`? {known}", meant.name),
        None => known,
    }))
}

impl Adapter {
    /// How it is installed.
    pub fn install(&self) -> String {
        format!("npm install -g {}@{}", self.package, self.version)
    }

    /// Whether it can ask for this model, where this is spoken.
    pub fn can_ask(&self, kind: UpstreamKind, model: Option<&ModelName>) -> Result<(), SandboxError> {
        if !self.speaks.contains(&kind) {
            let kinds: Vec<&str> = self.speaks.iter().map(|kind| kind.as_str()).collect();
            let others = ALL.iter().filter(|other| other.speaks.contains(&kind)).map(|other| other.name);
            let message =
                format!("{} does not speak {kind}, which is what the model's server speaks", self.title);
            return Err(ErrorCode::RequestConflict.error(message).hint(hint!(
                "give it a server that speaks {} ({}, {}), or take another agent: {}",
                kinds.join(" or "),
                Term::LlmUrl.to("URL"),
                Term::LlmKind,
                others.collect::<Vec<_>>().join(", ")
            )));
        }
        match model {
            Some(model) => dialect::is_there(kind, model),
            None => Ok(()),
        }
    }

    /// Whether it can be asked for so much thought.
    pub fn can_think(&self, effort: Effort) -> Result<(), SandboxError> {
        if self.efforts.contains(&effort) {
            return Ok(());
        }
        let message = format!("{} cannot be asked for the effort `{effort}`", self.title);
        let known: Vec<String> = self.efforts.iter().map(Effort::to_string).collect();
        Err(ErrorCode::RequestValue.error(message).hint(match known.is_empty() {
            true => hint!("omit {}: it has no such setting", Term::Effort),
            false => format!("it knows {}", known.join(", ")).into(),
        }))
    }
}

impl Setup {
    fn new(task: &Task, arguments: &[&str]) -> Setup {
        let program = task.program.as_os_str().to_os_string();
        let arguments = arguments.iter().map(OsString::from).chain(task.own_arguments.iter().cloned());
        let argv = std::iter::once(program).chain(arguments).collect();
        Setup { argv, ..Setup::default() }
    }

    fn args<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Setup {
        self.argv.extend(arguments.into_iter().map(Into::into));
        self
    }

    fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Setup {
        let name: EnvName = name.parse().expect("the names in this folder are names of variables");
        self.env.push((name, value.into()));
        self
    }

    fn file(mut self, path: &str, content: impl Into<String>) -> Setup {
        self.files.push((path.to_string(), content.into()));
        self
    }

    /// The prompt on standard input: an argument has a limit of 128 KiB, and every user of the host can read it.
    fn reads_prompt(mut self, task: &Task) -> Setup {
        self.stdin = task.prompt.unwrap_or_default().as_bytes().to_vec();
        self
    }

    /// The prompt as the last argument, whatever it begins with.
    fn takes_prompt(self, task: &Task) -> Setup {
        match task.prompt {
            Some(prompt) => self.args(["--", prompt]),
            None => self,
        }
    }
}

/// What agents hold as their key. Some do not start without one, and it must look like one.
const KEY: &str = "sk-belljar-puts-the-real-key-in-outside";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_agent() {
        for (name, meant) in [
            ("claud", Some("claude")),
            ("claude-code", Some("claude")),
            ("@openai/codex", Some("codex")),
            ("open-code", Some("opencode")),
            ("gemni", Some("gemini")),
            ("aider", None),
            ("pirate", None),
            ("p", None),
        ] {
            let hint = named(name).err().and_then(|error| error.hint).unwrap_or_default().to_string();
            let suggested = hint.strip_prefix("did you mean `").and_then(|rest| rest.split('`').next());
            assert_eq!(suggested, meant, "{name}: {hint}");
        }
        assert_eq!(named("pi").unwrap().title, "pi");
    }

    #[test]
    fn an_agent_is_asked_for_what_it_can() {
        let [claude, codex, opencode, pi, gemini] = ALL;
        let model = |text: &str| -> ModelName { text.parse().unwrap() };
        use UpstreamKind::{Anthropic, Gemini, LiteLlm, OpenAi};
        for (agent, kind, name, can) in [
            (claude, Anthropic, Some("anthropic/claude-sonnet-4-5"), true),
            (claude, Anthropic, None, true),
            (claude, Anthropic, Some("openai/gpt-5"), false),
            (claude, Anthropic, Some("mine/claude-x"), true),
            (claude, OpenAi, None, false),
            (claude, LiteLlm, Some("openai/gpt-5"), true),
            (codex, OpenAi, Some("openrouter/anthropic/claude-3"), true),
            (codex, Anthropic, None, false),
            (opencode, Gemini, Some("google/gemini-2.5-flash"), true),
            (opencode, OpenAi, Some("anthropic/claude-3"), false),
            (pi, LiteLlm, Some("groq/x"), true),
            (gemini, Gemini, Some("gemini/gemini-2.5-flash"), true),
            (gemini, OpenAi, None, false),
        ] {
            let name = name.map(model);
            assert_eq!(agent.can_ask(kind, name.as_ref()).is_ok(), can, "{} {kind} {name:?}", agent.name);
        }
        let error = codex.can_ask(Anthropic, None).unwrap_err();
        assert_eq!(error.message, "Codex does not speak anthropic, which is what the model's server speaks");
        assert_eq!(
            error.hint.unwrap().to_string(),
            "give it a server that speaks openai or litellm (`llm.url: URL`, `llm.kind`), or take another agent: claude, opencode, pi"
        );
    }

    #[test]
    fn effort_is_refused_with_what_there_is() {
        let [claude, codex, .., gemini] = ALL;
        assert!(codex.can_think(Effort::Minimal).is_ok());
        let error = claude.can_think(Effort::Minimal).unwrap_err();
        assert_eq!(error.message, "Claude Code cannot be asked for the effort `minimal`");
        assert_eq!(error.hint.unwrap().to_string(), "it knows off, low, medium, high, xhigh");
        assert_eq!(
            gemini.can_think(Effort::Low).unwrap_err().hint.unwrap().to_string(),
            "omit `effort`: it has no such setting"
        );
    }
}

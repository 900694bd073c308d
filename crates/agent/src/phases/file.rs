//! A file of phases: as it was written, and what it means. Whatever is wrong in it is said with its line, before the first
//! phase starts.

use super::{Phase, answers};
use crate::input;
use crate::opened::Named;
use crate::run::Agent;
use belljar_config::TomlText;
use belljar_overlay::quote;
use belljar_spec::egress::Mode;
use belljar_spec::request::{EgressRequest, GitHubRequest, WebSearch};
use belljar_spec::{CommandLine, SandboxError, hint};
use serde::Deserialize;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;

/// The phases of a file that a person named. What it names itself is looked for beneath its folder, and nowhere else: an agent
/// that works there could have written it.
pub fn read(path: &Path) -> Result<Vec<Phase>, SandboxError> {
    let content = input::named(path, MAX, "phases").map_err(|error| {
        let message = format!("the phases are not read: {}", error.message);
        error
            .with_message(message)
            .hint(hint!("name a file in TOML; {} has one", CommandLine::Help.of("agents")))
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    understand(&TomlText { name: &shown(path), content: &content }, folder)
}

/// What may stand in a file, at its top as a default and below `[[phase]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    phase: Vec<Spanned<Table>>,
    name: Option<Spanned<String>>,
    prompt: Option<Spanned<String>>,
    prompt_file: Option<Spanned<String>>,
    agent: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    effort: Option<Spanned<String>>,
    egress: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
    groups: Option<Vec<Spanned<String>>>,
    inspect: Option<bool>,
    web_search: Option<Spanned<Search>>,
    github: Option<Spanned<String>>,
    github_repos: Option<Vec<Spanned<String>>>,
    budget: Option<Spanned<String>>,
    context: Option<Vec<Spanned<String>>>,
}

/// `true`, `false`, or who searches.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, or the name of who searches")]
enum Search {
    Switch(bool),
    By(String),
}

pub(super) fn understand(text: &TomlText<'_>, folder: &Path) -> Result<Vec<Phase>, SandboxError> {
    let mut defaults: Table = text.parse(correction)?;
    let tables = std::mem::take(&mut defaults.phase);
    for (written, key) in
        [(&defaults.name, "name"), (&defaults.prompt, "prompt"), (&defaults.prompt_file, "prompt_file")]
    {
        if let Some(written) = written {
            let what = format!("`{key}` belongs to one phase");
            return Err(fault(text, written, what).hint("write it below `[[phase]]`"));
        }
    }
    if let Some(egress) = defaults.egress.as_ref().filter(|egress| egress.get_ref() == "open") {
        let what = "open egress is chosen by the phase that needs it, and is no default";
        return Err(fault(text, egress, what).hint("write `egress = \"open\"` below that `[[phase]]`"));
    }
    if tables.is_empty() {
        return Err(text.fault(0, "there is no phase").hint(EXAMPLE));
    }
    if let Some(inner) = tables.iter().find_map(|table| table.get_ref().phase.first()) {
        return Err(
            fault(text, inner, "a phase has no phases").hint("write `[[phase]]`, one after the other")
        );
    }
    let mut phases: Vec<Phase> = Vec::new();
    for table in &tables {
        let reader =
            Reader { text, folder, at: table.span().start, own: table.get_ref(), defaults: &defaults };
        let phase = reader.phase()?;
        if phases.iter().any(|other| other.name == phase.name) {
            let what = format!("there is another phase `{}`", phase.name);
            return Err(text.fault(table.span().start, what).hint("give it another name"));
        }
        phases.push(phase);
    }
    for (at, phase) in phases.iter().enumerate() {
        if let Some(later) =
            answers::named(&phase.prompt).find(|name| phases[at..].iter().any(|one| one.name == *name))
        {
            let what = format!(
                "the prompt of `{}` wants the answer of `{later}`, which has not run by then",
                phase.name
            );
            return Err(text.fault(tables[at].span().start, what).hint("name a phase that stands before it"));
        }
    }
    Ok(phases)
}

/// One phase, with what the top of the file says where it says nothing itself.
struct Reader<'r> {
    text: &'r TomlText<'r>,
    folder: &'r Path,
    /// Where it begins.
    at: usize,
    own: &'r Table,
    defaults: &'r Table,
}

impl Reader<'_> {
    fn phase(&self) -> Result<Phase, SandboxError> {
        let (own, defaults) = (self.own, self.defaults);
        let name = own.name.as_ref().ok_or_else(|| self.missing("a phase has no name", "name = \"plan\""))?;
        if !is_name(name.get_ref()) {
            let what = format!("`{}` is not the name of a phase", name.get_ref().escape_debug());
            return Err(fault(self.text, name, what).hint("write letters, digits, `-` and `_`"));
        }
        let agent = own.agent.as_ref().or(defaults.agent.as_ref());
        let agent = agent.ok_or_else(|| self.missing("no agent is named", "agent = \"claude\""))?;
        let agent = Agent::named(agent.get_ref().as_ref()).map_err(|error| self.moved(agent, error))?;
        Ok(Phase {
            name: name.get_ref().clone(),
            agent,
            prompt: self.prompt()?,
            model: self.value(own.model.as_ref().or(defaults.model.as_ref()))?,
            effort: self.value(own.effort.as_ref().or(defaults.effort.as_ref()))?,
            egress: self.egress()?,
            web_search: self.web_search()?,
            github: self.github()?,
            budget: self.value(own.budget.as_ref().or(defaults.budget.as_ref()))?.unwrap_or_default(),
            context: self.context()?,
        })
    }

    fn prompt(&self) -> Result<String, SandboxError> {
        match (&self.own.prompt, &self.own.prompt_file) {
            (Some(_), Some(file)) => {
                let what = "a phase has one prompt, and this one has two";
                Err(fault(self.text, file, what).hint("take `prompt` or `prompt_file` away"))
            }
            (None, None) => {
                Err(self.missing("a phase has no prompt", "prompt = \"...\"` or `prompt_file = \"FILE\""))
            }
            (Some(prompt), None) => input::prompt(prompt.get_ref().clone().into_bytes(), "`prompt`")
                .map_err(|error| self.moved(prompt, error)),
            (None, Some(file)) => {
                let named = Named::ByFileOf(self.folder);
                input::prompt_named(named, file.get_ref().as_ref()).map_err(|error| self.moved(file, error))
            }
        }
    }

    fn egress(&self) -> Result<EgressRequest, SandboxError> {
        let (own, defaults) = (self.own, self.defaults);
        Ok(EgressRequest {
            mode: self.value::<Mode>(own.egress.as_ref().or(defaults.egress.as_ref()))?,
            allow: self.list(own.allow.as_ref().or(defaults.allow.as_ref()), str::parse)?,
            deny: Vec::new(),
            groups: self.list(own.groups.as_ref().or(defaults.groups.as_ref()), str::parse)?,
            host_ports: Vec::new(),
            inspect: own.inspect.or(defaults.inspect).unwrap_or_default(),
        })
    }

    fn web_search(&self) -> Result<Option<WebSearch>, SandboxError> {
        let Some(written) = self.own.web_search.as_ref().or(self.defaults.web_search.as_ref()) else {
            return Ok(None);
        };
        match written.get_ref() {
            Search::Switch(false) => Ok(None),
            Search::Switch(true) => Ok(Some(WebSearch::IfStored)),
            Search::By(name) => match name.parse() {
                Ok(name) => Ok(Some(WebSearch::Named(name))),
                Err(error) => Err(fault(self.text, written, error)),
            },
        }
    }

    fn github(&self) -> Result<Option<GitHubRequest>, SandboxError> {
        let (own, defaults) = (self.own, self.defaults);
        let repositories =
            self.list(own.github_repos.as_ref().or(defaults.github_repos.as_ref()), str::parse)?;
        let profile = self.value(own.github.as_ref().or(defaults.github.as_ref()))?;
        Ok(profile.map(|profile| GitHubRequest { profile, repositories }))
    }

    fn context(&self) -> Result<Vec<(String, String)>, SandboxError> {
        let mut known = Vec::new();
        for path in self.own.context.as_ref().or(self.defaults.context.as_ref()).into_iter().flatten() {
            input::context_named(Named::ByFileOf(self.folder), path.get_ref().as_ref(), &mut known)
                .map_err(|error| self.moved(path, error))?;
        }
        Ok(known)
    }

    fn value<T: FromStr<Err: Display>>(
        &self,
        written: Option<&Spanned<String>>,
    ) -> Result<Option<T>, SandboxError> {
        let parsed = |written: &Spanned<String>| {
            written.get_ref().parse().map_err(|error| fault(self.text, written, error))
        };
        written.map(parsed).transpose()
    }

    fn list<T, E: Display>(
        &self,
        written: Option<&Vec<Spanned<String>>>,
        understand: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, SandboxError> {
        let one = |written: &Spanned<String>| {
            understand(written.get_ref()).map_err(|error| fault(self.text, written, error))
        };
        written.into_iter().flatten().map(one).collect()
    }

    fn missing(&self, what: &str, example: &str) -> SandboxError {
        self.text.fault(self.at, what).hint(format!("write `{example}` below `[[phase]]`"))
    }

    /// An error about what stands at a place, with that place.
    fn moved<T>(&self, written: &Spanned<T>, error: SandboxError) -> SandboxError {
        let message = self.text.fault(written.span().start, &error.message).message;
        error.with_message(message)
    }
}

fn fault<T>(text: &TomlText<'_>, written: &Spanned<T>, what: impl Display) -> SandboxError {
    text.fault(written.span().start, what)
}

pub(super) fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(fits)
}

fn correction(message: &str) -> &'static str {
    if message.contains("expected a sequence") {
        "write a list, as in `[\"example.com\"]`, and each phase below a `[[phase]]` of its own"
    } else if message.contains("expected a string") {
        "write text in quotes"
    } else {
        EXAMPLE
    }
}

fn shown(path: &Path) -> String {
    quote::name(path.as_os_str().as_bytes())
}

/// Far more than a person writes by hand.
const MAX: u64 = 1 << 20;
const EXAMPLE: &str = "a phase is `[[phase]]`, and below it `name`, `agent` and `prompt`";

//! From a request's words to a sandbox: each word is understood here, and what files have to say of it is added by the engine, as for
//! words of a command line. Called by keepers, and by whoever wants to know beforehand whether a request makes sense.

mod words;
mod workspace;

use crate::Place;
use belljar_api::{EgressRequest, GitHubRequest, LimitsRequest, LlmRequest, SandboxRequest};
use belljar_engine::asked::{Asked, Value};
use belljar_engine::config::{
    self, CredentialFlags, EgressFlags, GitHubFlags, LlmFlags, LlmWhere, Note, SandboxSettings, WebSearch,
};
use belljar_spec::egress::{Rule, RuleSource};
use belljar_spec::secret::SecretRef;
use belljar_spec::{
    Admin, Kept, LimitsSpec, Nesting, SandboxError, SandboxId, SandboxSpec, Volume, VolumeName, VolumePath,
    parse_time,
};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use words::{conflict, each, optional, refused, word};

/// Whose request it is, and where that sandbox is kept.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub name: String,
    pub key: String,
    /// The name of this life; without one a new one is made.
    pub id: Option<SandboxId>,
    /// Stays when nobody holds it: its home is kept.
    pub persistent: bool,
    /// Where it is kept.
    pub place: Place,
    /// Where volumes are kept.
    pub volumes: PathBuf,
}

/// A request that makes sense.
#[derive(Debug)]
pub struct Understood {
    pub spec: SandboxSpec,
    /// Ports inside that can be reached from outside: those that were asked for, and those of a trusted repository's file.
    pub ports: Vec<u16>,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// The sandbox that a request means. Nothing is made: what it needs below `surroundings` is made when it starts.
pub fn understand(request: &SandboxRequest, surroundings: &Surroundings) -> Result<Understood, SandboxError> {
    let mut asked = asked(request, surroundings)?;
    let mut opened = request.ports.clone();
    if let Some(folder) = &asked.folder {
        // What is wrong with a file is said when all of it is read.
        let written = config::load(Some(folder), EgressFlags::default()).map(|loaded| loaded.sandbox());
        let SandboxSettings { ports, volumes, .. } = written.unwrap_or_default();
        opened.extend(ports);
        // What other sandboxes can write is not where an administrator works.
        let volumes = if request.admin { Vec::new() } else { volumes };
        let unsaid =
            |(_, target): &(VolumeName, VolumePath)| asked.volumes.iter().all(|said| said.target != *target);
        let own = volumes.into_iter().filter(unsaid);
        let own = own
            .map(|(name, target)| Volume { source: of_folder(&surroundings.volumes, &name, folder), target });
        let own: Vec<Volume> = own.collect();
        asked.volumes.extend(own);
    }
    let ports = ports(&opened)?;
    let (spec, notes) = asked.understand()?;
    Ok(Understood { spec, ports, notes })
}

/// Where a volume of a repository's own is kept. Another repository's of the same name is another one: what one agent puts
/// there, no other should find.
pub fn of_folder(volumes: &Path, name: &VolumeName, folder: &Path) -> PathBuf {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let hash = Sha256::digest(real.as_os_str().as_bytes());
    volumes.join(format!("{name}.{}", HEXLOWER.encode(&hash[..6])))
}

/// The same, before files have a say in it.
pub fn asked(request: &SandboxRequest, surroundings: &Surroundings) -> Result<Asked, SandboxError> {
    let Surroundings { name, key, id, persistent, place, volumes } = surroundings;
    if request.admin && !request.volumes.is_empty() {
        let why = "an administrator's sandbox has none: other sandboxes can write there, and it may change what they may not";
        return Err(conflict("volumes", why));
    }
    let files = workspace::understand(&request.workspace, place)?;
    Ok(Asked {
        id: *id,
        backend: optional("backend", &request.backend)?.unwrap_or_default(),
        at_least: optional("at_least", &request.at_least)?,
        root: optional("rootfs", &request.rootfs)?,
        folder: files.folder,
        mode: files.mode,
        git: files.git,
        protect: files.protect,
        agent_context: files.agent_context,
        push: files.push,
        workspace_path: files.path,
        shared: files.shared,
        env: env(&request.env)?,
        limits: limits(&request.limits)?,
        nesting: if request.nested { Nesting::Allowed } else { Nesting::Denied },
        egress: egress(&request.egress)?,
        secrets: secrets(request)?,
        llm: request.llm.as_ref().map(llm).transpose()?.unwrap_or_default(),
        kept: Some(Kept { name: name.clone(), key: key.clone() }),
        volumes: mounted(&request.volumes, volumes)?,
        home: persistent.then(|| place.home()),
        admin: admin(request)?,
    })
}

fn env(variables: &BTreeMap<String, String>) -> Result<Vec<(belljar_spec::EnvName, Value)>, SandboxError> {
    let one = |(name, value): (&String, &String)| {
        let field = format!("env.{name}");
        let name = word("env", name)?;
        if value.contains('\0') {
            return Err(refused(&field, "a variable cannot hold a zero byte"));
        }
        Ok((name, Value::parse(value.into()).map_err(|error| refused(&field, error))?))
    };
    variables.iter().map(one).collect()
}

fn limits(request: &LimitsRequest) -> Result<LimitsSpec, SandboxError> {
    let LimitsRequest { memory, cpus, pids, open_files, disk, timeout, output, ready } = request;
    let time = |field: &str, text: &Option<String>| {
        text.as_ref().map(|text| parse_time(text).map_err(|error| refused(field, error))).transpose()
    };
    if *pids == Some(0) {
        return Err(refused("limits.pids", "a sandbox has one process at least"));
    }
    if open_files.is_some_and(|number| number < 3) {
        return Err(refused("limits.open_files", "a process has three open files at least"));
    }
    let ready = time("limits.ready", ready)?;
    if ready.is_some_and(|ready| ready > MOST_READY) {
        return Err(refused("limits.ready", "a sandbox that takes longer than 10 minutes is not waited for"));
    }
    Ok(LimitsSpec {
        memory: optional("limits.memory", memory)?,
        cpus: optional("limits.cpus", cpus)?,
        pids: *pids,
        open_files: *open_files,
        disk: optional("limits.disk", disk)?,
        wall_time: time("limits.timeout", timeout)?,
        output: optional("limits.output", output)?,
        ready,
    })
}

fn egress(request: &EgressRequest) -> Result<EgressFlags, SandboxError> {
    let EgressRequest { mode, allow, deny, groups, inspect } = request;
    let rules = |field: &str, texts: &[String], rule: fn(&str, RuleSource) -> Result<Rule, _>| {
        let one = |text: &String| rule(text, RuleSource::Program).map_err(|error| refused(field, error));
        texts.iter().map(one).collect::<Result<Vec<Rule>, SandboxError>>()
    };
    Ok(EgressFlags {
        mode: optional("egress.mode", mode)?,
        allow: rules("egress.allow", allow, Rule::allow)?,
        deny: rules("egress.deny", deny, Rule::deny)?,
        groups: each("egress.groups", groups)?,
        inspect: *inspect,
    })
}

fn secrets(request: &SandboxRequest) -> Result<CredentialFlags, SandboxError> {
    let web_search = match request.web_search.as_deref() {
        None => None,
        Some("auto") => Some(WebSearch::Detect),
        Some(named) => Some(WebSearch::Named(word("web_search", named)?)),
    };
    let github = |GitHubRequest { profile, repositories }: &GitHubRequest| {
        Ok::<_, SandboxError>(GitHubFlags {
            profile: word("github.profile", profile)?,
            repositories: each("github.repositories", repositories)?,
            // What a sandbox would hold itself is for the person at the machine to give.
            danger_forward_key: false,
        })
    };
    Ok(CredentialFlags {
        secrets: each("secrets", &request.secrets)?,
        web_search,
        variables: Vec::new(),
        forward: Vec::new(),
        github: request.github.as_ref().map(github).transpose()?,
    })
}

fn llm(request: &LlmRequest) -> Result<LlmFlags, SandboxError> {
    let LlmRequest { url, key, kind, models, budget } = request;
    let key: Option<SecretRef> = optional("llm.key", key)?;
    // A variable or a file of the daemon is nothing that a caller could name: it would be sent wherever `url` says.
    if key.as_ref().is_some_and(|key| !matches!(key, SecretRef::Vault(_))) {
        return Err(refused("llm.key", "only what is kept in the vault opens a model: write `secret:NAME`"));
    }
    Ok(LlmFlags {
        to: optional::<LlmWhere>("llm.url", url)?,
        key,
        kind: optional("llm.kind", kind)?,
        models: each("llm.models", models)?,
        budget: optional("llm.budget", budget)?.unwrap_or_default(),
    })
}

/// Each is reached once, by its number.
fn ports(asked: &[u16]) -> Result<Vec<u16>, SandboxError> {
    if asked.contains(&0) {
        return Err(refused("ports", "there is no port 0"));
    }
    let mut ports = asked.to_vec();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn mounted(volumes: &BTreeMap<String, String>, kept_at: &Path) -> Result<Vec<Volume>, SandboxError> {
    let one = |(name, target): (&String, &String)| {
        let name: VolumeName = word("volumes", name)?;
        let target = word(&format!("volumes.{name}"), target)?;
        Ok(Volume { source: kept_at.join(name.as_str()), target })
    };
    let mut all = volumes.iter().map(one).collect::<Result<Vec<Volume>, SandboxError>>()?;
    all.sort_by(|a, b| a.target.cmp(&b.target));
    if let Some(twice) = all.windows(2).find(|pair| pair[0].target == pair[1].target) {
        return Err(conflict("volumes", &format!("two volumes cannot both be at `{}`", twice[0].target)));
    }
    Ok(all)
}

fn admin(request: &SandboxRequest) -> Result<Admin, SandboxError> {
    match (request.admin, request.root) {
        (false, false) => Ok(Admin::No),
        (true, false) => Ok(Admin::User),
        (true, true) => Ok(Admin::Root),
        (false, true) => Err(conflict("root", "only an administrator is root inside: `root` needs `admin`")),
    }
}

/// Longer than any image takes to start, and not so long that somebody who has gone is waited for.
const MOST_READY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;

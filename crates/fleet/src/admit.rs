//! A request beside the rules of a grant.
//!
//! Two steps, since a profile comes between them. [`admit`] judges what the caller wrote: folders, names, secrets, volumes, and what
//! only the owner may say. A profile that was granted may then add what the caller could not have asked for. [`confine`] judges the
//! sum: modes of egress and ceilings hold whoever asked.

use crate::caller::means;
use belljar_api::{EgressRequest, GrantRules, LimitsRequest, LlmRequest, SandboxRequest, WorkspaceRequest};
use belljar_spec::egress::{HostPattern, Mode, Rule, RuleSource, group};
use belljar_spec::{
    Assurance, BackendChoice, BackendName, ByteSize, Cpus, Limits, LimitsSpec, Root, SandboxError, parse_time,
};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// What the caller wrote.
pub(crate) fn admit(rules: &GrantRules, mut asked: SandboxRequest) -> Result<SandboxRequest, SandboxError> {
    // Taken apart, so that a word that is new is not let through unseen.
    let SandboxRequest {
        backend,
        at_least: _,
        rootfs,
        workspace,
        egress,
        llm,
        secrets,
        web_search,
        github,
        env,
        limits: _,
        ports: _,
        nested,
        volumes,
        admin,
        root,
    } = &mut asked;
    wall(backend.as_deref())?;
    root_of_its_own(rules, rootfs.as_deref())?;
    let is_route = |llm: &LlmRequest| llm.key.is_some() || llm.url.as_ref().is_some_and(|url| url != "off");
    for (is_asked, field) in [
        (*nested, "nested"),
        (*admin, "admin"),
        (*root, "root"),
        (github.is_some(), "github"),
        // A key of this machine would go wherever the caller says.
        (llm.as_ref().is_some_and(is_route), "llm.url"),
    ] {
        if is_asked {
            return Err(for_the_owner(field));
        }
    }
    if llm.as_ref().is_some_and(|llm| llm.url.is_none()) && !rules.allow_llm {
        return Err(SandboxError::policy("llm_not_granted", "this grant does not allow routes to models"));
    }
    folders(rules, workspace)?;
    names(rules, egress)?;
    let variables = env.values().filter_map(|value| value.strip_prefix("secret:"));
    let searches = web_search.iter().map(|name| if name == "auto" { "*" } else { name });
    for secret in secrets.iter().map(String::as_str).chain(variables).chain(searches) {
        if !rules.secrets.iter().any(|pattern| means(pattern, secret)) {
            return Err(over("secret_not_granted", "secrets", secret));
        }
    }
    for volume in volumes.keys() {
        if !rules.volumes.iter().any(|pattern| means(pattern, volume)) {
            return Err(over("volume_not_granted", "volumes", volume));
        }
    }
    Ok(asked)
}

/// What will be made.
pub(crate) fn confine(
    rules: &GrantRules,
    mut made: SandboxRequest,
    has_wall: bool,
) -> Result<SandboxRequest, SandboxError> {
    let modes = modes(rules)?;
    let mode = match &made.egress.mode {
        _ if !has_wall => Mode::Open,
        Some(mode) => understood::<Mode>("egress.mode", mode)?,
        // What the machine's own settings say may be wider than the grant.
        None if modes.contains(&Mode::Strict) => Mode::Strict,
        None => Mode::None,
    };
    if !modes.contains(&mode) {
        let allowed: Vec<&str> = modes.iter().map(|mode| mode.as_str()).collect();
        let message = format!("this grant does not allow the egress mode `{mode}`");
        return Err(SandboxError::policy("egress_not_granted", message)
            .hint(format!("it allows {}", allowed.join(", "))));
    }
    if has_wall {
        made.egress.mode = Some(mode.as_str().into());
    }
    made.limits = within(&rules.limits, made.limits)?;
    Ok(made)
}

/// A weaker wall than the namespaces is a profile's to choose, and the owner's.
fn wall(backend: Option<&str>) -> Result<(), SandboxError> {
    if let Some(backend) = backend
        && let BackendChoice::Named(name) = understood::<BackendChoice>("backend", backend)?
        && name.assurance() < Assurance::Namespace
    {
        return Err(for_the_owner("backend"));
    }
    Ok(())
}

/// A directory shows files of the host, and an image is fetched by the host from wherever its name says.
fn root_of_its_own(rules: &GrantRules, rootfs: Option<&str>) -> Result<(), SandboxError> {
    match rootfs.map(|text| understood::<Root>("rootfs", text)).transpose()? {
        None | Some(Root::Host | Root::Golden) => Ok(()),
        Some(Root::Directory(_)) => Err(for_the_owner("rootfs")),
        Some(Root::Image(image)) => {
            let image = image.to_string();
            let is_granted = rules.images.iter().any(|pattern| means(pattern, &image));
            if is_granted { Ok(()) } else { Err(over("image_not_granted", "rootfs", &image)) }
        }
    }
}

fn folders(rules: &GrantRules, asked: &mut WorkspaceRequest) -> Result<(), SandboxError> {
    let WorkspaceRequest {
        folder,
        overlay: _,
        branch,
        clone,
        depth: _,
        same_path: _,
        ro,
        rw,
        protect: _,
        push: _,
        share_git,
        agent_context,
    } = asked;
    if *share_git {
        return Err(for_the_owner("workspace.share_git"));
    }
    if !agent_context.is_empty() {
        return Err(for_the_owner("workspace.agent_context"));
    }
    if clone.is_some() {
        return Err(for_the_owner("workspace.clone"));
    }
    let granted = Folders::of(rules);
    let named = folder.iter_mut().map(|path| ("workspace.folder", path));
    let read = ro.iter_mut().map(|path| ("workspace.ro", path));
    let written = rw.iter_mut().map(|path| ("workspace.rw", path));
    for (field, path) in named.chain(read).chain(written) {
        *path = granted.judge(field, path)?;
    }
    match (branch, folder) {
        (Some(_), Some(folder)) => granted.judge_repository(Path::new(folder)),
        _ => Ok(()),
    }
}

/// What the owner asked for, with the folders as they really are: what is used later is what was named now.
pub(crate) fn as_they_are(mut asked: SandboxRequest) -> SandboxRequest {
    let WorkspaceRequest { folder, ro, rw, .. } = &mut asked.workspace;
    for path in folder.iter_mut().chain(ro).chain(rw) {
        // What is wrong with one is said by whoever uses it.
        let real = Path::new(&*path).is_absolute().then(|| Path::new(&*path).canonicalize().ok()).flatten();
        if let Some(real) = real.and_then(|real| real.into_os_string().into_string().ok()) {
            *path = real;
        }
    }
    if let Some(root) = asked.rootfs.as_mut().filter(|root| root.starts_with('/'))
        && let Some(real) =
            Path::new(&*root).canonicalize().ok().and_then(|real| real.into_os_string().into_string().ok())
    {
        *root = real;
    }
    asked
}

fn modes(rules: &GrantRules) -> Result<Vec<Mode>, SandboxError> {
    if rules.egress.is_empty() {
        return Ok(vec![Mode::None, Mode::Strict]);
    }
    let mut modes = vec![Mode::None];
    for mode in &rules.egress {
        modes.push(understood("egress", mode)?);
    }
    Ok(modes)
}

/// Names are asked for in strict mode; in open mode they open nothing, and are judged all the same.
fn names(rules: &GrantRules, asked: &EgressRequest) -> Result<(), SandboxError> {
    for text in &asked.allow {
        let rule = Rule::allow(text, RuleSource::Program).map_err(|error| wrong("egress.allow", error))?;
        covered(rules, "egress.allow", &rule.host)?;
    }
    for name in &asked.groups {
        let group =
            group(name).ok_or_else(|| wrong("egress.groups", format!("there is no group `{name}`")))?;
        for rule in group.rules() {
            covered(rules, "egress.groups", &rule.host)?;
        }
    }
    Ok(())
}

fn covered(rules: &GrantRules, field: &str, host: &HostPattern) -> Result<(), SandboxError> {
    for pattern in &rules.hosts {
        if pattern == "*" {
            return Ok(());
        }
        let covers = match (understood::<HostPattern>("hosts", pattern)?, host) {
            (HostPattern::Subtree(apex), asked) => asked.name().is_within(&apex),
            (HostPattern::Exact(exact), HostPattern::Exact(asked)) => exact == *asked,
            (HostPattern::Exact(_), HostPattern::Subtree(_)) => false,
        };
        if covers {
            return Ok(());
        }
    }
    Err(over("host_not_granted", field, &host.to_string()))
}

/// Folders that were granted, as they really are.
struct Folders(Vec<PathBuf>);

impl Folders {
    fn of(rules: &GrantRules) -> Folders {
        Folders(rules.folders.iter().filter_map(|folder| Path::new(folder).canonicalize().ok()).collect())
    }

    /// The real path of one that was asked for. What is not there and what may not be seen are told alike.
    fn judge(&self, field: &str, asked: &str) -> Result<String, SandboxError> {
        let real = Path::new(asked).is_absolute().then(|| Path::new(asked).canonicalize().ok()).flatten();
        let granted = real.filter(|real| self.0.iter().any(|folder| real.starts_with(folder)));
        granted
            .and_then(|real| real.into_os_string().into_string().ok())
            .ok_or_else(|| over("folder_not_granted", field, asked))
    }

    /// A branch is one of the whole repository that a folder lies in, with all its files.
    fn judge_repository(&self, folder: &Path) -> Result<(), SandboxError> {
        let top = folder.ancestors().find(|part| part.join(".git").symlink_metadata().is_ok());
        match top.filter(|top| !self.0.iter().any(|granted| top.starts_with(granted))) {
            None => Ok(()),
            Some(_) => Err(over("folder_not_granted", "workspace.branch", &folder.display().to_string())),
        }
    }
}

fn within(ceilings: &LimitsRequest, asked: LimitsRequest) -> Result<LimitsRequest, SandboxError> {
    // Taken apart, so that a limit that is new is not let through unseen.
    let LimitsRequest { memory, cpus, pids, open_files, disk, timeout, output, ready } = asked;
    Ok(LimitsRequest {
        memory: lowest::<ByteSize>("limits.memory", memory, &ceilings.memory)?,
        cpus: lowest::<Cpus>("limits.cpus", cpus, &ceilings.cpus)?,
        pids: lower("limits.pids", pids, ceilings.pids)?,
        open_files: lower("limits.open_files", open_files, ceilings.open_files)?,
        disk: lowest::<ByteSize>("limits.disk", disk, &ceilings.disk)?,
        timeout: lowest::<Time>("limits.timeout", timeout, &ceilings.timeout)?,
        output: lowest::<ByteSize>("limits.output", output, &ceilings.output)?,
        ready: lowest::<Time>("limits.ready", ready, &ceilings.ready)?,
    })
}

/// What was asked for, if it is not too much; the ceiling, if nothing was.
fn lower<N: Display + PartialOrd>(
    field: &str,
    asked: Option<N>,
    ceiling: Option<N>,
) -> Result<Option<N>, SandboxError> {
    match (asked, ceiling) {
        (Some(asked), Some(ceiling)) if asked > ceiling => {
            Err(too_much(field, &asked.to_string(), &ceiling.to_string()))
        }
        (asked, ceiling) => Ok(asked.or(ceiling)),
    }
}

/// What a command says of itself, where it is told with its sandbox. Left out, the sandbox's limits are its own.
pub(crate) fn command_within(
    ceilings: &LimitsRequest,
    timeout_s: Option<u64>,
    max_output: Option<u64>,
) -> Result<(), SandboxError> {
    if let (Some(seconds), Some(ceiling)) = (timeout_s, &ceilings.timeout)
        && Duration::from_secs(seconds) > understood::<Time>("limits.timeout", ceiling)?.0
    {
        return Err(too_much("timeout_s", &seconds.to_string(), ceiling));
    }
    if let (Some(bytes), Some(ceiling)) = (max_output, &ceilings.output)
        && ByteSize::bytes(bytes) > understood::<ByteSize>("limits.output", ceiling)?
    {
        return Err(too_much("max_output", &bytes.to_string(), ceiling));
    }
    Ok(())
}

/// The same, of what is written in words.
fn lowest<T>(
    field: &str,
    asked: Option<String>,
    ceiling: &Option<String>,
) -> Result<Option<String>, SandboxError>
where
    T: FromStr<Err: Display> + PartialOrd,
{
    match (asked, ceiling) {
        (Some(asked), Some(ceiling))
            if understood::<T>(field, &asked)? > understood::<T>(field, ceiling)? =>
        {
            Err(too_much(field, &asked, ceiling))
        }
        (asked, ceiling) => Ok(asked.or_else(|| ceiling.clone())),
    }
}

#[derive(PartialEq, PartialOrd)]
struct Time(Duration);

impl FromStr for Time {
    type Err = belljar_spec::ParseQuantityError;

    fn from_str(text: &str) -> Result<Time, Self::Err> {
        parse_time(text).map(Time)
    }
}

/// Whether the rules make sense, asked when a grant is made and not when it is used.
pub(crate) fn check(rules: &GrantRules) -> Result<(), SandboxError> {
    modes(rules)?;
    for host in rules.hosts.iter().filter(|host| *host != "*") {
        understood::<HostPattern>("hosts", host)?;
    }
    for folder in &rules.folders {
        if !Path::new(folder).is_absolute() {
            return Err(wrong("folders", format!("`{folder}` is not an absolute path")));
        }
    }
    let LimitsRequest { memory, cpus, pids: _, open_files: _, disk, timeout, output, ready } = &rules.limits;
    for (field, size) in [("limits.memory", memory), ("limits.disk", disk), ("limits.output", output)] {
        size.as_ref().map(|size| understood::<ByteSize>(field, size)).transpose()?;
    }
    cpus.as_ref().map(|cpus| understood::<Cpus>("limits.cpus", cpus)).transpose()?;
    for (field, time) in [("limits.timeout", timeout), ("limits.ready", ready)] {
        time.as_ref().map(|time| understood::<Time>(field, time)).transpose()?;
    }
    Ok(())
}

/// Whether the limits can be held on this machine: a grant whose every request fails is not made. Docker holds them by itself.
pub(crate) fn can_be_held(limits: &LimitsRequest) -> Result<(), SandboxError> {
    let unheld = not_held(limits)?;
    let by_docker = || {
        let mut walls = belljar_engine::Engine::new().walls().into_iter();
        walls.any(|wall| matches!(wall.backend, BackendName::Docker(_)) && wall.outcome.is_ok())
    };
    if unheld.is_empty() || by_docker() {
        return Ok(());
    }
    let message = format!(
        "a limit on {} cannot be held on this machine: no cgroup is ours to use",
        unheld.join(" and ")
    );
    Err(SandboxError::unavailable("limit_unavailable", message)
        .hint("make the grant without it, or see `belljar doctor` for how a cgroup becomes available"))
}

/// Which of the limits that need a cgroup have none here.
pub(crate) fn not_held(limits: &LimitsRequest) -> Result<Vec<&'static str>, SandboxError> {
    if limits.memory.is_none() && limits.cpus.is_none() {
        return Ok(Vec::new());
    }
    let spec = LimitsSpec {
        memory: limits.memory.as_ref().map(|size| understood("limits.memory", size)).transpose()?,
        cpus: limits.cpus.as_ref().map(|cpus| understood("limits.cpus", cpus)).transpose()?,
        ..LimitsSpec::default()
    };
    let held = belljar_engine::held_by_cgroup(&Limits::understand(&spec, belljar_engine::machine()));
    let unheld =
        [("memory", limits.memory.is_some() && !held.memory), ("cpus", limits.cpus.is_some() && !held.cpus)];
    Ok(unheld.into_iter().filter(|(_, unheld)| *unheld).map(|(name, _)| name).collect())
}

fn understood<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, SandboxError> {
    text.parse().map_err(|error| wrong(field, error))
}

fn wrong(field: &str, error: impl Display) -> SandboxError {
    SandboxError::policy("request_value", format!("`{field}`: {error}"))
}

fn for_the_owner(field: &str) -> SandboxError {
    SandboxError::policy("owner_only", format!("only the owner of this machine may ask for `{field}`"))
        .hint("leave it out, or choose a profile that has it")
}

fn over(code: &'static str, field: &str, asked: &str) -> SandboxError {
    SandboxError::policy(code, format!("this grant does not allow `{asked}` in `{field}`"))
        .hint("leave it out, or ask the owner of this machine for a grant with it")
}

fn too_much(field: &str, asked: &str, ceiling: &str) -> SandboxError {
    SandboxError::policy("limit_over_grant", format!("`{field}` is {asked}, and this grant allows {ceiling}"))
        .hint(format!("ask for {ceiling} or less, or leave it out"))
}

#[cfg(test)]
#[path = "admit/tests.rs"]
mod tests;

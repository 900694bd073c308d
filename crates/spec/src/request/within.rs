//! A request within a grant.
//!
//! Two steps, since a profile comes between them. [`SandboxRequest::must_be_granted`] judges what the caller wrote: names, secrets, volumes,
//! and what only the owner may say; folders are judged by the fleet, which can look at them. A profile that was granted may then add what
//! the caller could not have asked for. [`SandboxRequest::within`] judges the sum: modes of egress and ceilings.

use super::field::Field;
use super::{EnvValue, GrantRules, LimitsRequest, LlmRequest, LlmUrl, SandboxRequest, WebSearch};
use crate::egress::{HostPattern, Mode, group};
use crate::text::ExactText;
use crate::{BackendChoice, BackendName, ByteSize, ErrorCode, Root, SandboxError};
use std::time::Duration;

impl SandboxRequest {
    /// Refuses what a caller with this grant may not ask for. Which folders it may name is not judged here.
    pub fn must_be_granted(&self, rules: &GrantRules) -> Result<(), SandboxError> {
        // Taken apart, so that a new option is not let through unseen. `owner_only` judges those with a `_` that are the owner's; `at_least`,
        // `ports` and `user` are for anyone, the fleet judges `workspace` and whose `snapshot` it is, and `within` judges `limits`.
        let SandboxRequest {
            backend,
            at_least: _,
            rootfs,
            snapshot: _,
            workspace: _,
            egress,
            llm,
            secrets,
            web_search,
            github: _,
            env,
            limits: _,
            ports: _,
            forward_ports: _,
            nested: _,
            volumes,
            user: _,
            admin: _,
            root: _,
        } = self;
        if let Some(field) = self.owner_only("") {
            return Err(only_for_the_owner(&field));
        }
        // A backend that does not isolate is a profile's to choose, and the owner's. So is a service elsewhere, which the owner pays.
        if matches!(*backend, Some(BackendChoice::Named(name)) if !name.assurance().isolates() || name == BackendName::E2b)
        {
            return Err(only_for_the_owner("backend"));
        }
        root_must_be_granted(rootfs.as_ref(), rules)?;
        match llm {
            // A key of this machine would go wherever the caller says.
            Some(LlmRequest { url: Some(LlmUrl::To(_)), .. }) => return Err(only_for_the_owner("llm.url")),
            Some(LlmRequest { url: None, .. }) if !rules.allow_llm => {
                return Err(ErrorCode::NotGranted.error("this grant does not allow routes to models"));
            }
            Some(_) | None => {}
        }
        for rule in &egress.allow {
            rules.must_cover("egress.allow", rule.host())?;
        }
        for rule in
            egress.groups.iter().filter_map(|name| group(name.as_str())).flat_map(|group| group.rules())
        {
            rules.must_cover("egress.groups", &rule.host)?;
        }
        let variables = env.values().filter_map(|value| match value {
            EnvValue::Secret(name) => Some(name.as_str()),
            EnvValue::Text(_) => None,
        });
        let search = web_search.iter().map(|search| match search {
            WebSearch::Named(name) => name.as_str(),
            WebSearch::Detect | WebSearch::IfStored => "*",
        });
        for secret in secrets.iter().map(|name| name.as_str()).chain(variables).chain(search) {
            must_match(&rules.secrets, "secrets", secret)?;
        }
        for volume in volumes.keys() {
            must_match(&rules.volumes, "volumes", volume.as_str())?;
        }
        Ok(())
    }

    /// What will be made, within the modes and the ceilings of a grant; what was not asked for gets the ceiling. Without a network of its own
    /// (`isolates_network`) a sandbox reaches what the host reaches.
    pub fn within(
        mut self,
        rules: &GrantRules,
        isolates_network: bool,
    ) -> Result<SandboxRequest, SandboxError> {
        let modes = match rules.egress.as_slice() {
            [] => vec![Mode::None, Mode::Strict],
            named => [&[Mode::None], named].concat(),
        };
        let mode = match self.egress.mode {
            _ if !isolates_network => Mode::Open,
            Some(mode) => mode,
            // What the machine's own settings say may be wider than the grant.
            None if modes.contains(&Mode::Strict) => Mode::Strict,
            None => Mode::None,
        };
        if !modes.contains(&mode) {
            let allowed: Vec<&str> = modes.iter().map(|mode| mode.as_str()).collect();
            let message = format!("this grant does not allow the egress mode `{mode}`");
            return Err(ErrorCode::NotGranted
                .error(message)
                .hint(format!("it allows {}", allowed.join(", "))));
        }
        if isolates_network {
            self.egress.mode = Some(mode);
        }
        self.limits = self.limits.within(&rules.limits)?;
        Ok(self)
    }
}

/// A directory shows files of the host, and an image is fetched by the host from wherever its name says.
fn root_must_be_granted(rootfs: Option<&Root>, rules: &GrantRules) -> Result<(), SandboxError> {
    match rootfs {
        None | Some(Root::Host | Root::Golden) => Ok(()),
        Some(Root::Directory(_)) => Err(only_for_the_owner("rootfs")),
        Some(Root::Image(image)) => must_match(&rules.images, "rootfs", &image.to_string()),
    }
}

impl LimitsRequest {
    /// What was asked for, if it is not too much; the ceiling, where nothing was.
    fn within(self, ceiling: &LimitsRequest) -> Result<LimitsRequest, SandboxError> {
        // Taken apart, so that a new limit is not let through unseen.
        let LimitsRequest { memory, cpus, pids, open_files, disk, timeout, output, ready } = self;
        Ok(LimitsRequest {
            memory: lower("limits.memory", memory, ceiling.memory)?,
            cpus: lower("limits.cpus", cpus, ceiling.cpus)?,
            pids: lower("limits.pids", pids, ceiling.pids)?,
            open_files: lower("limits.open_files", open_files, ceiling.open_files)?,
            disk: lower("limits.disk", disk, ceiling.disk)?,
            timeout: lower("limits.timeout", timeout, ceiling.timeout)?,
            output: lower("limits.output", output, ceiling.output)?,
            ready: lower("limits.ready", ready, ceiling.ready)?,
        })
    }

    /// Refuses a command that asks for more than these limits allow, where it is told with its sandbox.
    pub fn must_allow(&self, timeout_s: Option<u64>, max_output: Option<u64>) -> Result<(), SandboxError> {
        lower("timeout_s", timeout_s.map(Duration::from_secs), self.timeout)?;
        lower("max_output", max_output.map(ByteSize::bytes), self.output).map(drop)
    }
}

impl GrantRules {
    /// Refuses a name that a caller with this grant may not allow, also not in a sandbox that lives.
    pub fn may_allow(&self, host: &HostPattern) -> Result<(), SandboxError> {
        self.must_cover("egress.allow", host)
    }

    fn must_cover(&self, field: &str, host: &HostPattern) -> Result<(), SandboxError> {
        match self.hosts.iter().any(|granted| granted.covers(host)) {
            true => Ok(()),
            false => Err(not_granted(field, &host.to_string())),
        }
    }
}

/// Does a pattern (exact, or a prefix that ends in `*`) mean this name?
pub fn pattern_matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn must_match(patterns: &[String], field: &str, name: &str) -> Result<(), SandboxError> {
    match patterns.iter().any(|pattern| pattern_matches(pattern, name)) {
        true => Ok(()),
        false => Err(not_granted(field, name)),
    }
}

fn lower<T: ExactText + PartialOrd>(
    field: &str,
    requested: Option<T>,
    ceiling: Option<T>,
) -> Result<Option<T>, SandboxError> {
    match (requested, ceiling) {
        (Some(requested), Some(ceiling)) if requested > ceiling => {
            let (requested, ceiling) = (requested.write(), ceiling.write());
            let message = format!("`{field}` is {requested}, and this grant allows {ceiling}");
            Err(ErrorCode::NotGranted
                .error(message)
                .hint(format!("ask for {ceiling} or less, or leave it out")))
        }
        (requested, ceiling) => Ok(requested.or(ceiling)),
    }
}

fn only_for_the_owner(field: &str) -> SandboxError {
    ErrorCode::NotGranted
        .error(format!("only the owner of this machine may ask for `{field}`"))
        .hint("leave it out, or choose a profile that has it")
}

/// What a grant does not have.
pub fn not_granted(field: &str, requested: &str) -> SandboxError {
    ErrorCode::NotGranted
        .error(format!("this grant does not allow `{requested}` in `{field}`"))
        .hint("leave it out, or ask the owner of this machine for a grant with it")
}

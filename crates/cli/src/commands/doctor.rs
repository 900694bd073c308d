//! `belljar doctor`: which backends work here, why not, what to do; and what a sandbox has inside, as seen from inside.

use super::{block_on, print};
use crate::args::DoctorArgs;
use crate::failure::hint_of;
use belljar_engine::{BackendReport, EgressReach, Engine, Sandbox};
use belljar_spec::{BackendName, Command, ErrorCode, SandboxError, SandboxSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) fn doctor(options: DoctorArgs) -> Result<u8, SandboxError> {
    let engine = Engine::new();
    let backends: Vec<BackendLine> = engine.backends().into_iter().map(BackendLine::from).collect();
    // Without a folder, since one may lie where it cannot be shown.
    let (inside, refusal) = match engine.create_blocking(&SandboxSpec::default()) {
        Ok(sandbox) => {
            let inside = block_on(look_inside(&engine, &sandbox));
            sandbox.dispose_blocking();
            (Some(inside?), None)
        }
        Err(error) => {
            crate::failure::say(&error);
            (None, Some(error.message))
        }
    };
    let report = Report { container: belljar_engine::container_around_us(), backends, inside, refusal };
    if options.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| {
            ErrorCode::Internal.error(format!("cannot write the report: {error}")).caused_by(error)
        })?;
        print(format!("{text}\n").as_bytes())?;
    } else {
        print(report.text().as_bytes())?;
    }
    Ok(if report.inside.is_some() { 0 } else { crate::failure::FAILED })
}

/// A sandbox that works on a folder among the temporary ones.
fn in_folder(engine: &Engine, what: &str) -> Result<(Sandbox, Folder), SandboxError> {
    let folder = Folder::new(what)?;
    let spec = SandboxSpec { workspace: Some(folder.0.clone()), ..SandboxSpec::default() };
    Ok((engine.create_blocking(&spec)?, folder))
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Result<Folder, SandboxError> {
        let folder = std::env::temp_dir().join(format!("belljar-doctor-{what}-{}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(Folder(folder)),
            Err(error) => {
                let message = format!("cannot make `{}`: {error}", folder.display());
                Err(ErrorCode::Internal.error(message).hint("set TMPDIR to a folder that you can write to"))
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[derive(Serialize)]
struct Report {
    /// The container around us, if there is one.
    container: Option<&'static str>,
    backends: Vec<BackendLine>,
    /// What a sandbox of the default kind has; absent when there can be none.
    inside: Option<Inside>,
    /// Why there can be none. Said on standard error too.
    #[serde(skip)]
    refusal: Option<String>,
}

#[derive(Serialize)]
struct BackendLine {
    backend: BackendName,
    assurance: belljar_spec::Assurance,
    works: bool,
    reason: Option<String>,
    remedy: Option<String>,
}

impl BackendLine {
    /// Whether this is one that works and that `auto` takes.
    fn is_chosen(&self) -> bool {
        self.works && BackendName::AUTO.contains(&self.backend)
    }

    /// What one that works does not do.
    fn caveat(&self) -> Option<&'static str> {
        match self.backend {
            BackendName::Landlock if self.works => Some(
                "no namespaces: processes of this machine are visible; works on a repository with `--branch` or `--clone`",
            ),
            BackendName::E2b if self.works => Some(
                "sandboxes of a service elsewhere, without folders of this machine and without its gateway; only with `--backend e2b`",
            ),
            BackendName::Container if self.works => Some(
                "isolates nothing: the container's files, processes and network; only with `--backend container`",
            ),
            BackendName::Host if self.works => {
                Some("isolates nothing: the host's files, processes and network; only with `--backend host`")
            }
            _ => None,
        }
    }
}

impl From<BackendReport> for BackendLine {
    fn from(report: BackendReport) -> BackendLine {
        let error = report.outcome.err();
        BackendLine {
            backend: report.backend,
            assurance: report.assurance,
            works: error.is_none(),
            remedy: error.as_ref().and_then(hint_of),
            reason: error.map(|error| error.message),
        }
    }
}

#[derive(Serialize)]
struct Inside {
    backend: belljar_spec::BackendName,
    assurance: belljar_spec::Assurance,
    /// The version of Landlock, the second layer of isolation; 0 for none.
    landlock_abi: u32,
    /// What holds memory, processes and processors.
    cgroup: Cgroup,
    runtimes: BTreeMap<String, Tool>,
    tools: BTreeMap<String, Tool>,
    tmp_writable: bool,
    /// How connections reach the gateway.
    network: EgressReach,
    /// Whether a folder among the temporary ones can be a workspace.
    folders: Folders,
}

#[derive(Serialize)]
struct Folders {
    works: bool,
    reason: Option<String>,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Tool {
    available: bool,
    path: Option<String>,
    version: Option<String>,
    /// 1: what everything needs; 2: what most things need.
    tier: u8,
}

#[derive(Serialize)]
struct Cgroup {
    holds_limits: bool,
    remedy: Option<String>,
}

fn network(egress_reach: EgressReach) -> &'static str {
    match egress_reach {
        EgressReach::Absent => "none",
        EgressReach::EveryPort => "names that policy allows, at every port",
        EgressReach::SomePorts => {
            "names that policy allows, at the ports that rules name (the kernel has no nf_tables)"
        }
    }
}

/// Asks inside: what the host has says little about what a sandbox sees.
async fn look_inside(engine: &Engine, sandbox: &Sandbox) -> Result<Inside, SandboxError> {
    let names: Vec<&str> = RUNTIMES.iter().chain(&TIER_ONE).chain(&TIER_TWO).copied().collect();
    let script = format!(
        "for tool in {}; do\n\
           path=$(command -v \"$tool\" 2>/dev/null) || continue\n\
           case \" {} \" in *\" $tool \"*) version=$(\"$tool\" --version 2>/dev/null </dev/null | head -n 1);; *) version=;; esac\n\
           printf '%s\\t%s\\t%s\\n' \"$tool\" \"$path\" \"$version\"\n\
         done\n\
         : > /tmp/.belljar-probe && printf '/tmp\\twritable\\t\\n'",
        names.join(" "),
        RUNTIMES.join(" "),
    );
    let command = Command::new(["sh", "-c", &script])
        .map_err(|error| ErrorCode::Internal.error(error.to_string()).caused_by(error))?;
    let output = sandbox.exec(&command).await?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for line in output.lines() {
        let mut columns = line.split('\t');
        if let (Some(name), Some(path)) = (columns.next(), columns.next()) {
            found.insert(name, (path, columns.next().unwrap_or_default()));
        }
    }
    let tools = |names: &[&str], tier: u8| -> BTreeMap<String, Tool> {
        let tool = |name: &&str| {
            let entry = found.get(*name);
            let version = entry.map(|(_, version)| version.to_string()).filter(|version| !version.is_empty());
            let tool = Tool {
                available: entry.is_some(),
                path: entry.map(|(path, _)| path.to_string()),
                version,
                tier,
            };
            (name.to_string(), tool)
        };
        names.iter().map(tool).collect()
    };
    let mut shell_tools = tools(&TIER_ONE, 1);
    shell_tools.extend(tools(&TIER_TWO, 2));
    Ok(Inside {
        backend: sandbox.backend(),
        assurance: sandbox.assurance(),
        landlock_abi: sandbox.landlock_abi(),
        cgroup: cgroup(),
        runtimes: tools(&RUNTIMES, 1),
        tools: shell_tools,
        tmp_writable: found.contains_key("/tmp"),
        network: sandbox.egress_reach(),
        folders: folders(engine),
    })
}

/// Whether a folder can be worked on: by working on one.
fn folders(engine: &Engine) -> Folders {
    match in_folder(engine, "workspace") {
        Ok((sandbox, _folder)) => {
            sandbox.dispose_blocking();
            Folders { works: true, reason: None, remedy: None }
        }
        Err(error) => Folders { works: false, remedy: hint_of(&error), reason: Some(error.message) },
    }
}

/// Whether limits can be asked for: by asking for one.
fn cgroup() -> Cgroup {
    let mut spec = SandboxSpec::default();
    spec.limits.memory = "64m".parse().ok();
    match Engine::new().create_blocking(&spec) {
        Ok(sandbox) => {
            sandbox.dispose_blocking();
            Cgroup { holds_limits: true, remedy: None }
        }
        Err(error) => Cgroup { holds_limits: false, remedy: hint_of(&error) },
    }
}

impl Report {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut say = |line: String| lines.push(line);
        if let Some(kind) = self.container {
            say(format!("Inside a container ({kind}).\n"));
        }
        say("Backends".into());
        for backend in &self.backends {
            let works = if backend.works { "works" } else { "no" };
            say(format!("  {:<12} {:<10} {works}", backend.backend.as_str(), backend.assurance.as_str()));
            if let Some(caveat) = backend.caveat() {
                say(format!("               {caveat}"));
            }
            if let Some(reason) = &backend.reason {
                say(format!("               {reason}"));
            }
            if let Some(remedy) = &backend.remedy {
                say(format!("               -> {remedy}"));
            }
        }
        let Some(inside) = &self.inside else {
            match &self.refusal {
                Some(reason) if self.backends.iter().any(BackendLine::is_chosen) => {
                    say(format!("\nA backend works here, and yet no sandbox can be made: {reason}"));
                }
                _ => say("\nNo backend works here: belljar runs nothing until one does.".into()),
            }
            return lines.join("\n") + "\n";
        };
        say(format!("\nA sandbox here ({}, {})", inside.backend, inside.assurance));
        match inside.landlock_abi {
            0 if belljar_engine::landlock_is_filtered() => {
                say("  landlock     none: Landlock is refused here (seccomp)".into());
            }
            0 => say("  landlock     none: this kernel has no Landlock, or it is switched off".into()),
            abi if inside.backend == BackendName::Landlock => {
                say(format!("  landlock     the isolation itself, version {abi}"));
            }
            abi => say(format!("  landlock     on top, version {abi}")),
        }
        match (inside.cgroup.holds_limits, &inside.cgroup.remedy) {
            (true, _) => say("  limits       memory, processors and processes are held by a cgroup".into()),
            (false, remedy) => {
                say("  limits       processes, and the private memory of each; not memory as a whole, nor processors".into());
                say(format!("               -> {}", remedy.as_deref().unwrap_or("no remedy is known")));
            }
        }
        say(format!("  network      {}", network(inside.network)));
        say(format!("  /tmp         {}", if inside.tmp_writable { "writable" } else { "not writable" }));
        if let Folders { works: false, reason, remedy } = &inside.folders {
            let what = reason.as_deref().unwrap_or("no reason is known");
            say(format!("  workspace    not among temporary files: {what}"));
            say(format!("               -> {}", remedy.as_deref().unwrap_or("no remedy is known")));
        }
        for (name, tool) in &inside.runtimes {
            let what = match (&tool.version, &tool.path) {
                (Some(version), Some(path)) => format!("{version} ({path})"),
                (None, Some(path)) => path.clone(),
                _ => "missing".into(),
            };
            say(format!("  {name:<12} {what}"));
        }
        let list = |available: bool| -> Vec<&str> {
            inside
                .tools
                .iter()
                .filter(|(_, tool)| tool.available == available)
                .map(|(name, _)| name.as_str())
                .collect()
        };
        say(format!("  tools        {}", list(true).join(" ")));
        if !list(false).is_empty() {
            say(format!("  missing      {}", list(false).join(" ")));
        }
        lines.join("\n") + "\n"
    }
}

const RUNTIMES: [&str; 4] = ["python3", "node", "pip3", "npm"];
const TIER_ONE: [&str; 13] =
    ["bash", "cat", "ls", "cp", "mv", "mkdir", "rm", "chmod", "grep", "sed", "head", "tail", "wc"];
const TIER_TWO: [&str; 14] = [
    "find", "sort", "awk", "xargs", "tee", "curl", "wget", "git", "tar", "unzip", "jq", "uname", "df", "free",
];

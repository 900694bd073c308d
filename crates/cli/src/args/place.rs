//! The words about a sandbox: what every command that makes one understands.

use super::credentials::CredentialArgs;
use super::workspace::WorkspaceArgs;
use super::{EgressArgs, LlmArgs};
use crate::failure::say_notes;
use belljar_engine::asked::{Asked, Value};
use belljar_engine::config::{self, EgressFlags};
use belljar_spec::egress::Mode;
use belljar_spec::git::BranchName;
use belljar_spec::{
    Assurance, BackendChoice, BackendName, ByteSize, Cpus, EnvName, ImageName, LimitsSpec, Nesting,
    Permission, Root, Runtime, SandboxError, SandboxSpec, SharedPath, WorkspacePath, parse_time,
};
use clap::{Args as ClapArgs, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that is said of a sandbox.
#[derive(Debug, Default, Clone, ClapArgs)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    egress: EgressArgs,
    #[command(flatten)]
    secrets: CredentialArgs,
    #[command(flatten)]
    llm: LlmArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

impl PlaceArgs {
    /// How long a command may run.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.limits.timeout
    }

    /// How much of an output stream is kept.
    pub(crate) fn output(&self) -> Option<ByteSize> {
        self.limits.output
    }

    /// The folder that was named.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.sandbox.workspace.clone()
    }

    /// Works on this folder, if one is named.
    pub(crate) fn on(mut self, folder: Option<PathBuf>) -> PlaceArgs {
        self.sandbox.workspace = folder.or(self.sandbox.workspace);
        self
    }

    /// The branch that was named.
    pub(crate) fn branch(&self) -> Option<BranchName> {
        self.workspace.branch.clone()
    }

    /// The sandbox that was asked for, with what configuration says of it.
    pub(crate) fn spec(self) -> Result<SandboxSpec, SandboxError> {
        let (spec, notes) = self.asked()?.understand()?;
        say_notes(&notes);
        Ok(spec)
    }

    /// The mode, where files say one that is wider than the default, and nobody asked for that.
    pub(crate) fn unopened_mode(&self) -> Result<Option<Mode>, SandboxError> {
        let workspace = workspace(self.sandbox.workspace.clone())?;
        let loaded = config::load(Some(&workspace), EgressFlags::default())?;
        Ok(loaded.policy.filter(|policy| policy.mode == Mode::Open).map(|_| Mode::Strict))
    }

    /// What was said, before files have a say in it.
    pub(crate) fn asked(self) -> Result<Asked, SandboxError> {
        let PlaceArgs { sandbox, workspace: changes, egress, secrets, llm, limits } = self;
        let share = |permission: Permission| move |path: PathBuf| SharedPath { path, permission };
        Ok(Asked {
            backend: wall(sandbox.backend, sandbox.runtime)?,
            at_least: sandbox.at_least,
            root: sandbox.root.or(sandbox.image.map(Root::Image)),
            folder: Some(workspace(sandbox.workspace)?),
            protect: changes.protect.clone(),
            agent_context: changes.agent_context.clone(),
            push: changes.push.clone(),
            git: changes.git(),
            mode: changes.mode(),
            workspace_path: match sandbox.workspace_path {
                Where::Standard => WorkspacePath::Standard,
                Where::Same => WorkspacePath::SameAsHost,
            },
            shared: sandbox
                .ro
                .into_iter()
                .map(share(Permission::Read))
                .chain(sandbox.rw.into_iter().map(share(Permission::Write)))
                .collect(),
            env: sandbox.env.iter().map(|text| variable_of(text)).collect::<Result<_, _>>()?,
            limits: LimitsSpec {
                memory: limits.memory,
                cpus: limits.cpus,
                pids: limits.pids,
                open_files: limits.open_files,
                disk: limits.disk,
                wall_time: limits.timeout,
                output: limits.output,
                ready: limits.ready_timeout,
            },
            nesting: if sandbox.nested { Nesting::Allowed } else { Nesting::Denied },
            egress: egress.flags(),
            secrets: secrets.flags(),
            llm: llm.flags()?,
            ..Asked::default()
        })
    }
}

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Sandbox")]
struct SandboxArgs {
    /// The wall: auto (native or bwrap), native, bwrap, docker, docker+runsc (gVisor), container or host (no wall)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: BackendChoice,
    /// What runs Docker's containers: runc or runsc (gVisor). `--backend docker --runtime runsc` is `--backend docker+runsc`
    #[arg(long, value_name = "NAME")]
    runtime: Option<Runtime>,
    /// Refuse a wall weaker than this: host < container < namespace < gvisor < microvm
    #[arg(long, value_name = "LEVEL")]
    at_least: Option<Assurance>,
    /// What `/` is made of: host (this machine's system), golden (Alpine, kept by belljar), oci:IMAGE, or a directory that holds a
    /// system. Changes go to a layer of the sandbox's own [default: host]
    #[arg(long, value_name = "ROOT")]
    root: Option<Root>,
    /// An image as `/`, by digest or by a tag: short for --root oci:IMAGE
    #[arg(long, value_name = "IMAGE", conflicts_with = "root")]
    image: Option<ImageName>,
    /// The folder to work on [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Where the workspace is seen inside: `standard` is /workspace, `same` is where it is on the host
    #[arg(long, value_name = "WHERE", default_value = "standard")]
    workspace_path: Where,
    /// Also show this path of the host, read-only; may be repeated
    #[arg(long, value_name = "PATH")]
    ro: Vec<PathBuf>,
    /// Also show this path of the host, writable; may be repeated
    #[arg(long, value_name = "PATH")]
    rw: Vec<PathBuf>,
    /// Set a variable inside; NAME alone takes its value from outside, NAME=secret:KEY is a placeholder for a secret; may
    /// be repeated
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = clap::builder::OsStringValueParser::new())]
    env: Vec<OsString>,
    /// Allow user namespaces inside, for browsers and build tools that need them. Widens what of the kernel can be
    /// attacked; everything else stays
    #[arg(long)]
    nested: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Where {
    #[default]
    Standard,
    Same,
}

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// How long the command may run: `90s`, `10m` [default: 1h for run, none for shell]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Memory of all processes together: `512m`, `2g` [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Processors: `2`, `0.5` [default: all]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<Cpus>,
    /// Processes and threads [default: 4096]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Option<u32>,
    /// Open files of one process [default: 65536]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(3..))]
    open_files: Option<u64>,
    /// Private files: home, /tmp, /dev/shm together [default: 4g, or half of memory]
    #[arg(long, value_name = "SIZE")]
    disk: Option<ByteSize>,
    /// Bytes of one output stream; what comes after is dropped [default: 1g; with --json 16m]
    #[arg(long, value_name = "SIZE")]
    output: Option<ByteSize>,
    /// How long the sandbox itself may take to be ready [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ready_timeout: Option<Duration>,
}

/// The wall that was named, with the runtime that was.
fn wall(backend: BackendChoice, runtime: Option<Runtime>) -> Result<BackendChoice, SandboxError> {
    let Some(runtime) = runtime else { return Ok(backend) };
    let wanted = BackendName::Docker(runtime);
    match backend {
        BackendChoice::Named(BackendName::Docker(Runtime::Runc)) => Ok(BackendChoice::Named(wanted)),
        BackendChoice::Named(named) if named == wanted => Ok(backend),
        _ => Err(SandboxError::policy(
            "runtime_without_docker",
            "`--runtime` says what runs Docker's containers",
        )
        .hint(format!("write `--backend docker --runtime {}`, or leave it away", runtime.as_str()))),
    }
}

/// The folder that was named, or the current one.
pub(crate) fn workspace(named: Option<PathBuf>) -> Result<PathBuf, SandboxError> {
    named.map_or_else(std::env::current_dir, Ok).map_err(|error| {
        SandboxError::policy("no_current_folder", format!("the current folder cannot be used: {error}"))
            .hint("change to a folder that exists, or name one")
    })
}

/// A variable, and what it is set to.
pub(crate) fn variable_of(text: &OsStr) -> Result<(EnvName, Value), SandboxError> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    let name: EnvName =
        String::from_utf8_lossy(name).parse().map_err(|error: belljar_spec::EnvNameError| {
            SandboxError::policy("bad_variable", error.to_string()).hint("write `--env NAME=VALUE`")
        })?;
    let value = match value {
        Some(value) => Value::parse(value).map_err(|error| {
            SandboxError::policy("bad_variable", error.to_string()).hint("write `--env NAME=secret:KEY`")
        })?,
        // Whatever it holds outside is a value, and no word of ours.
        None => Value::Text(std::env::var_os(name.as_str()).ok_or_else(|| {
            SandboxError::policy("unset_variable", format!("the variable `{name}` is not set"))
                .hint(format!("set it, or give its value: `--env {name}=VALUE`"))
        })?),
    };
    Ok((name, value))
}

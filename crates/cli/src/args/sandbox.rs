//! The words about a sandbox: what every command that makes one understands.

use super::credentials::CredentialArgs;
use super::workspace::{GitArg, WorkspaceArgs};
use super::{EgressArgs, LlmArgs};
use belljar_config::{self as config, DefaultProfile, EgressFlags};
use belljar_config::{Note, Surroundings, UsersNetwork, resolve};
use belljar_spec::egress::{Mode, RuleSource};
use belljar_spec::git::BranchName;
use belljar_spec::request::{EnvValue, GitHubRequest, HostPath, WebSearch, WorkspaceRequest};
use belljar_spec::{
    Assurance, BackendChoice, BackendName, ByteSize, Cpus, EnvName, ErrorCode, ImageName, LimitsRequest,
    Root, Runtime, SandboxError, SandboxRequest, SandboxSpec, parse_time,
};
use clap::{Args as ClapArgs, ValueEnum};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that is said of a sandbox.
#[derive(Debug, Default, Clone, ClapArgs)]
pub(crate) struct SandboxOptions {
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

impl SandboxOptions {
    /// How long a command may run.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.limits.timeout
    }

    /// The folder that was named.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.sandbox.workspace.clone()
    }

    /// Whether it was said where the workspace is inside.
    pub(crate) fn says_workspace_path(&self) -> bool {
        self.sandbox.workspace_path.is_some()
    }

    /// With every public name open; refused beside another mode.
    pub(crate) fn opened(mut self) -> Result<SandboxOptions, SandboxError> {
        self.egress.open()?;
        Ok(self)
    }

    /// Works on this folder, if one is named.
    pub(crate) fn on(mut self, folder: Option<PathBuf>) -> SandboxOptions {
        self.sandbox.workspace = folder.or(self.sandbox.workspace);
        self
    }

    /// Whether the sandbox is made by a service elsewhere, which has no folder of this machine. One that is named is refused.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.sandbox.backend == BackendChoice::Named(BackendName::E2b)
    }

    /// Refuses what contradicts an image of Docker's as root.
    pub(crate) fn must_take_image(&self) -> Result<(), SandboxError> {
        let is_docker = matches!(
            self.sandbox.backend,
            BackendChoice::Auto | BackendChoice::Named(BackendName::Docker(_))
        );
        if is_docker && self.sandbox.root.is_none() && self.sandbox.image.is_none() {
            return Ok(());
        }
        Err(ErrorCode::RequestConflict
            .error("the folder's own image is one of Docker's, and its sandbox has one root")
            .hint("omit `--backend`, `--root` and `--image`, or `--build` and `--base-tag`"))
    }

    /// With an image of Docker's as root.
    pub(crate) fn with_image(mut self, image: ImageName) -> SandboxOptions {
        if self.sandbox.backend == BackendChoice::Auto {
            self.sandbox.backend = BackendChoice::Named(BackendName::Docker(Runtime::Runc));
        }
        self.sandbox.image = Some(image);
        self
    }

    /// Whether the host clones what is worked on.
    pub(crate) fn is_cloned(&self) -> bool {
        self.workspace.clone.is_some()
    }

    /// The branch that was named.
    pub(crate) fn branch(&self) -> Option<BranchName> {
        self.workspace.branch.clone()
    }

    /// The sandbox that was asked for, with what configuration says of it, and notes for the user.
    pub(crate) fn spec(self) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
        let (request, surroundings) = self.into_request()?;
        resolve(request, surroundings)
    }

    /// The same, where a profile that was named stands below what was asked for, and not the default one.
    pub(crate) fn spec_over(
        self,
        profile: impl FnOnce(SandboxRequest) -> Result<SandboxRequest, SandboxError>,
    ) -> Result<(SandboxSpec, Vec<Note>), SandboxError> {
        let (request, mut surroundings) = self.into_request()?;
        surroundings.default_profile = DefaultProfile::Ignored;
        resolve(profile(request)?, surroundings)
    }

    /// The mode, where files say one that is wider than the default, and no flag asked for that.
    pub(crate) fn unopened_mode(&self) -> Result<Option<Mode>, SandboxError> {
        let workspace = workspace(self.sandbox.workspace.clone())?;
        let loaded = config::load(Some(&workspace), EgressFlags::default())?;
        Ok(loaded.policy.filter(|policy| policy.mode > Mode::Strict).map(|_| Mode::Strict))
    }

    /// A sandbox for one command: the request, and what only flags say.
    pub(crate) fn into_request(self) -> Result<(SandboxRequest, Surroundings), SandboxError> {
        let is_empty = self.is_elsewhere() && self.sandbox.workspace.is_none();
        let folder = absolute(workspace(self.sandbox.workspace.clone())?)?;
        let surroundings = Surroundings {
            configured_by: Some(folder.to_path_buf()),
            rule_source: RuleSource::Flag,
            layer: self.workspace.layer.clone(),
            forward: self.secrets.forward_secret.clone(),
            danger_forward_app_key: self.secrets.danger_forward_app_key,
            default_profile: DefaultProfile::Applied,
            users_network: UsersNetwork::Applied,
            ..Surroundings::default()
        };
        let mut request = self.filled()?;
        // What the host clones is worked on instead of a folder.
        request.workspace.folder = Some(folder).filter(|_| request.workspace.clone.is_none() && !is_empty);
        Ok((request, surroundings))
    }

    /// A sandbox that the daemon holds. The folder and its branch are part of its key, which is the caller's business.
    pub(crate) fn request(self) -> Result<SandboxRequest, SandboxError> {
        for (is_given, flag) in [
            (self.workspace.layer.is_some(), "--layer"),
            (self.workspace.clone.is_some(), "--clone"),
            (!self.secrets.forward_secret.is_empty(), "--forward-secret"),
            (self.secrets.danger_forward_app_key, "--danger-forward-app-key"),
        ] {
            if is_given {
                let message = format!("`{flag}` is for a sandbox of one command");
                return Err(ErrorCode::RequestConflict
                    .error(message)
                    .hint("use it with `belljar run`, or with `belljar shell --once`"));
            }
        }
        let mut request = self.filled()?;
        request.workspace.branch = None;
        Ok(request)
    }

    /// Was nothing said but where?
    pub(crate) fn is_silent(&self) -> bool {
        self.clone().request().is_ok_and(|request| request == SandboxRequest::default())
    }

    /// The request that the flags make, without the folder.
    fn filled(self) -> Result<SandboxRequest, SandboxError> {
        let SandboxOptions { sandbox, workspace, egress, secrets, llm, limits } = self;
        let paths = |paths: Vec<PathBuf>| paths.into_iter().map(absolute).collect::<Result<Vec<_>, _>>();
        Ok(SandboxRequest {
            backend: Some(backend(sandbox.backend, sandbox.runtime)?)
                .filter(|name| *name != BackendChoice::Auto),
            at_least: sandbox.at_least,
            rootfs: sandbox.root.or(sandbox.image.map(Root::Image)),
            workspace: WorkspaceRequest {
                folder: None,
                overlay: workspace.overlay || workspace.layer.is_some(),
                branch: workspace.branch,
                clone: workspace.clone,
                depth: workspace.depth,
                same_path: sandbox.workspace_path == Some(Where::Same),
                ro: paths(sandbox.ro)?,
                rw: paths(sandbox.rw)?,
                protect: workspace.protect,
                hide: workspace.hide,
                placeholders: workspace.placeholders,
                push: workspace.push,
                share_git: workspace.git == GitArg::Share,
                agent_context: paths(workspace.agent_context)?,
            },
            egress: egress.request(),
            llm: llm.request()?,
            secrets: secrets.secrets,
            web_search: secrets.web_search.map(|named| named.map_or(WebSearch::Detect, WebSearch::Named)),
            github: secrets
                .github
                .map(|profile| GitHubRequest { profile, repositories: secrets.github_repo }),
            env: variables_of(&sandbox.env_file, &sandbox.env)?,
            limits: LimitsRequest {
                memory: limits.memory,
                cpus: limits.cpus,
                pids: limits.pids,
                open_files: limits.open_files,
                disk: limits.disk,
                timeout: limits.timeout,
                output: limits.output,
                ready: limits.ready_timeout,
            },
            nested: sandbox.nested.then_some(true),
            ..SandboxRequest::default()
        })
    }
}

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Sandbox")]
struct SandboxArgs {
    /// The isolation backend: auto (native, bwrap or landlock), native, bwrap, landlock, docker, docker+runsc (gVisor), e2b, container or host (none)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: BackendChoice,
    /// What runs Docker's containers: runc or runsc (gVisor). `--backend docker --runtime runsc` is `--backend docker+runsc`
    #[arg(long, value_name = "NAME")]
    runtime: Option<Runtime>,
    /// Refuse a backend with weaker isolation than this: host < container < landlock < namespace < gvisor < microvm
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
    /// Where the workspace is seen inside: `standard` is /workspace, `same` is where it is on the host [default: standard]
    #[arg(long, value_name = "WHERE")]
    workspace_path: Option<Where>,
    /// Also show this path of the host, read-only; may be repeated
    #[arg(long, value_name = "PATH")]
    ro: Vec<PathBuf>,
    /// Also show this path of the host, writable; may be repeated
    #[arg(long, value_name = "PATH")]
    rw: Vec<PathBuf>,
    /// Set a variable inside; NAME alone takes its value from outside, NAME=secret:KEY is a placeholder for a secret; may
    /// be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = clap::builder::OsStringValueParser::new())]
    env: Vec<OsString>,
    /// Set the variables of this file, a line each, `#` for comments; may be repeated
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Allow user namespaces inside, for browsers and build tools that need them. Widens what of the kernel can be
    /// attacked; everything else stays
    #[arg(long)]
    nested: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
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
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    cpus: Option<Cpus>,
    /// Processes and threads [default: 4096]
    #[arg(long, value_name = "NUMBER", value_parser = processes)]
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

/// The backend that was named, with the runtime that was.
fn backend(backend: BackendChoice, runtime: Option<Runtime>) -> Result<BackendChoice, SandboxError> {
    let Some(runtime) = runtime else { return Ok(backend) };
    let docker = BackendName::Docker(runtime);
    match backend {
        BackendChoice::Named(BackendName::Docker(Runtime::Runc)) => Ok(BackendChoice::Named(docker)),
        BackendChoice::Named(named) if named == docker => Ok(backend),
        _ => Err(ErrorCode::RequestConflict
            .error("`--runtime` says what runs Docker's containers")
            .hint(format!("write `--backend docker --runtime {}`, or omit it", runtime.as_str()))),
    }
}

/// The folder that was named, or the current one.
pub(crate) fn workspace(named: Option<PathBuf>) -> Result<PathBuf, SandboxError> {
    named.map_or_else(std::env::current_dir, Ok).map_err(|error| {
        ErrorCode::WorkspaceMissing
            .error(format!("the current folder cannot be used: {error}"))
            .hint("change to a folder that exists, or name one")
            .caused_by(error)
    })
}

/// A path, from the root: relative ones begin at the current folder.
fn absolute(path: PathBuf) -> Result<HostPath, SandboxError> {
    let unusable = |why: String| ErrorCode::PathInvalid.error(format!("`{}` {why}", path.display()));
    let absolute =
        std::path::absolute(&path).map_err(|error| unusable(format!("cannot be used: {error}")))?;
    HostPath::try_from(absolute).map_err(|error| unusable(error.to_string()))
}

/// Variables of files, and behind them those of flags, which win.
pub(crate) fn variables_of(
    files: &[PathBuf],
    flags: &[OsString],
) -> Result<BTreeMap<EnvName, EnvValue>, SandboxError> {
    let mut all = BTreeMap::new();
    for file in files {
        let content = std::fs::read(file).map_err(|error| {
            ErrorCode::PathInvalid
                .error(format!("cannot read the variables in `{}`: {error}", file.display()))
                .hint("name a file with a line `NAME=VALUE` for each variable")
                .caused_by(error)
        })?;
        for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (name, value) = variable_of(OsStr::from_bytes(line)).map_err(|error| {
                let message = format!("{}:{}: {}", file.display(), number + 1, error.message);
                error.with_message(message).hint("write `NAME=VALUE`, a variable a line")
            })?;
            all.insert(name, value);
        }
    }
    for text in flags {
        let (name, value) = variable_of(text)?;
        all.insert(name, value);
    }
    Ok(all)
}

/// A variable, and what it is set to.
fn variable_of(text: &OsStr) -> Result<(EnvName, EnvValue), SandboxError> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    let name: EnvName =
        String::from_utf8_lossy(name).parse().map_err(|error: belljar_spec::EnvNameError| {
            ErrorCode::RequestValue.error(error.to_string()).hint("write `--env NAME=VALUE`")
        })?;
    let value = match value {
        Some(value) => EnvValue::parse(value).map_err(|error| {
            ErrorCode::RequestValue
                .error(error.to_string())
                .hint("write `--env NAME=secret:KEY`")
                .caused_by(error)
        })?,
        // Whatever it holds outside is a value, and no word of ours.
        None => EnvValue::Text(std::env::var_os(name.as_str()).ok_or_else(|| {
            ErrorCode::RequestValue
                .error(format!("the variable `{name}` is not set"))
                .hint(format!("set it, or give its value: `--env {name}=VALUE`"))
        })?),
    };
    Ok((name, value))
}

/// A number of processes.
fn processes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => {
            Err(format!("`{text}` is not a number of processes: write one above 0, as in `512`"))
        }
        Ok(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command, PersistentCommand};
    use belljar_spec::{ErrorCode, SandboxRequest};
    use clap::Parser;

    fn request(words: &str) -> Result<SandboxRequest, ErrorCode> {
        let words = ["belljar", "start"].into_iter().chain(words.split_whitespace());
        match Args::try_parse_from(words).expect("words that are understood").command {
            Some(Command::Persistent(PersistentCommand::Start(options))) => {
                options.sandbox_options.request().map_err(|error| error.code)
            }
            _ => panic!("it is `start`"),
        }
    }

    #[test]
    fn every_flag_reaches_the_daemon() {
        let words = "--backend bwrap --at-least namespace --image alpine:3.22 --workspace-path same --ro /a --rw b --env A=b --env K=secret:key \
            --nested --overlay --protect x --hide .env --placeholders .env.local --push agent/* --egress strict --allow =a.example:8443 --group github \
            --secret anthropic --web-search --github read --github-repo a/b --llm https://m.example --llm-key secret:m \
            --llm-kind openai --llm-model gpt-* --llm-budget calls=5 --timeout 90s --memory 1536m --cpus 0.5 --pids 64 \
            --open-files 512 --disk 1g --output 10k";
        let request = request(words).unwrap();
        let json = serde_json::to_value(&request).unwrap();
        let here = std::env::current_dir().unwrap().join("b");
        assert_eq!(
            json,
            serde_json::json!({
                "backend": "bwrap", "at_least": "namespace", "rootfs": "oci:alpine:3.22",
                "workspace": {
                    "overlay": true, "same_path": true, "ro": ["/a"], "rw": [here], "protect": ["x"], "hide": [".env"], "placeholders": [".env.local"], "push": ["agent/*"],
                },
                "egress": { "mode": "strict", "allow": ["=a.example:8443"], "groups": ["github"] },
                "llm": {
                    "url": "https://m.example", "key": "secret:m", "kind": "openai", "models": ["gpt-*"],
                    "budget": "calls=5",
                },
                "secrets": ["anthropic"], "web_search": "auto",
                "github": { "profile": "read", "repositories": ["a/b"] },
                "env": { "A": "b", "K": "secret:key" },
                "limits": {
                    "memory": "1536m", "cpus": "0.5", "pids": 64, "open_files": 512, "disk": "1g",
                    "timeout": "90s", "output": "10k",
                },
                "nested": true,
            })
        );
    }

    #[test]
    fn what_a_kept_sandbox_cannot_have_is_said() {
        for words in ["--layer 3f2a", "--clone https://a.example/b", "--env K=secret:k --forward-secret k"] {
            assert_eq!(request(words), Err(ErrorCode::RequestConflict), "{words}");
        }
        assert_eq!(request("--branch fix/login --workspace /"), Ok(SandboxRequest::default()));
    }
}

//! The words that belljar understands.

mod age;
mod agent;
mod audit;
mod build;
mod credentials;
mod daemon;
mod golden;
mod images;
mod kept;
mod layers;
mod llm;
mod publish;
mod sandbox;
mod secrets;
mod settings;
mod show_run;
mod workspace;

pub(crate) use agent::{
    AgentCommand, AgentListArgs, AgentLogsArgs, AgentPhasesArgs, AgentRunArgs, AgentRunsArgs, AgentShellArgs,
    WishArgs,
};
pub(crate) use audit::{
    AuditArgs, AuditCommand, AuditPruneArgs, AuditShowArgs, AuditTailArgs, AuditVerifyArgs,
};
pub(crate) use build::{BuildArgs, BuildBaseArgs};
pub(crate) use daemon::{
    DaemonCommand, GrantArgs, GrantsCommand, ListingArgs, RevokeArgs, ServeArgs, ServiceArgs, ServiceCommand,
    SweepArgs,
};
pub(crate) use golden::{GoldenBuildArgs, GoldenCommand, GoldenStatusArgs};
pub(crate) use images::{
    ImagesArgs, ImagesCommand, ImagesGcArgs, ImagesImportArgs, ImagesPullArgs, ImagesRmArgs,
};
pub(crate) use kept::{
    AdminArgs, AgentConfigArgs, AttachArgs, ExecArgs, InitArgs, KeptCommand, KeptListArgs, LogsArgs, PsArgs,
    RmArgs, StartArgs, TargetArgs, VolumesArgs, WhichArgs,
};
pub(crate) use layers::{ApplyArgs, DiffArgs, DiscardArgs, LayersArgs};
pub(crate) use llm::{LlmArgs, LlmCommand, LlmSpendArgs};
pub(crate) use publish::PublishArgs;
pub(crate) use sandbox::{SandboxOptions, variable_of, workspace};
pub(crate) use secrets::{SecretsCheckArgs, SecretsCommand, SecretsListArgs, SecretsRmArgs, SecretsSetArgs};
pub(crate) use settings::{
    ConfigCommand, ConfigShowArgs, EgressArgs, PolicyCheckArgs, PolicyCommand, PolicyExplainArgs, TrustArgs,
};
pub(crate) use show_run::ShowRunArgs;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs AI agents, and the commands their models write, under glass.
///
/// A command runs in a sandbox of its own: it sees the system's programs, the current folder at /workspace, and a
/// home and /tmp that go away with it. It reaches no network but the names you allow, has none of your environment, none
/// of your files elsewhere, and no way to more.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100)]
#[command(after_help = "Without a command, at a terminal, `belljar` is `belljar shell`.\n\
    Exit codes: the command's own; 124 it ran too long; 125 belljar failed; 126 refused, or not executable;\n127 not found inside.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Args {
    /// What we were called with. `run` and `exec` are started thousands of times a day: what makes sense as one is understood
    /// without the words of every other command.
    pub(crate) fn understand() -> Result<Args, clap::Error> {
        let mut words = std::env::args_os().skip(1).peekable();
        let command = match words.peek().and_then(|word| word.to_str()) {
            Some("run") => {
                RunAlone::try_parse_from(words).ok().map(|run| Command::Run(Box::new(run.options)))
            }
            Some("exec") => ExecAlone::try_parse_from(words)
                .ok()
                .map(|exec| Command::Kept(KeptCommand::Exec(exec.options))),
            _ => None,
        };
        match command {
            Some(command) => Ok(Args { command: Some(command) }),
            None => Args::try_parse(),
        }
    }

    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Some(Command::Run(options)) => options.json,
            Some(Command::Doctor(options)) => options.json,
            Some(Command::Diff(options)) => options.json,
            Some(Command::Apply(options)) => options.json,
            Some(Command::Discard(options)) => options.json,
            Some(Command::Layers(options)) => options.json,
            Some(Command::Images(options)) => options.wants_json(),
            Some(Command::Kept(command)) => command.wants_json(),
            Some(Command::Daemon(command)) => command.wants_json(),
            Some(Command::Audit(options)) => options.wants_json(),
            Some(Command::Agent { command }) => command.wants_json(),
            Some(Command::Publish(options)) => options.json,
            Some(Command::BuildBase(options)) => options.how.json,
            Some(Command::Build(options)) => options.how.json,
            Some(Command::Trust(options)) => options.json,
            Some(Command::Secrets { command }) => command.wants_json(),
            Some(Command::Golden { command }) => command.wants_json(),
            Some(Command::Config { command: ConfigCommand::Show(options) }) => options.json,
            Some(Command::Policy { command: PolicyCommand::Explain(options) }) => options.json,
            Some(Command::Llm { command: LlmCommand::Spend(options) }) => options.json,
            Some(Command::Config { command: ConfigCommand::Schema }) => false,
            Some(Command::Policy { command: PolicyCommand::Check(_) }) => false,
            // Whatever it prints is for programs.
            Some(Command::ShowRun(options)) => !options.command_line,
            Some(Command::Zygote { .. } | Command::Shell(_) | Command::Completions { .. } | Command::Man)
            | None => false,
        }
    }
}

/// `run` and nothing else.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct RunAlone {
    #[command(flatten)]
    options: RunArgs,
}

/// `exec` and nothing else.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct ExecAlone {
    #[command(flatten)]
    options: ExecArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a sandbox
    #[command(after_help = "Examples:\n  \
        belljar run -- make test\n  \
        belljar run --memory 2g --timeout 10m -- npm ci\n  \
        belljar run --group registries --allow example.com -- npm ci\n  \
        belljar run --secret anthropic --group registries -- claude -p 'fix the build'\n  \
        belljar run --github repo-write --github-repo acme/widgets -- git push origin fix\n  \
        belljar run --llm https://api.anthropic.com --llm-key secret:anthropic -- claude -p hello\n  \
        belljar run --overlay -- claude -p 'tidy up'   # then: belljar diff, belljar apply\n  \
        belljar run --branch fix/login -- claude -p 'fix the login'\n  \
        belljar run --ro ~/datasets --env LOG=debug -- python3 train.py\n  \
        belljar run --json -- sh -c 'id; ls /'")]
    Run(Box<RunArgs>),
    /// Open a shell in a folder's sandbox, or in one of its own that goes away with it
    #[command(
        after_help = "In a folder that was made ready (`belljar init`, `belljar start`) it joins the folder's sandbox, started \
        if need be. With flags that say what a sandbox is, or with --once, it is one of its own. Examples:\n  \
        belljar shell\n  \
        belljar shell ~/web --branch fix/login\n  \
        belljar shell --once"
    )]
    Shell(Box<ShellArgs>),
    #[command(flatten)]
    Kept(KeptCommand),
    /// Show the sandbox that `run` would make, and start nothing
    #[command(
        after_help = "One JSON object: the wall, everything that is mounted, in order; the environment, with placeholders for \
        secrets; limits, the system call filter, egress rules and protected paths. It comes from what really builds a sandbox.\n\n\
        Examples:\n  \
        belljar show-run\n  \
        belljar show-run --backend bwrap --command-line\n  \
        belljar show-run --group registries | jq .egress"
    )]
    ShowRun(Box<ShowRunArgs>),
    /// Run Claude Code, Codex, opencode, pi, Gemini or an agent of your own in a sandbox
    #[command(after_help = "Examples:\n  \
        belljar agent list\n  \
        belljar agent run claude --prompt 'fix the failing test'\n  \
        belljar agent shell claude\n  \
        belljar agent logs -f\n  \
        belljar agent phases release.toml --overlay")]
    Agent {
        #[command(subcommand)]
        command: AgentCommand,
    },
    /// Show what a sandbox changed beside its folder
    #[command(
        after_help = "A sandbox started with `--overlay` leaves the folder untouched: its changes are in a layer, to be \
        looked at, applied or discarded. What is never applied is said: sockets, devices, set-id bits, and files that git or \
        belljar would obey, such as `.git/hooks`.\n\n\
        Examples:\n  \
        belljar diff\n  \
        belljar diff --stat\n  \
        belljar diff src/ README.md\n  \
        belljar diff 3f2a --names\n  \
        belljar diff --patch > work.patch"
    )]
    Diff(DiffArgs),
    /// Make what a sandbox changed beside its folder the folder's own, or a part of it
    #[command(
        after_help = "Either all of what is named is applied or nothing is, also when belljar is killed or the disk is full. \
        A file that changed on this machine since the sandbox started is never overwritten: it is said, and nothing is \
        applied.\n\n\
        Examples:\n  \
        belljar apply\n  \
        belljar apply src/ Cargo.toml\n  \
        belljar apply 3f2a\n\n\
        Exit codes: 0 applied; 126 refused, because of such files; 125 it went wrong. Nothing changed but with 0."
    )]
    Apply(ApplyArgs),
    /// Throw away what a sandbox changed beside its folder
    #[command(after_help = "Examples:\n  belljar discard\n  belljar discard 3f2a --yes")]
    Discard(DiscardArgs),
    /// List what sandboxes changed that is not in their folders
    #[command(after_help = "Examples:\n  belljar layers\n  belljar layers --json")]
    Layers(LayersArgs),
    /// List the images that sandboxes can be made of, get more, and remove them
    #[command(after_help = "Examples:\n  \
        belljar images\n  \
        belljar images pull alpine:3.22\n  \
        belljar images import alpine.tar alpine:3.22\n  \
        belljar images gc --dry-run\n  \
        belljar run --root oci:alpine:3.22 -- cat /etc/os-release")]
    Images(ImagesArgs),
    /// Say which walls work here, why not, and what to do; and what tools a sandbox has
    Doctor(DoctorArgs),
    /// Show what was decided for a sandbox, and check that nobody changed it; without a command, list the logs
    #[command(after_help = "Examples:\n  \
        belljar audit\n  \
        belljar audit tail -f\n  \
        belljar audit show 3f2a\n  \
        belljar audit verify")]
    Audit(AuditArgs),
    /// Let the .belljar/config.toml of a repository count, after a look at it
    #[command(after_help = "It counts as long as it does not change. Examples:\n  \
        belljar trust\n  \
        belljar trust --revoke ~/project")]
    Trust(TrustArgs),
    /// Keep keys and tokens here, encrypted, so that no sandbox has to hold one
    #[command(
        after_help = "A sandbox holds a placeholder, and the gateway puts the value in on the way to where it belongs. \
        Wherever a secret can be named, `secret:NAME` is one of these, `env:NAME` a variable and `file:/PATH` a file of \
        this machine.\n\n\
        Examples:\n  \
        belljar secrets set anthropic\n  \
        pass show github/token | belljar secrets set github\n  \
        belljar secrets set app-key < app.pem\n  \
        belljar secrets list\n  \
        belljar secrets check"
    )]
    Secrets {
        #[command(subcommand)]
        command: SecretsCommand,
    },
    /// Build and keep an Alpine system that sandboxes can have as their root
    #[command(
        after_help = "`--root golden` builds it on first use. The archive is believed only with a digest that does not come from the \
        mirror; packages are installed inside a sandbox that reaches the mirror and nothing else.\n\n\
        Examples:\n  \
        belljar golden build\n  \
        belljar golden build --tier small --mirror https://mirror.example.com/alpine\n  \
        belljar run --root golden -- python3 --version"
    )]
    Golden {
        #[command(subcommand)]
        command: GoldenCommand,
    },
    /// Show what your configuration comes to, and what may stand in it
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Check a policy file, and ask what policy says of a name
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Look at what was used of a model
    Llm {
        #[command(subcommand)]
        command: LlmCommand,
    },
    /// Build belljar-base with Docker: the image with tools and agents that others are made from
    #[command(
        after_help = "Node 24 on Debian; git, gh, git-delta, editors and the usual tools; Claude Code, Codex, opencode and ast-grep. \
        A step that fails fails the build: an image is whole, or there is none.\n\n\
        Examples:\n  \
        belljar build-base\n  \
        belljar build-base --tag stable --claude-code-version 2.1.3 --codex-version ^0.9\n  \
        belljar build-base --pull-from registry.example.com:5000 --npm-registry https://npm.example.com\n  \
        belljar build-base --base my/node:24   # an image that the daemon has: nothing is pulled\n\n\
        Exit codes: 0 built; 1 a step failed; 125 belljar or Docker failed."
    )]
    BuildBase(Box<BuildBaseArgs>),
    /// Build the image of a repository from its .belljar/Dockerfile, with Docker
    #[command(
        after_help = "Without that file the base image is used as it is, which is said. The folder is what the image is made from, \
        without .git and what .dockerignore names. Examples:\n  \
        belljar build\n  \
        belljar build ~/web --base-tag stable\n\n\
        Exit codes: 0 built, or nothing to build; 1 a step failed; 125 belljar or Docker failed."
    )]
    Build(BuildArgs),
    /// Push what was committed in a clone, and open a pull request if you say so
    #[command(
        after_help = "Nothing leaves before this: a run with --clone only collects commits. Examples:\n  \
        belljar publish 3f2a9c0d11e8b7a4 --token secret:github\n  \
        belljar publish 3f2a9c0d11e8b7a4 --to fix/login --token secret:github --pull-request 'Fix the login'"
    )]
    Publish(PublishArgs),
    #[command(flatten)]
    Daemon(DaemonCommand),
    /// Print a script that completes belljar's words in your shell
    #[command(
        after_help = "Example:\n  belljar completions bash > ~/.local/share/bash-completion/completions/belljar"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Example:\n  belljar man | man -l -")]
    Man,
    /// Make the shims of the daemon, which says on standard input which
    #[command(hide = true)]
    Zygote {
        /// Nothing: the words of shims take its place
        room: OsString,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: SandboxOptions,
    /// Start in this folder; a relative one starts at the workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Whether the command gets a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) tty: Tty,
    /// One call, one result: read standard input to its end, collect what the command writes, and print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct ShellArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// A sandbox of its own that goes away with the shell
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) place: SandboxOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a command gets a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tty {
    /// When belljar itself has one
    Auto,
    /// Yes
    Always,
    /// No
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_two_words_of_a_command_are_the_same() {
        Args::command().debug_assert();
    }
}

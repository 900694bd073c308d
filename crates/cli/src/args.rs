//! The words that belljar understands.

mod agent;
mod audit;
mod build;
mod credentials;
mod daemon;
mod golden;
mod grouped;
mod habits;
mod images;
mod integrate;
mod layers;
mod llm;
mod mcp;
mod persistent;
mod publish;
mod renamed;
mod sandbox;
mod secrets;
mod settings;
mod show_run;
mod steer;
mod upkeep;
mod workspace;

pub(crate) use agent::{
    AgentCommand, AgentConfigCommand, AgentListArgs, AgentLoginArgs, AgentLogsArgs, AgentPhasesArgs,
    AgentRunArgs, AgentRunsArgs, AgentShellArgs, BillField, ConversationArgs, OwnArgs, WishArgs,
};
pub(crate) use audit::{
    AuditArgs, AuditCommand, AuditExportArgs, AuditPruneArgs, AuditShowArgs, AuditTailArgs, AuditVerifyArgs,
    ExportFormat,
};
pub(crate) use build::{BuildArgs, BuildBaseArgs, OwnImageArgs};
pub(crate) use daemon::{
    DaemonCommand, E2bCommand, GrantArgs, GrantsCommand, ListingArgs, RevokeArgs, ServeArgs, ServiceArgs,
    ServiceCommand, ServiceUninstallArgs, SweepArgs,
};
pub(crate) use golden::{GoldenBuildArgs, GoldenCommand, GoldenStatusArgs};
pub(crate) use images::{
    ImagesArgs, ImagesCommand, ImagesGcArgs, ImagesImportArgs, ImagesPullArgs, ImagesRmArgs,
};
pub(crate) use integrate::{IntegrateArgs, OutsideAgent};
pub(crate) use layers::{ApplyArgs, ChangesCommand, DiffArgs, DiscardArgs, LayersArgs};
pub(crate) use llm::{LlmArgs, LlmCommand, LlmPricesArgs, LlmSpendArgs};
pub(crate) use mcp::McpArgs;
pub(crate) use persistent::{
    AdminArgs, AgentConfigArgs, AttachArgs, ExecArgs, ForkArgs, ForwardArgs, HowArg, InitArgs, ListArgs,
    LogsArgs, PersistentCommand, PersistentListArgs, PsArgs, RestoreArgs, RmArgs, SandboxCommand,
    SnapshotArgs, SnapshotsArgs, SnapshotsCommand, StartArgs, TargetArgs, UndoArgs, VolumeCommand,
    VolumesArgs, WhichArgs,
};
pub(crate) use publish::PublishArgs;
pub(crate) use sandbox::{SandboxOptions, variables_of, workspace};
pub(crate) use secrets::{SecretsCheckArgs, SecretsCommand, SecretsListArgs, SecretsRmArgs, SecretsSetArgs};
pub(crate) use settings::{
    ConfigCommand, ConfigInitArgs, ConfigShowArgs, EgressArgs, PolicyCheckArgs, PolicyCommand,
    PolicyExplainArgs, PolicySuggestArgs, TrustArgs,
};
pub(crate) use show_run::ShowRunArgs;
pub(crate) use steer::{AllowArgs, ApproveArgs, AskArgs, DenyArgs, PolicyShowArgs, SteerCommand, WhyArgs};
pub(crate) use upkeep::{DuArgs, PruneArgs, UninstallArgs, UpkeepCommand};

use belljar_spec::ForwardedPort;
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs AI agents, and the commands their models write, in sandboxes.
///
/// A command runs in a sandbox of its own: it sees the system's programs, the current folder or its repository at
/// /workspace, and a home and /tmp of its own, removed with it. It reaches only the host names you allow, has none of your environment, none
/// of your files elsewhere, and no way to more.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Without a command, at a terminal, `belljar` is `belljar shell`.\n\
    Exit codes: the command's own; 124 it ran too long; 125 belljar failed;\n126 refused, or not executable; 127 not found inside.")]
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
                .map(|exec| Command::Persistent(PersistentCommand::Exec(exec.options))),
            Some("--version" | "-V") => {
                version_alone().try_get_matches_from(words).err().map_or(Ok(None), Err)?
            }
            _ => None,
        };
        match command {
            Some(command) => Ok(Args { command: Some(command) }),
            None => Args::parse_whole(),
        }
    }

    /// With every command, in any spelling.
    fn parse_whole() -> Result<Args, clap::Error> {
        let given = renamed::current_spelling(std::env::args_os().skip(1).collect());
        let mut command = command();
        let matches = command.try_get_matches_from_mut(std::iter::once("belljar".into()).chain(given));
        matches
            .and_then(|matches| Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command)))
            .map_err(habits::with_tip)
    }

    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Some(Command::Run(options)) => options.json,
            Some(Command::Doctor(options)) => options.json,
            Some(Command::Verify(options)) => options.json,
            Some(Command::Diff(options)) => options.json,
            Some(Command::Apply(options)) => options.json,
            Some(Command::Changes { command }) => command.wants_json(),
            Some(Command::Sandbox { command }) => command.wants_json(),
            Some(Command::Volume { command }) => command.wants_json(),
            Some(Command::Llm { command }) => command.wants_json(),
            Some(Command::Images(options)) => options.wants_json(),
            Some(Command::Persistent(command)) => command.wants_json(),
            Some(Command::Daemon { command }) => command.wants_json(),
            Some(Command::Steer(command)) => command.wants_json(),
            Some(Command::Upkeep(command)) => command.wants_json(),
            Some(Command::Audit(options)) => options.wants_json(),
            Some(Command::Agent { command }) => command.wants_json(),
            Some(Command::Secrets { command }) => command.wants_json(),
            Some(Command::Config { command }) => command.wants_json(),
            Some(Command::Integrate(options)) => options.json,
            Some(Command::Policy { command: PolicyCommand::Explain(options) }) => options.json,
            Some(Command::Policy { command: PolicyCommand::Show(options) }) => options.json,
            Some(Command::Policy { command: PolicyCommand::Suggest(options) }) => options.json,
            Some(Command::Policy { command: PolicyCommand::Check(_) }) => false,
            Some(
                Command::Zygote { .. }
                | Command::Serve(_)
                | Command::Mcp(_)
                | Command::ToolShell { .. }
                | Command::Ui(_)
                | Command::E2b { .. }
                | Command::Shell(_)
                | Command::Completions { .. }
                | Command::Complete(_)
                | Command::Man(_)
                | Command::Help { .. },
            )
            | None => false,
        }
    }
}

/// `--version` and nothing else: scripts ask for it often, and the words of all commands take a third of a start.
fn version_alone() -> clap::Command {
    clap::Command::new("belljar")
        .version(env!("CARGO_PKG_VERSION"))
        .no_binary_name(true)
        .disable_help_flag(true)
        .allow_external_subcommands(true)
}

/// Every command, its help in groups.
pub(crate) fn command() -> clap::Command {
    grouped::grouped(Args::command())
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
    /// Open a shell in a folder's sandbox, or in a one-shot sandbox
    #[command(
        after_help = "In a folder that was made ready (`belljar sandbox init`, `belljar start`) it joins the folder's sandbox, started \
        if need be. With flags that say what a sandbox is, or with --once, it is one of its own. Examples:\n  \
        belljar shell\n  \
        belljar shell ~/web --branch fix/login\n  \
        belljar shell --once"
    )]
    Shell(Box<ShellArgs>),
    #[command(flatten)]
    Persistent(PersistentCommand),
    /// Run Claude Code, Codex, opencode, pi, Gemini or your own agent
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
    /// Apply what a sandbox changed to its folder, all or some of it
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
    /// List, pull, import, build and remove images
    #[command(after_help = "Examples:\n  \
        belljar images\n  \
        belljar images pull alpine:3.22\n  \
        belljar images import alpine.tar alpine:3.22\n  \
        belljar images gc --dry-run\n  \
        belljar run --root oci:alpine:3.22 -- cat /etc/os-release")]
    #[command(visible_alias = "image")]
    Images(ImagesArgs),
    /// Check which backends work here, and what to do where not
    Doctor(DoctorArgs),
    /// Attack a sandbox of this machine and this configuration, and say what held
    #[command(
        after_help = "Harmless attacks on everything that a sandbox promises, judged from outside of it. Another sandbox can be attacked \
        in the same way, which shows that the attacks can succeed. Examples:\n  \
        belljar verify\n  \
        belljar verify --backend all\n  \
        belljar verify --command 'docker run --rm -i -v .:/workspace -w /workspace python:3-slim'\n\n\
        Exit codes: 0 everything that was tried held; 1 there is a hole."
    )]
    Verify(VerifyArgs),
    /// List, show and verify audit logs
    #[command(after_help = "Examples:\n  \
        belljar audit\n  \
        belljar audit tail -f\n  \
        belljar audit show 3f2a\n  \
        belljar audit verify")]
    Audit(AuditArgs),
    /// Manage keys and tokens, kept encrypted outside of sandboxes
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
    /// Show the effective configuration; approve that of a repository
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Show the policy in force; check policy files; explain what is decided for a host name
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Run the daemon: HTTP API and persistent sandboxes
    #[command(
        after_help = "Commands that need a daemon start one by themselves; this is for one that is always there. Sandboxes \
        outlive it: the next one finds them, with their commands and their output.\n\n\
        Examples:\n  \
        belljar serve\n  \
        belljar serve --listen 127.0.0.1:7070   # with a token of `belljar daemon grants create`\n  \
        curl --unix-socket $XDG_RUNTIME_DIR/belljar/daemon.sock http://localhost/v1/sandboxes"
    )]
    Serve(ServeArgs),
    /// Open the dashboard in the browser
    #[command(
        after_help = "Sandboxes, what they may reach and what they ask, as long as this runs. The link works once. Examples:\n  \
        belljar ui\n  \
        belljar ui --no-open                   # print the link\n  \
        belljar ui --listen 127.0.0.1:7071     # for `ssh -L 7071:127.0.0.1:7071`"
    )]
    Ui(UiArgs),
    /// Persistent sandboxes: init, ps, attach, pause, resume, admin, plan
    Sandbox {
        #[command(subcommand)]
        command: SandboxCommand,
    },
    /// Unapplied changes and commits: list, discard, publish
    Changes {
        #[command(subcommand)]
        command: ChangesCommand,
    },
    /// Volumes: list, shared
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Models: prices
    Llm {
        #[command(subcommand)]
        command: LlmCommand,
    },
    /// Give an agent that runs outside the tools to work in a folder's sandbox: an MCP server
    #[command(
        after_help = "It speaks the Model Context Protocol on standard input and output, as agents and editors start such servers \
        (`belljar help integrations`). Its first call finds the folder's sandbox, or makes it with these flags; the sandbox stays.\n\n\
        Examples:\n  \
        claude mcp add belljar -- belljar mcp\n  \
        codex mcp add belljar -- belljar mcp ~/web\n  \
        belljar mcp --overlay --group registries"
    )]
    Mcp(Box<McpArgs>),
    /// Let an agent that runs outside run its commands in the folder's sandbox
    #[command(
        after_help = "Prints the settings that the agent needs. With --write it writes them, and makes the folder's sandbox, which shows the \
        folder where it is on this machine and protects them (`belljar help integrations`). Examples:\n  \
        belljar integrate claude --write\n  \
        belljar integrate codex ~/web --group registries --write"
    )]
    Integrate(Box<IntegrateArgs>),
    /// The shell of an agent that runs outside: runs a line in the folder's sandbox
    #[command(hide = true)]
    ToolShell {
        /// What the agent tells its shell
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// E2B-compatible clients of the daemon: env
    #[command(name = "e2b")]
    E2b {
        #[command(subcommand)]
        command: E2bCommand,
    },
    /// The daemon: stop, service, grants, sweep
    Daemon {
        #[command(subcommand)]
        command: DaemonCommand,
    },
    #[command(flatten)]
    Steer(SteerCommand),
    #[command(flatten)]
    Upkeep(UpkeepCommand),
    /// Print the completion script for a shell
    #[command(
        after_help = "Example:\n  belljar completions bash > ~/.local/share/bash-completion/completions/belljar"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print what the last of some words can become, for the scripts of `completions`
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Print the manual page of belljar or of one command, or write all pages into a folder
    #[command(after_help = "Examples:\n  \
        belljar man | man -l -\n  \
        belljar man images build | man -l -\n  \
        belljar man --all ~/.local/share/man/man1")]
    Man(ManArgs),
    /// Print the help of a command, or a page of the manual: `belljar help topics`
    Help {
        /// A command, as in `belljar help images build`, or a topic, as in `belljar help egress`
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
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
    pub(crate) sandbox_options: SandboxOptions,
    /// A named set of settings, below what flags say: `belljar config profiles` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Start in this folder; a relative one starts at the workspace [default: the current folder, inside the workspace]
    #[arg(short = 'w', long, alias = "workdir", value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    #[command(flatten)]
    pub(crate) forward: ForwardedArgs,
    /// With egress `open`, and at the end the smallest policy that would have sufficed, as a diff of the folder's configuration
    #[arg(long, conflicts_with = "json")]
    pub(crate) learn: bool,
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    /// Print no notes of belljar's own; errors, warnings and refusals remain
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// One call, one result: read standard input to its end, collect what the command writes, and print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Ports of this machine that lead into a sandbox, as long as it lives.
#[derive(Debug, Default, Clone, ClapArgs)]
pub(crate) struct ForwardedArgs {
    /// Lead a port of this machine (of 127.0.0.1 if no address is given) to a port inside [default: the same]; 0 is any free one; may be
    /// repeated
    #[arg(short = 'p', long = "port", value_name = "[ADDRESS:]PORT[:INSIDE]")]
    pub(crate) ports: Vec<ForwardedPort>,
}

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct ShellArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// A one-shot sandbox, removed when the shell exits
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) forward: ForwardedArgs,
    #[command(flatten)]
    pub(crate) image: OwnImageArgs,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
}

/// A shell that belljar has completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompleteArgs {
    /// Which shell asks
    pub(crate) shell: Shell,
    /// The words behind `belljar`, up to the cursor
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// The page of this command: `belljar man run`, `belljar man images build`
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Write a page for each command into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) all: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UiArgs {
    /// The loopback address to listen at [default: one that no other server has]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Print the link, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// The backend: a name, or `all` that work here [default: the one that a run gets]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "profile"])]
    pub(crate) backend: Option<String>,
    /// A named set of settings: `belljar config profiles` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub(crate) profile: Option<String>,
    /// Attack another sandbox: a command that is run in the folder of the attacks, with `sh -s` behind it
    #[arg(long, value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Try only this promise: network, names, files, processes, sockets, privileges, limits, work_tree; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) promise: Vec<crate::commands::verify::Promise>,
    /// Name every attack, and not only those that worked
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a command gets a terminal, also as Docker's users ask for one.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct TerminalArgs {
    /// Whether the command gets a terminal
    #[arg(long = "tty", value_name = "WHEN", default_value = "auto")]
    when: Tty,
    /// As docker has it; a command has our terminal anyway where there is one
    #[arg(short = 't', hide = true)]
    docker_tty: bool,
    /// As docker has it; a command has our standard input anyway
    #[arg(short = 'i', long = "interactive", hide = true)]
    docker_interactive: bool,
}

impl TerminalArgs {
    pub(crate) fn tty(self) -> Tty {
        let TerminalArgs { when, docker_tty: _, docker_interactive: _ } = self;
        when
    }
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

    #[test]
    fn no_two_words_of_a_command_are_the_same() {
        command().debug_assert();
    }
}

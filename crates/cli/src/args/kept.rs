//! The words about sandboxes that are kept: one for each repository, or as a program made them.

use super::{SandboxOptions, Tty};
use belljar_spec::git::BranchName;
use belljar_spec::parse_time;
use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum KeptCommand {
    /// Make a folder ready for a sandbox that stays: its configuration, its history, its agents' settings
    #[command(
        after_help = "What is there already stays as it is. Examples:\n  belljar init\n  belljar init ~/web\n  \
        belljar init --dockerfile   # then: belljar build"
    )]
    Init(InitArgs),
    /// Start the sandbox of a folder, and let it live until `belljar stop`
    #[command(
        after_help = "Flags count when it is made. One that is there and differs is refused: `belljar rm` it first. Examples:\n  \
        belljar start\n  \
        belljar start ~/web --branch fix/login\n  \
        belljar start --group registries --memory 4g"
    )]
    Start(Box<StartArgs>),
    /// Run a command in a folder's sandbox, or in the one of this name
    #[command(after_help = "Examples:\n  \
        belljar exec -- make test\n  \
        belljar exec ~/web -- npm ci\n  \
        belljar exec -d -- npm run dev   # then: belljar logs -f\n  \
        belljar exec bj-web-3f2a9c04d1e7 -- ls\n\n\
        Exit codes: the command's own; 124 it ran too long; 125 belljar failed;\n126 refused, or not executable; 127 not found inside.")]
    Exec(ExecArgs),
    /// List the sandboxes that are kept
    #[command(
        after_help = "What sandboxes changed beside their folders is listed by `belljar layers`. Examples:\n  \
        belljar list\n  belljar list --json"
    )]
    List(KeptListArgs),
    /// List the commands of a sandbox
    Ps(PsArgs),
    /// Show what a command wrote, and with -f what it goes on to write
    #[command(after_help = "Examples:\n  \
        belljar logs\n  \
        belljar logs -f\n  \
        belljar logs -f bj-web-3f2a9c04d1e7 cmd_2")]
    Logs(LogsArgs),
    /// Join a command that runs: see what it writes, type what it reads
    #[command(after_help = "Leave it with ctrl-P ctrl-Q; it goes on. Example:\n  belljar attach . cmd_2")]
    Attach(AttachArgs),
    /// Let everything in a sandbox stand still
    Pause(TargetArgs),
    /// Let it go on
    Resume(TargetArgs),
    /// End everything in a sandbox, and keep its files
    #[command(
        after_help = "The next `belljar start`, `shell` or `exec` goes on with its files. Examples:\n  \
        belljar stop\n  belljar stop bj-web-3f2a9c04d1e7"
    )]
    Stop(TargetArgs),
    /// Take sandboxes away, with their files; folders, branches, history and agents' settings stay
    #[command(after_help = "Examples:\n  belljar rm .\n  belljar rm --force bj-web-3f2a9c04d1e7")]
    Rm(RmArgs),
    /// List the volumes of a folder's sandboxes: what outlives them
    Volumes(VolumesArgs),
    /// List the volumes that belong to no folder
    SharedVolumes(KeptListArgs),
    /// Open a shell beside a folder's sandbox, made like it, that may change what is protected
    #[command(
        after_help = "Its way out is the sandbox's own, and it goes away with the shell. Examples:\n  \
        belljar admin\n  belljar admin --root"
    )]
    Admin(AdminArgs),
    /// Write settings for Codex that every sandbox of a folder finds
    #[command(after_help = "What is there stays, unless --force says otherwise. Examples:\n  \
        belljar codex-init-config\n  belljar codex-init-config --auth")]
    CodexInitConfig(AgentConfigArgs),
    /// Write settings for Claude Code that every sandbox of a folder finds
    #[command(after_help = "What is there stays, unless --force says otherwise. Examples:\n  \
        belljar claude-init-config\n  belljar claude-init-config --auth")]
    ClaudeInitConfig(AgentConfigArgs),
}

impl KeptCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            KeptCommand::Init(options) => options.json,
            KeptCommand::Start(options) => options.json,
            KeptCommand::Exec(options) => options.json,
            KeptCommand::List(options) | KeptCommand::SharedVolumes(options) => options.json,
            KeptCommand::Ps(options) => options.json,
            KeptCommand::Logs(options) => options.json,
            KeptCommand::Pause(options) | KeptCommand::Resume(options) | KeptCommand::Stop(options) => {
                options.json
            }
            KeptCommand::Rm(options) => options.json,
            KeptCommand::Volumes(options) => options.json,
            KeptCommand::CodexInitConfig(options) | KeptCommand::ClaudeInitConfig(options) => options.json,
            KeptCommand::Attach(_) | KeptCommand::Admin(_) => false,
        }
    }
}

/// Which sandbox.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct WhichArgs {
    /// A folder, or a sandbox's name or the beginning of one [default: the current folder]
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: Option<String>,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Also write .belljar/Dockerfile, to begin with: what `belljar build` makes an image from
    #[arg(long)]
    pub(crate) dockerfile: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StartArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// A choice of settings by name: `belljar profiles` shows what there is
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: SandboxOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Set a variable for this command; NAME alone takes its value from outside; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = clap::builder::OsStringValueParser::new())]
    pub(crate) env: Vec<OsString>,
    /// Start in this folder; a relative one starts at the workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// How long it may run: `90s`, `10m` [default: the sandbox's limit; none with --detach]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Start it, say its id, and leave it alone
    #[arg(short, long, conflicts_with = "tty")]
    pub(crate) detach: bool,
    /// Whether it gets a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) tty: Tty,
    /// Read standard input to its end, collect what the command writes, and print one JSON object with the result
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = clap::builder::OsStringValueParser::new())]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KeptListArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Also those that ended
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Which command, as `belljar ps` names it [default: the newest]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Go on with what it writes from now on, until it ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AttachArgs {
    /// A folder, or a sandbox's name or the beginning of one
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: String,
    /// Which command, as `belljar ps` names it
    #[arg(value_name = "COMMAND")]
    pub(crate) command: String,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RmArgs {
    /// Folders, or names of sandboxes or the beginnings of them
    #[arg(value_name = "FOLDER|NAME", required = true)]
    pub(crate) targets: Vec<String>,
    /// The folders' sandboxes for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// Also those that live, that have changes nowhere else, or that this belljar cannot read
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VolumesArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AdminArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// On this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// As root inside, who is nobody outside
    #[arg(long)]
    pub(crate) root: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentConfigArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Also copy what you logged in with on this machine: a real secret that every sandbox of the folder can then read
    #[arg(long)]
    pub(crate) auth: bool,
    /// Replace what is there
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

//! The words about sandboxes that are kept: one for each repository, or as a program made them.

use super::{ForwardedArgs, OwnImageArgs, SandboxOptions, ShowRunArgs, TerminalArgs};
use belljar_spec::git::BranchName;
use belljar_spec::{ForwardedPort, SnapshotName, VolumeName, VolumePath, parse_time};
use clap::{Args as ClapArgs, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum PersistentCommand {
    /// Start the sandbox of a folder; it runs until `belljar stop`
    #[command(
        after_help = "Flags count when it is made. One that is there and differs is refused: `belljar rm` it first. Examples:\n  \
        belljar start\n  \
        belljar start ~/web --branch fix/login\n  \
        belljar start --group registries --memory 4g\n  \
        belljar start --build              # with the image of .belljar/Dockerfile\n  \
        belljar start --volume cache:/data/cache"
    )]
    Start(Box<StartArgs>),
    /// Run a command in a folder's sandbox, or in a named one
    #[command(after_help = "Examples:\n  \
        belljar exec -- make test\n  \
        belljar exec ~/web -- npm ci\n  \
        belljar exec -d -- npm run dev   # then: belljar logs -f\n  \
        belljar exec bj-web-3f2a9c04d1e7 -- ls\n\n\
        Exit codes: the command's own; 124 it ran too long; 125 belljar failed;\n126 refused, or not executable; 127 not found inside.")]
    Exec(ExecArgs),
    /// List persistent sandboxes
    #[command(
        visible_alias = "ls",
        after_help = "What sandboxes changed beside their folders is listed by `belljar changes list`. Examples:\n  \
        belljar list\n  belljar list --json"
    )]
    List(ListArgs),
    /// Show the output of a command; with -f, follow it
    #[command(after_help = "Examples:\n  \
        belljar logs\n  \
        belljar logs -f\n  \
        belljar logs -f bj-web-3f2a9c04d1e7 cmd_2")]
    Logs(LogsArgs),
    /// Stop a sandbox and keep its files
    #[command(
        after_help = "The next `belljar start`, `shell` or `exec` continues with its files. Examples:\n  \
        belljar stop\n  belljar stop bj-web-3f2a9c04d1e7"
    )]
    Stop(TargetArgs),
    /// Reach a port that a program listens on inside a sandbox, at the same port of this machine or at another one
    #[command(
        visible_alias = "ports",
        after_help = "The port opens on 127.0.0.1, if no address is given, and stays open until ctrl-C. Examples:\n  \
        belljar forward 3000\n  \
        belljar forward . 8080:3000   # http://127.0.0.1:8080\n  \
        belljar forward bj-web-3f2a9c04d1e7 5432"
    )]
    Forward(ForwardArgs),
    /// Take a snapshot of the files of a sandbox
    #[command(
        after_help = "Without copying where no command runs in it and nothing lies in its /tmp; else its processes are paused while files are \
        copied. What a snapshot does not hold is said: a folder of the host, volumes. Examples:\n  \
        belljar snapshot\n  \
        belljar snapshot . before-upgrade\n  \
        belljar snapshot bj-web-3f2a9c04d1e7 --how copied"
    )]
    Snapshot(SnapshotArgs),
    /// List snapshots; remove one
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  belljar snapshots\n  belljar snapshots rm before-upgrade"
    )]
    Snapshots(SnapshotsArgs),
    /// Make sandboxes like this one, with the files that it has now
    #[command(after_help = "Examples:\n  \
        belljar fork\n  \
        belljar fork . --count 3\n  \
        belljar fork --key try-1 --key try-2\n  \
        belljar fork --snapshot before-upgrade")]
    Fork(ForkArgs),
    /// Put a sandbox back to a snapshot
    #[command(
        after_help = "No command may run in it. Its present files are kept as a snapshot, unless --force discards them. Examples:\n  \
        belljar restore . before-upgrade\n  \
        belljar restore bj-web-3f2a9c04d1e7 snap-1f0c3b5a7d9e2468 --force"
    )]
    Restore(RestoreArgs),
    /// Undo commands that ran with --checkpoint
    #[command(
        after_help = "The sandbox's files are again what they were before its last command with --checkpoint, or before the last N. Examples:\n  \
        belljar exec --checkpoint -- npm ci   # then: belljar undo\n  \
        belljar undo . 3"
    )]
    Undo(UndoArgs),
    /// Remove sandboxes and their files
    #[command(
        after_help = "Folders, branches, history and agents' settings stay. Examples:\n  belljar rm .\n  belljar rm --force bj-web-3f2a9c04d1e7"
    )]
    Rm(RmArgs),
}

impl PersistentCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            PersistentCommand::Start(options) => options.json,
            PersistentCommand::Exec(options) => options.json,
            PersistentCommand::List(options) => options.json,
            PersistentCommand::Logs(options) => options.json,
            PersistentCommand::Stop(options) => options.json,
            PersistentCommand::Rm(options) => options.json,
            PersistentCommand::Snapshot(options) => options.json,
            PersistentCommand::Snapshots(options) => options.json,
            PersistentCommand::Fork(options) => options.json,
            PersistentCommand::Restore(options) => options.json,
            PersistentCommand::Undo(options) => options.json,
            PersistentCommand::Forward(options) => options.json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Prepare a folder for a persistent sandbox: its configuration, its history, its agents' settings
    #[command(
        after_help = "What is there already stays as it is. Examples:\n  belljar sandbox init\n  belljar sandbox init ~/web\n  \
        belljar sandbox init --dockerfile   # then: belljar images build\n  \
        belljar sandbox init --build        # builds its image too"
    )]
    Init(InitArgs),
    /// List the commands of a sandbox
    Ps(PsArgs),
    /// Attach to a running command: see its output, type its input
    #[command(
        after_help = "Detach with ctrl-P ctrl-Q; the command keeps running. Example:\n  belljar sandbox attach . cmd_2"
    )]
    Attach(AttachArgs),
    /// Pause all processes in a sandbox
    Pause(TargetArgs),
    /// Resume a paused sandbox
    Resume(TargetArgs),
    /// Open a shell beside a folder's sandbox, made like it, that may change what is protected
    #[command(
        after_help = "Its egress policy is the sandbox's own, and it is removed when the shell exits. Examples:\n  \
        belljar sandbox admin\n  belljar sandbox admin --root"
    )]
    Admin(AdminArgs),
    /// Show the sandbox that `run` would make, and start nothing
    #[command(
        after_help = "One JSON object: the backend, everything that is mounted, in order; the environment, with placeholders for \
        secrets; limits, the system call filter, egress rules and protected paths. It comes from what really builds a sandbox.\n\n\
        Examples:\n  \
        belljar sandbox plan\n  \
        belljar sandbox plan --backend bwrap --command-line\n  \
        belljar sandbox plan --group registries | jq .egress"
    )]
    Plan(Box<ShowRunArgs>),
}

impl SandboxCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            SandboxCommand::Init(options) => options.json,
            SandboxCommand::Ps(options) => options.json,
            SandboxCommand::Pause(options) | SandboxCommand::Resume(options) => options.json,
            // Whatever it prints is for programs.
            SandboxCommand::Plan(options) => !options.command_line,
            SandboxCommand::Attach(_) | SandboxCommand::Admin(_) => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List the volumes of a folder's sandboxes: what outlives them
    #[command(alias = "ls")]
    List(VolumesArgs),
    /// List the volumes that belong to no folder
    Shared(PersistentListArgs),
}

impl VolumeCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            VolumeCommand::List(options) => options.json,
            VolumeCommand::Shared(options) => options.json,
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
    /// Also write .belljar/Dockerfile, to begin with: what `belljar images build` makes an image from
    #[arg(long)]
    pub(crate) dockerfile: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) image: OwnImageArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StartArgs {
    /// The folder [default: the current one]
    #[arg(value_name = "FOLDER", conflicts_with = "workspace")]
    pub(crate) folder: Option<PathBuf>,
    /// A choice of settings by name: `belljar config profiles` shows what there is
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Mount a volume, which outlives the sandbox and is shared by all that name it [default path: /volumes/NAME]; may be repeated
    #[arg(long, value_name = "NAME[:PATH]", value_parser = volume)]
    pub(crate) volume: Vec<(VolumeName, VolumePath)>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) forward: ForwardedArgs,
    #[command(flatten)]
    pub(crate) image: OwnImageArgs,
    #[command(flatten)]
    pub(crate) sandbox_options: SandboxOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Set a variable for this command; NAME alone takes its value from outside; may be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = clap::builder::OsStringValueParser::new())]
    pub(crate) env: Vec<OsString>,
    /// Set the variables of this file, a line each, `#` for comments; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Start in this folder; a relative one starts at the workspace
    #[arg(short = 'w', long, alias = "workdir", value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// How long it may run: `90s`, `10m` [default: the sandbox's limit; none with --detach]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Take a checkpoint of its sandbox before: `belljar undo` goes back to it; the last 20 are kept
    #[arg(long)]
    pub(crate) checkpoint: bool,
    /// Refuse to run it under another egress policy than the one with this digest (`belljar policy show`)
    #[arg(long, value_name = "DIGEST")]
    pub(crate) policy: Option<String>,
    /// Start it in the background and print its id
    #[arg(short, long, conflicts_with = "when")]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) terminal: TerminalArgs,
    /// Read standard input to its end, collect what the command writes, and print one JSON object with the result
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_parser = clap::builder::OsStringValueParser::new())]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    /// Print names only
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PersistentListArgs {
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
    /// Which command, as `belljar sandbox ps` names it [default: the newest]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Continue with what it writes from now on, until it ends
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
    /// Which command, as `belljar sandbox ps` names it
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
    /// Also those that run, that have changes nowhere else, or that this belljar cannot read
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SnapshotArgs {
    /// A folder, or a sandbox's name or the beginning of one [default: the current folder]
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: Option<String>,
    /// What to call it [default: an id]
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) name: Option<SnapshotName>,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// `layered` copies nothing, and ends the sandbox's processes and its /tmp; `copied` pauses them
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) how: HowArg,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a snapshot comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HowArg {
    Auto,
    Layered,
    Copied,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SnapshotsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SnapshotsCommand>,
    /// Also checkpoints, and what was saved before a restore
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotsCommand {
    /// Remove snapshots; sandboxes that were made from them keep their files
    Rm(SnapshotsRmArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SnapshotsRmArgs {
    /// Names or ids
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) names: Vec<SnapshotName>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// How many [default: 1, or one for each --key]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) count: Option<u32>,
    /// The key of a fork, by which it is found again; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// With the files of this snapshot instead of the present ones
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "how")]
    pub(crate) snapshot: Option<SnapshotName>,
    /// `layered` copies nothing, and ends the sandbox's processes and its /tmp; `copied` pauses them
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) how: HowArg,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RestoreArgs {
    /// A folder, or a sandbox's name or the beginning of one
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: String,
    /// A name or an id of `belljar snapshots`
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: SnapshotName,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// Discard its present files
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UndoArgs {
    /// A folder, or a sandbox's name or the beginning of one [default: the current folder]
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: Option<String>,
    /// How many commands
    #[arg(value_name = "N", default_value_t = 1)]
    pub(crate) steps: u32,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ForwardArgs {
    /// A folder, or a sandbox's name or the beginning of one [default: the current folder's, if a port stands here]
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) target: String,
    /// The port of this machine, and behind a colon the one inside [default: the same]; before both an address of this machine
    /// [default: 127.0.0.1]
    #[arg(value_name = "[ADDRESS:]PORT[:INSIDE]")]
    pub(crate) ports: Vec<ForwardedPort>,
    /// The folder's sandbox for this branch
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<BranchName>,
    /// Print one JSON object when the ports are open
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
    /// As root inside, without any rights of root outside
    #[arg(long)]
    pub(crate) root: bool,
    #[command(flatten)]
    pub(crate) image: OwnImageArgs,
}

/// A volume, and where it is inside.
fn volume(text: &str) -> Result<(VolumeName, VolumePath), String> {
    if text.starts_with(['/', '.', '~']) {
        return Err("a volume has a name; `--ro PATH` or `--rw PATH` shows a path of the host".to_string());
    }
    let (name, path) = match text.split_once(':') {
        Some((name, path)) => (name, path.to_string()),
        None => (text, format!("/volumes/{text}")),
    };
    let name: VolumeName = name.parse().map_err(|error| format!("{error}"))?;
    Ok((name, path.parse().map_err(|error| format!("{error}"))?))
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

//! The words about the daemon, and about who may ask it for what.

use crate::log::LogFormat;
use belljar_spec::egress::Mode;
use belljar_spec::request::HostGrant;
use belljar_spec::{ByteSize, Cpus, parse_time};
use clap::{Args as ClapArgs, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Stop the daemon; running sandboxes continue, and the next command that needs a daemon starts one
    #[command(after_help = "Example:\n  belljar daemon stop")]
    Stop,
    /// Have the system start the daemon
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Manage API tokens and what each one allows
    #[command(
        after_help = "A grant is a token and what it allows; what is not said is not allowed. The token is shown once, and kept \
        only as a hash.\n\n\
        Examples:\n  \
        belljar daemon grants create ci --sandboxes 4 --memory 2g\n  \
        belljar daemon grants create agent --key 'agent/*' --egress strict --host example.com --valid 12h\n  \
        belljar daemon grants list\n  \
        belljar daemon grants revoke 3f2a9c04d1e7"
    )]
    Grants {
        #[command(subcommand)]
        command: GrantsCommand,
    },
    /// Clean up after crashed sandboxes; running ones and persistent files are kept
    #[command(after_help = "Examples:\n  belljar daemon sweep --dry-run\n  belljar daemon sweep")]
    Sweep(SweepArgs),
}

fn address_with_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, as in `127.0.0.1:7070`".to_string())
}

impl DaemonCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            DaemonCommand::Stop | DaemonCommand::Service { .. } => false,
            DaemonCommand::Grants { command: GrantsCommand::Create(options) } => options.json,
            DaemonCommand::Grants { command: GrantsCommand::List(options) } => options.json,
            DaemonCommand::Grants { command: GrantsCommand::Revoke(options) } => options.json,
            DaemonCommand::Sweep(options) => options.json,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// Listen at this unix socket [default: $BELLJAR_SOCKET, or daemon.sock below $XDG_RUNTIME_DIR/belljar]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen on the network as well; every request there needs a token
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_with_port)]
    pub(crate) listen: Option<SocketAddr>,
    /// A host name that the daemon is reached by, beside localhost; may be repeated
    #[arg(long = "host-name", value_name = "NAME")]
    pub(crate) host_names: Vec<String>,
    /// Allow cross-origin requests (CORS) from this origin, as in https://app.example.com; may be repeated
    #[arg(long = "origin", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// Maximum size of a file uploaded into a sandbox [default: any]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_upload: Option<ByteSize>,
    /// Serve E2B-compatible clients at this address, with keys of `belljar daemon grants create --e2b` [default: `e2b` below [daemon]]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) e2b: Option<SocketAddr>,
    /// The domain of E2B-compatible clients, served with TLS at the same address: every sandbox has names below it
    #[arg(long, value_name = "NAME")]
    pub(crate) e2b_domain: Option<String>,
    /// The domain's certificate, for it and for *.NAME, in PEM [default: one of a CA of our own, see `belljar e2b env`]
    #[arg(long, value_name = "FILE", requires = "e2b_key")]
    pub(crate) e2b_certificate: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "e2b_certificate")]
    pub(crate) e2b_key: Option<PathBuf>,
    /// Exit after this time without a running sandbox and without a request
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) idle_exit: Option<Duration>,
    /// How the log is written, here and in the shims: as text, or a JSON object a line [default: $BELLJAR_LOG_FORMAT, or text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Listen beyond this machine without TLS: tokens and all traffic can be read on the way
    #[arg(long)]
    pub(crate) danger_plain_http: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum E2bCommand {
    /// Print the variables that E2B-compatible clients need, as a shell reads them
    #[command(
        after_help = "The API key is not among them: `belljar daemon grants create NAME --e2b` shows it once.\n\n\
        Example:\n  \
        eval \"$(belljar e2b env)\""
    )]
    Env,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write units for systemd: the daemon, and a socket that starts it
    #[command(after_help = "Examples:\n  \
        belljar daemon service install --print\n  \
        belljar daemon service install && systemctl --user enable --now belljar.socket")]
    Install(ServiceArgs),
    /// Stop the service and remove its units
    #[command(after_help = "Examples:\n  \
        belljar daemon service uninstall\n  \
        belljar daemon service uninstall --system")]
    Uninstall(ServiceUninstallArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServiceUninstallArgs {
    /// Of this user [default, unless belljar runs as root]
    #[arg(long, conflicts_with = "system")]
    pub(crate) user: bool,
    /// Of the machine
    #[arg(long)]
    pub(crate) system: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServiceArgs {
    /// Print them, and write nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// For this user alone [default, unless belljar runs as root]
    #[arg(long, conflicts_with = "system")]
    pub(crate) user: bool,
    /// For the machine, run as root
    #[arg(long)]
    pub(crate) system: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Make a grant, and show its token this once
    Create(Box<GrantArgs>),
    /// List grants; their tokens cannot be shown again
    #[command(alias = "ls")]
    List(ListingArgs),
    /// Revoke a grant; what its token is being used for ends at once
    Revoke(RevokeArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GrantArgs {
    /// What people call it
    pub(crate) name: String,
    /// No sandboxes: only profiles and capabilities can be seen
    #[arg(long)]
    pub(crate) no_sandboxes: bool,
    /// Write the token as an API key of E2B-compatible clients (`belljar serve --e2b`)
    #[arg(long)]
    pub(crate) e2b: bool,
    /// Runs of agents as well
    #[arg(long)]
    pub(crate) agents: bool,
    /// Read `/metrics`, which counts the sandboxes of all callers
    #[arg(long)]
    pub(crate) metrics: bool,
    /// The route to a model that this machine's configuration has
    #[arg(long)]
    pub(crate) llm: bool,
    /// A profile that may be named; `*` is every one with isolation of its own [default: only the default one]
    #[arg(long = "profile", value_name = "NAME")]
    pub(crate) profiles: Vec<String>,
    /// A mode of egress that may be chosen: none, strict, ask, open [default: none and strict]
    #[arg(long = "egress", value_name = "MODE")]
    pub(crate) egress: Vec<Mode>,
    /// A name that may be reached in strict mode, with those below it; `*` is every one [default: none]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostGrant>,
    /// A key of a sandbox that may be made and joined, or the beginning of keys and `*` [default: none]
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// A key whose sandbox may be started, stopped and deleted regardless of who made it; or the beginning of keys and `*` [default: none]
    #[arg(long = "own-key", value_name = "KEY")]
    pub(crate) own_keys: Vec<String>,
    /// A folder of this machine that may be worked on, with all below it [default: none]
    #[arg(long = "folder", value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,
    /// A secret that may be used without being seen; `*` is every one [default: none]
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<String>,
    /// A volume that may be used, or the beginning of names and `*` [default: none]
    #[arg(long = "volume", value_name = "NAME")]
    pub(crate) volumes: Vec<String>,
    /// An image that may be the root, or the beginning of names and `*` [default: none]
    #[arg(long = "image", value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// Maximum number of sandboxes at the same time
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sandboxes: Option<u32>,
    /// Maximum number of snapshots [default: 100]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) snapshots: Option<u32>,
    /// Maximum requests per second
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rate: Option<u32>,
    /// Maximum memory per sandbox
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,
    /// Maximum processors per sandbox
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<Cpus>,
    /// Maximum processes per sandbox
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pids: Option<u32>,
    /// Maximum open files per process
    #[arg(long, value_name = "NUMBER")]
    pub(crate) open_files: Option<u64>,
    /// Maximum private files (disk) per sandbox
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<ByteSize>,
    /// Maximum run time of a command
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Maximum output of a command
    #[arg(long, value_name = "SIZE")]
    pub(crate) output: Option<ByteSize>,
    /// Maximum time a sandbox may take to be ready
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) ready_timeout: Option<Duration>,
    /// How long the grant is valid [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) valid: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RevokeArgs {
    /// Its id, as `belljar daemon grants list` shows it
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ListingArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

//! The words for sandboxes that live: what they may reach, and what a person is asked.

use belljar_spec::parse_time;
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum SteerCommand {
    /// Allow a host name, also in sandboxes that live
    #[command(
        after_help = "Takes effect at once in the folder's sandboxes that live, and is written to `allow` under [egress] in its \
        .belljar/config.toml, which is trusted then. Examples:\n  \
        belljar allow example.com\n  \
        belljar allow registry.example.com:8443 ~/web\n  \
        belljar allow example.com --for 10m      # in sandboxes that live, and no file\n  \
        belljar allow example.com --in 3f2a --once"
    )]
    Allow(AllowArgs),
    /// Deny a host name, also in sandboxes that live, and end its connections
    #[command(after_help = "Wins over every rule that allows. Examples:\n  \
        belljar deny example.com\n  \
        belljar deny example.com --in bj-web-3f2a9c04d1e7")]
    Deny(DenyArgs),
    /// List what sandboxes with `--egress ask` want to reach, and answer
    #[command(after_help = "A connection waits for a minute. Examples:\n  \
        belljar approve                  # list\n  \
        belljar approve 3f2a-1           # as long as the sandbox lives\n  \
        belljar approve 3f2a-1 --once\n  \
        belljar approve 3f2a-1 --deny\n  \
        belljar approve --watch          # answer each as it comes")]
    Approve(ApproveArgs),
    /// Inside a sandbox: ask the user to allow a host, and wait for the answer
    #[command(
        after_help = "Answered with `belljar approve` or in the dashboard; the wait is a minute at most. Without belljar inside: \
        curl -d 'to read the API reference' http://ask.belljar.internal/docs.example.com. Examples:\n  \
        belljar ask docs.example.com --why 'to read the API reference'\n  \
        belljar ask registry.example.com:8443\n\n\
        Exit codes: 0 allowed; 1 denied, or no answer; 126 cannot be allowed."
    )]
    Ask(AskArgs),
    /// Explain what was refused: by which rule, and what would allow it
    #[command(after_help = "Examples:\n  belljar why\n  belljar why api.example.com\n  belljar why 3f2a")]
    Why(WhyArgs),
}

impl SteerCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            SteerCommand::Allow(options) => options.json,
            SteerCommand::Deny(options) => options.json,
            SteerCommand::Approve(options) => options.json,
            SteerCommand::Ask(options) => options.json,
            SteerCommand::Why(options) => options.json,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AskArgs {
    /// The host, and its port if that is not 443
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    /// What it is for: the user reads it
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Print the answer as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("lasting").args(["for_time", "once", "always", "user"]))]
pub(crate) struct AllowArgs {
    /// The host: `example.com` with its subdomains, `=example.com` alone, `example.com:8443` at this port
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The folder [default: the current one, or the repository that it is in]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// In this sandbox that lives, and no other: its name, its key, the beginning of its id, or a folder
    #[arg(long = "in", value_name = "SANDBOX", conflicts_with = "folder")]
    pub(crate) sandbox: Option<String>,
    /// For so long, in sandboxes that live: 10m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub(crate) for_time: Option<Duration>,
    /// For one connection, in sandboxes that live
    #[arg(long)]
    pub(crate) once: bool,
    /// Also for sandboxes that start later, in the folder's configuration [default without --in]
    #[arg(long)]
    pub(crate) always: bool,
    /// Also for sandboxes that start later, in your own configuration
    #[arg(long)]
    pub(crate) user: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("lasting").args(["for_time", "always", "user"]))]
pub(crate) struct DenyArgs {
    /// The host: `example.com` with its subdomains, `=example.com` alone, `example.com:8443` at this port
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// The folder [default: the current one, or the repository that it is in]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// In this sandbox that lives, and no other: its name, its key, the beginning of its id, or a folder
    #[arg(long = "in", value_name = "SANDBOX", conflicts_with = "folder")]
    pub(crate) sandbox: Option<String>,
    /// For so long, in sandboxes that live: 10m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub(crate) for_time: Option<Duration>,
    /// Also for sandboxes that start later, in the folder's configuration [default without --in]
    #[arg(long)]
    pub(crate) always: bool,
    /// Also for sandboxes that start later, in your own configuration
    #[arg(long)]
    pub(crate) user: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("verdict").args(["once", "sandbox", "folder", "always", "deny"]))]
pub(crate) struct ApproveArgs {
    /// The question, as the list names it [default: the only one]
    #[arg(value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// Allow the connections that wait, and no later one
    #[arg(long)]
    pub(crate) once: bool,
    /// Allow the name as long as the sandbox lives
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// Also allow it in the configuration of the sandbox's folder
    #[arg(long)]
    pub(crate) folder: bool,
    /// Also allow it in your own configuration
    #[arg(long)]
    pub(crate) always: bool,
    /// Deny it as long as the sandbox lives
    #[arg(long)]
    pub(crate) deny: bool,
    /// Wait for questions, and answer each as it comes
    #[arg(long, conflicts_with_all = ["question", "verdict", "json"])]
    pub(crate) watch: bool,
    /// Print JSON: the list, or what became of the answer
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WhyArgs {
    /// A host, as it was refused; or the beginning of a sandbox's id; or nothing: the newest sandbox
    #[arg(value_name = "NAME|RUN")]
    pub(crate) what: Option<String>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PolicyShowArgs {
    /// The sandbox that lives: its name, its key, the beginning of its id, or a folder [default: what would be in force for a new
    /// one]
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,
    /// The workspace whose .belljar/config.toml counts, if it is trusted [default: the current folder]
    #[arg(long, value_name = "DIR", conflicts_with = "sandbox")]
    pub(crate) workspace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) egress: super::EgressArgs,
}

//! The words about what may be reached, and about the files that say so.

use super::ListingArgs;
use belljar_config::Layer;
use belljar_spec::egress::{GroupName, HostName, HostNameError, HostPort, Mode, PortRange};
use belljar_spec::request::{AllowRule, EgressRequest};
use belljar_spec::{ErrorCode, SandboxError, parse_age};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Default, Clone, ClapArgs)]
#[command(next_help_heading = "Egress")]
pub(crate) struct EgressArgs {
    /// What may leave the sandbox at all: `none`; `strict`, what rules allow; `ask`, of any other name you
    /// are asked (`belljar approve`); `open`, any public name. Private
    /// addresses stay out of reach in each [default: strict, with nothing allowed, or as your configuration says]
    #[arg(long = "egress", value_name = "MODE")]
    mode: Option<Mode>,
    /// Allow a host: `example.com` is it and all its subdomains, `=example.com` only itself; by TLS at 443 and HTTP at
    /// 80, unless a port or a protocol (tls, http, ssh, postgres, tcp) says otherwise: `db.example.com:5433/postgres`;
    /// may be repeated
    #[arg(long, value_name = "HOST[:PORT][/PROTO]")]
    allow: Vec<AllowRule>,
    /// Allow hosts that belong together: github, providers, registries, coding-agents; may be repeated
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<GroupName>,
    /// Allow a port of this machine's loopback address (a database, a model server), which is host.belljar.internal inside; may be
    /// repeated
    #[arg(long = "allow-host", value_name = "PORT")]
    host_ports: Vec<HostPort>,
    /// Intercept TLS to every host, not only where a rule or a key needs it: a placeholder in a request to any but
    /// its own host is stopped. Programs that accept one certificate only, or speak no HTTP in TLS, fail then
    #[arg(long)]
    inspect: bool,
}

impl EgressArgs {
    /// In open mode; another one was not asked for.
    pub(super) fn open(&mut self) -> Result<(), SandboxError> {
        match self.mode.replace(Mode::Open) {
            None | Some(Mode::Open) => Ok(()),
            Some(mode) => Err(ErrorCode::RequestConflict
                .error(format!("`--learn` runs with egress `open`, and not `{mode}`"))
                .hint("omit `--egress`")),
        }
    }

    pub(crate) fn request(self) -> EgressRequest {
        let EgressArgs { mode, allow, groups, host_ports, inspect } = self;
        EgressRequest { mode, allow, groups, host_ports, inspect, deny: Vec::new() }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TrustArgs {
    /// The folder whose .belljar/config.toml is meant [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Forget that it is trusted
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what your files and these flags come to, and where each part comes from
    Show(Box<ConfigShowArgs>),
    /// Print the JSON schema of belljar.toml, for editors
    Schema,
    /// Approve the .belljar/config.toml of a repository, after a look at it
    #[command(after_help = "It is applied as long as it does not change. Examples:\n  \
        belljar config trust\n  \
        belljar config trust --revoke ~/project")]
    Trust(TrustArgs),
    /// List the profiles that work here: named choices of a sandbox
    Profiles(ListingArgs),
    /// Write a sample of your belljar.toml, in which everything is commented out
    #[command(after_help = "Examples:\n  belljar config init\n  belljar config init --print")]
    Init(ConfigInitArgs),
}

impl ConfigCommand {
    /// Whether a program is listening.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            ConfigCommand::Show(options) => options.json,
            ConfigCommand::Trust(options) => options.json,
            ConfigCommand::Profiles(options) => options.json,
            ConfigCommand::Schema | ConfigCommand::Init(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigInitArgs {
    /// Print it, and write nothing
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigShowArgs {
    /// The workspace whose .belljar/config.toml counts, if it is trusted [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) egress: EgressArgs,
    #[command(flatten)]
    pub(crate) llm: super::LlmArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a file before it is put in its place
    #[command(after_help = "Exit codes: 0 the file is valid; 1 it is not.")]
    Check(PolicyCheckArgs),
    /// Show the policy in force, each rule with its file and line, and its digest
    #[command(after_help = "Examples:\n  \
        belljar policy show\n  \
        belljar policy show bj-web-3f2a9c04d1e7\n  \
        belljar policy show --group registries --json")]
    Show(super::PolicyShowArgs),
    /// Say whether a name can be reached, by which rule, and where it leads
    #[command(after_help = "Exit codes: 0 it can be reached; 1 it cannot.\n\n\
        Examples:\n  \
        belljar policy explain api.github.com:443\n  \
        belljar policy explain --group registries files.pythonhosted.org")]
    Explain(PolicyExplainArgs),
    /// Propose the smallest policy for what a folder's sandboxes reached, from their audit logs
    #[command(after_help = "Changes no file. Examples:\n  \
        belljar policy suggest\n  \
        belljar policy suggest ~/web --since 7d")]
    Suggest(PolicySuggestArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PolicySuggestArgs {
    /// The folder [default: the current one, or the repository that it is in]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// From sandboxes that were started at most so long ago: hours, days, weeks or years, as in `36h`, `30d`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) since: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PolicyCheckArgs {
    /// The file
    pub(crate) file: PathBuf,
    /// Whose it will be [default: by its path; the user's if that says nothing]
    #[arg(long = "as", value_name = "LAYER")]
    pub(crate) layer: Option<LayerWord>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PolicyExplainArgs {
    /// The name, or the name and a port
    #[arg(value_name = "NAME[:PORT]")]
    pub(crate) target: Target,
    /// The workspace whose .belljar/config.toml counts, if it is trusted [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Do not resolve the name
    #[arg(long)]
    pub(crate) no_resolve: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) egress: EgressArgs,
}

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerWord {
    /// /etc/belljar/belljar.toml
    Operator,
    /// ~/.config/belljar/belljar.toml
    User,
    /// .belljar/config.toml
    Repository,
}

impl From<LayerWord> for Layer {
    fn from(word: LayerWord) -> Layer {
        match word {
            LayerWord::Operator => Layer::Operator,
            LayerWord::User => Layer::User,
            LayerWord::Repository => Layer::Repository,
        }
    }
}

/// What is to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: HostName,
    pub(crate) port: Option<u16>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let parsed = |name: &str| name.parse().map_err(|error: HostNameError| error.to_string());
        // An address has colons of its own, and is told what it is.
        match text.split_once(':').filter(|_| belljar_spec::egress::spelled_address(text).is_none()) {
            None => Ok(Target { name: parsed(text)?, port: None }),
            Some((name, port)) => match port.parse::<PortRange>() {
                Ok(range) if range.first() == range.last() => {
                    Ok(Target { name: parsed(name)?, port: Some(range.first()) })
                }
                _ => Err("write a name, or a name and one port, as in `example.com:443`".into()),
            },
        }
    }
}

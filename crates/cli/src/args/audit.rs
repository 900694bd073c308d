//! The words about what was decided.

use super::LlmSpendArgs;
use belljar_spec::parse_age;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::time::Duration;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// List every log, not only the newest
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

impl AuditArgs {
    pub(super) fn wants_json(&self) -> bool {
        match &self.command {
            None => self.json,
            Some(AuditCommand::Tail(options)) => options.json,
            Some(AuditCommand::Show(options)) => options.json,
            Some(AuditCommand::Export(_)) => false,
            Some(AuditCommand::Verify(options)) => options.json,
            Some(AuditCommand::Prune(options)) => options.json,
            Some(AuditCommand::Spend(options)) => options.json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the last records of a sandbox, and with -f those to come
    Tail(AuditTailArgs),
    /// Show all records of a sandbox
    Show(AuditShowArgs),
    /// Print the records of all sandboxes for another program, the oldest sandbox first
    #[command(after_help = "Examples:\n  \
        belljar audit export --since 1d\n  \
        belljar audit export --format otel | curl -H 'Content-Type: application/json' -d @- http://localhost:4318/v1/logs")]
    Export(AuditExportArgs),
    /// Find what was changed, removed, put in, moved or cut off since it was written
    #[command(
        after_help = "Exit codes: 0 all is as it was written; 1 something is not; 125 it cannot be read.\n\
        A log whose last words are missing because belljar was killed is said, and no error."
    )]
    Verify(AuditVerifyArgs),
    /// Remove the logs of sandboxes that ended long ago
    #[command(
        after_help = "The ledger says of each that it was pruned, and `verify` looks for it no more. One that is not as it \
        was written stays, until you have looked at it; the exit code is 1 then."
    )]
    Prune(AuditPruneArgs),
    /// Compare the recorded model usage of a sandbox with LiteLLM's spend logs
    #[command(after_help = "Needs `[llm]` with `url` and `admin_key` in your belljar.toml.\n\
        Exit codes: 0 both say the same; 1 they differ; 125 one of them cannot be read.")]
    Spend(LlmSpendArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditTailArgs {
    /// Whose: an id or its beginning, a folder, or the name of a sandbox [default: the newest]
    pub(crate) sandbox: Option<String>,
    /// Continue with what is written from now on, until the sandbox ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How many records
    #[arg(short = 'n', long, value_name = "NUMBER", default_value = "10")]
    pub(crate) lines: usize,
    /// Print the lines as they are in the file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditShowArgs {
    /// Whose: an id or its beginning, a folder, or the name of a sandbox [default: the newest]
    pub(crate) sandbox: Option<String>,
    /// Print the lines as they are in the file
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditExportArgs {
    /// Whose: an id or its beginning, a folder, or the name of a sandbox [default: all]
    pub(crate) sandbox: Option<String>,
    /// jsonl: the lines as they are in the files; otel: one request of OpenTelemetry's protocol for logs (OTLP), as JSON
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: ExportFormat,
    /// Those written at most so long ago: hours, days, weeks or years, as in `36h`, `30d`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) since: Option<Duration>,
}

/// A shape that other programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Jsonl,
    Otel,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditVerifyArgs {
    /// Whose: an id or its beginning [default: all]
    pub(crate) sandbox: Option<String>,
    /// A hash that an earlier `verify` gave, kept elsewhere: it must still be in the ledger
    #[arg(long, value_name = "HASH")]
    pub(crate) head: Option<belljar_audit::Hash>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditPruneArgs {
    /// Those that ended longer ago than this: hours, days, weeks or years, as in `36h`, `30d`, `8w`, `2y`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Duration,
    /// Only say which
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

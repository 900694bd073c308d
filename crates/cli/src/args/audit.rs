//! The words about what was decided.

use clap::{Args as ClapArgs, Subcommand};
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
            Some(AuditCommand::Verify(options)) => options.json,
            Some(AuditCommand::Prune(options)) => options.json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the last records of a sandbox, and with -f those to come
    Tail(AuditTailArgs),
    /// Show all records of a sandbox
    Show(AuditShowArgs),
    /// Find what was changed, removed, put in, moved or cut off since it was written
    #[command(
        after_help = "Exit codes: 0 all is as it was written; 1 something is not; 125 it cannot be read.\n\
        A log whose last words are missing because belljar was killed is said, and no error."
    )]
    Verify(AuditVerifyArgs),
    /// Remove the logs of sandboxes that ended long ago
    #[command(
        after_help = "The ledger says of each that it was pruned, and `verify` looks for it no more. One that is not as it \
        was written stays, until somebody has looked at it; the exit code is 1 then."
    )]
    Prune(AuditPruneArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditTailArgs {
    /// Whose: an id or its beginning [default: the newest]
    pub(crate) sandbox: Option<String>,
    /// Go on with what is written from now on, until the sandbox ends
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
    /// Whose: an id or its beginning [default: the newest]
    pub(crate) sandbox: Option<String>,
    /// Print the lines as they are in the file
    #[arg(long)]
    pub(crate) json: bool,
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
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Duration,
    /// Only say which
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// With its unit: nobody who writes 30 means seconds.
fn age(text: &str) -> Result<Duration, String> {
    let hours = match text.char_indices().last() {
        Some((end, unit)) => {
            let hours = match unit {
                'h' => Some(1),
                'd' => Some(24),
                'w' => Some(7 * 24),
                'y' => Some(365 * 24),
                _ => None,
            };
            let number =
                text[..end].parse::<u64>().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
            number.zip(hours).and_then(|(number, hours)| number.checked_mul(hours))
        }
        None => None,
    };
    let seconds = hours.and_then(|hours| hours.checked_mul(3600));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is not an age: write a whole number and h, d, w or y, as in `30d`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        let hours = |text: &str| age(text).ok().map(|age| age.as_secs() / 3600);
        let written = ["36h", "30d", "8w", "2y"].map(hours);
        assert_eq!(written, [Some(36), Some(720), Some(1344), Some(17_520)]);
        for text in [
            "",
            "30",
            "d",
            "1.5d",
            "-1d",
            "+1d",
            "30m",
            "30s",
            "d30",
            "99999999999999999999y",
            "9999999999999999y",
            "3é",
        ] {
            assert_eq!(hours(text), None, "{text}");
        }
    }
}

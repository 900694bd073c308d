//! The log: what happens, for engineers, on the standard error of the process that does it. `BELLJAR_LOG` says how much of
//! it, and `BELLJAR_LOG_FORMAT` how it is written; shims inherit both from their daemon.
//!
//! Only belljar's own crates are heard: libraries for HTTP log headers, and with them tokens.

use belljar_spec::{ErrorCode, SandboxError};
use clap::ValueEnum;
use std::env;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt, registry};

/// How the log is written. Without a comment for each, or every flag of the help would take two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }

    /// The variable that says the same to another process.
    pub(crate) fn variable(self) -> (&'static str, String) {
        (FORMAT_VARIABLE, self.as_str().into())
    }
}

/// Logs from now on what `BELLJAR_LOG` says, else from this level on, else nothing: a process that logs nothing pays nothing.
pub(crate) fn start(usual: Option<LevelFilter>, format: Option<LogFormat>) -> Result<(), SandboxError> {
    let filter_text = env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let targets = match (filter_text, usual) {
        (Some(text), _) => targets(&text.to_string_lossy())?,
        (None, Some(level)) => Targets::new().with_target(OURS, level),
        (None, None) => return Ok(()),
    };
    let format_of_variable = env::var_os(FORMAT_VARIABLE).filter(|text| !text.is_empty());
    let format_of_variable =
        format_of_variable.map(|text| parse_format(&text.to_string_lossy())).transpose()?;
    // A full disk is no reason to panic.
    let layer = fmt::layer().with_writer(stderr).log_internal_errors(false);
    let layer = match format.or(format_of_variable).unwrap_or(LogFormat::Text) {
        LogFormat::Text => {
            let has_colors = stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
            layer.with_ansi(has_colors).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).boxed(),
    };
    let subscriber = registry().with(targets).with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("a process starts its log once");
    Ok(())
}

/// `LEVEL`, or `CRATE=LEVEL`, more than one apart by commas.
fn targets(text: &str) -> Result<Targets, SandboxError> {
    let mut targets = Targets::new();
    for part in text.split(',') {
        let (target, level) = part.split_once('=').unwrap_or((OURS, part));
        let is_ours = target == OURS || target.starts_with("belljar_");
        let level = LEVELS.contains(&level).then(|| level.parse::<LevelFilter>().ok()).flatten();
        let (true, Some(level)) = (is_ours, level) else {
            let message = format!("`{VARIABLE}`: `{part}` is not a level of the log");
            return Err(ErrorCode::RequestValue.error(message).hint(format!(
                "use one of {}; or for a crate of belljar alone, as in `info,belljar_gateway=debug`",
                LEVELS.join(", ")
            )));
        };
        targets = targets.with_target(target, level);
    }
    Ok(targets)
}

fn parse_format(text: &str) -> Result<LogFormat, SandboxError> {
    LogFormat::from_str(text, false).map_err(|_| {
        let message = format!("`{FORMAT_VARIABLE}`: `{text}` is not a format of the log");
        ErrorCode::RequestValue.error(message).hint("use `text` or `json`")
    })
}

const VARIABLE: &str = "BELLJAR_LOG";
const FORMAT_VARIABLE: &str = "BELLJAR_LOG_FORMAT";
/// What the names of all our crates begin with.
const OURS: &str = "belljar";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn only_our_own_crates_are_heard() {
        let all = targets("trace").unwrap();
        assert!(all.would_enable("belljar_gateway::dns", &Level::TRACE));
        assert!(!all.would_enable("h2::codec", &Level::ERROR));
        let one = targets("warn,belljar_gateway=debug").unwrap();
        assert!(one.would_enable("belljar_gateway::dns", &Level::DEBUG));
        assert!(!one.would_enable("belljar_engine", &Level::INFO));
        for wrong in ["h2=trace", "loud", "5", "info,", "=info", "belljar=", "belljar_gateway"] {
            let error = targets(wrong).unwrap_err();
            assert!(error.hint.is_some_and(|hint| hint.to_string().contains("off, error, warn")), "{wrong}");
        }
        assert_eq!(parse_format("json").unwrap(), LogFormat::Json);
        assert!(parse_format("xml").is_err());
    }
}

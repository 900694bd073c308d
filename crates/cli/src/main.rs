//! `belljar`, the command: words in, sentences and exit codes out. The one place that prints.

/// A line on standard error. That of the standard library panics where it cannot be written, as behind `2>&1 | head -1` or on a full
/// disk; the exit code would then be the panic's, and not the command's.
macro_rules! eprintln {
    () => { crate::failure::to_stderr(format_args!(""), "\n") };
    ($($part:tt)+) => { crate::failure::to_stderr(format_args!($($part)*), "\n") };
}

/// The same without the end of the line.
macro_rules! eprint {
    ($($part:tt)*) => { crate::failure::to_stderr(format_args!($($part)*), "") };
}

mod args;
mod commands;
mod failure;
mod foreground;
mod host_stream;
mod log;
mod terms;

use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let args = match args::Args::understand() {
        Ok(args) => args,
        Err(error) => return failure::say_usage(&error),
    };
    let as_json = args.wants_json();
    let logs = match &args.command {
        Some(args::Command::Serve(options)) => log::start(Some(LevelFilter::INFO), options.log_format),
        // Each shim has its own.
        Some(args::Command::Zygote { .. }) => Ok(()),
        _ => log::start(None, None),
    };
    if let Err(error) = logs {
        return if as_json { failure::say_json(&error) } else { failure::say(&error) };
    }
    let outcome = match args.command {
        None => commands::shell::without_words(),
        Some(args::Command::Shell(options)) => commands::shell::shell(*options),
        Some(args::Command::Ui(options)) => commands::persistent::ui(&options),
        Some(args::Command::Verify(options)) => commands::verify::verify(options),
        Some(args::Command::Steer(command)) => commands::steer::steer(command),
        Some(args::Command::Persistent(command)) => commands::persistent::persistent(command),
        Some(args::Command::Sandbox { command }) => commands::persistent::sandbox(command),
        Some(args::Command::Changes { command }) => commands::layers::changes(command),
        Some(args::Command::Llm { command: args::LlmCommand::Prices(options) }) => {
            commands::prices::prices(&options)
        }
        Some(args::Command::Mcp(options)) => commands::persistent::mcp::mcp(*options),
        Some(args::Command::Integrate(options)) => commands::persistent::integrate::integrate(*options),
        Some(args::Command::ToolShell { words }) => commands::persistent::tool_shell::tool_shell(words),
        Some(args::Command::Volume { command }) => commands::persistent::volume(command),
        Some(args::Command::Serve(options)) => commands::daemon::serve(options),
        Some(args::Command::E2b { command }) => commands::daemon::e2b(&command),
        Some(args::Command::Daemon { command }) => commands::daemon::daemon(command),
        Some(args::Command::Upkeep(command)) => commands::upkeep::upkeep(command),
        Some(args::Command::Run(options)) => commands::run::run(*options),
        Some(args::Command::Agent { command }) => commands::agent::agent(command),
        Some(args::Command::Diff(options)) => commands::layers::diff::diff(options),
        Some(args::Command::Apply(options)) => commands::layers::apply::apply(options),
        Some(args::Command::Images(options)) => commands::images::images(options),
        Some(args::Command::Doctor(options)) => commands::doctor::doctor(options),
        Some(args::Command::Audit(options)) => commands::audit::audit(options),
        Some(args::Command::Secrets { command }) => commands::secrets::secrets(command),
        Some(args::Command::Config { command }) => commands::config::config(command),
        Some(args::Command::Policy { command }) => commands::policy::policy(command),
        Some(args::Command::Completions { shell }) => commands::completions::completions(shell),
        Some(args::Command::Complete(options)) => commands::completions::complete(&options),
        Some(args::Command::Man(options)) => commands::man::man(&options),
        Some(args::Command::Help { words }) => commands::help::help(&words),
        Some(args::Command::Zygote { .. }) => {
            // It runs for long, and nothing of ours is open yet.
            belljar_sys::Inherited::take().only(0);
            return belljar_server::shim::zygote::run(|| log::start(Some(LevelFilter::WARN), None));
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) if as_json => failure::say_json(&error),
        Err(error) => failure::say(&error),
    }
}

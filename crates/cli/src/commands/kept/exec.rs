//! `belljar exec`: a command in a sandbox that is kept.

use super::daemon::client;
use super::ending::{code_of, say_end};
use super::foreground::{Leaving, attend};
use super::hold::Held;
use super::print_json;
use super::target::Target;
use crate::args::{ExecArgs, Tty, variable_of};
use crate::commands::terminal_variables::terminal_variables;
use crate::commands::{block_on, print};
use crate::failure::of_client;
use crate::foreground::terminal_size;
use belljar_api::{StartCommand, Terminal};
use belljar_spec::request::EnvValue;
use belljar_spec::{ErrorCode, OsText, SandboxError, WindowSize};
use belljar_sys::rustix::termios::isatty;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

pub(crate) fn exec(options: ExecArgs) -> Result<u8, SandboxError> {
    let target = Target::of(options.which)?;
    let mut command = StartCommand {
        argv: options.command.into_iter().map(OsText::from).collect(),
        cwd: options.cwd,
        env: variables(&options.env)?,
        timeout_s: options.timeout.map(|time| time.as_secs().max(1)),
        ..StartCommand::default()
    };
    let size = match options.tty {
        _ if options.json || options.detach => None,
        Tty::Auto => terminal_size(),
        Tty::Always => Some(terminal_size().unwrap_or(WindowSize { rows: 24, cols: 80 })),
        Tty::Never => None,
    };
    block_on(async {
        let held = Held::take(&client(), &target).await?;
        command.cwd = command.cwd.or_else(|| standing(held.below.as_deref()));
        let outcome = if options.detach {
            detached(&held, command, options.json).await
        } else if options.json {
            collected(&held, command).await
        } else {
            in_foreground(&held, command, size).await
        };
        held.release().await;
        outcome
    })
}

/// Runs a command with our streams; also what a shell does.
pub(super) async fn in_foreground(
    held: &Held,
    mut command: StartCommand,
    size: Option<WindowSize>,
) -> Result<u8, SandboxError> {
    command.stdin_open = true;
    command.alone_s = Some(ALONE_S);
    command.terminal = size.map(|size| Terminal { rows: size.rows, cols: size.cols });
    if size.is_some() {
        for (name, value) in terminal_variables() {
            command.env.entry(name.into()).or_insert_with(|| value.into());
        }
    }
    let started = held.sandbox.start(&command).await.map_err(of_client)?;
    let ended = attend(&held.sandbox, &started.id, size.is_some(), Leaving::Never).await?;
    Ok(ended.map_or(0, |result| say_end(&result)))
}

/// Where in the workspace we stand, as a command is told.
pub(super) fn standing(below: Option<&Path>) -> Option<String> {
    below.and_then(Path::to_str).map(String::from)
}

async fn detached(held: &Held, mut command: StartCommand, json: bool) -> Result<u8, SandboxError> {
    command.timeout_s = command.timeout_s.or(Some(NO_LIMIT));
    let started = held.sandbox.start(&command).await.map_err(of_client)?;
    if json {
        return print_json(&started);
    }
    eprintln!("belljar: it runs; `belljar logs -f {} {}` shows what it writes", held.info.name, started.id);
    print(format!("{}\n", started.id).as_bytes())
}

async fn collected(held: &Held, mut command: StartCommand) -> Result<u8, SandboxError> {
    let mut input = Vec::new();
    if !isatty(belljar_sys::rustix::stdio::stdin()) {
        std::io::stdin().lock().read_to_end(&mut input).map_err(|error| {
            ErrorCode::StreamFailed.error(format!("cannot read standard input: {error}")).caused_by(error)
        })?;
    }
    match String::from_utf8(input) {
        Ok(text) => command.stdin = Some(text),
        Err(bytes) => command.stdin_base64 = Some(belljar_api::client::base64(&bytes.into_bytes())),
    }
    let ended = held.sandbox.run(&command).await.map_err(of_client)?;
    print_json(&ended)?;
    Ok(ended.result.as_ref().map_or(crate::failure::FAILED, code_of))
}

fn variables(said: &[OsString]) -> Result<BTreeMap<String, OsText>, SandboxError> {
    let mut all = BTreeMap::new();
    for text in said {
        let (name, value) = variable_of(text)?;
        match value {
            EnvValue::Text(text) => all.insert(name.to_string(), text.into()),
            // A placeholder is made with the sandbox.
            EnvValue::Secret(secret) => {
                let message = format!(
                    "`{name}` would stand for the secret `{secret}`, which a sandbox gets at its start"
                );
                return Err(ErrorCode::RequestConflict
                    .error(message)
                    .hint(format!("`belljar rm .`, then `belljar start --env {name}=secret:{secret}`")));
            }
        };
    }
    Ok(all)
}

/// As long as a command can be allowed to run.
pub(super) const NO_LIMIT: u64 = 31_536_000;

/// How long it goes on when we are gone without a word: long enough for a daemon to come back, or for us to be waited for.
const ALONE_S: u64 = 300;

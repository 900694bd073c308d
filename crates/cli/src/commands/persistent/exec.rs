//! `belljar exec`: a command in a sandbox that is kept.

use super::daemon::client;
use super::ending::{code_of, say_end};
use super::foreground::{Leaving, attend};
use super::hold::{Held, paused, say_notes};
use super::living::Living;
use super::print_json;
use super::snapshots::checkpoint;
use super::target::Target;
use crate::args::{ExecArgs, Tty, variables_of};
use crate::commands::terminal_variables::terminal_variables;
use crate::commands::{block_on, ports, print, steer};
use crate::failure::of_client;
use crate::foreground::terminal_size;
use Failed::{Lost, NotStarted};
use belljar_api::client::Sandbox;
use belljar_api::{CommandInfo, StartCommand, Terminal};
use belljar_config::{self as config, EgressFlags};
use belljar_spec::request::EnvValue;
use belljar_spec::{ErrorCode, OsText, SandboxError, WindowSize};
use belljar_sys::rustix::termios::isatty;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use tokio::task::AbortHandle;

pub(crate) fn exec(options: ExecArgs) -> Result<u8, SandboxError> {
    let target = Target::of(options.which)?;
    let mut command = StartCommand {
        argv: options.command.into_iter().map(OsText::from).collect(),
        cwd: options.cwd,
        env: variables(&options.env_file, &options.env)?,
        timeout_s: options.timeout.map(|time| time.as_secs().max(1)),
        ..StartCommand::default()
    };
    let size = match options.terminal.tty() {
        _ if options.json || options.detach => None,
        Tty::Auto => terminal_size(),
        Tty::Always => Some(terminal_size().unwrap_or(WindowSize { rows: 24, cols: 80 })),
        Tty::Never => None,
    };
    let how = How { detach: options.detach, json: options.json, size, policy: options.policy };
    block_on(async {
        if options.checkpoint || has_checkpoints(&target)? {
            let client = client();
            let held = Held::take(&client, &target).await?;
            let outcome = match checkpoint(&client, held.sandbox.name()).await {
                Ok(()) => {
                    let outcome = run(&held.sandbox, &mut command, held.below.as_deref(), &how).await;
                    ended(outcome, held.sandbox.name())
                }
                Err(error) => Err(error),
            };
            held.release().await;
            return outcome;
        }
        if let Some(living) = Living::find(&target).await {
            say_notes(&living.notes);
            match run(&living.sandbox, &mut command, living.below.as_deref(), &how).await {
                // It was being stopped, and nothing was started: the daemon can start it again.
                Err(NotStarted(error)) if error.code == ErrorCode::SandboxNotAlive => {}
                outcome => return ended(outcome, living.sandbox.name()),
            }
        }
        let held = Held::take(&client(), &target).await?;
        let outcome = run(&held.sandbox, &mut command, held.below.as_deref(), &how).await;
        let outcome = ended(outcome, held.sandbox.name());
        held.release().await;
        outcome
    })
}

/// Whether the folder's configuration wants a checkpoint before each command.
fn has_checkpoints(target: &Target) -> Result<bool, SandboxError> {
    match target {
        Target::Folder(repository) => {
            let loaded = config::load(Some(&repository.folder), EgressFlags::default())?;
            Ok(loaded.sandbox().checkpoint)
        }
        Target::Named(_) => Ok(false),
    }
}

/// How a command is attended.
struct How {
    detach: bool,
    json: bool,
    /// Of the terminal that it gets.
    size: Option<WindowSize>,
    /// The digest of the only policy under which it may run.
    policy: Option<String>,
}

/// Why there is no exit code.
enum Failed {
    NotStarted(SandboxError),
    Lost(SandboxError),
}

async fn run(
    sandbox: &Sandbox,
    command: &mut StartCommand,
    below: Option<&Path>,
    how: &How,
) -> Result<u8, Failed> {
    if let Some(digest) = &how.policy {
        must_have_policy(sandbox.name(), digest).map_err(NotStarted)?;
    }
    command.cwd = command.cwd.take().or_else(|| standing(below));
    if how.detach {
        command.timeout_s = command.timeout_s.or(Some(NO_LIMIT));
        let started = sandbox.start(command).await.map_err(|error| NotStarted(of_client(error)))?;
        return detached(sandbox, &started, how.json).map_err(Lost);
    }
    if how.json {
        return collected(sandbox, command).await;
    }
    let started = start_in_foreground(sandbox, command, how.size).await.map_err(NotStarted)?;
    attend_to_the_end(sandbox, &started, how.size).await.map_err(Lost)
}

/// Refuses a sandbox whose policy is another one now.
fn must_have_policy(name: &str, digest: &str) -> Result<(), SandboxError> {
    let state = steer::state()?;
    let found = steer::chosen(&state, name)?.policy(&state)?.policy;
    if found == digest {
        return Ok(());
    }
    let message =
        format!("the egress policy of `{name}` is {found}, and the command may run under {digest} only");
    Err(ErrorCode::SandboxDiffers.error(message).hint("`belljar policy show SANDBOX` shows its rules"))
}

fn ended(outcome: Result<u8, Failed>, name: &str) -> Result<u8, SandboxError> {
    outcome.map_err(|failed| match failed {
        NotStarted(error) if error.code == ErrorCode::SandboxPaused => paused(name),
        NotStarted(error) | Lost(error) => error,
    })
}

/// Runs a command with our streams; also what a shell does.
pub(super) async fn in_foreground(
    sandbox: &Sandbox,
    mut command: StartCommand,
    size: Option<WindowSize>,
) -> Result<u8, SandboxError> {
    let started = start_in_foreground(sandbox, &mut command, size).await?;
    attend_to_the_end(sandbox, &started, size).await
}

async fn start_in_foreground(
    sandbox: &Sandbox,
    command: &mut StartCommand,
    size: Option<WindowSize>,
) -> Result<CommandInfo, SandboxError> {
    command.stdin_open = true;
    command.alone_s = command.alone_s.or(Some(ALONE_S));
    command.terminal = size.map(|size| Terminal { rows: size.rows, cols: size.cols });
    if size.is_some() {
        for (name, value) in terminal_variables() {
            command.env.entry(name.into()).or_insert_with(|| value.into());
        }
    }
    sandbox.start(command).await.map_err(of_client)
}

async fn attend_to_the_end(
    sandbox: &Sandbox,
    started: &CommandInfo,
    size: Option<WindowSize>,
) -> Result<u8, SandboxError> {
    let port_watch = tell_of_ports(sandbox, size.is_some());
    let ended = attend(sandbox, &started.id, size.is_some(), Leaving::Never).await;
    port_watch.abort();
    let ended = ended?;
    Ok(ended.map_or(0, |result| say_end(&result)))
}

/// Tells of ports that programs inside open.
fn tell_of_ports(sandbox: &Sandbox, has_terminal: bool) -> AbortHandle {
    let (watched, name) = (sandbox.clone(), sandbox.name().to_string());
    let look = move || {
        let sandbox = watched.clone();
        async move { Some(sandbox.open_ports().await.ok()?.iter().map(|open| open.port).collect()) }
    };
    let way = move |port| format!("belljar forward {name} {port}");
    ports::tell(look, way, BTreeSet::new(), has_terminal)
}

/// Where in the workspace we stand, as a command is told.
pub(super) fn standing(below: Option<&Path>) -> Option<String> {
    below.and_then(Path::to_str).map(String::from)
}

fn detached(sandbox: &Sandbox, started: &CommandInfo, json: bool) -> Result<u8, SandboxError> {
    if json {
        return print_json(started);
    }
    let (name, id) = (sandbox.name(), &started.id);
    eprintln!("belljar: started {id}; follow it with `belljar logs -f {name} {id}`");
    print(format!("{id}\n").as_bytes())
}

async fn collected(sandbox: &Sandbox, command: &mut StartCommand) -> Result<u8, Failed> {
    // Standard input is read once, also where a second try is made.
    if command.stdin.is_none() && command.stdin_base64.is_none() {
        match String::from_utf8(standard_input().map_err(NotStarted)?) {
            Ok(text) => command.stdin = Some(text),
            Err(bytes) => command.stdin_base64 = Some(belljar_api::client::base64(&bytes.into_bytes())),
        }
    }
    let ended = sandbox.run(command).await.map_err(|error| NotStarted(of_client(error)))?;
    print_json(&ended).map_err(Lost)?;
    Ok(ended.result.as_ref().map_or(crate::failure::FAILED, code_of))
}

fn standard_input() -> Result<Vec<u8>, SandboxError> {
    let mut input = Vec::new();
    if !isatty(belljar_sys::rustix::stdio::stdin()) {
        std::io::stdin().lock().read_to_end(&mut input).map_err(|error| {
            ErrorCode::StreamFailed.error(format!("cannot read standard input: {error}")).caused_by(error)
        })?;
    }
    Ok(input)
}

fn variables(files: &[PathBuf], flags: &[OsString]) -> Result<BTreeMap<String, OsText>, SandboxError> {
    let mut all = BTreeMap::new();
    for (name, value) in variables_of(files, flags)? {
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

/// How long it continues when we are gone without a word: long enough for a daemon to come back, or for us to be waited
/// for.
const ALONE_S: u64 = 300;

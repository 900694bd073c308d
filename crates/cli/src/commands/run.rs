//! `belljar run`: one command, one sandbox.

use super::ending::say_end;
use super::learn;
use super::ports;
use super::questions;
use super::refused;
use super::standing::Standing;
use super::terminal_variables::terminal_variables;
use super::{block_on, changes, model, print, roots};
use crate::args::{RunArgs, Tty};
use crate::failure::say_notes;
use crate::foreground::{attend, terminal_size};
use crate::terms::for_command_line;
use belljar_api::RunResult;
use belljar_config::Note;
use belljar_engine::{Engine, Forwarding, Run, Sandbox};
use belljar_fleet::Profiles;
use belljar_spec::{
    BackendName, Command, CommandError, Ended, EnvName, ErrorCode, Nesting, SandboxError, SandboxSpec, Stdin,
    WindowSize,
};
use belljar_sys::rustix::termios::isatty;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn run(options: RunArgs) -> Result<u8, SandboxError> {
    if options.json {
        return once(options);
    }
    let tty = options.terminal.tty();
    let learn = options.learn;
    let notes = if options.quiet { Notes::Hidden } else { Notes::Shown };
    let (spec, command, _) = understood(options)?;
    let size = match tty {
        Tty::Auto => terminal_size(),
        Tty::Always => Some(terminal_size().unwrap_or(WindowSize { rows: 24, cols: 80 })),
        Tty::Never => None,
    };
    let mut id = None;
    let code = in_foreground(&spec, command, size, notes, |sandbox| {
        warn_of_weak_isolation(sandbox);
        id = Some(sandbox.id());
        Some(sandbox.limits().wall_time.value)
    })?;
    if let (true, Some(id), Some(folder)) = (learn, id, &spec.workspace) {
        learn::say(id, folder)?;
    }
    Ok(code)
}

/// What to run and where, and notes for the user, who has read them.
fn understood(options: RunArgs) -> Result<(SandboxSpec, Command, Vec<Note>), SandboxError> {
    let mut command = Command::new(&options.command).map_err(bad_command)?;
    let sandbox_options =
        if options.learn { options.sandbox_options.opened()? } else { options.sandbox_options };
    let Standing { sandbox_options, below } = Standing::of(sandbox_options, !options.quiet && !options.json)?;
    command.cwd = options.cwd.or(below);
    let (mut spec, notes) = match options.profile {
        None => sandbox_options.spec()?,
        Some(name) => sandbox_options.spec_over(|request| {
            let profiles = Profiles::of_this_machine(&Engine::new().backends())?;
            profiles.choose(Some(&name))?.apply(request)
        })?,
    };
    spec.forward_ports.extend(options.forward.ports);
    say_notes(&notes);
    // As flags or a profile say.
    command.max_output = spec.limits.output;
    command.timeout = spec.limits.timeout;
    say_loosened(&spec);
    roots::make_ready(&spec)?;
    Ok((spec, command, notes))
}

/// Whether what came of the workspace and of a model is said at the end. Warnings always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    Shown,
    Hidden,
}

/// A user who lets a secret in, or widens what can be attacked, sees that it happens.
pub(super) fn say_loosened(spec: &SandboxSpec) {
    for one in &spec.forwarded {
        eprintln!(
            "belljar: the real value of `{}` is inside, in {} (--forward-secret)",
            one.source, one.variable
        );
    }
    if spec.github.as_ref().is_some_and(|grant| grant.danger_forward_key) {
        eprintln!("belljar: the private key of the GitHub App is inside (--danger-forward-app-key)");
    }
    if spec.nesting == Nesting::Allowed {
        eprintln!("belljar: user namespaces are allowed inside (--nested)");
    }
}

/// A backend without isolation must not pass for one with it.
pub(super) fn warn_of_weak_isolation(sandbox: &Sandbox) {
    changes::warn(sandbox);
    say_weak_isolation(sandbox.backend());
}

fn say_weak_isolation(backend: BackendName) {
    match backend {
        BackendName::Host => {
            eprintln!("belljar: no isolation (--backend host): the command runs as you, on this machine");
        }
        BackendName::Container => {
            let kind = belljar_engine::container_around_us().unwrap_or("a container");
            eprintln!(
                "belljar: the only isolation is the container that belljar runs in ({kind}); only the environment is cleaned"
            );
        }
        BackendName::Landlock => {
            eprintln!(
                "belljar: isolated by Landlock, without namespaces: processes and the sizes and times of files of this machine can be seen, and users of this machine can connect to servers inside"
            );
        }
        BackendName::E2b => {
            eprintln!(
                "belljar: the sandbox is elsewhere: its service isolates it and holds its egress policy, and belljar can check neither"
            );
        }
        BackendName::Native | BackendName::Bwrap | BackendName::Docker(_) => {}
    }
}

/// Makes a sandbox and runs a command in it with our streams; also what a shell does. `announce` sees the sandbox
/// first, and says how long the command may run.
pub(super) fn in_foreground(
    spec: &SandboxSpec,
    mut command: Command,
    size: Option<WindowSize>,
    notes: Notes,
    announce: impl FnOnce(&Sandbox) -> Option<Duration>,
) -> Result<u8, SandboxError> {
    command.stdin = Stdin::Stream;
    give_terminal(&mut command, size, |name| spec.env.iter().any(|(named, _)| named == name));
    // Opened first: a port that is in use starts nothing.
    let forwarding = Forwarding::of(&spec.forward_ports)?;
    let sandbox = Arc::new(Engine::new().create_running(spec, &command)?);
    let timeout = announce(&sandbox);
    let cap = sandbox.limits().output.value;
    ports::say(&forwarding);
    let ended = block_on(async {
        questions::tell(&sandbox, size.is_some());
        tell_of_ports(&sandbox, &forwarding, size.is_some());
        let forwarded = Arc::clone(&sandbox);
        tokio::spawn(forwarding.serve(move || Arc::clone(&forwarded)));
        attend(sandbox.first_command()?, size.is_some(), timeout, cap).await
    });
    over(&sandbox, ended, timeout, notes)
}

/// Tells of ports that programs inside open and nothing leads to.
fn tell_of_ports(sandbox: &Arc<Sandbox>, forwarding: &Forwarding, has_terminal: bool) {
    let sandbox = Arc::clone(sandbox);
    let look = move || {
        let sandbox = Arc::clone(&sandbox);
        async move { sandbox.listening().await.ok() }
    };
    let known = forwarding.ports().iter().map(|at| at.inside).collect();
    ports::tell(look, |port| format!("belljar run -p {port}"), known, has_terminal);
}

/// The same, in a sandbox that is there.
pub(super) fn in_sandbox(
    sandbox: &Sandbox,
    mut command: Command,
    size: WindowSize,
    timeout: Option<Duration>,
) -> Result<u8, SandboxError> {
    command.stdin = Stdin::Stream;
    give_terminal(&mut command, Some(size), |name| sandbox.variable(name.as_str()).is_some());
    let cap = sandbox.limits().output.value;
    let ended = block_on(async {
        questions::tell(sandbox, true);
        attend(sandbox.spawn(&command).await?, true, timeout, cap).await
    });
    over(sandbox, ended, timeout, Notes::Shown)
}

/// A variable that the sandbox or the command names counts before ours.
fn give_terminal(command: &mut Command, size: Option<WindowSize>, is_named: impl Fn(&EnvName) -> bool) {
    command.terminal = size;
    if size.is_none() {
        return;
    }
    for (name, value) in terminal_variables() {
        if let Ok(name) = name.parse::<EnvName>()
            && !is_named(&name)
            && !command.env.iter().any(|(known, _)| *known == name)
        {
            command.env.push((name, value.into()));
        }
    }
}

/// Says what came of a sandbox, and removes it.
fn over(
    sandbox: &Sandbox,
    ended: Result<Ended, SandboxError>,
    timeout: Option<Duration>,
    notes: Notes,
) -> Result<u8, SandboxError> {
    let code = ended.map(|ended| say_end(&ended, timeout, |flag| format!("allow more with `{flag}`")));
    refused::say(sandbox);
    sandbox.abandon();
    // Now everything that was on its way is counted.
    match notes {
        Notes::Shown => {
            model::say(sandbox);
            changes::say(sandbox)?;
        }
        Notes::Hidden => changes::say_warnings(sandbox)?,
    }
    code
}

/// The run as one object, whatever became of it.
fn once(options: RunArgs) -> Result<u8, SandboxError> {
    if !options.forward.ports.is_empty() {
        let message = "`--port` is for a run in the foreground: with `--json` the sandbox is gone when there is an answer";
        return Err(ErrorCode::RequestConflict
            .error(message)
            .hint("omit `--json`, or use `belljar start -p PORT`"));
    }
    let (run, notes) = match understood(options) {
        Ok((spec, command, notes)) => (block_on(run_once(spec, command))?, notes),
        Err(error) => (Run::not_begun(error)?, Vec::new()),
    };
    if let Some(backend) = run.backend {
        say_weak_isolation(backend);
    }
    if let Some(warning) = &run.warning {
        eprintln!("belljar: {warning}");
    }
    print_result(run, &notes)
}

/// What did not get as far as a run, as the same object.
pub(crate) fn not_understood(error: SandboxError) -> Result<u8, SandboxError> {
    print_result(Run::not_begun(error)?, &[])
}

fn print_result(run: Run, notes: &[Note]) -> Result<u8, SandboxError> {
    let code = run.exit_code();
    let mut result = belljar_server::run_result(run);
    if let Some(error) = &mut result.error {
        error.hint = error.hint().as_ref().map(for_command_line);
        error.hint_parts = None;
    }
    let object = Object { result, notes: notes.iter().map(of_note).collect() };
    let text = serde_json::to_string_pretty(&object).map_err(|error| {
        ErrorCode::Internal.error(format!("cannot write the result: {error}")).caused_by(error)
    })?;
    print(format!("{text}\n").as_bytes())?;
    Ok(code)
}

/// A result of the API, and what only a command line has.
#[derive(Serialize)]
struct Object {
    #[serde(flatten)]
    result: RunResult,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Value>,
}

/// A note as `config show` has it too.
pub(super) fn of_note(note: &Note) -> Value {
    json!({ "code": note.code, "message": note.message, "hint": note.hint.as_ref().map(for_command_line) })
}

async fn run_once(spec: SandboxSpec, mut command: Command) -> Result<Run, SandboxError> {
    let mut input = Vec::new();
    if !isatty(belljar_sys::rustix::stdio::stdin()) {
        std::io::stdin().lock().read_to_end(&mut input).map_err(|error| {
            ErrorCode::StreamFailed.error(format!("cannot read standard input: {error}")).caused_by(error)
        })?;
    }
    command.stdin = Stdin::Bytes(input);
    Engine::new().run_once(spec, &command).await
}

fn bad_command(error: CommandError) -> SandboxError {
    ErrorCode::RequestValue
        .error(error.to_string())
        .hint("write it after `--`, as in `belljar run -- make test`; `belljar shell` opens a shell")
}

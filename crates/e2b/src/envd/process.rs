//! Commands: started, followed, given input, ended. A command belongs to its sandbox, not to the stream that started it; each stream has
//! a cursor of its own into the output that the daemon keeps, so a slow reader delays no other.

use super::route::Context;
use super::rpc::{self, Ended, Messages, Sender};
use crate::connect::{Code, RpcError};
use crate::facts::now_ms;
use crate::http::Incoming;
use crate::http::{Body, with_type};
use base64::prelude::{BASE64_STANDARD, Engine};
use belljar_api::client::{ClientError, CommandEvents, output_bytes};
use belljar_api::{
    CommandEvent, CommandInfo, CommandResult, CommandState, StartCommand, StreamName, Terminal,
};
use belljar_spec::{ErrorCode, OsText};
use hyper::{Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What is known of a sandbox's commands beside what the daemon knows; lost with the daemon, and then found by the process id alone.
#[derive(Debug, Default)]
pub(crate) struct Commands(Mutex<HashMap<u32, Known>>);

#[derive(Debug, Clone)]
struct Known {
    /// `cmd_1`.
    id: String,
    tag: Option<String>,
    config: Config,
    /// Whether output is a terminal's.
    terminal: bool,
}

impl Commands {
    /// A new life has new commands.
    pub(crate) fn clear(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u32, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pid: u32, known: Known) {
        let mut all = self.known();
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert(pid, known);
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Config {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Pty {
    size: Size,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Size {
    cols: u32,
    rows: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// A request about one process.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    process: Selector,
    pty: Option<Pty>,
    input: Input,
    signal: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

/// One message of streamed input.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputMessage {
    start: Option<About>,
    data: Option<About>,
}

/// Answers a call to the service.
pub(crate) async fn answer(context: Context, method: &str, request: Request<Incoming>) -> Response<Body> {
    match method {
        "Start" => match start(context, request).await {
            Ok(response) => response,
            Err(error) => rpc::failed(&error),
        },
        "Connect" => match connect(context, request).await {
            Ok(response) => response,
            Err(error) => rpc::failed(&error),
        },
        "StreamInput" => match stream_input(&context, request).await {
            Ok(()) => {
                let messages = [crate::connect::message(&rpc::empty()), crate::connect::end(None)].concat();
                with_type(StatusCode::OK, "application/connect+json", messages)
            }
            Err(error) => rpc::failed(&error),
        },
        "List" => rpc::answer(list(&context).await),
        "Update" | "SendInput" | "SendSignal" | "CloseStdin" => {
            rpc::answer(act(&context, method, request).await)
        }
        method => {
            rpc::answer(Err(RpcError::new(Code::Unimplemented, format!("there is no call `{method}`"))))
        }
    }
}

async fn start(context: Context, request: Request<Incoming>) -> Result<Response<Body>, RpcError> {
    let (deadline, keepalive) = (rpc::deadline(&request), rpc::keepalive(&request));
    context.must_be_user(&request)?;
    let Start { process: config, pty, tag, stdin } = rpc::single(request).await?;
    if config.cmd.is_empty() {
        return Err(RpcError::invalid("`process.cmd` is empty"));
    }
    let cwd = context.absolute(config.cwd.as_deref().unwrap_or_default());
    let command = StartCommand {
        argv: std::iter::once(&config.cmd)
            .chain(&config.args)
            .map(|arg| OsText::from(arg.as_str()))
            .collect(),
        cwd: Some(cwd.clone()),
        env: config.envs.iter().map(|(name, value)| (name.clone(), OsText::from(value.as_str()))).collect(),
        stdin_open: pty.is_some() || stdin != Some(false),
        terminal: pty.map(terminal).transpose()?,
        // The sandbox's own limit is below this where its grant has one.
        timeout_s: Some(
            deadline.map_or(MAX_TIMEOUT_S, |time| time.as_secs().saturating_add(1).min(MAX_TIMEOUT_S)),
        ),
        ..StartCommand::default()
    };
    let until = deadline.map(|time| Instant::now() + time);
    let mut events = context.sandbox.run_following(&command).await.map_err(|error| context.failed(error))?;
    let known = |id: String| Known { id, tag, config, terminal: pty.is_some() };
    let pid = match events.next().await.map_err(|error| context.failed(error))? {
        Some(CommandEvent::Started { command: CommandInfo { id, pid: Some(pid), .. } }) => {
            context.entry.commands.add(pid, known(id));
            pid
        }
        _ => return Err(not_started(&mut events, &cwd).await),
    };
    let is_terminal = pty.is_some();
    Ok(rpc::stream(keepalive, pulse(), move |sender| async move {
        sender.send(&event(json!({ "start": { "pid": pid } }))).await?;
        let Some(until) = until else { return pass_on(&sender, &mut events, is_terminal).await };
        tokio::select! {
            done = pass_on(&sender, &mut events, is_terminal) => done,
            () = tokio::time::sleep_until(until) => {
                if let Some(id) = events.command() {
                    // The daemon ends it too, a moment later.
                    let _ = context.sandbox.kill(id).await;
                }
                Err(RpcError::new(Code::DeadlineExceeded, "the command ran out of time and was killed").into())
            }
        }
    }))
}

/// Why a command was not started: its end says so.
async fn not_started(events: &mut CommandEvents, cwd: &str) -> RpcError {
    loop {
        let result = match events.next().await {
            Ok(Some(CommandEvent::Ended { result })) => result,
            Ok(Some(_)) => continue,
            Ok(None) => return RpcError::new(Code::Internal, "the command was not started"),
            Err(error) => return error.into(),
        };
        return match (result.error, result.not_started) {
            (Some(error), _) if error.code() == ErrorCode::NotFound => {
                RpcError::invalid(format!("cwd '{cwd}' does not exist"))
            }
            (Some(error), _) if error.code() == ErrorCode::FileOperation => {
                RpcError::invalid(format!("cwd '{cwd}': {}", error.message))
            }
            (Some(error), _) => RpcError::new(Code::Internal, error.message),
            (None, Some(why)) => RpcError::invalid(why),
            (None, None) => RpcError::new(Code::Internal, "the command was not started"),
        };
    }
}

async fn connect(context: Context, request: Request<Incoming>) -> Result<Response<Body>, RpcError> {
    let keepalive = rpc::keepalive(&request);
    let About { process, .. } = rpc::single(request).await?;
    let (pid, known) = find(&context, &process).await?;
    let info = context.sandbox.command(&known.id).await.map_err(|error| context.failed(error))?;
    let is_late = info.ended_ms.is_some_and(|ended| now_ms() - ended > END_KEPT_MS);
    if is_late {
        return Err(no_process(pid));
    }
    // Output before this was another client's.
    let follow = context.sandbox.follow(&known.id, info.cursor).await;
    let mut events = follow.map_err(|error| context.failed(error))?;
    Ok(rpc::stream(keepalive, pulse(), move |sender| async move {
        sender.send(&event(json!({ "start": { "pid": pid } }))).await?;
        pass_on(&sender, &mut events, known.terminal).await
    }))
}

/// Tells a client what a command writes, and how it ends.
async fn pass_on(sender: &Sender, events: &mut CommandEvents, is_terminal: bool) -> Result<(), Ended> {
    loop {
        match sender.wait(events.next()).await? {
            Ok(Some(CommandEvent::Output { stream, text, base64 })) => {
                let bytes = output_bytes(text, base64).map_err(RpcError::from)?;
                let name = match (is_terminal, stream) {
                    (true, _) => "pty",
                    (false, StreamName::Stdout) => "stdout",
                    (false, StreamName::Stderr) => "stderr",
                };
                for piece in bytes.chunks(MAX_PIECE_BYTES) {
                    sender.send(&event(json!({ "data": { name: BASE64_STANDARD.encode(piece) } }))).await?;
                }
            }
            Ok(Some(CommandEvent::Ended { result })) => {
                let Some(end) = end(&result) else { return Err(Ended::Broken) };
                return Ok(sender.send(&event(json!({ "end": end }))).await?);
            }
            Ok(Some(CommandEvent::Started { .. })) => {}
            Ok(None) | Err(ClientError::Gone(_) | ClientError::NoDaemon { .. }) => return Err(Ended::Broken),
            Err(error) if matches!(error.status(), Some(404 | 409)) => return Err(Ended::Broken),
            Err(error) => return Err(Ended::Failed(error.into())),
        }
    }
}

/// How a command ended. `None`: its sandbox did.
fn end(result: &CommandResult) -> Option<Value> {
    if let Some(code) = result.exit_code {
        let status = format!("exit status {code}");
        let mut end = json!({ "exitCode": code, "exited": true, "status": status });
        if code != 0 {
            end["error"] = status.into();
        }
        return Some(end);
    }
    let is_killed = result.timed_out || result.aborted;
    let signal = result.signal.as_deref().or(is_killed.then_some("SIGKILL"))?;
    if result.error.is_some() {
        return None;
    }
    let status = format!("signal: {}", signal_word(signal));
    Some(json!({ "exitCode": -1, "exited": false, "status": status, "error": status }))
}

/// A signal as the clients know it.
fn signal_word(name: &str) -> String {
    let word = match name {
        "SIGKILL" => "killed",
        "SIGTERM" => "terminated",
        "SIGINT" => "interrupt",
        "SIGHUP" => "hangup",
        "SIGSEGV" => "segmentation fault",
        "SIGABRT" => "aborted",
        "SIGPIPE" => "broken pipe",
        "SIGQUIT" => "quit",
        other => other,
    };
    word.into()
}

async fn list(context: &Context) -> Result<Value, RpcError> {
    let commands = context.sandbox.commands().await.map_err(|error| context.failed(error))?;
    let known = context.entry.commands.known().clone();
    let told = |info: CommandInfo| {
        let pid = info.pid.filter(|_| info.state == CommandState::Running)?;
        let known = known.get(&pid).filter(|known| known.id == info.id).cloned();
        let known = known.unwrap_or_else(|| of_info(&info));
        let mut process = json!({ "pid": pid, "config": known.config });
        if let Some(tag) = known.tag {
            process["tag"] = tag.into();
        }
        Some(process)
    };
    Ok(json!({ "processes": commands.into_iter().filter_map(told).collect::<Vec<_>>() }))
}

/// What a daemon that did not start a command knows of it.
fn of_info(info: &CommandInfo) -> Known {
    let mut argv = info.argv.iter().cloned();
    let cmd = argv.next().unwrap_or_default();
    let config = Config { cmd, args: argv.collect(), ..Config::default() };
    Known { id: info.id.clone(), tag: None, config, terminal: info.terminal }
}

/// The process that a request is about.
async fn find(context: &Context, selector: &Selector) -> Result<(u32, Known), RpcError> {
    let commands = &context.entry.commands;
    if let Some(tag) = &selector.tag {
        let known = commands.known();
        let found = known.iter().find(|(_, known)| known.tag.as_deref() == Some(tag));
        let missing = || RpcError::not_found(format!("process with tag {tag} not found"));
        return found.map(|(pid, known)| (*pid, known.clone())).ok_or_else(missing);
    }
    let pid = selector.pid.ok_or_else(|| RpcError::invalid("`process` has no `pid` and no `tag`"))?;
    if let Some(known) = commands.known().get(&pid) {
        return Ok((pid, known.clone()));
    }
    // Started before this daemon was, or by another client of the daemon.
    let all = context.sandbox.commands().await.map_err(|error| context.failed(error))?;
    let newest = all.iter().rev().find(|info| info.pid == Some(pid)).ok_or_else(|| no_process(pid))?;
    let known = of_info(newest);
    commands.add(pid, known.clone());
    Ok((pid, known))
}

fn no_process(pid: u32) -> RpcError {
    RpcError::not_found(format!("process with pid {pid} not found"))
}

async fn act(context: &Context, method: &str, request: Request<Incoming>) -> Result<Value, RpcError> {
    let about: About = rpc::unary(request).await?;
    let (pid, known) = find(context, &about.process).await?;
    let (sandbox, id) = (&context.sandbox, known.id.as_str());
    let done = match method {
        "Update" => match about.pty {
            Some(pty) => sandbox.resize(id, terminal(pty)?).await,
            None => Ok(()),
        },
        "SendInput" => sandbox.stdin(id, about.input.bytes()?, false).await,
        "CloseStdin" => sandbox.stdin(id, Vec::new(), true).await,
        _ => {
            let info = sandbox.command(id).await.map_err(|error| context.failed(error))?;
            if info.state == CommandState::Ended {
                return Err(no_process(pid));
            }
            match signal(&about.signal)? {
                Signal::Kill => sandbox.kill(id).await,
                Signal::Terminate => sandbox.signal(id, "SIGTERM").await,
            }
        }
    };
    match done {
        Ok(()) => Ok(rpc::empty()),
        Err(error) if error.code() == ErrorCode::CommandEnded => {
            let info = sandbox.command(id).await.map_err(|error| context.failed(error))?;
            Err(match info.state {
                CommandState::Ended => no_process(pid),
                CommandState::Running => {
                    RpcError::new(Code::FailedPrecondition, "stdin is closed, or was not asked for")
                }
            })
        }
        Err(error) => Err(context.failed(error)),
    }
}

async fn stream_input(context: &Context, request: Request<Incoming>) -> Result<(), RpcError> {
    let mut messages = Messages::of(request);
    let mut to: Option<String> = None;
    while let Some(InputMessage { start, data }) = messages.next().await? {
        if let Some(About { process, .. }) = start {
            to = Some(find(context, &process).await?.1.id);
        }
        let Some(About { input, .. }) = data else { continue };
        let id = to.as_deref().ok_or_else(|| RpcError::invalid("input came before `start`"))?;
        context.sandbox.stdin(id, input.bytes()?, false).await.map_err(|error| context.failed(error))?;
    }
    Ok(())
}

impl Input {
    fn bytes(&self) -> Result<Vec<u8>, RpcError> {
        let text = self.stdin.as_ref().or(self.pty.as_ref()).map_or("", String::as_str);
        BASE64_STANDARD.decode(text).map_err(|_| RpcError::invalid("`input` is not base64"))
    }
}

enum Signal {
    Kill,
    Terminate,
}

/// By name, or by number as other writers of the same messages have it.
fn signal(said: &Value) -> Result<Signal, RpcError> {
    match (said.as_str(), said.as_u64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Ok(Signal::Kill),
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Ok(Signal::Terminate),
        _ => Err(RpcError::invalid("`signal` is neither SIGKILL nor SIGTERM")),
    }
}

fn terminal(Pty { size }: Pty) -> Result<Terminal, RpcError> {
    let side = |count: u32| u16::try_from(count).ok().filter(|count| *count > 0);
    match (side(size.rows), side(size.cols)) {
        (Some(rows), Some(cols)) => Ok(Terminal { rows, cols }),
        _ => Err(RpcError::invalid("a terminal has 1 to 65535 rows and columns")),
    }
}

fn event(event: Value) -> Value {
    json!({ "event": event })
}

fn pulse() -> Value {
    event(json!({ "keepalive": {} }))
}

/// Clients expect no longer ones.
const MAX_PIECE_BYTES: usize = 32 * 1024;
/// How long the end of a command is told to clients that connect late.
const END_KEPT_MS: i64 = 30_000;
/// What the daemon takes at most: a year.
const MAX_TIMEOUT_S: u64 = 31_536_000;
/// Process ids come again; what is forgotten is asked of the daemon.
const MAX_KNOWN: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_command_is_said_in_the_clients_words() {
        let ended = |exit_code, signal: Option<&str>| CommandResult {
            exit_code,
            signal: signal.map(String::from),
            ..CommandResult::default()
        };
        assert_eq!(
            end(&ended(Some(0), None)),
            Some(json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }))
        );
        assert_eq!(end(&ended(Some(3), None)).unwrap()["error"], "exit status 3");
        let killed =
            json!({ "exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed" });
        assert_eq!(end(&ended(None, Some("SIGKILL"))), Some(killed.clone()));
        assert_eq!(end(&CommandResult { aborted: true, ..CommandResult::default() }), Some(killed));
        assert_eq!(end(&CommandResult::default()), None, "its sandbox has ended");
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        assert!(matches!(signal(&json!("SIGNAL_SIGKILL")), Ok(Signal::Kill)));
        assert!(matches!(signal(&json!(15)), Ok(Signal::Terminate)));
        for said in [json!(null), json!(2), json!("SIGKILL")] {
            assert!(signal(&said).is_err(), "{said}");
        }
    }
}

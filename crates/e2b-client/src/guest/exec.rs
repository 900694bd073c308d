//! A command: its standard streams and its end, from the data plane to the host; input, signals and sizes the other way.
//!
//! All that descends from a command inherits a variable with a random value, by which it is found when the command has to be killed
//! with its tree: the data plane knows single processes only.

use super::fault::{self, fault};
use super::pause::Following;
use super::stream::{FromHost, ToHost};
use super::{Remote, WORKSPACE};
use crate::process::{Event, Events, Start};
use crate::rpc::{CallError, RpcError};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::Signal;
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use belljar_wire::frame::{Frame, Tag};
use belljar_wire::message::{
    self, Bytes, Disk, Exec, ExecControl, ExecEvent, Fault, OPEN_TERMINAL, STDIN_WINDOW, Stdio,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};

/// Runs a command to its end.
pub(super) async fn run(remote: &Arc<Remote>, exec: Exec, from: FromHost, mut to: ToHost) -> io::Result<()> {
    let is_terminal = matches!(exec.stdio, Stdio::Terminal(_));
    let mark = mark();
    let started = match start(&exec, &mark) {
        Ok(start) => begin(remote, &exec, &start).await,
        Err(fault) => Err(NotStarted::Fault(fault)),
    };
    let (pid, events) = match started {
        Ok(started) => started,
        Err(NotStarted::Fault(fault)) => return to.message(&ExecEvent::NotStarted(fault)).await,
        Err(NotStarted::Paused) => return to.message(&ExecEvent::Paused).await,
        Err(NotStarted::Gone) => return Ok(()),
    };
    let command =
        Command { remote, pid, mark, is_terminal, to: Mutex::new(to), is_hung_up: AtomicBool::new(false) };
    command.to.lock().await.message(&ExecEvent::Started(pid)).await?;
    command.attend(from, events).await
}

/// A command that runs.
struct Command<'r> {
    remote: &'r Arc<Remote>,
    pid: u32,
    mark: String,
    is_terminal: bool,
    to: Mutex<ToHost>,
    /// The host closed its direction, which ends all of the command.
    is_hung_up: AtomicBool,
}

/// Something for its standard input.
enum Fed {
    Bytes(Vec<u8>),
    End,
}

/// Why a command is no longer followed.
#[derive(PartialEq, Eq)]
enum Outcome {
    /// The host knows how it ended.
    Ended,
    /// The host does not listen any more.
    Unheard,
    /// How it ends will never be known.
    Lost,
}

impl Command<'_> {
    async fn attend(&self, from: FromHost, events: Events) -> io::Result<()> {
        let (feed, fed) = mpsc::unbounded_channel();
        let outcome = tokio::select! {
            outcome = self.tell(events) => outcome,
            // Neither ends before the command does.
            never = async { tokio::join!(self.obey(from, feed), self.feed(fed)).0 } => match never {},
        };
        // What was begun when the host hung up may have been cut short by the end of the command itself.
        if outcome == Outcome::Unheard || self.is_hung_up.load(Ordering::Relaxed) {
            self.kill_tree().await;
        }
        Ok(())
    }

    /// Tells the host what the command writes, and how it ends.
    async fn tell(&self, events: Events) -> Outcome {
        let mut following = self.remote.pause.following();
        let mut events = events;
        loop {
            let next = tokio::select! {
                biased;
                next = events.next() => next,
                // What is on its way arrives first.
                () = async { self.remote.pause.paused().await; sleep(LAST_WORDS).await } => Ok(None),
            };
            let sent = match next {
                Ok(Some(Event::Started(_))) => Ok(()),
                Ok(Some(Event::Stdout(bytes))) => self.to.lock().await.pieces(Tag::Stdout, &bytes).await,
                Ok(Some(Event::Stderr(bytes))) => self.to.lock().await.pieces(Tag::Stderr, &bytes).await,
                Ok(Some(Event::Ended(ending))) => {
                    let ended = ExecEvent::Ended { ending, disk: Disk::Free };
                    return match self.to.lock().await.message(&ended).await {
                        Ok(()) => Outcome::Ended,
                        Err(_) => Outcome::Unheard,
                    };
                }
                Ok(None) | Err(_) => match self.follow_again(&mut following).await {
                    Some(again) => {
                        events = again;
                        Ok(())
                    }
                    None => return Outcome::Lost,
                },
            };
            if sent.is_err() {
                return Outcome::Unheard;
            }
        }
    }

    /// The stream broke: the command goes on without it. `None`: it ended meanwhile, or its sandbox did.
    async fn follow_again(&self, following: &mut Following<'_>) -> Option<Events> {
        following.is_broken();
        for tried in 0..TRIES {
            self.remote.pause.running().await;
            match self.remote.envd.follow(self.pid).await {
                Ok(events) => {
                    following.goes_on();
                    return Some(events);
                }
                Err(CallError::Rpc(RpcError { code, .. })) if code == "not_found" => return None,
                Err(CallError::NoSandbox) => self.remote.must_exist().await,
                Err(_) => {}
            }
            sleep(RETRY_INTERVAL * (1 << tried)).await;
        }
        None
    }

    /// Does what the host says. If it closes its direction, the command is killed with all that it started.
    async fn obey(&self, mut from: FromHost, feed: mpsc::UnboundedSender<Fed>) -> std::convert::Infallible {
        // A frame that is none is as good as none.
        while let Ok(Some(Frame { tag, payload })) = from.frame().await {
            // The receiver is there as long as we are.
            let _ = match (tag, message::decode(&payload)) {
                (Tag::Stdin, _) => feed.send(Fed::Bytes(payload)),
                (Tag::Message, Some(ExecControl::CloseStdin)) => feed.send(Fed::End),
                (Tag::Message, Some(ExecControl::Resize(size))) => {
                    let _ = self.remote.envd.resize(self.pid, size).await;
                    Ok(())
                }
                (Tag::Message, Some(ExecControl::Signal(number))) => {
                    self.signal(number).await;
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        self.is_hung_up.store(true, Ordering::Relaxed);
        self.kill_tree().await;
        std::future::pending().await
    }

    /// Gives the command its standard input, in order. Signals do not wait for it.
    async fn feed(&self, mut fed: mpsc::UnboundedReceiver<Fed>) {
        let mut taken = 0;
        let mut is_ended = false;
        while let Some(next) = fed.recv().await {
            let mut bytes = Vec::new();
            let mut next = Some(next);
            // All that waits goes in one call, of which each takes a while. The window is its limit.
            while let Some(more) = next {
                match more {
                    Fed::Bytes(more) => bytes.extend(more),
                    Fed::End => is_ended = true,
                }
                next = fed.try_recv().ok().filter(|_| !is_ended);
            }
            // What cannot be given to it is not for it: it has ended, or reads no more.
            while !bytes.is_empty()
                && let Err(CallError::NoSandbox) =
                    self.remote.envd.input(self.pid, &bytes, self.is_terminal).await
            {
                if !self.remote.pause.is_paused() {
                    break;
                }
                self.remote.pause.running().await;
            }
            taken += bytes.len();
            if taken >= STDIN_WINDOW / 4 {
                let taken_event =
                    ExecEvent::Taken(u32::try_from(std::mem::take(&mut taken)).unwrap_or(u32::MAX));
                let _ = self.to.lock().await.message(&taken_event).await;
            }
            if std::mem::take(&mut is_ended) && !self.is_terminal {
                let _ = self.remote.envd.close_input(self.pid).await;
            }
        }
        std::future::pending().await
    }

    /// For its process group, if it leads one; else for itself.
    async fn signal(&self, number: i32) {
        let envd = &self.remote.envd;
        let done = envd.script(SIGNAL, &[&number.to_string(), &self.pid.to_string()]).await;
        if done.is_err() && number == Signal::KILL.as_raw() {
            let _ = envd.kill(self.pid).await;
        }
    }

    async fn kill_tree(&self) {
        let envd = &self.remote.envd;
        // A sandbox that hangs is ended by its owner, or by its time to live.
        let _ = timeout(KILL_TIMEOUT, async {
            // A service may take the tree along; what it leaves is looked for.
            let _ = envd.kill(self.pid).await;
            envd.script(KILL_TREE, &[&format!("{MARK}={}", self.mark)]).await
        })
        .await;
    }
}

/// Why there is no command.
enum NotStarted {
    Fault(Fault),
    Paused,
    /// Nor a sandbox.
    Gone,
}

async fn begin(remote: &Remote, exec: &Exec, start: &Start) -> Result<(u32, Events), NotStarted> {
    let program = || format!("run {}", start.argv.first().map_or("", String::as_str));
    let refused = |error: &CallError| match error {
        CallError::Rpc(RpcError { message, .. }) if message.contains("cwd") => {
            let errno = fault::errno(error);
            NotStarted::Fault(fault(
                format!("enter {}", exec.cwd),
                if errno == Errno::INVAL { Errno::NOENT } else { errno },
            ))
        }
        CallError::Rpc(RpcError { message, .. }) if message.contains(OPEN_TERMINAL) => {
            NotStarted::Fault(fault(OPEN_TERMINAL, fault::errno(error)))
        }
        error => NotStarted::Fault(fault::failed(program(), error)),
    };
    let begun = async {
        let mut events = remote.envd.start(start).await?;
        match events.next().await? {
            Some(Event::Started(pid)) => Ok(Some((pid, events))),
            _ => Ok(None),
        }
    };
    match begun.await {
        Ok(Some(begun)) => Ok(begun),
        Ok(None) => Err(NotStarted::Fault(fault(program(), Errno::IO))),
        Err(CallError::NoSandbox) if remote.pause.is_paused() => Err(NotStarted::Paused),
        Err(CallError::NoSandbox) => {
            remote.must_exist().await;
            Err(NotStarted::Gone)
        }
        Err(error) => Err(refused(&error)),
    }
}

/// The command as the data plane takes it, which has text alone.
fn start(exec: &Exec, mark: &str) -> Result<Start, Fault> {
    let text = |Bytes(bytes): &Bytes| String::from_utf8(bytes.clone());
    let program = exec.argv.first().map(|program| String::from_utf8_lossy(&program.0).into_owned());
    let no_text = |_| fault(format!("run {}", program.clone().unwrap_or_default()), Errno::ILSEQ);
    let argv = exec.argv.iter().map(text).collect::<Result<Vec<_>, _>>().map_err(no_text)?;
    let mut env = BTreeMap::new();
    for (name, value) in &exec.env {
        env.insert(text(name).map_err(no_text)?, text(value).map_err(no_text)?);
    }
    env.insert(MARK.into(), mark.into());
    let terminal = match exec.stdio {
        Stdio::Pipes => None,
        Stdio::Terminal(size) => Some(size),
    };
    Ok(Start { argv, env, cwd: absolute(&exec.cwd), terminal, stdin: true })
}

/// A path of the host's words as one of the sandbox.
pub(super) fn absolute(path: &str) -> String {
    match path {
        "" | "." => WORKSPACE.into(),
        path if path.starts_with('/') => path.into(),
        path => format!("{WORKSPACE}/{path}"),
    }
}

/// Whether a path is the workspace, or a folder that it lies in, as far as the words of the path say.
pub(super) fn holds_workspace(path: &str) -> bool {
    let mut parts: Vec<&str> = Vec::new();
    let path = absolute(path);
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let workspace: Vec<&str> = WORKSPACE.split('/').skip(1).collect();
    workspace.starts_with(&parts)
}

/// A random value, in hexadecimal digits.
pub(super) fn mark() -> String {
    let mut bytes = [0; 16];
    // Where the kernel has none, a command without a mark of its own is not started; it never does that after boot.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The variable that a command and all its descendants have.
const MARK: &str = "BELLJAR_COMMAND";
const SIGNAL: &str = r#"kill -"$1" -"$2" 2>/dev/null || kill -"$1" "$2""#;
/// What is forked while it looks is found in the next round. The variable is not that of the shell itself.
const KILL_TREE: &str = r#"
round=0
while [ "$round" -lt 50 ]; do
    found=
    for environ in /proc/[0-9]*/environ; do
        if grep -q "$1" "$environ" 2>/dev/null; then
            process=${environ#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null && found=1
        fi
    done
    [ -n "$found" ] || exit 0
    round=$((round + 1))
done"#;
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// So often is a command followed again before it is given up.
const TRIES: u32 = 6;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A service that pauses a sandbox breaks its streams at once; one that does not leaves them silent.
const LAST_WORDS: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_the_workspace() {
        for (path, expected) in [
            ("a/b", "/home/user/workspace/a/b"),
            ("", "/home/user/workspace"),
            ("/etc", "/etc"),
            ("~", "/home/user/workspace/~"),
        ] {
            assert_eq!(absolute(path), expected);
        }
        for path in ["", ".", "..", "file/..", "/", "/home/user/", "/home/user/workspace/", "a/../.."] {
            assert!(holds_workspace(path), "{path}");
        }
        for path in ["a", "a/..b", "/home/user/other", "/home/user/workspaces", "/tmp", "../file"] {
            assert!(!holds_workspace(path), "{path}");
        }
    }
}

//! What is attacked: a sandbox of ours, or a command that runs a shell in a peer.

use crate::commands::block_on;
use belljar_engine::{Engine, Sandbox};
use belljar_spec::{Command as SandboxCommand, ErrorCode, SandboxError, SandboxSpec, Stdin};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Where scripts run.
pub(super) enum Target {
    Ours(Box<Sandbox>),
    /// The words before `sh -s`.
    Peer(String),
}

impl Target {
    pub(super) fn ours(spec: &SandboxSpec) -> Result<Target, SandboxError> {
        Ok(Target::Ours(Box::new(Engine::new().create_blocking(spec)?)))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Target::Ours(sandbox) => format!("belljar, {} ({})", sandbox.backend(), sandbox.assurance()),
            Target::Peer(command) => command.clone(),
        }
    }

    /// Begins a script in the workspace; its output comes when it is over.
    pub(super) fn begin(&self, script: &str, workspace: &Path) -> Result<Attempt<'_>, SandboxError> {
        match self {
            Target::Ours(sandbox) => Ok(Attempt::Ours(sandbox, script.into())),
            Target::Peer(command) => peer(command, script, workspace),
        }
    }

    /// Ends it.
    pub(super) fn end(self) {
        match self {
            Target::Ours(sandbox) => sandbox.dispose_blocking(),
            Target::Peer(_) => {}
        }
    }
}

/// A script that runs.
pub(super) enum Attempt<'t> {
    Ours(&'t Sandbox, String),
    Peer(Child, Receiver<()>, Arc<Mutex<Vec<u8>>>),
}

impl Attempt<'_> {
    /// Waits for its end, for a while, and says what it printed.
    pub(super) fn finish(self, timeout: Duration) -> Result<String, SandboxError> {
        match self {
            Attempt::Ours(sandbox, script) => {
                let mut command = SandboxCommand::new(["sh", "-s"]).map_err(|error| {
                    ErrorCode::Internal.error(format!("no command: {error}")).caused_by(error)
                })?;
                // Not among its arguments, where an attack on processes would find it.
                command.stdin = Stdin::Bytes(script.into_bytes());
                command.timeout = Some(timeout);
                let result = block_on(async { sandbox.exec(&command).await })?;
                let all = [result.stdout, result.stderr].concat();
                Ok(String::from_utf8_lossy(&all).into_owned())
            }
            Attempt::Peer(mut child, over, output) => {
                let _ = over.recv_timeout(timeout);
                let _ = child.kill();
                let _ = child.wait();
                let output = output.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(String::from_utf8_lossy(&output).into_owned())
            }
        }
    }
}

fn peer<'t>(command: &str, script: &str, workspace: &Path) -> Result<Attempt<'t>, SandboxError> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {command} sh -s 2>&1")])
        .current_dir(workspace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            ErrorCode::ProgramMissing.error(format!("cannot run `sh`: {error}")).caused_by(error)
        })?;
    let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let script = script.to_string();
    thread::spawn(move || {
        // A peer that does not start reads nothing.
        stdin.as_mut().map(|stdin| stdin.write_all(script.as_bytes()))
    });
    let (ended, over) = channel();
    let output = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&output);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut stdout = stdout.map(|stdout| stdout.take(MAX_OUTPUT));
        // What came before the end of its time counts too.
        while let Some(Ok(length @ 1..)) = stdout.as_mut().map(|stdout| stdout.read(&mut buffer)) {
            all.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
        }
        let _ = ended.send(());
    });
    Ok(Attempt::Peer(child, over, output))
}

const MAX_OUTPUT: u64 = 16 << 20;

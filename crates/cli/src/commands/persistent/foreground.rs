//! A command of a kept sandbox in the foreground: our standard streams are its own, our signals go to it, our terminal is
//! its terminal. When the daemon goes away meanwhile, both continue once it is back.

use crate::failure::of_client;
use crate::foreground::{Controls, Insistence, terminal_size};
use crate::host_stream::HostStream;
use belljar_api::client::{AttachEvent, AttachInput, Attachment, ClientError, Sandbox};
use belljar_api::{CommandResult, CommandState, StreamName, Terminal};
use belljar_engine::Input;
use belljar_spec::{ErrorCode, SandboxError, WindowSize};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use belljar_sys::terminal::RawMode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user can detach while the command continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    Never,
    /// With ctrl-P ctrl-Q.
    ByKeys,
}

/// Attends a command to its end, which is told; or nothing, if we left.
pub(super) async fn attend(
    sandbox: &Sandbox,
    command: &str,
    has_terminal: bool,
    leaving: Leaving,
) -> Result<Option<CommandResult>, SandboxError> {
    // Before any output is shown: a person may react to it at once.
    let (controls, insistence) = (Controls::new(has_terminal), Insistence::new());
    let mut attached = sandbox.attach(command, 0).await.map_err(of_client)?;
    let mut input = attached.input();
    // Switched back when this function ends, however it ends.
    let _raw = (has_terminal && isatty(stdin())).then(|| RawMode::enter(stdin()).ok()).flatten();
    // Bytes that were piped to it, of which none may be missing.
    let piped = AtomicBool::new(false);
    let mut print = std::pin::pin!(until_the_end((sandbox, command), &mut attached, &piped));
    let insisted = tokio::select! {
        result = &mut print => {
            // Its output is not read, or its input is not what was meant: it does not continue unseen.
            let hopeless = |error: &SandboxError| error.code == ErrorCode::StreamFailed;
            if leaving == Leaving::Never && result.as_ref().is_err_and(hopeless) {
                let _ = sandbox.kill(command).await;
            }
            return result.map(Some);
        }
        () = insistence.wait() => Insisted::End,
        () = forward((sandbox, command), controls, &mut input, has_terminal, leaving, &piped) => Insisted::Leave,
    };
    match insisted {
        Insisted::Leave => Ok(None),
        Insisted::End => {
            // What it does not get any more is not missing.
            piped.store(false, Ordering::Relaxed);
            sandbox.kill(command).await.map_err(of_client)?;
            print.await.map(Some)
        }
    }
}

/// Why nothing more is handed on.
enum Insisted {
    End,
    Leave,
}

/// Prints what a command writes.
async fn until_the_end(
    (sandbox, command): (&Sandbox, &str),
    attached: &mut Attachment,
    piped: &AtomicBool,
) -> Result<CommandResult, SandboxError> {
    let (stdout, stderr) = (HostStream::stdout(), HostStream::stderr());
    let failed = |error: std::io::Error| {
        ErrorCode::StreamFailed
            .error(format!("cannot write what the command wrote: {error}"))
            .caused_by(error)
    };
    loop {
        match attached.next().await.map_err(lost)? {
            Some(AttachEvent::Output(StreamName::Stdout, bytes)) => {
                stdout.write_all(&bytes).await.map_err(failed)?
            }
            Some(AttachEvent::Output(StreamName::Stderr, bytes)) => {
                stderr.write_all(&bytes).await.map_err(failed)?
            }
            // A command that has ended leaves what it did not read, and does not miss it.
            Some(AttachEvent::Resumed)
                if piped.load(Ordering::Relaxed) && !has_ended(sandbox, command).await =>
            {
                let message = "the daemon went away while the command was given its input, and some of it may be missing";
                return Err(ErrorCode::StreamFailed.error(message).hint("run the command again"));
            }
            Some(AttachEvent::Resumed) => {}
            Some(AttachEvent::Skipped) => {
                eprintln!("belljar: some of its output is no longer kept\r");
            }
            Some(AttachEvent::Ended(result)) => return Ok(result),
            Some(AttachEvent::Started(_)) => {}
            // Its input or its terminal's size came too late.
            Some(AttachEvent::Refused(error)) if error.code() == ErrorCode::CommandEnded => {}
            Some(AttachEvent::Refused(error)) => eprintln!("belljar: {}\r", error.message),
            None => return Err(of_client(ClientError::Gone("it ended before the command did".into()))),
        }
    }
}

async fn has_ended(sandbox: &Sandbox, command: &str) -> bool {
    sandbox.command(command).await.is_ok_and(|info| info.state == CommandState::Ended)
}

/// Why a command is not heard any more. One whose sandbox is stopped may not have been able to say so.
fn lost(error: ClientError) -> SandboxError {
    match error.code() {
        ErrorCode::SandboxNotAlive | ErrorCode::SandboxNotFound => ErrorCode::SandboxNotAlive
            .error("the sandbox was stopped, and all its commands with it")
            .hint("`belljar start` starts it again"),
        _ => of_client(error),
    }
}

/// Forwards our input, until the person leaves. What is typed or piped waits for the command to read; signals and terminal sizes
/// do not.
async fn forward(
    (sandbox, command): (&Sandbox, &str),
    controls: Controls,
    input: &mut AttachInput,
    has_terminal: bool,
    leaving: Leaving,
    piped: &AtomicBool,
) {
    // It may have changed since the command was started, and will not be told again.
    if let Some(size) = terminal_size().filter(|_| has_terminal) {
        let _ = input.resize(on_the_api(size)).await;
    }
    tokio::select! {
        () = control(sandbox, command, controls) => {}
        () = feed(input, has_terminal, leaving, piped) => {}
    }
}

/// Forwards signals and terminal sizes. Never ends.
async fn control(sandbox: &Sandbox, command: &str, mut controls: Controls) {
    loop {
        // Why one could not be sent is said where output is received.
        match controls.next().await {
            Input::Signal(number) => drop(sandbox.signal(command, &number.to_string()).await),
            Input::Resize(size) => drop(sandbox.resize(command, on_the_api(size)).await),
            Input::Bytes(_) | Input::End => {}
        }
    }
}

/// Forwards what is typed or piped, until the person leaves.
async fn feed(input: &mut AttachInput, has_terminal: bool, leaving: Leaving, piped: &AtomicBool) {
    let keyboard = HostStream::stdin();
    let mut keys = Keys::default();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = keyboard.read(&mut buffer).await {
        if leaving == Leaving::ByKeys && keys.leave(&buffer[..length]) {
            return;
        }
        piped.fetch_or(!has_terminal, Ordering::Relaxed);
        let _ = input.bytes(buffer[..length].to_vec()).await;
    }
    let _ = input.end().await;
    std::future::pending().await
}

fn on_the_api(size: WindowSize) -> Terminal {
    Terminal { rows: size.rows, cols: size.cols }
}

/// Looks for ctrl-P ctrl-Q among what is typed.
#[derive(Default)]
struct Keys {
    after_p: bool,
}

impl Keys {
    fn leave(&mut self, typed: &[u8]) -> bool {
        typed.iter().any(|key| {
            let left = self.after_p && *key == CTRL_Q;
            self.after_p = *key == CTRL_P;
            left
        })
    }
}

const CTRL_P: u8 = 0x10;
const CTRL_Q: u8 = 0x11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_both_keys_in_a_row_leave() {
        for (typed, left) in [
            (&[&b"\x10\x11"[..]][..], true),
            (&[b"ls\x10", b"\x11"], true),
            (&[b"\x10x\x11"], false),
            (&[b"\x11\x10"], false),
            (&[b"\x10\x10\x11"], true),
        ] {
            let mut keys = Keys::default();
            assert_eq!(typed.iter().any(|piece| keys.leave(piece)), left, "{typed:?}");
        }
    }
}

//! A command in the foreground: our standard streams are its own, our signals go to it, our terminal is its terminal.

use crate::host_stream::HostStream;
use belljar_engine::{DEAF, Events, ExecOutput, Input, Inputs, Output, Running, TO_KILL_A_TREE, deaf};
use belljar_spec::{ByteSize, SandboxError, WindowSize};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::isatty;
use belljar_sys::terminal::{self, RawMode};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// How a command in the foreground ended.
pub(crate) struct Ended {
    pub(crate) output: ExecOutput,
    pub(crate) timed_out: bool,
    pub(crate) truncated: bool,
    /// Its guest did not say so.
    pub(crate) is_unheard: bool,
}

/// Our terminal's size, where standard input and output are one.
pub(crate) fn terminal_size() -> Option<WindowSize> {
    let output = belljar_sys::rustix::stdio::stdout();
    if !isatty(stdin()) || !isatty(output) {
        return None;
    }
    let (rows, cols) = terminal::size(stdin()).ok()?;
    // A terminal that does not know its size says 0.
    Some(if rows == 0 || cols == 0 { DEFAULT_SIZE } else { WindowSize { rows, cols } })
}

/// Runs a command to its end.
pub(crate) async fn attend(
    running: Running,
    has_terminal: bool,
    timeout: Option<Duration>,
    cap: ByteSize,
) -> Result<Ended, SandboxError> {
    // Before anything of it is seen: whoever sees it may answer at once.
    let asides = Asides::new(has_terminal);
    let Running { mut events, mut inputs } = running;
    // Switched back when this function ends, however it ends.
    let _raw = (has_terminal && isatty(stdin())).then(|| RawMode::enter(stdin()).ok()).flatten();
    let mut printing = Printing::new(cap);
    let (mut timed_out, mut is_unheard) = (false, false);
    let (told, is_told) = watch::channel(false);
    let output = {
        let mut print = std::pin::pin!(printing.until_the_end(&mut events, is_told));
        let outcome = tokio::select! {
            outcome = &mut print => Some(outcome),
            () = forward(&mut inputs, asides) => None,
            () = at_most(timeout) => { timed_out = true; None }
        };
        match outcome {
            Some(outcome) => outcome?,
            None => {
                inputs.kill().await;
                let _ = told.send(true);
                match print.await {
                    // The sandbox is ended from outside by whoever made it. What happened first is what counts.
                    Err(error) if timed_out && error.code == DEAF => {
                        is_unheard = true;
                        ExecOutput::unheard()
                    }
                    outcome => outcome?,
                }
            }
        }
    };
    Ok(Ended { output, timed_out, truncated: printing.truncated, is_unheard })
}

/// Prints what a command writes.
struct Printing {
    stdout: HostStream,
    stderr: HostStream,
    room: [u64; 2],
    truncated: bool,
}

impl Printing {
    fn new(cap: ByteSize) -> Printing {
        let room = [cap.as_u64(); 2];
        Printing { stdout: HostStream::stdout(), stderr: HostStream::stderr(), room, truncated: false }
    }

    /// Until the command has ended; or the guest was told to end it, and is silent.
    async fn until_the_end(
        &mut self,
        events: &mut Events,
        mut is_told: watch::Receiver<bool>,
    ) -> Result<ExecOutput, SandboxError> {
        loop {
            let output = tokio::select! {
                biased;
                output = events.next() => output?,
                () = patience(&mut is_told) => return Err(deaf()),
            };
            match output {
                Output::Stdout(bytes) => self.print(0, &bytes).await?,
                Output::Stderr(bytes) => self.print(1, &bytes).await?,
                Output::Ended(ended) => return Ok(ended),
            }
        }
    }

    async fn print(&mut self, stream: usize, bytes: &[u8]) -> Result<(), SandboxError> {
        let room = usize::try_from(self.room[stream]).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.truncated |= kept.len() < bytes.len();
        self.room[stream] -= kept.len() as u64;
        let to = if stream == 0 { &self.stdout } else { &self.stderr };
        to.write_all(kept).await.map_err(|error| {
            SandboxError::runtime("output_closed", format!("cannot write what the command wrote: {error}"))
        })
    }
}

/// Hands on what we get, until somebody insists that the command ends.
async fn forward(inputs: &mut Inputs, mut asides: Asides) {
    let keyboard = HostStream::stdin();
    let mut open = true;
    let mut room = 0;
    let mut warned = false;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let most = buffer.len().min(room);
        let input = tokio::select! {
            biased;
            aside = asides.next() => aside,
            // A command that does not read slows whoever writes to us, and nothing else.
            found = inputs.room(), if open && room == 0 => match found {
                Ok(found) => { room = found; continue }
                // The other direction knows why.
                Err(_) => { open = false; continue }
            },
            read = keyboard.read(&mut buffer[..most]), if open && room > 0 => match read {
                Ok(length) if length > 0 => {
                    room -= length;
                    Input::Bytes(buffer[..length].to_vec())
                }
                Ok(_) | Err(_) => { open = false; Input::End }
            },
        };
        // The second one means it.
        if matches!(input, Input::Signal(_)) && std::mem::replace(&mut warned, true) {
            return;
        }
        // A guest that stands still takes nothing at all: whoever insists is heard then, too.
        let sent = tokio::select! {
            sent = inputs.send(input) => sent.is_ok(),
            () = asides.insistence(warned) => return,
        };
        if !sent {
            // The other direction knows why; somebody may still insist.
            return asides.insistence(warned).await;
        }
    }
}

/// What we are told besides standard input.
pub(crate) struct Asides {
    interrupts: Option<Signal>,
    terminations: Option<Signal>,
    hangups: Option<Signal>,
    resizes: Option<Signal>,
    /// A signal that was heard, and not told yet.
    unsaid: Option<i32>,
}

impl Asides {
    pub(crate) fn new(has_terminal: bool) -> Asides {
        // A signal that cannot be caught is not forwarded; it then does to us what it always does.
        let caught = |kind: SignalKind| signal(kind).ok();
        Asides {
            interrupts: caught(SignalKind::interrupt()),
            terminations: caught(SignalKind::terminate()),
            hangups: caught(SignalKind::hangup()),
            resizes: has_terminal.then(|| caught(SignalKind::window_change())).flatten(),
            unsaid: None,
        }
    }

    /// May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Input {
        if let Some(number) = self.unsaid.take() {
            return Input::Signal(number);
        }
        loop {
            tokio::select! {
                () = next(&mut self.interrupts) => return Input::Signal(2),
                () = next(&mut self.terminations) => return Input::Signal(15),
                () = next(&mut self.hangups) => return Input::Signal(1),
                () = next(&mut self.resizes) => if let Some(size) = terminal_size() {
                    return Input::Resize(size);
                },
            }
        }
    }

    /// Ready when the command was asked to end, or could not be, and somebody means it. May be dropped while it waits.
    pub(crate) async fn insistence(&mut self, warned: bool) {
        if !warned && self.unsaid.is_none() {
            self.unsaid = Some(self.signal().await);
        }
        self.signal().await;
    }

    async fn signal(&mut self) -> i32 {
        tokio::select! {
            () = next(&mut self.interrupts) => 2,
            () = next(&mut self.terminations) => 15,
            () = next(&mut self.hangups) => 1,
        }
    }
}

/// How long a guest may say nothing that was told to end its command.
async fn patience(is_told: &mut watch::Receiver<bool>) {
    if is_told.wait_for(|is_told| *is_told).await.is_err() {
        // Nobody will tell it any more.
        return std::future::pending().await;
    }
    sleep(TO_KILL_A_TREE).await;
}

async fn next(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

async fn at_most(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// What terminals have had since there are terminals.
const DEFAULT_SIZE: WindowSize = WindowSize { rows: 24, cols: 80 };

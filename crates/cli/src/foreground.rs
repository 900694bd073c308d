//! A command in the foreground: our standard streams are its own, our signals go to it, our terminal is its terminal.

use crate::host_stream::HostStream;
use belljar_engine::{Cap, Drive, Input, InputFilter, OutputStream, Running, Sink, Source};
use belljar_spec::{ByteSize, Ended, ErrorCode, SandboxError, WindowSize};
use belljar_sys::rustix::fd::BorrowedFd;
use belljar_sys::rustix::process::{self, kill_current_process_group};
use belljar_sys::rustix::stdio::stdin;
use belljar_sys::rustix::termios::{isatty, tcgetpgrp};
use belljar_sys::terminal::{self, RawMode};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    // Before any output is shown: a person may react to it at once.
    let (controls, insistence) = (Controls::new(has_terminal), Insistence::new());
    let mut input = HostInput { controls, stdin: Some(HostStream::stdin()), buffer: vec![0; 16 * 1024] };
    let mut output = HostOutput {
        streams: [HostStream::stdout(), HostStream::stderr()],
        caps: [Cap::new(cap.as_u64()); 2],
        raw: None,
        has_terminal: has_terminal && isatty(stdin()),
    };
    output.enter_raw_mode();
    running.drive(Drive { timeout, grace: None }, insistence.wait(), &mut input, &mut output).await
}

/// Our standard output and standard error.
struct HostOutput {
    streams: [HostStream; 2],
    caps: [Cap; 2],
    /// Switched back when this is dropped.
    raw: Option<RawMode<BorrowedFd<'static>>>,
    has_terminal: bool,
}

impl HostOutput {
    fn enter_raw_mode(&mut self) {
        self.raw = self.has_terminal.then(|| RawMode::enter(stdin()).ok()).flatten();
    }
}

impl Sink for HostOutput {
    async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), SandboxError> {
        let index = stream as usize;
        self.streams[index].write_all(self.caps[index].take(bytes)).await.map_err(|error| {
            ErrorCode::StreamFailed
                .error(format!("cannot write what the command wrote: {error}"))
                .caused_by(error)
        })
    }

    /// We stop as the command did, and give the terminal back: the shell that started us then has it, and continues us at `fg`. Without such
    /// a shell the signal does nothing.
    async fn stopped(&mut self) {
        let is_ours = || tcgetpgrp(stdin()).is_ok_and(|group| group == process::getpgrp());
        if self.has_terminal && is_ours() {
            self.raw = None;
            let _ = kill_current_process_group(process::Signal::TSTP);
            self.enter_raw_mode();
        }
    }

    fn is_truncated(&self) -> bool {
        self.caps.iter().any(Cap::is_exceeded)
    }
}

/// Our standard input, our signals and the size of our terminal.
struct HostInput {
    controls: Controls,
    /// Until its end.
    stdin: Option<HostStream>,
    buffer: Vec<u8>,
}

impl Source for HostInput {
    async fn next(&mut self, filter: InputFilter) -> Input {
        let HostInput { controls, stdin, buffer } = self;
        let Some(open) = stdin.as_ref().filter(|_| filter == InputFilter::All) else {
            return controls.next().await;
        };
        tokio::select! {
            biased;
            control = controls.next() => control,
            read = open.read(buffer) => match read {
                Ok(length @ 1..) => Input::Bytes(buffer[..length].to_vec()),
                Ok(_) | Err(_) => {
                    *stdin = None;
                    Input::End
                }
            },
        }
    }
}

/// What goes to a command beside its standard input: our signals, and the size of our terminal.
pub(crate) struct Controls {
    signals: EndSignals,
    resizes: Option<Signal>,
}

impl Controls {
    pub(crate) fn new(has_terminal: bool) -> Controls {
        let resizes = has_terminal.then(|| signal(SignalKind::window_change()).ok()).flatten();
        Controls { signals: EndSignals::new(), resizes }
    }

    /// The next one. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Input {
        loop {
            tokio::select! {
                number = self.signals.next() => return Input::Signal(number),
                () = next(&mut self.resizes) => if let Some(size) = terminal_size() {
                    return Input::Resize(size);
                },
            }
        }
    }
}

/// The second signal that asks us to end: the command has the first one, and is killed now, whether the guest took the first one
/// or not.
pub(crate) struct Insistence(EndSignals);

impl Insistence {
    pub(crate) fn new() -> Insistence {
        Insistence(EndSignals::new())
    }

    pub(crate) async fn wait(mut self) {
        self.0.next().await;
        self.0.next().await;
    }
}

/// The signals that ask a program to end. Each value sees all of them.
pub(crate) struct EndSignals([(i32, Option<Signal>); 3]);

impl EndSignals {
    pub(crate) fn new() -> EndSignals {
        // A signal that cannot be caught is not forwarded; it then does to us what it always does.
        let caught = |kind: SignalKind| (kind.as_raw_value(), signal(kind).ok());
        EndSignals([SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(caught))
    }

    /// The next one, by its number. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> i32 {
        let EndSignals([(interrupt, interrupts), (terminate, terminations), (hangup, hangups)]) = self;
        tokio::select! {
            () = next(interrupts) => *interrupt,
            () = next(terminations) => *terminate,
            () = next(hangups) => *hangup,
        }
    }
}

async fn next(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// What terminals have had since there are terminals.
const DEFAULT_SIZE: WindowSize = WindowSize { rows: 24, cols: 80 };

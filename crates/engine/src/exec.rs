//! Running commands: streamed, or collected with a timeout and a limit on output.
//!
//! ```text
//! started --bytes--> ... --ended--> Output::Ended
//!    \--timeout, abort or `Running` dropped--> the whole tree is killed --> Output::Ended
//! ```

use crate::Sandbox;
use crate::faults::{self, guest_gone};
use crate::held::Held;
use crate::pause::paused;
use crate::stream::{FromGuest, ToGuest};
use crate::window::Window;
use belljar_backend::Counters;
use belljar_overlay::quote;
use belljar_spec::{ByteSize, Command, LimitHit, Origin, SandboxError, Stdin, WindowSize};
use belljar_sys::errno;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::Signal;
use belljar_wire::frame::{CHUNK, Frame, Tag, encode};
use belljar_wire::message::{
    self, Bytes, Disk, Ending, Exec, ExecControl, ExecEvent, Fault, OPEN_TERMINAL, Request,
};
use std::ffi::{OsStr, OsString};
use std::future::{Future, pending};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How a command ended, and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// Its exit code; `None` when a signal ended it. 127: there is no such program. 126: it cannot be run.
    pub exit_code: Option<i32>,
    /// The signal that ended it: `SIGKILL`.
    pub signal: Option<String>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// It ran longer than it may; the whole tree was killed.
    pub timed_out: bool,
    /// The caller ended it; the whole tree was killed.
    pub aborted: bool,
    /// It wrote more than is kept.
    pub output_truncated: bool,
    /// The limit that it ran into, if it did.
    pub limit: Option<LimitHit>,
    /// Why it never ran, for exit codes 126 and 127.
    pub not_started: Option<String>,
}

/// What happens to a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// It wrote to its standard output, or its terminal.
    Stdout(Vec<u8>),
    /// It wrote to its standard error.
    Stderr(Vec<u8>),
    /// It ended. Nothing comes after this.
    Ended(ExecOutput),
}

/// How a streamed command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// Memory, processes or disk; time and output are the caller's to watch.
    pub limit: Option<LimitHit>,
    pub not_started: Option<String>,
}

impl ExecOutput {
    /// The end of a command whose guest was told to end it, and said nothing: it goes with its sandbox.
    pub fn unheard() -> ExecOutput {
        let signal = Some(signal_name(Signal::KILL.as_raw()));
        ExecOutput { exit_code: None, signal, limit: None, not_started: None }
    }
}

/// A running command: what comes from it, and what goes to it. When `inputs` is dropped, its whole tree is killed. It does
/// not keep its sandbox alive: a sandbox that is disposed of takes it along.
pub struct Running {
    pub events: Events,
    pub inputs: Inputs,
}

/// What comes from a command.
pub struct Events {
    guest: Held,
    window: Arc<Window>,
    before: Counters,
}

/// What goes to a command.
pub struct Inputs {
    to: ToGuest,
    window: Arc<Window>,
    /// Frames that are still to leave: one that was begun is finished before another.
    leaving: Vec<u8>,
}

/// What a caller says to a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Bytes for its standard input.
    Bytes(Vec<u8>),
    /// No more of them.
    End,
    /// Its terminal has another size.
    Resize(WindowSize),
    /// A signal for its process group.
    Signal(i32),
}

impl Sandbox {
    /// Runs a command to its end and returns what it wrote. Dropping the future kills the command.
    pub async fn exec(&self, command: &Command) -> Result<ExecResult, SandboxError> {
        self.exec_until(command, pending()).await
    }

    /// The same, until `abort` is ready; whatever comes first, of that and the timeout, ends it.
    pub async fn exec_until(
        &self,
        command: &Command,
        abort: impl Future<Output = ()>,
    ) -> Result<ExecResult, SandboxError> {
        let mut running = self.spawn(command).await?;
        let limit = self.limits().output;
        let usual = if limit.origin == Origin::Asked { limit.value } else { COLLECTED };
        let cap = command.max_output.unwrap_or(usual).as_u64();
        let (mut stdout, mut stderr) = (Collector::new(cap), Collector::new(cap));
        let (mut timed_out, mut aborted) = (false, false);
        let deadline = Instant::now() + self.limits().time_for(command.timeout);
        let mut last_word = None;
        let mut stopped_by = None;
        let mut abort = std::pin::pin!(abort);
        let input = match &command.stdin {
            Stdin::Bytes(bytes) => bytes.as_slice(),
            Stdin::Empty | Stdin::Stream => &[],
        };
        let mut feeding = Feeding::new(input, command.stdin != Stdin::Stream);
        let ended = loop {
            let Running { events, inputs } = &mut running;
            let over = async {
                tokio::select! {
                    biased;
                    () = &mut abort, if last_word.is_none() => Over::Aborted,
                    () = sleep_until(last_word.unwrap_or(deadline)) => Over::TimeUp,
                }
            };
            // Keeps its place when another is first.
            let fed = async {
                match feeding.done || last_word.is_some() {
                    true => pending().await,
                    false => feeding.step(inputs).await,
                }
            };
            let word = match first(over, events.next(), fed).await {
                Next::Over(Over::Aborted) => {
                    aborted = true;
                    None
                }
                Next::Over(Over::TimeUp) if last_word.is_some() => {
                    // gVisor may stand still at a limit instead of saying so.
                    stopped_by = events.counted(self.guest().counters());
                    self.kill_deaf();
                    // What happened first is what counts.
                    match timed_out {
                        true => break ExecOutput::unheard(),
                        false => return Err(deaf()),
                    }
                }
                Next::Over(Over::TimeUp) => {
                    timed_out = true;
                    None
                }
                Next::Word(word) => Some(word),
                Next::Fed => None,
            };
            if (timed_out || aborted) && last_word.is_none() {
                inputs.kill().await;
                last_word = Some(Instant::now() + TO_KILL_A_TREE);
            }
            match word {
                None => {}
                // Process 1 had to end everybody for it.
                Some(Err(error)) if timed_out && error.code == SUPERVISOR_KILLED => {
                    break ExecOutput::unheard();
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(Output::Stdout(bytes))) => stdout.add(&bytes),
                Some(Ok(Output::Stderr(bytes))) => stderr.add(&bytes),
                Some(Ok(Output::Ended(ended))) => break ended,
            }
        };
        let output_truncated = stdout.truncated || stderr.truncated;
        let limit = stopped_by.or(timed_out.then_some(LimitHit::Timeout)).or(ended.limit);
        Ok(ExecResult {
            exit_code: ended.exit_code,
            signal: ended.signal,
            stdout: stdout.kept,
            stderr: stderr.kept,
            timed_out,
            aborted,
            output_truncated,
            limit: limit.or(output_truncated.then_some(LimitHit::OutputTruncated)),
            not_started: ended.not_started,
        })
    }

    /// Starts a command whose output comes as it is written. Watching time and amount is up to the caller.
    pub async fn spawn(&self, command: &Command) -> Result<Running, SandboxError> {
        let before = self.guest().counters();
        check_size(command, self.environment())?;
        if self.is_paused() {
            return Err(paused());
        }
        let (mut to, from) = self.open_stream()?;
        // Arguments may be more than fits into a socket whose other end nobody reads.
        self.heard(to.send_frame(&request(command, self.environment(), self.workspace()))).await?;
        Ok(Running::new(self.guest().clone(), to, from, before))
    }

    /// The command that the sandbox was made with, once.
    pub fn first_command(&self) -> Result<Running, SandboxError> {
        let (to, from) = self.take_first()?;
        Ok(Running::new(self.guest().clone(), to, from, Counters::default()))
    }
}

impl Running {
    fn new(guest: Held, to: ToGuest, from: FromGuest, before: Counters) -> Running {
        let window = Arc::new(Window::new(from));
        let inputs = Inputs { to, window: Arc::clone(&window), leaving: Vec::new() };
        Running { events: Events { guest, window, before }, inputs }
    }
}

/// Arguments are bounded already; the environment is refused where the kernel would refuse it. A root that brings variables can
/// make it long, too.
pub(crate) fn check_size(
    command: &Command,
    environment: &[(OsString, OsString)],
) -> Result<(), SandboxError> {
    let asked: usize = command.env.iter().map(|(name, value)| name.as_str().len() + value.len() + 2).sum();
    let given: usize = environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let environment = asked.saturating_add(given);
    if environment <= MAX_ENVIRONMENT {
        return Ok(());
    }
    Err(SandboxError::policy("environment_too_long", "the command's environment is longer than 1 MiB")
        .hint("put what is long into a file"))
}

/// A command as the first frame of a stream.
pub(crate) fn request(command: &Command, environment: &[(OsString, OsString)], workspace: &str) -> Vec<u8> {
    let bytes = |text: &OsStr| Bytes(text.as_bytes().to_vec());
    let mut env: Vec<(Bytes, Bytes)> =
        environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
    for (name, value) in &command.env {
        env.retain(|(known, _)| known.0 != name.as_str().as_bytes());
        env.push((Bytes(name.as_str().as_bytes().to_vec()), bytes(value)));
    }
    let exec = Exec {
        argv: command.argv().iter().map(|arg| bytes(arg)).collect(),
        env,
        cwd: command.cwd.clone().unwrap_or_else(|| workspace.to_string()),
        stdio: match command.terminal {
            None => message::Stdio::Pipes,
            Some(size) => message::Stdio::Terminal(on_the_wire(size)),
        },
    };
    let mut frame = Vec::new();
    encode(Tag::Message, &message::encode(&Request::Exec(exec)), &mut frame);
    frame
}

impl Events {
    /// What happens next. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Output, SandboxError> {
        match self.window.output().await {
            Ok(frame) => self.understand(frame),
            Err(error) => self.lost(error).await,
        }
    }

    /// The guest is gone. Where the sandbox has a kernel of its own, a limit may have taken all of it.
    async fn lost(&self, error: SandboxError) -> Result<Output, SandboxError> {
        let limit = Some(self.counted(self.guest.counters_at_end().await).ok_or(error)?);
        let signal = Some(signal_name(Signal::KILL.as_raw()));
        Ok(Output::Ended(ExecOutput { exit_code: None, signal, limit, not_started: None }))
    }

    /// The limit that the kernel counted a hit of since the command began.
    fn counted(&self, now: Counters) -> Option<LimitHit> {
        if now.oom_kills > self.before.oom_kills {
            Some(LimitHit::OomKilled)
        } else if now.forks_refused > self.before.forks_refused {
            Some(LimitHit::PidsExhausted)
        } else {
            None
        }
    }

    fn understand(&self, frame: Frame) -> Result<Output, SandboxError> {
        match frame.tag {
            Tag::Stdout => Ok(Output::Stdout(frame.payload)),
            Tag::Stderr => Ok(Output::Stderr(frame.payload)),
            Tag::Message => match message::decode(&frame.payload).ok_or_else(guest_gone)? {
                ExecEvent::Ended { ending, disk } => Ok(Output::Ended(self.ended(ending, disk))),
                ExecEvent::NotStarted(fault) => not_started(&fault),
                ExecEvent::Paused => Err(paused()),
                // Heard where room for standard input is kept.
                ExecEvent::Taken(_) => Err(guest_gone()),
                ExecEvent::SupervisorLost => Err(SandboxError::runtime(
                    SUPERVISOR_KILLED,
                    "a command killed its own supervisor, and so every command of the sandbox was ended",
                )),
            },
            Tag::Stdin | Tag::Data => Err(guest_gone()),
        }
    }

    fn ended(&self, ending: Ending, disk: Disk) -> ExecOutput {
        let (exit_code, signal) = match ending {
            Ending::Exited(code) => (Some(code), None),
            Ending::Signaled(number) => (None, Some(signal_name(number))),
        };
        let failed = exit_code != Some(0);
        let is_full = disk == Disk::Full && failed;
        let limit = self.counted(self.guest.counters()).or(is_full.then_some(LimitHit::DiskFull));
        ExecOutput { exit_code, signal, limit, not_started: None }
    }
}

impl Inputs {
    /// Says something to the command. Bytes wait while its standard input is full; nothing else waits for that.
    pub async fn send(&mut self, input: Input) -> Result<(), SandboxError> {
        match input {
            Input::Bytes(bytes) => {
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let room = self.room().await?;
                    rest = self.put_some(rest, room);
                }
            }
            Input::End => self.put(&ExecControl::CloseStdin),
            Input::Resize(size) => self.put(&ExecControl::Resize(on_the_wire(size))),
            Input::Signal(number) => self.put(&ExecControl::Signal(number)),
        }
        self.flush().await
    }

    /// Waits until standard input takes more, and says how many bytes: as many can be sent without waiting for the command. May
    /// be dropped while it waits, to say something else meanwhile.
    pub async fn room(&mut self) -> Result<usize, SandboxError> {
        // What has not left is not taken, and makes no room.
        self.flush().await?;
        self.window.room().await
    }

    /// Kills the command and everything that descends from it. [`Output::Ended`] follows.
    pub async fn kill(&mut self) {
        self.to.close().await;
    }

    fn put(&mut self, control: &ExecControl) {
        encode(Tag::Message, &message::encode(control), &mut self.leaving);
    }

    /// A piece of standard input; gives back what there is no room for.
    fn put_some<'b>(&mut self, bytes: &'b [u8], room: usize) -> &'b [u8] {
        let (piece, rest) = bytes.split_at(bytes.len().min(room).min(CHUNK));
        encode(Tag::Stdin, piece, &mut self.leaving);
        self.window.spend(piece.len());
        rest
    }

    /// May be dropped while it waits: the rest leaves the next time.
    async fn flush(&mut self) -> Result<(), SandboxError> {
        while !self.leaving.is_empty() {
            let length = self.to.send_some(&self.leaving).await?;
            self.leaving.drain(..length);
        }
        Ok(())
    }
}

/// A program that is not there, or cannot be run, is a result; anything else before it is an error.
fn not_started(fault: &Fault) -> Result<Output, SandboxError> {
    let errno = errno::told(fault.errno).unwrap_or(Errno::IO);
    if fault.doing == OPEN_TERMINAL {
        let message = format!("cannot open a terminal for the command: {errno}");
        return Err(SandboxError::runtime("terminals_exhausted", message).hint(
            "a sandbox has at most 256 terminals, and the machine some thousands: end what holds them, or run without `--tty`",
        ));
    }
    let Some(program) = fault.doing.strip_prefix("run ") else { return Err(faults::file(fault)) };
    // Whoever wrote the name, a terminal shows it and does not obey it.
    let program = quote::visible(program.as_bytes());
    let (code, why) = match errno {
        Errno::NOENT => (127, format!("`{program}` was not found inside the sandbox")),
        Errno::ACCESS => (126, format!("`{program}` is not executable")),
        Errno::NOEXEC => {
            (126, format!("`{program}` is neither a program nor a script that names its interpreter"))
        }
        Errno::AGAIN => {
            return Err(SandboxError::runtime(
                "pids_exhausted",
                format!("cannot run `{program}`: the sandbox has as many processes as it may"),
            )
            .hint("allow more with `--pids`"));
        }
        other => (126, format!("`{program}` cannot be run: {other}")),
    };
    Ok(Output::Ended(ExecOutput { exit_code: Some(code), signal: None, limit: None, not_started: Some(why) }))
}

/// What happens first to a command that is being collected.
#[derive(Debug, PartialEq, Eq)]
enum Next<T> {
    Over(Over),
    Word(T),
    Fed,
}

/// Why it is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Aborted,
    TimeUp,
}

/// Whether it is over is asked before what it says: one that always has something to say would never be.
async fn first<T>(
    over: impl Future<Output = Over>,
    word: impl Future<Output = T>,
    fed: impl Future<Output = ()>,
) -> Next<T> {
    tokio::select! {
        biased;
        over = over => Next::Over(over),
        word = word => Next::Word(word),
        () = fed => Next::Fed,
    }
}

/// Standard input that is known beforehand, sent while output is being read.
struct Feeding<'i> {
    rest: &'i [u8],
    end: bool,
    done: bool,
}

impl<'i> Feeding<'i> {
    fn new(input: &'i [u8], end: bool) -> Feeding<'i> {
        Feeding { rest: input, end, done: !end && input.is_empty() }
    }

    /// Sends some of it. May be dropped while it waits.
    async fn step(&mut self, inputs: &mut Inputs) {
        // The reading side will say what happened.
        self.done = self.try_step(inputs).await.is_err() || self.done;
    }

    async fn try_step(&mut self, inputs: &mut Inputs) -> Result<(), SandboxError> {
        inputs.flush().await?;
        if !self.rest.is_empty() {
            let room = inputs.room().await?;
            self.rest = inputs.put_some(self.rest, room);
        } else if std::mem::take(&mut self.end) {
            inputs.put(&ExecControl::CloseStdin);
        } else {
            self.done = true;
        }
        Ok(())
    }
}

/// Keeps the first bytes of a stream and counts on.
struct Collector {
    kept: Vec<u8>,
    cap: u64,
    truncated: bool,
}

impl Collector {
    fn new(cap: u64) -> Collector {
        Collector { kept: Vec::new(), cap, truncated: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.cap - self.kept.len() as u64).unwrap_or(usize::MAX);
        self.truncated |= bytes.len() > room;
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

fn signal_name(number: i32) -> String {
    match Signal::from_named_raw(number) {
        Some(signal) => NAMES
            .iter()
            .find(|(known, _)| *known == signal)
            .map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_string()),
        None => format!("signal {number}"),
    }
}

/// The number of a signal that a result names.
pub fn signal_number(name: &str) -> Option<i32> {
    let named = NAMES.iter().find(|(_, known)| *known == name).map(|(signal, _)| signal.as_raw());
    named.or_else(|| name.strip_prefix("signal ")?.parse().ok())
}

fn on_the_wire(size: WindowSize) -> message::WindowSize {
    message::WindowSize { rows: size.rows, cols: size.cols }
}

/// A guest did not do what it was told, and does not say anything. Whoever says so ends the sandbox.
pub fn deaf() -> SandboxError {
    let message = "the sandbox did not answer any more, and was ended";
    SandboxError::runtime(DEAF, message).hint("make a new one, or start it again (`belljar start`)")
}

/// The code of that error.
pub const DEAF: &str = "guest_deaf";

/// The code of the error of those whose supervisor was killed.
const SUPERVISOR_KILLED: &str = "supervisor_killed";
/// What a collected stream keeps unless the caller says otherwise.
const COLLECTED: ByteSize = ByteSize::mebibytes(16);
/// How long a guest may take to kill a tree, which takes milliseconds, before it counts as deaf.
pub const TO_KILL_A_TREE: Duration = Duration::from_secs(10);
/// With 2 MiB of arguments it stays below the longest frame.
const MAX_ENVIRONMENT: usize = 1024 * 1024;
const NAMES: [(Signal, &str); 16] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::SYS, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    #[tokio::test]
    async fn the_end_is_heard_before_words() {
        for over in [Over::Aborted, Over::TimeUp] {
            assert_eq!(first(ready(over), ready("more"), ready(())).await, Next::Over(over));
        }
        assert_eq!(first(pending(), ready("more"), ready(())).await, Next::Word("more"));
        assert_eq!(first(pending(), pending::<()>(), ready(())).await, Next::Fed);
    }

    #[test]
    fn a_name_that_a_terminal_would_obey_is_shown() {
        let fault = |doing: &str, errno: i32| Fault { doing: doing.into(), errno };
        let Ok(Output::Ended(ended)) = not_started(&fault("run no\x1b[2Jsuch", 2)) else {
            panic!("a program that is not there is a result")
        };
        assert_eq!(ended.not_started.as_deref(), Some("`no^[[2Jsuch` was not found inside the sandbox"));
        let error = not_started(&fault("enter a\r\x1b]0;x\x07", 2)).err().map(|error| error.message);
        assert_eq!(error.as_deref(), Some("cannot enter a^M^[]0;x^G: there is no such file or folder"));
        let error = not_started(&fault(OPEN_TERMINAL, 28)).err().map(|error| error.code);
        assert_eq!(error, Some("terminals_exhausted"));
    }
}

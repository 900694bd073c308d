//! Running commands: streamed, or collected with a timeout and a limit on output. `drive.rs` takes a command to its end.

use crate::Sandbox;
use crate::drive::{Cap, Drive, InputFilter, OutputStream, Sink, Source};
use crate::faults::{self, guest_gone};
use crate::held::GuestProcess;
use crate::observe::CommandObservation;
use crate::pause::paused;
use crate::stream::{FromGuest, ToGuest};
use crate::window::Window;
use belljar_backend::Counters;
use belljar_overlay::quote;
use belljar_spec::{
    ByteSize, Command, Ended, ErrorCode, LimitHit, Origin, SandboxError, Stdin, Term, WindowSize, hint,
};
use belljar_sys::errno;
use belljar_sys::rustix::io::Errno;
use belljar_wire::frame::{CHUNK, Frame, Tag, encode};
use belljar_wire::message::{
    self, Bytes, Disk, Ending, Exec, ExecControl, ExecEvent, Fault, OPEN_TERMINAL, Request,
};
use std::ffi::{OsStr, OsString};
use std::future::{Future, pending};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// How a command ended, and what it wrote. Its fields are those of [`Ended`], and the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    pub ended: Ended,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Deref for ExecResult {
    type Target = Ended;

    fn deref(&self) -> &Ended {
        &self.ended
    }
}

/// What happens to a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// It runs: its process id as the sandbox knows it. Comes first, if the command could be started.
    Started(u32),
    /// It wrote to its standard output, or its terminal.
    Stdout(Vec<u8>),
    /// It wrote to its standard error.
    Stderr(Vec<u8>),
    /// A signal of job control stopped it, as at ctrl-Z. It waits for SIGCONT.
    Stopped,
    /// It ended. Nothing comes after this.
    Ended(Ended),
}

/// A running command: what comes from it, and what goes to it. When `inputs` is dropped, its whole tree is killed. It does
/// not keep its sandbox alive: a sandbox that is disposed of takes it along.
pub struct Running {
    pub events: Events,
    pub inputs: Inputs,
    pub(crate) observation: Option<CommandObservation>,
}

/// What comes from a command.
pub struct Events {
    guest: Arc<dyn GuestProcess>,
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

    /// The same, until `abort` is ready; what comes first, of that and the timeout, ends it.
    pub async fn exec_until(
        &self,
        command: &Command,
        abort: impl Future<Output = ()>,
    ) -> Result<ExecResult, SandboxError> {
        let running = self.spawn(command).await?;
        let limit = self.limits().output;
        let usual = if limit.origin == Origin::Requested { limit.value } else { COLLECTED };
        let mut output = Collected::new(command.max_output.unwrap_or(usual));
        let drive = Drive { timeout: Some(self.limits().time_for(command.timeout)), grace: None };
        let ended = running.drive(drive, abort, &mut FixedInput::new(&command.stdin), &mut output).await?;
        let Collected { kept: [stdout, stderr], .. } = output;
        Ok(ExecResult { ended, stdout, stderr })
    }

    /// Starts a command whose output comes as it is written. Watching time and amount is up to the caller.
    pub async fn spawn(&self, command: &Command) -> Result<Running, SandboxError> {
        let before = self.guest().counters();
        check_size(command, self.environment())?;
        if self.is_paused() {
            return Err(paused());
        }
        let observation = self.observation(self.logged_words(command));
        let (mut to, from) = self.open_stream()?;
        // Arguments may be more than fits into the socket of a guest that does not read.
        self.reply_or_dead(to.send_frame(&request(command, self.environment(), self.workspace()))).await?;
        let running = Running::new(Arc::new(self.guest().clone()), to, from, before);
        Ok(Running { observation: Some(observation), ..running })
    }

    /// The command that the sandbox was made with, once.
    pub fn first_command(&self) -> Result<Running, SandboxError> {
        let (to, from) = self.take_first()?;
        let running = Running::new(Arc::new(self.guest().clone()), to, from, Counters::default());
        Ok(Running { observation: Some(self.observation(self.first_words())), ..running })
    }
}

impl Running {
    pub(crate) fn new(
        guest: Arc<dyn GuestProcess>,
        to: ToGuest,
        from: FromGuest,
        before: Counters,
    ) -> Running {
        let window = Arc::new(Window::new(from));
        let inputs = Inputs { to, window: Arc::clone(&window), leaving: Vec::new() };
        Running { events: Events { guest, window, before }, inputs, observation: None }
    }

    /// The log calls it by this name.
    #[must_use]
    pub fn named(mut self, id: String) -> Running {
        if let Some(observation) = &mut self.observation {
            observation.id = id;
        }
        self
    }
}

/// Arguments are bounded already; the environment is refused where the kernel would refuse it. A root that brings variables can
/// make it long, too.
pub(crate) fn check_size(
    command: &Command,
    environment: &[(OsString, OsString)],
) -> Result<(), SandboxError> {
    let own: usize = command.env.iter().map(|(name, value)| name.as_str().len() + value.len() + 2).sum();
    let given: usize = environment.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let environment = own.saturating_add(given);
    if environment <= MAX_ENVIRONMENT {
        return Ok(());
    }
    Err(ErrorCode::RequestValue
        .error("the command's environment is longer than 1 MiB")
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

    /// The limit that the kernel counted a hit of since the command began.
    pub(crate) fn limit_hit(&self) -> Option<LimitHit> {
        self.counted(self.guest.counters())
    }

    pub(crate) fn guest(&self) -> &dyn GuestProcess {
        &*self.guest
    }

    /// The guest is gone. Where the sandbox has a kernel of its own, a limit may have taken all of it.
    async fn lost(&self, error: SandboxError) -> Result<Output, SandboxError> {
        // Others need the event loop meanwhile.
        let counters = tokio::task::spawn_blocking(self.guest.counters_at_end()).await.unwrap_or_default();
        let limit = Some(self.counted(counters).ok_or(error)?);
        Ok(Output::Ended(Ended { limit, ..Ended::killed() }))
    }

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
                ExecEvent::Stopped => Ok(Output::Stopped),
                ExecEvent::Started(pid) => Ok(Output::Started(pid)),
                ExecEvent::Paused => Err(paused()),
                // Heard where room for standard input is kept.
                ExecEvent::Taken(_) => Err(guest_gone()),
                ExecEvent::SupervisorLost => Err(ErrorCode::SupervisorKilled.error(
                    "a command killed its own supervisor, and so every command of the sandbox was ended",
                )),
            },
            Tag::Stdin | Tag::Data => Err(guest_gone()),
        }
    }

    fn ended(&self, ending: Ending, disk: Disk) -> Ended {
        let ended = match ending {
            Ending::Exited(code) => Ended { exit_code: Some(code), ..Ended::default() },
            Ending::Signaled(number) => Ended::signaled(number),
        };
        let is_full = disk == Disk::Full && ended.exit_code != Some(0);
        Ended { limit: self.limit_hit().or(is_full.then_some(LimitHit::DiskFull)), ..ended }
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

/// What a user who knows shells meant by a name that is no program's.
fn meant_instead(program: &str) -> String {
    let first = program.split(' ').next().unwrap_or_default();
    match () {
        () if program.contains(' ') && !first.is_empty() => {
            ": it was given as one word; write its words apart, or `sh -c '...'` for a line of a shell".into()
        }
        () if SHELL_COMMANDS.contains(&program) => {
            format!(": it is a part of the shell, as in `sh -c '{program} ...'`")
        }
        () => String::new(),
    }
}

/// Of those that no system has as a program, the usual ones.
const SHELL_COMMANDS: [&str; 9] = [".", "alias", "cd", "eval", "export", "set", "source", "ulimit", "unset"];

/// A program that is not there, or cannot be run, is a result; anything else before it is an error.
fn not_started(fault: &Fault) -> Result<Output, SandboxError> {
    let errno = errno::parse(fault.errno).unwrap_or(Errno::IO);
    if fault.doing == OPEN_TERMINAL {
        let message = format!("cannot open a terminal for the command: {errno}");
        return Err(ErrorCode::TooManyRequests.error(message).hint(hint!(
            "a sandbox has at most 256 terminals, and the machine some thousands: end what holds \
                 them, or run without {}",
            Term::Terminal
        )));
    }
    let Some(program) = fault.doing.strip_prefix("run ") else { return Err(faults::file(fault)) };
    // Whatever is in the name, a terminal shows it and does not obey it.
    let program = quote::visible(program.as_bytes());
    let (code, why) = match errno {
        Errno::NOENT => {
            (127, format!("`{program}` was not found inside the sandbox{}", meant_instead(&program)))
        }
        Errno::ACCESS => (126, format!("`{program}` is not executable")),
        Errno::NOEXEC => {
            (126, format!("`{program}` is neither a program nor a script that names its interpreter"))
        }
        Errno::AGAIN => {
            return Err(ErrorCode::PidsExhausted
                .error(format!("cannot run `{program}`: the sandbox has as many processes as it may"))
                .hint(hint!("allow more with {}", Term::Pids)));
        }
        other => (126, format!("`{program}` cannot be run: {other}")),
    };
    Ok(Output::Ended(Ended { exit_code: Some(code), not_started: Some(why), ..Ended::default() }))
}

/// Standard input that is known when the command starts.
pub struct FixedInput<'i> {
    rest: &'i [u8],
    /// Standard input ends after this, and has not ended yet.
    ends: bool,
}

impl<'i> FixedInput<'i> {
    pub fn new(stdin: &'i Stdin) -> FixedInput<'i> {
        match stdin {
            Stdin::Empty => FixedInput { rest: &[], ends: true },
            Stdin::Bytes(bytes) => FixedInput { rest: bytes, ends: true },
            Stdin::Stream => FixedInput { rest: &[], ends: false },
        }
    }
}

impl Source for FixedInput<'_> {
    async fn next(&mut self, filter: InputFilter) -> Input {
        if filter == InputFilter::Controls {
            return pending().await;
        }
        let (piece, rest) = self.rest.split_at(self.rest.len().min(CHUNK));
        if !piece.is_empty() {
            self.rest = rest;
            return Input::Bytes(piece.to_vec());
        }
        match std::mem::take(&mut self.ends) {
            true => Input::End,
            false => pending().await,
        }
    }
}

/// Keeps the beginning of both output streams in memory.
struct Collected {
    kept: [Vec<u8>; 2],
    caps: [Cap; 2],
}

impl Collected {
    fn new(cap: ByteSize) -> Collected {
        Collected { kept: [Vec::new(), Vec::new()], caps: [Cap::new(cap.as_u64()); 2] }
    }
}

impl Sink for Collected {
    async fn write(&mut self, stream: OutputStream, bytes: &[u8]) -> Result<(), SandboxError> {
        let index = stream as usize;
        self.kept[index].extend_from_slice(self.caps[index].take(bytes));
        Ok(())
    }

    fn is_truncated(&self) -> bool {
        self.caps.iter().any(Cap::is_exceeded)
    }
}

fn on_the_wire(size: WindowSize) -> message::WindowSize {
    message::WindowSize { rows: size.rows, cols: size.cols }
}

/// What a collected stream keeps unless the caller says otherwise.
const COLLECTED: ByteSize = ByteSize::mebibytes(16);
/// With 2 MiB of arguments it stays below the longest frame.
const MAX_ENVIRONMENT: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(error, Some(ErrorCode::TooManyRequests));
    }
}

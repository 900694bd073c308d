//! The daemon that started this process, and the log. What a shim writes to standard error goes to `keeper.log` of a sandbox that lives, and
//! to the daemon's own log for a run.

use super::protocol::{Answer, Plan, UNREAD};
use belljar_api::RunResult;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fs::{OFlags, fcntl_setfl};
use belljar_sys::rustix::io::fcntl_dupfd_cloexec;
use belljar_sys::rustix::process::setsid;
use belljar_sys::rustix::stdio::{dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tracing::error;

/// Both ends of the connection to the daemon. It may be gone at any time: what cannot be written then is dropped.
pub(super) struct Starter {
    input: Option<BufReader<File>>,
    output: File,
    outlives_daemon: Arc<AtomicBool>,
}

impl Starter {
    /// Takes standard input and output out of the reach of all that is started from here.
    pub(super) fn detach() -> io::Result<Starter> {
        let input = File::from(fcntl_dupfd_cloexec(stdin(), 3)?);
        let output = File::from(fcntl_dupfd_cloexec(stdout(), 3)?);
        // A session of our own: what ends a terminal or a daemon does not end us. We may have one already.
        let _ = setsid();
        let null = File::options().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        Ok(Starter { input: Some(BufReader::new(input)), output, outlives_daemon: Arc::default() })
    }

    /// The first line.
    pub(super) fn plan(&mut self) -> Result<Plan, SandboxError> {
        let mut line = String::new();
        let read = self.input.as_mut().map_or(Ok(0), |input| input.read_line(&mut line));
        read.map_err(serde_json::Error::io).and_then(|_| serde_json::from_str(&line)).map_err(|error| {
            ErrorCode::StateFailed
                .error(format!("there is no plan on standard input: {error}"))
                .hint(hint!("shims are started by {}", CommandLine::Serve))
                .caused_by(error)
        })
    }

    pub(super) fn say(&self, answer: &Answer) {
        let _ = say(answer, &mut &self.output);
    }

    /// Written as it is made: text with every byte escaped is six times as long, and is never held as a whole. Gives the exit code.
    pub(super) fn say_result(&self, result: &RunResult) -> ExitCode {
        let mut length = Length(0);
        let mut out = BufWriter::with_capacity(PIECE_BYTES, Patient(&self.output, READ_TIMEOUT));
        let written = fcntl_setfl(&self.output, OFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|()| Ok(serde_json::to_writer(&mut length, result)?))
            .and_then(|()| say(&Answer::Result(length.0), &mut out))
            .and_then(|()| Ok(serde_json::to_writer(&mut out, result)?))
            .and_then(|()| out.flush());
        // What is left is not tried again.
        drop(out.into_parts());
        match written {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => ExitCode::from(UNREAD),
            _ => ExitCode::SUCCESS,
        }
    }

    /// Notified when standard input ends: the run is not wanted any more.
    pub(super) fn hung_up(&mut self) -> Arc<Notify> {
        let notified = Arc::new(Notify::new());
        let tell = Arc::clone(&notified);
        self.at_end_of_input(move || tell.notify_one());
        notified
    }

    /// Ends this process, and with it the sandbox that it is making, if the daemon ends before [`Starter::outlive_daemon`]. Until a
    /// sandbox can be reached, the daemon that asked for it is the only one that could remove it.
    pub(super) fn end_with_daemon(&mut self) {
        let outlives = Arc::clone(&self.outlives_daemon);
        self.at_end_of_input(move || {
            if !outlives.load(Ordering::SeqCst) {
                error!("the daemon ended before the sandbox was ready");
                std::process::exit(1);
            }
        });
    }

    /// From here on this process can be reached, and continues without the daemon.
    pub(super) fn outlive_daemon(&self) {
        self.outlives_daemon.store(true, Ordering::SeqCst);
    }

    /// Waits on a thread of its own, which ends with the process.
    fn at_end_of_input(&mut self, act: impl FnOnce() + Send + 'static) {
        let mut input = self.input.take();
        std::thread::spawn(move || {
            let _ = input.as_mut().map(|input| io::copy(input, &mut io::sink()));
            act();
        });
    }
}

fn say(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    // In one piece: a reader never sees half a line.
    out.write_all(format!("{}\n", serde_json::to_string(answer)?).as_bytes())
}

/// Counts what is written.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A pipe that does not block: waits for its reader, but not for ever.
struct Patient<'o>(&'o File, Timespec);

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
            if poll(&mut [PollFd::new(self.0, PollFlags::OUT)], Some(&self.1))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client that takes nothing of a result for so long does not want it.
const READ_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// What a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_takes_nothing_is_not_waited_for() {
        let (read, write) = belljar_sys::rustix::pipe::pipe().expect("a pipe");
        fcntl_setfl(&write, OFlags::NONBLOCK).expect("it is ours");
        let write = File::from(write);
        let mut patient = Patient(&write, Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
        let error = patient.write_all(&[0; 1 << 20]).expect_err("a pipe is shorter");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(read);
        let error = patient.write_all(&[0]).expect_err("the reader is gone");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

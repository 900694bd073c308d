//! The daemon that started this process, and the log. What a shim writes to standard error goes to `keeper.log` of a sandbox that lives, and
//! to the daemon's own log for a run.

use super::protocol::{Answer, Plan};
use belljar_api::RunResult;
use belljar_spec::SandboxError;
use belljar_sys::rustix::io::fcntl_dupfd_cloexec;
use belljar_sys::rustix::process::setsid;
use belljar_sys::rustix::stdio::{dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write, stdin, stdout};
use std::sync::Arc;
use tokio::sync::Notify;

/// Both ends of the connection to the daemon. It may be gone at any time: what cannot be written is lost on nobody.
pub(super) struct Starter {
    input: Option<BufReader<File>>,
    output: File,
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
        Ok(Starter { input: Some(BufReader::new(input)), output })
    }

    /// The first line.
    pub(super) fn plan(&mut self) -> Result<Plan, SandboxError> {
        let mut line = String::new();
        let read = self.input.as_mut().map_or(Ok(0), |input| input.read_line(&mut line));
        read.map_err(serde_json::Error::io).and_then(|_| serde_json::from_str(&line)).map_err(|error| {
            SandboxError::runtime("keeper_plan", format!("there is no plan on standard input: {error}"))
                .hint("keepers are started by `belljar serve`")
        })
    }

    pub(super) fn say(&self, answer: &Answer) {
        let _ = say(answer, &mut &self.output);
    }

    /// Written as it is made: text with every byte escaped is six times as long, and nobody has to hold that.
    pub(super) fn say_result(&self, result: &RunResult) {
        let write = || -> io::Result<()> {
            let mut length = Length(0);
            serde_json::to_writer(&mut length, result)?;
            let mut out = BufWriter::with_capacity(PIECE_BYTES, &self.output);
            say(&Answer::Result(length.0), &mut out)?;
            serde_json::to_writer(&mut out, result)?;
            out.flush()
        };
        let _ = write();
    }

    /// Told when standard input ends: the run is not wanted any more. On a thread of its own, to the end of the process.
    pub(super) fn hung_up(&mut self) -> Arc<Notify> {
        let told = Arc::new(Notify::new());
        let tell = Arc::clone(&told);
        let input = self.input.take();
        std::thread::spawn(move || {
            let _ = input.map(|mut input| io::copy(&mut input.by_ref(), &mut io::sink()));
            tell.notify_one();
        });
        told
    }
}

/// Writes to the log.
pub(super) fn log(text: &str) {
    let _ = writeln!(io::stderr(), "{} {}", belljar_audit::Stamp::now(), text);
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

/// What a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

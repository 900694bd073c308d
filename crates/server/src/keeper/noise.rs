//! What a keeper has to say when nobody listens: into `keeper.log`, which does not grow for ever.

use belljar_sys::rustix::io::fcntl_dupfd_cloexec;
use belljar_sys::rustix::process::setsid;
use belljar_sys::rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// To whoever started us.
pub(super) struct Starter(Option<File>);

impl Starter {
    /// The one word that it waits for: everything is ready.
    pub(super) fn say_ready(&self) {
        if let Some(mut starter) = self.0.as_ref() {
            // It may have gone, and does not matter any more.
            let _ = starter.write_all(b"ready\n");
        }
    }
}

/// From now on nothing is read from whoever started us, and one word written to them.
pub(super) fn quieten(log: &Path) -> Starter {
    let starter = fcntl_dupfd_cloexec(std::io::stdout(), 3).ok().map(File::from);
    // A session of our own: what ends a terminal or a daemon does not end us. We may have one already.
    let _ = setsid();
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let log = options.open(log).and_then(|file| {
        if file.metadata()?.len() > MOST {
            file.set_len(0)?;
        }
        Ok(file)
    });
    // Also for a panic, and for programs that are started on the host.
    if let Ok(log) = log {
        let _ = dup2_stderr(&log);
    }
    Starter(starter)
}

/// Says it.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{} {}", belljar_audit::Stamp::now(), text);
}

/// What an earlier life of the sandbox may have left.
const MOST: u64 = 1 << 20;

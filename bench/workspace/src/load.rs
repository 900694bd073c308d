//! The load: small files made, read and removed where it is started, and others read that were there before.

use crate::{Outcome, tree};
use belljar_sys::rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What it does, in order; each is timed by itself, so that no start of a sandbox is in it.
pub(crate) const STEPS: [&str; 4] = ["read what was there", "create", "read", "delete"];

/// The first of the steps that work on files of their own.
pub(crate) const NEW_FILES: usize = 1;

/// A folder of the workspace that is there before.
pub(crate) const BEFORE: &str = "before";

/// How long a step took, and how long a processor worked on it: on a busy machine, only the second one says much.
pub(crate) struct Step {
    pub(crate) backend: Duration,
    pub(crate) cpu: Duration,
}

/// Does all of it and prints how long each step took, in nanoseconds.
pub(crate) fn files(count: usize) -> Outcome<()> {
    let new = Path::new("node_modules");
    let timed = |work: &dyn Fn() -> std::io::Result<()>| -> Outcome<String> {
        let (start, worked) = (Instant::now(), cpu());
        work()?;
        let (backend, cpu) = (start.elapsed(), cpu() - worked);
        Ok(format!("{} {}", backend.as_nanos(), cpu.as_nanos()))
    };
    let times = [
        timed(&|| tree::read(Path::new(BEFORE)).map(|_| ()))?,
        timed(&|| tree::make(new, count))?,
        timed(&|| tree::read(new).map(|_| ()))?,
        timed(&|| fs::remove_dir_all(new))?,
    ];
    println!("{}", times.join(" "));
    Ok(())
}

/// What it printed.
pub(crate) fn understand(output: &[u8]) -> Outcome<Vec<Step>> {
    let text = std::str::from_utf8(output)?;
    let times: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    if times.len() != 2 * STEPS.len() {
        return Err(format!("the load said {text:?}").into());
    }
    let step =
        |pair: &[u64]| Step { backend: Duration::from_nanos(pair[0]), cpu: Duration::from_nanos(pair[1]) };
    Ok(times.chunks(2).map(step).collect())
}

/// What this process, and the kernel for it, has worked so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

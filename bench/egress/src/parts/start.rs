//! A sandbox with its way out, from exec to exit, beside one that has no network at all.

use crate::Outcome;
use crate::children::installed;
use crate::stage::Stage;
use crate::table::{Table, Wanted};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn run(stage: &Stage, rounds: usize) -> Outcome<()> {
    let belljar = std::env::current_exe()?.with_file_name("belljar");
    if !belljar.exists() {
        return Err(format!("there is no {}: run `cargo build --release` first", belljar.display()).into());
    }
    let mut table = Table::new("Start: one command in a new sandbox, from exec to exit", &[TIME]);
    let mut cases = vec![
        ("fork+exec", "true".to_string()),
        (BELLJAR, format!("{} run -- true", belljar.display())),
        (CLOSED, format!("{} run --egress none -- true", belljar.display())),
    ];
    if installed(BWRAP).is_some() {
        cases.push((BWRAP, "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc true".into()));
    }
    cases.retain(|(name, line)| {
        let works = run_once(line, stage.directory()).is_ok();
        if !works {
            println!("{name}: does not work here");
        }
        works
    });
    for _ in 0..rounds * A_ROUND {
        for (name, line) in &cases {
            let time = run_once(line, stage.directory())?;
            table.add(name, TIME, time.as_secs_f64() * 1e3);
            // The kernel takes namespaces apart after their last process is gone: that is not the next one's time.
            thread::sleep(PAUSE);
        }
    }
    table.print(BWRAP);
    table.judge(BELLJAR, BWRAP, TIME, &Wanted::AtMost(1.0));
    Ok(())
}

fn run_once(line: &str, state: &Path) -> Outcome<Duration> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().ok_or("nothing to run")?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Records of a benchmark are nobody's.
    command.env("XDG_STATE_HOME", state);
    let start = Instant::now();
    let status = command.status()?;
    let time = start.elapsed();
    if status.success() { Ok(time) } else { Err(format!("`{line}` failed: {status}").into()) }
}

const TIME: &str = "ms";
const BWRAP: &str = "bwrap";
const BELLJAR: &str = "belljar run";
const CLOSED: &str = "belljar run --egress none";
/// A start is short: many of them are one round.
const A_ROUND: usize = 15;
const PAUSE: Duration = Duration::from_millis(15);

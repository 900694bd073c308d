//! A sandbox with egress, from exec to exit, beside one that has no network at all.

use crate::Outcome;
use crate::children::installed;
use crate::stage::Stage;
use crate::table::{Expected, Table};
use std::fs;
use std::path::{Path, PathBuf};
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
    let fixture = Fixture::new(stage.directory())?;
    cases.retain(|(name, line)| {
        let works = fixture.check(line);
        if let Err(why) = &works {
            println!("{name}: {why}");
        }
        works.is_ok()
    });
    for _ in 0..rounds * A_ROUND {
        for (name, line) in &cases {
            let time = fixture.time(line)?;
            table.add(name, TIME, time.as_secs_f64() * 1e3);
            // The kernel takes namespaces apart after their last process is gone: that is not the next one's time.
            thread::sleep(PAUSE);
        }
    }
    table.print(BWRAP);
    table.judge(BELLJAR, BWRAP, TIME, &Expected::AtMost(1.0));
    Ok(())
}

/// Where commands run: an empty folder, and a state directory of their own.
struct Fixture {
    work: PathBuf,
    state: PathBuf,
}

impl Fixture {
    fn new(directory: &Path) -> Outcome<Fixture> {
        let fixture = Fixture { work: directory.join("work"), state: directory.join("state") };
        fs::create_dir_all(&fixture.work)?;
        Ok(fixture)
    }

    fn check(&self, line: &str) -> Outcome<()> {
        let ended = self.command(line)?.stderr(Stdio::piped()).output()?;
        if ended.status.success() {
            return Ok(());
        }
        Err(format!("does not work here: {}", String::from_utf8_lossy(&ended.stderr).trim()).into())
    }

    /// To the end of the process: what it leaves to others to finish is not waited for.
    fn time(&self, line: &str) -> Outcome<Duration> {
        let mut command = self.command(line)?;
        let start = Instant::now();
        let status = command.status()?;
        let time = start.elapsed();
        if status.success() { Ok(time) } else { Err(format!("`{line}` failed: {status}").into()) }
    }

    fn command(&self, line: &str) -> Outcome<Command> {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().ok_or("nothing to run")?);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(&self.work).env("XDG_STATE_HOME", &self.state);
        Ok(command)
    }
}

const TIME: &str = "ms";
const BWRAP: &str = "bwrap";
const BELLJAR: &str = "belljar run";
const CLOSED: &str = "belljar run --egress none";
/// A start is short: many of them are one round.
const A_ROUND: usize = 15;
const PAUSE: Duration = Duration::from_millis(15);

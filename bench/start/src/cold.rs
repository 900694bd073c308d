//! From exec to exit of one command in a new sandbox.

use crate::peers::{Peers, belljar, works};
use belljar_bench_sample::{Case, Figures, print};
use std::error::Error;
use std::process::Command;
use std::thread;
use std::time::Duration;

pub(crate) fn run(peers: &Peers, runs: usize, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    is_inside()?;
    let mut cases: Vec<Case> = peers.cold.iter().map(|(name, _)| Case::new(name)).collect();
    for round in 0..runs + WARM_UP {
        for (case, (name, words)) in cases.iter_mut().zip(&peers.cold) {
            // The slow ones need not be asked as often.
            if SLOW.contains(&name.as_str()) && round % 5 != 0 {
                continue;
            }
            turn(case, words, round)?;
        }
    }
    print("Cold start: one command in a new sandbox, from exec to exit", &cases, "bwrap");
    let median = |name: &str| cases.iter().find(|case| case.name == name).map(Case::median);
    for (figure, name) in
        [("run_ms", "belljar run"), ("run_allow_ms", "belljar run --allow"), ("bwrap_ms", "bwrap")]
    {
        if let Some(median) = median(name) {
            figures.add(figure, median);
        }
    }
    if let (Some(version), Some(exec)) = (median("belljar --version"), median("fork+exec")) {
        println!("  belljar --version / fork+exec: {:.2}\n", version / exec);
    }
    Ok(())
}

/// What is measured is a sandbox: its user and its folder are not ours.
fn is_inside() -> Result<(), Box<dyn Error>> {
    let output = Command::new(belljar()?).args(["run", "--", "sh", "-c", "id -un; pwd"]).output()?;
    if output.status.success() && output.stdout == b"agent\n/workspace\n" {
        return Ok(());
    }
    let (printed, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("belljar makes no sandbox here: {printed}{wrong}({})", output.status).into())
}

/// One turn of a command, timed once it is warm. One that fails is quick, and measures nothing.
pub(crate) fn turn(case: &mut Case, words: &[String], round: usize) -> Result<(), Box<dyn Error>> {
    let worked = if round < WARM_UP { works(words) } else { case.time(|| works(words)) };
    if !worked {
        return Err(format!("round {round} of {} failed: {}", case.name, words.join(" ")).into());
    }
    // The kernel takes namespaces apart after their last process is gone: that is not the next one's time.
    thread::sleep(PAUSE);
    Ok(())
}

/// Rounds that are not timed.
pub(crate) const WARM_UP: usize = 5;
const PAUSE: Duration = Duration::from_millis(15);
const SLOW: [&str; 3] = ["firejail", "docker run", "runsc do"];

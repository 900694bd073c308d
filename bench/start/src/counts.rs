//! System calls and page faults of one command in a new sandbox: what does not depend on the machine's mood.

use crate::peers::{Peers, works};
use std::error::Error;
use std::fs;

pub(crate) fn run(peers: &Peers) -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("belljar-bench-calls-{}", std::process::id()));
    let counts =
        peers.cold.iter().filter(|(name, _)| COUNTED.contains(&name.as_str())).map(|(name, words)| {
            let mut runs: Vec<(Option<u64>, u64)> = (0..RUNS)
                .map(|_| Ok((calls(words, &file.display().to_string()), faults(words)?)))
                .collect::<Result<_, Box<dyn Error>>>()?;
            runs.sort_unstable();
            Ok((name, runs[RUNS / 2]))
        });
    let counts = counts.collect::<Result<Vec<_>, Box<dyn Error>>>();
    let _ = fs::remove_file(&file);
    println!("System calls (by strace) and page faults of one run, all processes together");
    println!("  {:<28} {:>12} {:>12}", "", "system calls", "page faults");
    for (name, (calls, faults)) in counts? {
        let calls = calls.map_or_else(|| "no strace".to_string(), |calls| calls.to_string());
        println!("  {name:<28} {calls:>12} {faults:>12}");
    }
    println!();
    Ok(())
}

/// How many system calls it makes; nothing where strace is not installed.
fn calls(words: &[String], file: &str) -> Option<u64> {
    let strace = ["strace", "-f", "-c", "-o", file].map(str::to_string);
    if !works(&[&strace[..], words].concat()) {
        return None;
    }
    let table = fs::read_to_string(file).ok()?;
    let total = table.lines().rfind(|line| line.ends_with(" total"))?;
    total.split_whitespace().nth(3)?.parse().ok()
}

/// How many page faults it causes, from its exec on.
fn faults(words: &[String]) -> Result<u64, Box<dyn Error>> {
    let before = of_children()?;
    if !works(words) {
        return Err(format!("{} failed", words.join(" ")).into());
    }
    Ok(of_children()? - before)
}

/// Page faults of our children that have ended, with theirs.
fn of_children() -> Result<u64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything, the third field begins; this is the eleventh (proc_pid_stat(5), `cminflt`).
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    Ok(rest.split(' ').nth(8).unwrap_or_default().parse()?)
}

const COUNTED: [&str; 5] = ["fork+exec", "belljar --version", "belljar run", "belljar run --allow", "bwrap"];
const RUNS: usize = 5;

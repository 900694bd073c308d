//! Many sandboxes held by one process: how the time to start one grows, whether each answers, what one costs.

use belljar_engine::Engine;
use belljar_spec::{Command, SandboxSpec};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

pub(crate) async fn run(count: usize) -> Result<(), Box<dyn Error>> {
    let engine = Engine::new();
    let before = own_pss()?;
    let mut sandboxes = Vec::new();
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        sandboxes.push(engine.create(SandboxSpec::default()).await?);
        times.push(start.elapsed());
    }
    let tenth = (count / 10).max(1);
    println!("\n{count} sandboxes alive at once");
    println!("  start, median of the first {tenth}: {:.3} ms", median(&times[..tenth]));
    println!("  start, median of the last {tenth}:  {:.3} ms", median(&times[count - tenth..]));
    println!("  last / first: {:.2}", median(&times[count - tenth..]) / median(&times[..tenth]));

    // Measured before the commands: idle is idle.
    match guests_pss() {
        Some((guests, pss)) => {
            let host = own_pss()?.saturating_sub(before);
            println!("  guests: {guests} processes, {:.3} MiB PSS each", mebibytes(pss) / guests as f64);
            println!("  host side: {:.3} MiB PSS each", mebibytes(host) / count as f64);
            println!("  together: {:.3} MiB each", mebibytes(pss + host) / count as f64);
        }
        None => println!("  memory: only root may look at a guest"),
    }
    let command = Command::new(["/usr/bin/true"])?;
    let start = Instant::now();
    for sandbox in &sandboxes {
        let result = sandbox.exec(&command).await?;
        assert_eq!(result.exit_code, Some(0), "every sandbox answers");
    }
    println!(
        "  each answered a command: {:.3} ms a command",
        start.elapsed().as_secs_f64() * 1000.0 / count as f64
    );
    let start = Instant::now();
    for sandbox in &sandboxes {
        sandbox.dispose().await;
    }
    println!("  disposed of: {:.3} ms each", start.elapsed().as_secs_f64() * 1000.0 / count as f64);
    Ok(())
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

/// What this process costs, in KiB.
fn own_pss() -> Result<u64, Box<dyn Error>> {
    pss("self").ok_or_else(|| "the kernel does not say what a process costs".into())
}

/// What our children cost together; `None` where we may not look.
fn guests_pss() -> Option<(usize, u64)> {
    let me = std::process::id();
    let mut found = 0;
    let mut total = 0;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) =
            entry.file_name().to_str().filter(|name| name.parse::<u32>().is_ok()).map(str::to_string)
        else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent =
            stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1)?.parse::<u32>().ok());
        if parent == Some(me) {
            total += pss(&pid)?;
            found += 1;
        }
    }
    (found > 0).then_some((found, total))
}

fn pss(pid: &str) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

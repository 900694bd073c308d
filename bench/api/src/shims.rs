//! Many sandboxes at the same time: what each costs while nothing happens.

use crate::Outcome;
use belljar_bench_sample::Figures;
use belljar_tests_daemon::{Home, Sandbox};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

pub(crate) fn run(home: &Home, count: usize, figures: &mut Figures) -> Outcome<()> {
    let client = home.client();
    let sandboxes: Vec<Sandbox> = (0..count).map(|_| Sandbox::create(&client, &json!({}))).collect();
    // The last of them give back what their making needed.
    thread::sleep(Duration::from_secs(2));
    let (mut shims, mut insides) = (Vec::new(), Vec::new());
    for sandbox in &sandboxes {
        let shim = shim(home, &sandbox.name)?;
        let unreadable = "only root may look at a process";
        shims.push(pss(shim).ok_or(unreadable)?);
        // One that stands by in the shim's own memory costs nothing of its own.
        let others = descendants(shim).into_iter().filter(|pid| program(*pid) != program(shim));
        insides.push(others.filter_map(pss).sum());
    }
    println!("\n{count} sandboxes alive at once, PSS of each");
    let (shim, largest) = (mean(&shims), mebibytes(shims.iter().copied().max().unwrap_or(0)));
    let inside = mean(&insides);
    println!(
        "  shim {shim:.3} MiB (the largest {largest:.3}), inside {inside:.3} MiB, together {:.3} MiB",
        shim + inside
    );
    figures.add("idle_pss_mib", shim + inside);
    for sandbox in &sandboxes {
        sandbox.delete();
    }
    Ok(())
}

/// Its shim, as it says itself: to look through all processes for each of a thousand takes minutes.
fn shim(home: &Home, name: &str) -> Outcome<u32> {
    let contact: Value = serde_json::from_slice(&fs::read(home.places().join(name).join("keeper.json"))?)?;
    let pid = contact["pid"].as_u64().ok_or("a shim without a number")?;
    Ok(u32::try_from(pid)?)
}

/// What a process costs, in KiB: pages that several use are shared among them.
fn pss(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let below = children.iter().flat_map(|child| descendants(*child)).collect::<Vec<_>>();
    [children, below].concat()
}

fn mean(kibibytes: &[u64]) -> f64 {
    mebibytes(kibibytes.iter().sum()) / kibibytes.len() as f64
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

//! Many sandboxes at the same time: what a shim costs while nothing happens.

use crate::Outcome;
use belljar_tests_daemon::{Home, Sandbox};
use serde_json::json;
use std::fs;

pub(crate) fn run(home: &Home, count: usize) -> Outcome<()> {
    let client = home.client();
    let sandboxes: Vec<Sandbox> = (0..count).map(|_| Sandbox::create(&client, &json!({}))).collect();
    let mut costs = Vec::new();
    for sandbox in &sandboxes {
        let shim = home.shim(&sandbox.name).ok_or("a sandbox without a shim")?;
        costs.push(pss(shim).ok_or("only root may look at a process")?);
    }
    costs.sort_unstable();
    let total: u64 = costs.iter().sum();
    println!("\n{count} sandboxes alive at once");
    println!(
        "  shims: {:.3} MiB PSS each, the largest {:.3} MiB",
        mebibytes(total) / count as f64,
        mebibytes(costs[count - 1])
    );
    for sandbox in &sandboxes {
        sandbox.delete();
    }
    Ok(())
}

/// What a process costs, in KiB: pages that several use are shared among them.
fn pss(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

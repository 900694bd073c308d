//! How fast a sandbox starts, what another root and a large repository add to that, how fast a command starts in a live one, and what an idle one costs; each beside its
//! peers in the same run, in turn, so that a busy moment hits all of them alike. Prints medians and ratios.
//!
//! `cargo run --release -p belljar-bench-start [-- RUNS [SANDBOXES]]`; wants the `belljar` binary in the same target
//! directory (`cargo build --release`), and shows the peers that are installed.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod cold;
mod counts;
mod folders;
mod idle;
mod live;
mod peers;
mod roots;

use belljar_bench_sample::Figures;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let runs = args.next().transpose()?.unwrap_or(100);
    let sandboxes = args.next().transpose()?.unwrap_or(500);
    let peers = peers::Peers::find()?;
    let mut figures = Figures::of("start");
    counts::run(&peers)?;
    cold::run(&peers, runs, &mut figures)?;
    roots::run(runs)?;
    folders::run(runs)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(live::run(&peers, runs))?;
    runtime.block_on(idle::run(sandboxes))?;
    Ok(figures.record()?)
}

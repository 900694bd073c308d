//! Sandboxes behind the HTTP API: one life after the other, a command in a live one beside `docker exec`, many short lives at the same
//! time and what is left of them, and what an idle one costs.
//!
//! `cargo run --release -p belljar-bench-api [-- RUNS [CYCLES [SANDBOXES]]]`; wants the `belljar` binary in the same target
//! directory. Docker is taken as it runs; where it does not, and we are root and `dockerd` is installed, one is started for as
//! long as the benchmark takes. `docs/benchmarks.md` says how to read it.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod cycles;
mod docker;
mod exec;
mod life;
mod shims;

use belljar_bench_sample::{Figures, say_how_busy};
use belljar_tests_daemon::Home;
use std::error::Error;
use std::path::PathBuf;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let runs = args.next().transpose()?.unwrap_or(1000);
    let cycles = args.next().transpose()?.unwrap_or(1000);
    let sandboxes = args.next().transpose()?.unwrap_or(1000);
    say_how_busy();
    let home = Home::of(belljar()?);
    let daemon = home.start();
    let mut figures = Figures::of("api");
    life::run(&home, runs / 10, &mut figures)?;
    let ahead = Home::of(belljar()?).config("[daemon]\nwarm = 2\n");
    let daemon_ahead = ahead.start();
    life::run_warm(&ahead, runs / 10, &mut figures)?;
    daemon_ahead.stop();
    drop(ahead);
    exec::run(&home, runs, &mut figures)?;
    cycles::run(&home, &daemon, cycles, &mut figures)?;
    shims::run(&home, sandboxes, &mut figures)?;
    daemon.stop();
    Ok(figures.record()?)
}

/// The binary that was built beside us.
fn belljar() -> Outcome<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("belljar");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!("there is no {}: run `cargo build --release` first", beside.display()).into()),
    }
}

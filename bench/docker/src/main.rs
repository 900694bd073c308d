//! A cold sandbox that Docker holds beside plain `docker run` of the same image with the same limits, by runc and by gVisor; and
//! an image as the root of a native sandbox beside the host's own root. In one run, in turn.
//!
//! `cargo run --release -p belljar-bench-docker [-- RUNS]`; wants root, `dockerd` and the `belljar` binary in the same target
//! directory. The daemon is the benchmark's own. `docs/benchmarks.md` says how to read it.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod cold;

use belljar_bench_sample::say_how_busy;
use belljar_tests_docker::{Dockerd, busybox};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let runs = std::env::args().nth(1).map(|arg| arg.parse()).transpose()?.unwrap_or(40);
    let belljar = belljar()?;
    let daemon =
        Dockerd::start().ok_or("there is no Docker here: it needs root, dockerd, runsc and busybox")?;
    busybox(&daemon.host(), cold::IMAGE);
    println!("docker: server {}", daemon.docker(&["version", "--format", "{{.Server.Version}}"]));
    say_how_busy();
    for runtime in ["runc", "runsc"] {
        cold::run(&daemon, &belljar, runtime, runs)?;
    }
    Ok(())
}

/// The binary that was built beside us.
fn belljar() -> Result<PathBuf, Box<dyn Error>> {
    let beside = std::env::current_exe()?.with_file_name("belljar");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!("there is no {}: run `cargo build --release` first", beside.display()).into()),
    }
}

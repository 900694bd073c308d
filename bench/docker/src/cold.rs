//! From exec to exit of one command in a new container.

use belljar_bench_sample::{Case, print};
use belljar_tests_docker::Dockerd;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) const IMAGE: &str = "belljar-bench:1";

pub(crate) fn run(
    daemon: &Dockerd,
    belljar: &Path,
    runtime: &str,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    let state = TempDir::new()?;
    let plain = || {
        let mut command = daemon.command(&["run", "--rm", "--network", "none", "--runtime", runtime]);
        // What belljar asks for as well, so that both have the same work.
        command.args(["--memory", MEMORY, "--memory-swap", MEMORY, "--pids-limit", PIDS, "--cpus", CPUS]);
        command.args(["--user", "1000:1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
        command.args(["--read-only", IMAGE, "/bin/true"]);
        command
    };
    let ours = |image: &[&str]| {
        let mut command = Command::new(belljar);
        command.args(["run", "--backend", "docker", "--runtime", runtime]).args(image);
        command.args(["--memory", MEMORY, "--pids", PIDS, "--cpus", CPUS, "--", "/bin/true"]);
        command.env("DOCKER_HOST", daemon.host()).env("XDG_STATE_HOME", state.path());
        command
    };
    let mut cases =
        [Case::new(PEER), Case::new("belljar run --image"), Case::new("belljar run, the host's root")];
    for round in 0..runs + WARM_UP {
        let commands = [plain(), ours(&["--image", IMAGE]), ours(&[])];
        for (case, command) in cases.iter_mut().zip(commands) {
            match round < WARM_UP {
                true => succeed(command)?,
                false => case.time(|| succeed(command))?,
            }
        }
    }
    print(&format!("Cold start in Docker, {runtime}: one command, from exec to exit"), &cases, PEER);
    Ok(())
}

/// A figure of something that failed is none.
fn succeed(mut command: Command) -> Result<(), Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

const PEER: &str = "docker run";
const WARM_UP: usize = 3;
const MEMORY: &str = "1g";
const PIDS: &str = "512";
const CPUS: &str = "2";

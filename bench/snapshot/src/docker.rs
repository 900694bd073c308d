//! The same with Docker: a container with the files, `docker commit`, and `docker run` of the image.

use crate::{Outcome, fill};
use belljar_bench_sample::{Case, print};
use belljar_tests_docker::{Dockerd, busybox};

pub(crate) fn run(rounds: usize, files: usize, bytes: usize) -> Outcome<()> {
    let Some(daemon) = Dockerd::start() else {
        println!("Docker takes no part: it needs root and dockerd");
        return Ok(());
    };
    busybox(&daemon.host(), IMAGE);
    daemon.docker(&[
        "run",
        "-d",
        "--name",
        "source",
        "--network",
        "none",
        IMAGE,
        "/bin/sh",
        "-c",
        "sleep 100000",
    ]);
    daemon.docker(&["exec", "source", "/bin/sh", "-c", &fill("/files", files, bytes)]);
    let mut cases = [BOTH, "docker commit", "docker run"].map(Case::new);
    for round in 0..rounds {
        let (image, fork) = (format!("fork:{round}"), format!("fork-{round}"));
        let [both, commit, run] = &mut cases;
        both.time(|| {
            commit.time(|| daemon.docker(&["commit", "source", &image]));
            let args =
                ["run", "-d", "--name", &fork, "--network", "none", &image, "/bin/sh", "-c", "sleep 100000"];
            run.time(|| daemon.docker(&args))
        });
        daemon.docker(&["rm", "-f", &fork]);
    }
    print("The same with Docker", &cases, BOTH);
    daemon.docker(&["rm", "-f", "source"]);
    Ok(())
}

const IMAGE: &str = "belljar-bench:1";
const BOTH: &str = "docker commit and docker run";

//! kill -9 of Docker's daemon and of belljar, at any moment of a sandbox's life: the next start removes what is left.
//!
//! A daemon that is killed while it starts a container may forget what it had asked of containerd, a task with its shim and cgroups:
//! plain `docker run --rm` leaves them (20.10). The sweep removes them.

use belljar_tests_docker::{Dockerd, Left, Work, eventually};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn killed_at_random_moments_nothing_is_left_with_runc() {
    nothing_is_left("docker");
}

#[test]
fn killed_with_containerd_as_well_nothing_of_ours_is_left() {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    work.succeeds("docker", &["--", "true"]);
    let mut dice = Dice::new();
    for _ in 0..ROUNDS / 3 {
        let mut child = start(&work, "docker");
        thread::sleep(dice.part_of(Duration::from_secs(1)));
        daemon.kill();
        daemon.kill_containerd();
        child.kill().unwrap();
        child.wait().unwrap();
        daemon.start_again();
    }
    work.succeeds("docker", &["--", "true"]);
    let is_clean =
        |left: &Left| left.containers.is_empty() && left.files.is_empty() && left.volumes.is_empty();
    assert!(eventually(|| is_clean(&work.left())), "{:#?}", work.left());
}

/// Who asks one daemon what there is must not take what another one holds for forgotten.
#[test]
fn a_sandbox_of_one_daemon_is_not_swept_by_way_of_another() {
    let (Some(one), Some(other)) = (Dockerd::start(), Dockerd::start()) else { return };
    for backend in ["docker", "docker+runsc"] {
        let work = Work::with(&one);
        let mut held = work.holds(backend);
        let elsewhere = work.run(backend, &["--", "true"]).env("DOCKER_HOST", other.host()).output().unwrap();
        assert!(elsewhere.status.success(), "{backend}: {}", String::from_utf8_lossy(&elsewhere.stderr));
        thread::sleep(Duration::from_millis(500));
        assert!(held.try_wait().unwrap().is_none(), "{backend}: it was ended");
        assert_eq!(one.containers().len(), 1, "{backend}");
        held.kill().unwrap();
        held.wait().unwrap();
    }
}

/// A life of a sandbox is create, exec and remove: a moment in it is a moment in one of them.
fn nothing_is_left(backend: &str) {
    let Some(daemon) = Dockerd::start() else { return };
    let work = Work::with(&daemon);
    // The first one also makes what stays: the empty image.
    work.succeeds(backend, &["--", "true"]);
    let begin = Instant::now();
    work.succeeds(backend, &["--", "true"]);
    let life = begin.elapsed();
    // A neighbour's runtime sees our mounts for a moment: what counts is one look without any of its processes.
    let mut before = Left::default();
    let is_quiet = || {
        before = work.left();
        is_empty(&before)
    };
    assert!(eventually(is_quiet), "{before:#?}");

    let mut dice = Dice::new();
    for _ in 0..ROUNDS / 2 {
        let mut child = start(&work, backend);
        thread::sleep(dice.part_of(life));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    work.succeeds(backend, &["--", "true"]);
    // Mounts of a neighbour that was ending when it was looked before are gone by now.
    let is_as_before = || {
        let mut after = work.left();
        after.mounts.retain(|mount| !before.mounts.contains(mount));
        after == Left { mounts: Default::default(), ..before.clone() }
    };
    assert!(eventually(is_as_before), "before: {before:#?}\nafter: {:#?}", work.left());

    for round in 0..ROUNDS {
        let mut child = start(&work, backend);
        thread::sleep(dice.part_of(life));
        if round % 2 == 0 {
            child.kill().unwrap();
        }
        daemon.kill();
        // One whose Docker died ends by itself, and says so.
        assert!(eventually(|| child.try_wait().unwrap().is_some()), "round {round}: belljar does not end");
        daemon.start_again();
    }
    // Each start sweeps. containerd may need a moment for tasks that no client waits for any more.
    let is_swept = || {
        work.succeeds(backend, &["--", "true"]);
        // Its own container is removed when it has ended.
        thread::sleep(Duration::from_secs(1));
        is_as_before()
    };
    assert!(eventually(is_swept), "before: {before:#?}\nafter: {:#?}", work.left());
    let files = std::fs::read_dir(work.folder()).unwrap().count();
    assert_eq!(files, 0, "something lies in the workspace");
}

fn start(work: &Work<'_>, backend: &str) -> Child {
    work.run(backend, &["--", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn is_empty(left: &Left) -> bool {
    left.containers.is_empty()
        && left.tasks.is_empty()
        && left.processes.is_empty()
        && left.cgroups.is_empty()
        && left.volumes.is_empty()
        && left.files.is_empty()
}

/// Numbers enough, the same in no two runs.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let uuid = std::fs::read("/proc/sys/kernel/random/uuid").unwrap();
        let seed = uuid.iter().fold(0u64, |seed, byte| seed.wrapping_mul(31).wrapping_add((*byte).into()));
        Dice(seed | 1)
    }

    /// Up to a little more than all of it.
    fn part_of(&mut self, whole: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        whole.mul_f64((self.0 % 1100) as f64 / 1000.0)
    }
}

const ROUNDS: usize = 24;

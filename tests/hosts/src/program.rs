//! Real programs: whether they are here, and a running one that ends with its test.

use std::env;
use std::fs;
use std::process::{self, Command};

/// Whether every one of these programs is here, on PATH or at its own path. Says which is not; in CI that is a failure.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
pub fn have<const N: usize>(programs: [&str; N]) -> bool {
    let missing = programs.into_iter().find(|program| !is_here(program));
    let Some(missing) = missing else { return true };
    assert!(env::var("CI").as_deref() != Ok("true"), "there is no `{missing}` here, and CI must have it");
    eprintln!("skipped: no `{missing}` here");
    false
}

/// Whether there is a Docker daemon that we may use: the one of `DOCKER_HOST`, which an ordinary user need not have. Says so if
/// not; for root in CI that is a failure.
pub fn have_docker() -> bool {
    have_runtime("runc")
}

/// The same, with this runtime.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
pub fn have_runtime(runtime: &str) -> bool {
    let backend = if runtime == "runc" { "docker".to_string() } else { format!("docker+{runtime}") };
    if let Some(works) = known_to_work(&backend) {
        return works;
    }
    if !is_root() && env::var_os("DOCKER_HOST").is_none() {
        eprintln!("skipped: no Docker for an ordinary user, DOCKER_HOST names none");
        return false;
    }
    // Asked, and not made to start a container: that takes a hundred times as long, and the test does it anyway.
    let answer = Command::new("docker").args(["info", "--format", "{{json .Runtimes}}"]).output();
    let has_it = |output: &process::Output| {
        String::from_utf8_lossy(&output.stdout).contains(&format!("\"{runtime}\":"))
    };
    if answer.as_ref().is_ok_and(has_it) {
        return true;
    }
    assert!(
        env::var("CI").as_deref() != Ok("true"),
        "there is no Docker with {runtime} here, and CI must have it: {answer:?}"
    );
    eprintln!("skipped: no Docker with {runtime} here");
    false
}

/// Whether this backend works here, as `./dev test` found out for all tests at once and said in `BELLJAR_WORKING_BACKENDS`; it also
/// fails where CI misses one. `None` in a run without `./dev`: then each test has to find out for itself, which costs it a sandbox.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
pub fn known_to_work(backend: &str) -> Option<bool> {
    let working = env::var("BELLJAR_WORKING_BACKENDS").ok().filter(|names| !names.is_empty())?;
    let works = working.split(',').any(|name| name.trim() == backend);
    if !works {
        eprintln!("skipped: {backend} is not among BELLJAR_WORKING_BACKENDS ({working})");
    }
    Some(works)
}

fn is_root() -> bool {
    // The effective one is the second (proc_pid_status(5)).
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

fn is_here(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // An absolute path joined to a directory is itself.
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A program that is killed when this is dropped.
pub struct Child(process::Child);

impl Child {
    /// Starts it.
    pub fn start(command: &mut Command) -> Child {
        Child(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! A Docker daemon of the test's own.

use belljar_sys::rustix::fs::{FlockOperation, flock};
use belljar_sys::rustix::process::geteuid;
use belljar_tests_daemon::{eventually, kill};
use belljar_tests_hosts::have;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// It, and the containerd beside it. Gone when dropped, with everything that they started.
pub struct Dockerd {
    folder: TempDir,
    // `daemon sweep` removes a folder whose lock is free.
    _lock: File,
}

impl Dockerd {
    /// `None` where it is not available; prints the reason.
    pub fn start() -> Option<Dockerd> {
        let daemon = Dockerd::prepare()?;
        daemon.start_again();
        Some(daemon)
    }

    /// One whose gVisor can be held.
    pub fn start_with_slow_gvisor() -> Option<Dockerd> {
        let daemon = Dockerd::prepare()?;
        let own = env::var_os("PATH").unwrap_or_default();
        let real = env::split_paths(&own).map(|folder| folder.join("runsc")).find(|path| path.exists());
        let (hold, real) = (daemon.hold(), real.expect("runsc is here"));
        let script = format!(
            "#!/bin/sh\nwhile [ -e {} ]; do sleep 0.1; done\nexec {} \"$@\"\n",
            hold.display(),
            real.display()
        );
        let program = daemon.programs().join("runsc");
        fs::create_dir(daemon.programs()).unwrap();
        fs::write(&program, script).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        daemon.start_again();
        Some(daemon)
    }

    /// From now on whatever is asked of gVisor waits.
    pub fn hold_gvisor(&self) {
        fs::write(self.hold(), "").unwrap();
    }

    /// gVisor continues.
    pub fn let_gvisor_go(&self) {
        fs::remove_file(self.hold()).unwrap();
    }

    #[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
    fn prepare() -> Option<Dockerd> {
        if !geteuid().is_root() {
            eprintln!("skipped: a Docker daemon needs root");
            return None;
        }
        if !have(["dockerd", "containerd", "runsc", "docker", "busybox"]) {
            return None;
        }
        // Where Docker's layers can lie, which `./dev` finds out.
        let base = env::var_os("BELLJAR_TEST_DOCKERS").unwrap_or_else(|| "/var/lib".into());
        let folder = tempfile::Builder::new().prefix("test-docker.").tempdir_in(base).unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        Some(Dockerd { folder, _lock: lock })
    }

    /// Starts what of it does not run.
    pub fn start_again(&self) {
        self.script("start");
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder().join("docker.sock")
    }

    /// The value of `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// As a machine that runs out of memory does. Its containers and its containerd continue.
    pub fn kill(&self) {
        self.kill_one("dockerd");
    }

    /// The same with containerd.
    pub fn kill_containerd(&self) {
        self.kill_one("containerd");
    }

    /// What `docker` says to these words.
    #[track_caller]
    pub fn docker(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {words:?}: {wrong}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(words).env("DOCKER_HOST", self.host());
        command
    }

    /// All containers, whatever they do: what each is called.
    pub fn containers(&self) -> Vec<String> {
        let names = self.docker(&["ps", "--all", "--format", "{{.Names}}"]);
        names.lines().map(String::from).collect()
    }

    fn kill_one(&self, name: &str) {
        let started = fs::read_to_string(self.folder().join(format!("{name}.started"))).unwrap();
        let pid = started.trim().parse().unwrap();
        kill(pid);
        let is_gone = || !belljar_tests_cli::left::is_alive(pid);
        assert!(eventually(is_gone), "{name} lives on");
    }

    /// Programs of its own, which it finds before the machine's.
    fn programs(&self) -> PathBuf {
        self.folder().join("programs")
    }

    fn hold(&self) -> PathBuf {
        self.folder().join("hold")
    }

    fn script(&self, command: &str) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/daemon");
        let own = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([self.programs()].into_iter().chain(env::split_paths(&own))).unwrap();
        let output = Command::new(script).arg(command).arg(self.folder()).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        self.script("stop");
    }
}

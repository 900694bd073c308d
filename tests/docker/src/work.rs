//! belljar with directories of its own, at work with a daemon of the test's own.

use crate::{Dockerd, Left};
use belljar_tests_cli::belljar;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Where belljar keeps what it keeps, and a folder to work on.
pub struct Work<'d> {
    daemon: &'d Dockerd,
    root: TempDir,
}

impl<'d> Work<'d> {
    pub fn with(daemon: &'d Dockerd) -> Work<'d> {
        let root = tempfile::Builder::new().prefix("belljar-docker-").tempdir().unwrap();
        for folder in ["state", "config", "home", "run", "tmp", "work"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        Work { daemon, root }
    }

    /// The folder that sandboxes work on, outside.
    pub fn folder(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Where belljar keeps things.
    pub fn state(&self) -> PathBuf {
        self.root.path().join("state/belljar")
    }

    /// The word that its containers are labelled with.
    pub fn owner(&self) -> String {
        fs::read_to_string(self.state().join("docker/owner")).unwrap().trim().into()
    }

    /// `belljar run` with this backend and these arguments.
    pub fn run(&self, backend: &str, words: &[&str]) -> Command {
        let mut command = self.belljar();
        command.args(["run", "--backend", backend, "--workspace"]).arg(self.folder()).args(words);
        command
    }

    /// belljar with directories of its own, in the folder above the one of the sandboxes.
    pub fn belljar(&self) -> Command {
        let folder = |name: &str| self.root.path().join(name);
        let mut command = Command::new(belljar());
        command
            .current_dir(self.root.path())
            .env_clear()
            .envs([("LANG", "C.UTF-8"), ("DOCKER_HOST", &self.daemon.host())])
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs([("HOME", folder("home")), ("TMPDIR", folder("tmp"))])
            .envs([("XDG_STATE_HOME", folder("state")), ("XDG_CONFIG_HOME", folder("config"))])
            .env("XDG_RUNTIME_DIR", folder("run"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end; it must succeed. What it wrote.
    #[track_caller]
    pub fn succeeds(&self, backend: &str, words: &[&str]) -> String {
        let output = self.run(backend, words).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{backend} {words:?}: {wrong}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts one that stays, and waits until its command has begun.
    #[track_caller]
    pub fn holds(&self, backend: &str) -> Child {
        let begun = self.folder().join("begun");
        let script = "touch begun; sleep 1000";
        let mut command = self.run(backend, &["--", "sh", "-c", script]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        assert!(crate::eventually(|| begun.exists()), "{backend}: the command does not begin");
        fs::remove_file(begun).unwrap();
        child
    }

    /// What there is of all this on the machine.
    pub fn left(&self) -> Left {
        Left::of(self.daemon, &self.mark(), &self.state())
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A word that stands in the path of everything that this is about, and nowhere else.
    fn mark(&self) -> String {
        self.root.path().file_name().unwrap().to_string_lossy().into_owned()
    }
}

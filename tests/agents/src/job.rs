//! A run to make.

use crate::agents::path;
use crate::done::Done;
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_cli::belljar;
use belljar_tests_hosts::{Model, Step};
use std::env;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the model wants, and no sandbox sees.
pub const KEY: &str = "sk-real-model-key-0123456789";
/// The same, as it is with a Claude plan.
pub const PLAN_TOKEN: &str = "sk-ant-oat01-real-model-key-0123456789";

/// An agent, what its model does, and a repository to work in: all of it in a folder of its own.
pub struct Job {
    pub model: Model,
    agent: String,
    prompt: String,
    url: String,
    backend: String,
    args: Vec<String>,
    key: &'static str,
    home: TempDir,
}

impl Job {
    /// Its model plays a scenario.
    pub fn new(agent: &str, scenario: &str) -> Job {
        let model = Model::start(Ipv4Addr::LOCALHOST);
        model.scenario(scenario);
        Job::with(agent, model)
    }

    /// Its model takes these steps.
    pub fn script(agent: &str, steps: impl Into<Vec<Step>>) -> Job {
        let model = Model::start(Ipv4Addr::LOCALHOST);
        model.script(steps);
        Job::with(agent, model)
    }

    fn with(agent: &str, model: Model) -> Job {
        model.expect_key(KEY);
        let home = tempfile::Builder::new().prefix("belljar-agents-").tempdir().unwrap();
        for folder in ["work", "config/belljar", "home", "tmp"] {
            fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let job = Job {
            url: model.url(),
            backend: "native".into(),
            model,
            agent: agent.into(),
            prompt: "Do the task.".into(),
            args: Vec::new(),
            key: KEY,
            home,
        };
        fs::write(job.work().join("README.md"), "A repository.\n").unwrap();
        for words in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "first"]] {
            job.git(words);
        }
        job
    }

    /// More words on the command line.
    #[must_use]
    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Job {
        self.args.extend(args.map(String::from));
        self
    }

    /// Without so many of its last words.
    #[must_use]
    pub fn without(mut self, words: usize) -> Job {
        self.args.truncate(self.args.len().saturating_sub(words));
        self
    }

    /// Its model wants a key of another kind.
    #[must_use]
    pub fn key(mut self, key: &'static str) -> Job {
        self.model.expect_key(key);
        self.key = key;
        self
    }

    /// The user's belljar.toml.
    #[must_use]
    pub fn config(self, text: &str) -> Job {
        fs::write(self.home.path().join("config/belljar/belljar.toml"), text).unwrap();
        self
    }

    /// Its model is somewhere else.
    #[must_use]
    pub fn elsewhere(mut self, url: &str) -> Job {
        self.url = url.into();
        self
    }

    /// With this backend instead of `native`.
    #[must_use]
    pub fn behind(mut self, backend: &str) -> Job {
        self.backend = backend.into();
        self
    }

    /// The folder it works in.
    pub fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// Where belljar keeps what it keeps.
    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// A word that stands in the path of everything that this job is about, and nowhere else.
    pub fn mark(&self) -> String {
        self.home.path().file_name().unwrap().to_string_lossy().into_owned()
    }

    /// What a file of the workspace says; nothing where there is none.
    pub fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work().join(name)).ok()
    }

    /// What git says in the workspace.
    pub fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=A person", "-c", "user.email=person@example.com"])
            .args(words)
            .current_dir(self.work())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs it to its end.
    pub fn run(&self) -> Done {
        self.start().wait()
    }

    /// Starts it.
    pub fn start(&self) -> Started<'_> {
        let into = |name: &str| File::create(self.home.path().join(name)).unwrap();
        let mut command = self.command("run");
        command.arg("--json").stdin(Stdio::null()).stdout(into("stdout")).stderr(into("stderr"));
        Started { job: self, child: command.spawn().unwrap() }
    }

    /// `belljar agent run`, or another word in its place, with all that this job is about.
    pub fn command(&self, word: &str) -> Command {
        let folder = |name: &str| self.home.path().join(name);
        let mut command = Command::new(belljar());
        command
            .args(["agent", word, &self.agent, "--prompt", &self.prompt, "--workspace"])
            .arg(self.work())
            .args(["--backend", &self.backend, "--egress", "strict"])
            .args(["--llm", &self.url, "--llm-key", "env:THE_KEY"])
            .args(&self.args)
            .current_dir(self.home.path())
            .env_clear()
            .envs([("THE_KEY", self.key), ("LANG", "C.UTF-8"), ("USER", "person"), ("SHELL", "/bin/sh")])
            .env("PATH", path())
            .envs(env::var_os("DOCKER_HOST").map(|host| ("DOCKER_HOST", host)))
            .envs([("HOME", folder("home")), ("TMPDIR", folder("tmp"))])
            .envs([("XDG_STATE_HOME", folder("state")), ("XDG_CONFIG_HOME", folder("config"))]);
        command
    }

    pub(crate) fn output_text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path().join(name)).unwrap_or_default()).into_owned()
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }
}

/// A run that continues. Dropped, it is killed.
pub struct Started<'j> {
    job: &'j Job,
    child: Child,
}

impl Started<'_> {
    /// Waits until the agent has come this far.
    pub fn until(&mut self, what: &str, mut so_far: impl FnMut(&Job) -> bool) {
        let start = Instant::now();
        while !so_far(self.job) {
            let is_over = self.child.try_wait().unwrap().is_some();
            assert!(
                !is_over,
                "it ended before {what}: {}{}",
                self.job.output_text("stdout"),
                self.job.output_text("stderr")
            );
            assert!(start.elapsed() < WAIT_TIMEOUT, "waited in vain until {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends belljar a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, and looks at everything.
    pub fn wait(self) -> Done {
        let job = self.job;
        let status = self.ended();
        Done::of(job, status)
    }

    /// Waits for its end alone.
    pub fn ended(mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                start.elapsed() < WAIT_TIMEOUT,
                "it does not end: {}{}",
                self.job.output_text("stdout"),
                self.job.output_text("stderr")
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The slowest agent on the busiest machine is done by then.
const WAIT_TIMEOUT: Duration = Duration::from_secs(240);

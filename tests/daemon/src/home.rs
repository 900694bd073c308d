//! A daemon with directories of its own, and everything that could be left of it.

use crate::wire::Address;
use crate::{Client, eventually};
use belljar_sys::rustix::process::{Pid, Signal, geteuid, kill_process};
use belljar_tests_cli::belljar;
use belljar_tests_cli::left::{cgroups, is_alive, numbers_of, of_run};
use belljar_tests_hosts::own_address;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Where a daemon keeps what it keeps. Dropped, nothing of it is left.
pub struct Home {
    belljar: PathBuf,
    root: TempDir,
    tcp: SocketAddr,
    args: Vec<String>,
    env: Vec<(String, String)>,
    has_operator: bool,
}

/// A daemon that runs. Dropped, it is killed; its sandboxes continue.
pub struct Started {
    child: Child,
}

impl Home {
    #[expect(clippy::new_without_default, reason = "no two are the same")]
    pub fn new() -> Home {
        Home::of(belljar())
    }

    /// With this executable.
    pub fn of(belljar: PathBuf) -> Home {
        let root = tempfile::Builder::new().prefix("belljar-daemon-").tempdir().unwrap();
        for folder in ["state", "run", "config/belljar", "home", "tmp", "work"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        Home { belljar, root, tcp: own_address(), args: Vec::new(), env: Vec::new(), has_operator: false }
    }

    /// Its daemon listens at a TCP address as well.
    #[must_use]
    pub fn listening(self) -> Home {
        let address = self.tcp.to_string();
        self.args(&["--listen", &address])
    }

    /// More words for `belljar serve`.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Home {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// A variable of the daemon.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Home {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The user's belljar.toml.
    #[must_use]
    pub fn config(self, text: &str) -> Home {
        fs::write(self.path("config/belljar/belljar.toml"), text).unwrap();
        self
    }

    /// The operator's belljar.toml. It lies in /etc: the daemon is started in a mount namespace where that looks otherwise.
    #[must_use]
    pub fn operator(mut self, text: &str) -> Home {
        fs::create_dir_all(self.path("etc/belljar")).unwrap();
        fs::write(self.path("etc/belljar/belljar.toml"), text).unwrap();
        self.has_operator = true;
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A new folder to work on.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path("work").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Where the daemon's socket is.
    pub fn socket(&self) -> PathBuf {
        self.path("run/belljar/daemon.sock")
    }

    /// Where sandboxes are kept.
    pub fn places(&self) -> PathBuf {
        self.path("state/belljar/fleet/sandboxes")
    }

    /// A word that stands in the path of everything that this is about, and nowhere else.
    pub fn mark(&self) -> String {
        self.root.path().file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Who asks over the socket, and so is the owner.
    pub fn client(&self) -> Client {
        Client::new(Address::Unix(self.socket()))
    }

    /// A client over TCP, not authenticated yet.
    pub fn stranger(&self) -> Client {
        Client::new(Address::Tcp(self.tcp))
    }

    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// belljar, with the directories of this home.
    pub fn belljar(&self) -> Command {
        let mut command = match self.has_operator {
            false => Command::new(&self.belljar),
            true => self.with_another_etc(),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .current_dir(self.root.path())
            .env_clear()
            .envs([("LANG", "C.UTF-8"), ("USER", "person"), ("SHELL", "/bin/sh")])
            .env("PATH", path)
            .envs([("HOME", "home"), ("TMPDIR", "tmp")].map(|(name, folder)| (name, self.path(folder))))
            .envs(
                [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config"), ("XDG_RUNTIME_DIR", "run")]
                    .map(|(name, folder)| (name, self.path(folder))),
            )
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn with_another_etc(&self) -> Command {
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let script = r#"mount -t overlay -o "lowerdir=$1:/etc" overlay /etc && shift && exec "$@""#;
        command.args(["--mount", "--", "sh", "-c", script, "sh"]).arg(self.path("etc")).arg(&self.belljar);
        command
    }

    /// Starts its daemon, and waits until it answers.
    pub fn start(&self) -> Started {
        let mut started = self.spawn();
        let answers =
            || self.client().ask("GET", "/v1/health").try_send().is_ok_and(|answer| answer.status == 200);
        let answered = eventually(|| started.child.try_wait().unwrap().is_some() || answers());
        let over = started.child.try_wait().unwrap();
        assert!(answered && over.is_none(), "the daemon does not answer ({over:?}): {}", self.log());
        started
    }

    /// Starts it, and does not wait.
    pub fn spawn(&self) -> Started {
        let log = File::options().create(true).append(true).open(self.path("daemon.log")).unwrap();
        let mut command = self.belljar();
        command.arg("serve").args(&self.args).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Started { child: command.spawn().unwrap() }
    }

    /// What its daemons had to say.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// The shim of a sandbox.
    pub fn shim(&self, name: &str) -> Option<u32> {
        let place = self.places().join(name);
        let is_shim = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&b"shim".as_slice()) && words.contains(&place.as_os_str().as_encoded_bytes())
        };
        numbers_of(&self.mark(), None).into_iter().find(is_shim)
    }

    /// Nothing is left of its sandboxes but what is kept on purpose: these places.
    #[track_caller]
    pub fn is_clean(&self, kept: &[&str], ids: &[String], daemon: Option<&Started>) {
        let mark = self.mark();
        let own: Vec<u32> =
            daemon.into_iter().flat_map(|daemon| [Some(daemon.pid()), daemon.zygote()]).flatten().collect();
        let numbers = || numbers_of(&mark, None).into_iter().filter(|pid| !own.contains(pid)).count();
        assert!(eventually(|| numbers() == 0), "processes are left: {:?}", of_run(&mark, None));
        for id in ids {
            assert!(eventually(|| cgroups(id).is_empty()), "cgroups are left: {:?}", cgroups(id));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&mark), "mounts are left: {mounts}");
        let places = || {
            let mut names = names(&self.places());
            names.retain(|name| !kept.contains(&name.as_str()));
            names
        };
        assert!(eventually(|| places().is_empty()), "places are left: {:?}", places());
        let temporary = names(&self.path("tmp"));
        assert!(temporary.is_empty(), "files are left: {temporary:?}");
    }
}

impl Drop for Home {
    #[expect(clippy::print_stderr, reason = "what a daemon said of a test that failed")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the daemon said:\n{}", self.log());
            for name in names(&self.places()) {
                let printed =
                    fs::read_to_string(self.places().join(&name).join("keeper.log")).unwrap_or_default();
                if !printed.is_empty() {
                    eprintln!("--- the shim of {name} said:\n{printed}");
                }
            }
        }
        let mark = self.mark();
        eventually(|| {
            let left = numbers_of(&mark, None);
            left.iter().for_each(|pid| kill(*pid));
            left.is_empty()
        });
    }
}

impl Started {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that makes its shims, once it has one.
    pub fn zygote(&self) -> Option<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: String = lists.collect();
        let is_zygote = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(b"zygote") && is_alive(*pid)
        };
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_zygote)
    }

    /// As a machine that runs out of memory does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As a person does.
    pub fn stop(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.ended()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        assert!(eventually(|| self.child.try_wait().unwrap().is_some()), "the daemon does not end");
        self.child.wait().unwrap()
    }

    /// How many files it has open.
    pub fn open_files(&self) -> usize {
        names(Path::new(&format!("/proc/{}/fd", self.pid()))).len()
    }

    /// Its resident memory in KiB.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process, and waits until it is dead.
pub fn kill(pid: u32) {
    let Some(known) = Pid::from_raw(pid as i32) else { return };
    let _ = kill_process(known, Signal::KILL);
    for _ in 0..500 {
        if !is_alive(pid) {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

//! A home of its own with a folder to work in, and a daemon that belljar starts when it needs one. All that lives in it ends with it.

use belljar_sys::rustix::net::sockopt::socket_peercred;
use belljar_sys::rustix::process::{Pid, Signal, kill_process, test_kill_process};
use belljar_tests_cli::{Person, Run, belljar};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub(crate) struct Home {
    place: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let place = tempfile::tempdir().unwrap();
        for name in ["run", "home", "work"] {
            fs::create_dir(place.path().join(name)).unwrap();
            fs::set_permissions(place.path().join(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        Home { place }
    }

    /// One whose folder is ready for a sandbox.
    pub(crate) fn ready() -> Home {
        let home = Home::new();
        assert_eq!(home.run(&["init"]).code, 0);
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(belljar());
        command
            .args(args)
            .current_dir(self.path("work"))
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("home/.config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("SHELL", "/bin/bash")
            .env_remove("BELLJAR_SOCKET")
            .env_remove("CODEX_HOME")
            .env_remove("CLAUDE_CONFIG_DIR")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.finish(self.command(args))
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let feeding = std::thread::spawn(move || {
            // One that does not read is no error here.
            let _ = stdin.write_all(&input);
        });
        let run = as_run(child.wait_with_output().unwrap());
        let _ = feeding.join();
        run
    }

    pub(crate) fn finish(&self, mut command: Command) -> Run {
        as_run(command.output().unwrap())
    }

    /// What is said on both streams, and the exit code, without what differs from run to run.
    pub(crate) fn transcript(&self, args: &[&str]) -> String {
        let Run { code, stdout, stderr } = self.run(args);
        self.steady(&format!("{stdout}---\n{stderr}--- {code}\n"))
    }

    pub(crate) fn steady(&self, text: &str) -> String {
        let home = self.path("");
        let text = text.replace(home.to_str().unwrap().trim_end_matches('/'), "[home]");
        text.lines().map(|line| steady_line(line) + "\n").collect()
    }

    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let run = self.run(args);
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{args:?}: {}{}", run.stdout, run.stderr))
    }

    /// The daemon that listens now.
    pub(crate) fn daemon(&self) -> Option<Pid> {
        let stream = UnixStream::connect(self.path("run/belljar/daemon.sock")).ok()?;
        Some(socket_peercred(&stream).unwrap().pid)
    }

    /// As the kernel does it when memory runs out.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon().expect("a daemon listens");
        kill_process(pid, Signal::KILL).unwrap();
        gone(pid);
    }

    /// A person at a terminal.
    pub(crate) fn at_terminal(&self, args: &[&str]) -> Person {
        Person::new(self.command(args))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(daemon) = self.daemon() else { return };
        let listed = self.run(&["list", "--json"]).stdout;
        let all: serde_json::Value = serde_json::from_str(&listed).unwrap_or_default();
        for one in all.as_array().into_iter().flatten() {
            self.run(&["rm", "--force", one["name"].as_str().unwrap_or_default()]);
        }
        let _ = kill_process(daemon, Signal::TERM);
        gone(daemon);
    }
}

/// Waits until no process has this id.
fn gone(pid: Pid) {
    for _ in 0..1000 {
        let zombie = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| stat.contains(") Z "));
        if zombie || test_kill_process(pid).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{pid:?} does not end");
}

fn as_run(output: Output) -> Run {
    let Output { status, stdout, stderr } = output;
    Run {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Names, ages, backends and the width of columns differ from machine to machine.
fn steady_line(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let words = line.split_whitespace().map(|word| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some(at) = word.find("bj-") {
            let end = word[at..].find(|c| !plain(c)).map_or(word.len(), |end| at + end);
            // Long folders are cut in front; the digest at the end makes it a name.
            let digest = word[at..end].rsplit('-').next().unwrap_or_default();
            if digest.len() == 12 && digest.chars().all(|c| c.is_ascii_hexdigit()) {
                return format!("{}[name]{}", &word[..at], &word[end..]);
            }
        }
        if let Some((name, rest)) = word.rsplit_once('.')
            && let Some(digest) = rest.get(..12)
            && digest.chars().all(|c| c.is_ascii_hexdigit())
        {
            return format!("{name}.[digest]{}", &rest[12..]);
        }
        match word.strip_suffix('s').map(str::parse::<u32>) {
            Some(Ok(_)) => "[age]".into(),
            _ => word.to_string(),
        }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    let backend = line.replace("(native, namespace)", "(backend)").replace("(bwrap, namespace)", "(backend)");
    format!("{}{backend}", &" ".repeat(indent))
}

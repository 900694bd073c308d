//! A person's home on a machine of their own.

use crate::{Run, belljar};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A folder with everything that belljar keeps or reads for a user, and `work` in it, where commands start.
pub struct Home {
    folder: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Home {
    /// With this belljar.toml, or none if there is nothing to say.
    pub fn new(config: &str) -> Home {
        let home =
            Home { folder: tempfile::tempdir().expect("a temporary folder can be made"), env: Vec::new() };
        fs::create_dir(home.path("work")).expect("the folder is ours");
        if !config.is_empty() {
            home.user(config);
        }
        home
    }

    /// With this variable in the environment of belljar.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Home {
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    /// Its belljar.toml says this from now on.
    pub fn user(&self, config: &str) {
        self.write("config/belljar/belljar.toml", config);
    }

    /// On a machine whose operator says this. Only root can make that.
    pub fn operator(self, config: &str) -> Home {
        self.write("etc/belljar/belljar.toml", config);
        self
    }

    /// Where something in it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder is there").join(name)
    }

    /// A file in it that every user may read.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("the folder is ours");
        fs::write(&path, content).expect("the folder is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
    }

    /// Keeps a secret.
    pub fn keep(&self, name: &str, value: &str) {
        let run = self.run_with_input(&["secrets", "set", name], value);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    /// Runs belljar; its home is called `[home]` in what it says, and itself `[belljar]`.
    pub fn run(&self, args: &[&str]) -> Run {
        self.run_with_input(args, "")
    }

    /// The same, with something on standard input.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Run {
        let mut command = self.belljar(args);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("belljar starts");
        // A command that does not read is no error here.
        let _ = child.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes());
        let Output { status, stdout, stderr } = child.wait_with_output().expect("belljar ends");
        let home = self.path("");
        let home = home.to_str().expect("a plain path").trim_end_matches('/');
        let program = belljar();
        let program = program.canonicalize().unwrap_or(program);
        let program = program.to_str().expect("a plain path");
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(home, "[home]").replace(program, "[belljar]")
        };
        Run { code: status.code().unwrap_or(-1), stdout: text(&stdout), stderr: text(&stderr) }
    }

    /// What is said on both streams, and the exit code.
    pub fn transcript(&self, args: &[&str]) -> String {
        let Run { code, stdout, stderr } = self.run(args);
        format!("{stdout}---\n{stderr}--- {code}\n")
    }

    /// belljar with these arguments, still to be started.
    pub fn belljar(&self, args: &[&str]) -> Command {
        let mut command = self.on_its_machine();
        command
            .args(args)
            .current_dir(self.path("work"))
            .env("HOME", self.path(""))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["BELLJAR_SOCKET", "BELLJAR_VAULT_KEY", "BELLJAR_VAULT_KEY_FILE", "DOCKER_CONFIG"] {
            command.env_remove(name);
        }
        command
    }

    fn on_its_machine(&self) -> Command {
        let etc = self.path("etc");
        if !etc.exists() {
            return Command::new(belljar());
        }
        let script = r#"mount -t overlay -o "lowerdir=$1:/etc" overlay /etc && shift && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", script, "sh"]).arg(etc).arg(belljar());
        command
    }
}

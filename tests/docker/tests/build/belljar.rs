//! The command, with a folder and a Docker of its own.

use belljar_tests_docker::Dockerd;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// What came of it.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{} {}", self.stdout, self.stderr))
    }
}

/// `belljar` with these words, in this folder.
pub(crate) fn belljar(docker: &Dockerd, folder: &Path, words: &[&str]) -> Finished {
    let home = TempDir::new().unwrap();
    let output = Command::new(belljar_tests_cli::belljar())
        .args(words)
        .current_dir(folder)
        .env_clear()
        .envs([("LANG", "C.UTF-8"), ("DOCKER_HOST", &docker.host())])
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, home.path())))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

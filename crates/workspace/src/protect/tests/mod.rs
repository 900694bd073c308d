//! Folders of every kind, made by a real git.

mod held;
mod hooks;
mod left;
mod linked;
mod refused;
mod settings;
mod true_alarms;

use super::*;
use belljar_spec::workspace::Shielded;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub(super) fn seen(shields: &[belljar_spec::workspace::Shield]) -> Vec<(&str, Shielded)> {
    shields.iter().map(|shield| (shield.path.as_str(), shield.what.clone())).collect()
}

pub(super) fn what(shields: &[belljar_spec::workspace::Shield], path: &str) -> Option<Shielded> {
    shields.iter().find(|shield| shield.path == path).map(|shield| shield.what.clone())
}

/// Folders, and an empty home.
pub(super) struct Fixture {
    pub(super) root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("home")).unwrap();
        Fixture { root, _directory: directory }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn host(&self) -> HostFiles {
        HostFiles { files: vec![self.path("home/.gitconfig")], home: Some(self.path("home")) }
    }

    pub(super) fn view(&self, folder: &str) -> Result<View, SandboxError> {
        // Settings of other programs have tests of their own.
        let all: Vec<ProtectedPath> =
            settings_paths().iter().map(|known| known.path.parse().unwrap()).collect();
        view_with(&self.path(folder), Policy { protect: &[], unprotect: &all }, &self.host())
    }

    /// The same, with everything that is protected by default.
    pub(super) fn whole_view(&self, folder: &str) -> View {
        view_with(&self.path(folder), Policy::default(), &self.host()).unwrap()
    }

    pub(super) fn repository(&self, name: &str) {
        self.git(&["init", "-q", name]);
        fs::write(self.path(name).join("file"), "x").unwrap();
        self.git(&["-C", name, "add", "file"]);
        self.git(&["-C", name, "commit", "-q", "-m", "x"]);
    }

    pub(super) fn git(&self, args: &[&str]) {
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
        let output = Command::new("git")
            .args(who)
            .args(args)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

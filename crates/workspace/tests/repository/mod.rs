//! Repositories for tests, made with ordinary git.

// Every test file uses a part of it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A repository with a worktree.
pub struct Repository {
    pub folder: PathBuf,
}

impl Repository {
    /// An empty one on branch `main`.
    pub fn empty(folder: &Path) -> Repository {
        std::fs::create_dir_all(folder).unwrap();
        let repository = Repository { folder: folder.to_path_buf() };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    /// One with a commit.
    pub fn with_commit(folder: &Path) -> Repository {
        let repository = Repository::empty(folder);
        repository.commit("README", "first\n", "first");
        repository
    }

    pub fn git_directory(&self) -> PathBuf {
        self.folder.join(".git")
    }

    /// Runs git in it, which must succeed, and returns the output without the final newline.
    pub fn git(&self, words: &[&str]) -> String {
        let output = git(&self.folder, words);
        assert!(
            output.status.success(),
            "git {words:?} in {}: {}",
            self.folder.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    }

    /// Writes a file, commits it, and returns the commit.
    pub fn commit(&self, file: &str, content: &str, subject: &str) -> String {
        self.write(file, content);
        self.git(&["add", "-A", "--", file]);
        self.git(&["commit", "-q", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn write(&self, file: &str, content: &str) {
        let path = self.folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Plain git, with no config but the repository's.
pub fn git(folder: &Path, words: &[&str]) -> Output {
    Command::new("git")
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .output()
        .unwrap()
}

/// A directory that is removed after the test, with its real path.
pub fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

//! One call of git.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// One call of git, being put together.
pub struct Call {
    command: Command,
    words: OsString,
}

/// What a call gave.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Why there is nothing.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("there is no git on this machine")]
    Missing,
    #[error("cannot start git: {0}")]
    Start(#[source] std::io::Error),
    #[error("`git {words}` failed: {reason}")]
    Failed { words: String, reason: String },
}

impl Call {
    pub(super) fn new(program: &Path, repository: Option<&Path>) -> Call {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(ENVIRONMENT.iter().copied());
        command.env("GIT_CONFIG_COUNT", SETTINGS.len().to_string());
        for (index, (key, value)) in SETTINGS.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        if let Some(repository) = repository {
            command.env("GIT_DIR", repository);
        }
        Call { command, words: OsString::new() }
    }

    /// Another word.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Call {
        self.words.push(word.as_ref());
        self.words.push(" ");
        self.command.arg(word);
        self
    }

    /// More words.
    pub fn args<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Call {
        words.into_iter().fold(self, Call::arg)
    }

    /// A variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    /// Where it runs.
    pub fn in_directory(mut self, directory: &Path) -> Call {
        self.command.current_dir(directory);
        self
    }

    /// Starts it; streams are pipes.
    pub fn spawn(mut self) -> Result<Child, GitError> {
        self.command.stdin(Stdio::piped());
        self.command.spawn().map_err(GitError::Start)
    }

    /// Runs it with this input, and gives what it gave, however it ended.
    pub fn run_with(mut self, input: &[u8]) -> Result<Finished, GitError> {
        self.command.stdin(Stdio::piped());
        let mut child = self.command.spawn().map_err(GitError::Start)?;
        let stdin = child.stdin.take();
        let output = std::thread::scope(|scope| {
            // A program that does not read its input to the end says why itself.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
            child.wait_with_output()
        });
        let output = output.map_err(GitError::Start)?;
        Ok(Finished { code: output.status.code(), stdout: output.stdout, stderr: output.stderr })
    }

    /// Runs it, and gives what it gave, however it ended.
    pub fn run(self) -> Result<Finished, GitError> {
        self.run_with(&[])
    }

    /// Runs it, and gives its output if it went well.
    pub fn output(self) -> Result<Vec<u8>, GitError> {
        let words = self.words.to_string_lossy().trim_end().to_string();
        let finished = self.run()?;
        match finished.code {
            Some(0) => Ok(finished.stdout),
            _ => {
                let text = String::from_utf8_lossy(&finished.stderr).into_owned();
                let reason = text.lines().last().unwrap_or("it said nothing").trim_start_matches("fatal: ");
                Err(GitError::Failed { words, reason: reason.to_string() })
            }
        }
    }

    /// The same, as text without the last line's end.
    pub fn line(self) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.output()?).trim_end_matches('\n').to_string())
    }
}

/// All of a call's environment, but for what it is given.
const ENVIRONMENT: [(&str, &str); 14] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_SSH_COMMAND", "/bin/false"),
    ("GIT_EDITOR", "/bin/false"),
    ("GIT_PAGER", "cat"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

/// What a repository's own config cannot undo: the command's counts last.
const SETTINGS: [(&str, &str); 12] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.sshCommand", "/bin/false"),
    ("core.alternateRefsCommand", "/bin/true"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("gpg.program", "/bin/false"),
];

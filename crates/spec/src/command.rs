//! A command to run in a sandbox.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use crate::{ByteSize, EnvName};

/// Program and arguments, and how to run them. Never empty.
#[derive(Debug, Clone)]
pub struct Command {
    argv: Vec<OsString>,
    /// Where it starts; relative to the workspace, which is also the default.
    pub cwd: Option<String>,
    /// Added to the sandbox's environment.
    pub env: Vec<(EnvName, OsString)>,
    /// What it reads.
    pub stdin: Stdin,
    /// Runs in a terminal of this size.
    pub terminal: Option<WindowSize>,
    /// Shorter or longer than the sandbox's limit.
    pub timeout: Option<Duration>,
    /// Per stream; what comes after is dropped.
    pub max_output: Option<ByteSize>,
}

impl Command {
    /// A command with nothing on standard input.
    pub fn new<S: AsRef<OsStr>>(argv: impl IntoIterator<Item = S>) -> Result<Command, CommandError> {
        let argv: Vec<OsString> = argv.into_iter().map(|arg| arg.as_ref().to_os_string()).collect();
        match argv.first() {
            None => return Err(CommandError::Empty),
            Some(program) if program.is_empty() => return Err(CommandError::EmptyProgram),
            Some(_) => {}
        }
        let has_nul = |arg: &OsString| arg.as_encoded_bytes().contains(&0);
        if argv.iter().any(has_nul) {
            return Err(CommandError::Nul);
        }
        if argv.iter().map(|arg| arg.len() + 1).sum::<usize>() > MAX_ARGUMENT_BYTES {
            return Err(CommandError::TooLong);
        }
        Ok(Command {
            argv,
            cwd: None,
            env: Vec::new(),
            stdin: Stdin::Empty,
            terminal: None,
            timeout: None,
            max_output: None,
        })
    }

    /// Program and arguments.
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }
}

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing: an end of file at once.
    Empty,
    /// These bytes, then an end of file.
    Bytes(Vec<u8>),
    /// What the caller sends while it runs.
    Stream,
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    pub rows: u16,
    pub cols: u16,
}

/// Not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No words at all.
    #[error("the command is empty")]
    Empty,
    /// The first word has no letters.
    #[error("the command's program is an empty string")]
    EmptyProgram,
    /// A zero byte ends a string for the kernel.
    #[error("an argument of the command contains a zero byte")]
    Nul,
    /// The kernel would refuse it.
    #[error("the command's arguments are longer than 2 MiB, which is more than the kernel takes")]
    TooLong,
}

/// The kernel's own bound is a quarter of the stack limit, 2 MiB for the usual 8 MiB: execve(2).
const MAX_ARGUMENT_BYTES: usize = 2 * 1024 * 1024;

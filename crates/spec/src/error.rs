//! The one error that callers of a sandbox see.

use crate::exit_code::{FAILED, REFUSED};
use serde::Serialize;
use std::fmt;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// You may not.
    Policy,
    /// It went wrong.
    Runtime,
    /// Not here, not now.
    Unavailable,
}

/// What happened, to what, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SandboxError {
    /// Whose turn it is.
    pub kind: ErrorKind,
    /// Stable, for programs: `workspace_missing`.
    pub code: &'static str,
    /// What happened, to what; lowercase, no full stop.
    pub message: String,
    /// What to do next, if there is something.
    pub hint: Option<String>,
}

impl SandboxError {
    /// You may not.
    pub fn policy(code: &'static str, message: impl Into<String>) -> SandboxError {
        SandboxError::new(ErrorKind::Policy, code, message)
    }

    /// It went wrong.
    pub fn runtime(code: &'static str, message: impl Into<String>) -> SandboxError {
        SandboxError::new(ErrorKind::Runtime, code, message)
    }

    /// Not here, not now.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> SandboxError {
        SandboxError::new(ErrorKind::Unavailable, code, message)
    }

    /// With what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> SandboxError {
        self.hint = Some(hint.into());
        self
    }

    fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> SandboxError {
        SandboxError { kind, code, message: message.into(), hint: None }
    }
}

impl ErrorKind {
    /// The exit code of belljar for an error of this kind.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Policy => REFUSED,
            ErrorKind::Runtime | ErrorKind::Unavailable => FAILED,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Policy => "policy",
            ErrorKind::Runtime => "runtime",
            ErrorKind::Unavailable => "unavailable",
        })
    }
}

//! The one error that callers of a sandbox see.

use crate::exit_code::{FAILED, REFUSED};
use crate::{ErrorCode, Hint};
use serde::Serialize;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Who has to act.
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
#[derive(Debug, Clone)]
pub struct SandboxError {
    /// Stable, for programs.
    pub code: ErrorCode,
    /// What happened, to what; lowercase, no full stop.
    pub message: String,
    /// What to do next, if there is something.
    pub hint: Option<Hint>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ErrorCode {
    /// An error with this code. The message says what happened, to what.
    pub fn error(self, message: impl Into<String>) -> SandboxError {
        SandboxError { code: self, message: message.into(), hint: None, source: None }
    }
}

impl SandboxError {
    /// With what to do next.
    pub fn hint(mut self, hint: impl Into<Hint>) -> SandboxError {
        self.hint = Some(hint.into());
        self
    }

    /// With the error that caused it, for callers that want more than the text.
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> SandboxError {
        self.source = Some(Arc::new(source));
        self
    }

    /// With another message, and the rest as it is.
    pub fn with_message(self, message: impl Into<String>) -> SandboxError {
        SandboxError { message: message.into(), ..self }
    }

    /// Who has to act.
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }
}

/// What a caller sees of them is the same.
impl PartialEq for SandboxError {
    fn eq(&self, other: &SandboxError) -> bool {
        (self.code, &self.message, &self.hint) == (other.code, &other.message, &other.hint)
    }
}

impl Eq for SandboxError {}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SandboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
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

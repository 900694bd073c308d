//! What a person sees when something is wrong: what happened, and what to do next.

use belljar_spec::{ErrorKind, SandboxError};
use std::process::ExitCode;

/// Says it, and gives the exit code.
pub(crate) fn say(error: &SandboxError) -> ExitCode {
    eprintln!("belljar: {error}");
    if let Some(hint) = &error.hint {
        eprintln!("  hint: {hint}");
    }
    ExitCode::from(exit_code(error))
}

/// As docker and timeout do it, so that scripts need not learn anything.
pub(crate) fn exit_code(error: &SandboxError) -> u8 {
    match error.kind {
        ErrorKind::Policy => REFUSED,
        ErrorKind::Runtime | ErrorKind::Unavailable => FAILED,
    }
}

/// It ran longer than it may.
pub(crate) const TIMED_OUT: u8 = 124;
/// belljar itself failed.
pub(crate) const FAILED: u8 = 125;
/// Refused.
pub(crate) const REFUSED: u8 = 126;

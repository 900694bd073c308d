//! How a command ended: the one result that the library, the command line, the HTTP API and agent runs report.

use crate::exit_code::{FAILED, TIMED_OUT};
use crate::{LimitHit, signal_name, signal_number};

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its own exit code; `None` when a signal ended it. 127: the program was not found. 126: it cannot be executed.
    pub exit_code: Option<i32>,
    /// The signal that ended it: `SIGKILL`.
    pub signal: Option<String>,
    /// It exceeded its time limit, and was killed with all its descendants.
    pub timed_out: bool,
    /// The caller aborted it, and it was killed with all its descendants.
    pub aborted: bool,
    /// It wrote more than is kept.
    pub output_truncated: bool,
    /// The limit that it reached, if it reached one.
    pub limit: Option<LimitHit>,
    /// Why it never ran, for exit codes 126 and 127.
    pub not_started: Option<String>,
}

impl Ended {
    /// The end of a command that a signal ended.
    pub fn signaled(number: i32) -> Ended {
        Ended { signal: Some(signal_name(number)), ..Ended::default() }
    }

    /// The end of a command that was killed, where the guest did not report how it ended.
    pub fn killed() -> Ended {
        Ended::signaled(SIGKILL)
    }

    /// The exit code that a shell would show: the command's own, 128 + n for signal n, 124 for a timeout.
    pub fn exit_code(&self) -> u8 {
        let signal = || u8::try_from(signal_number(self.signal.as_deref()?).unwrap_or(0)).ok();
        match self.exit_code {
            _ if self.timed_out => TIMED_OUT,
            // The kernel keeps the low eight bits.
            Some(code) => code as u8,
            None => signal().map_or(FAILED, |number| number.saturating_add(128)),
        }
    }
}

const SIGKILL: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_one_exit_code() {
        let exited = |code| Ended { exit_code: Some(code), ..Ended::default() };
        for (ended, code) in [
            (exited(0), 0),
            (exited(3), 3),
            (exited(255), 255),
            (Ended { not_started: Some("no such program".into()), ..exited(127) }, 127),
            (Ended { limit: Some(LimitHit::DiskFull), ..exited(1) }, 1),
            (Ended::signaled(15), 143),
            (Ended::signaled(63), 191),
            (Ended::killed(), 137),
            (Ended { aborted: true, ..Ended::killed() }, 137),
            (Ended { timed_out: true, ..Ended::killed() }, 124),
            (Ended { timed_out: true, ..exited(0) }, 124),
            (Ended::default(), 125),
        ] {
            assert_eq!(ended.exit_code(), code, "{ended:?}");
        }
    }
}

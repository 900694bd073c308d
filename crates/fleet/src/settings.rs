//! The settings of a fleet, and its clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The defaults of a fleet.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many sandboxes may be made at the same time; more of them wait their turn.
    pub starts: usize,
    /// How long a sandbox lives on without a lease.
    pub idle: Duration,
    /// How long a lease counts without being renewed or used.
    pub lease: Duration,
    /// How many sandboxes of each kind that is asked for are started ahead; none where it is 0.
    pub warm: usize,
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Settings {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            starts: (2 * cpus).max(FEWEST_STARTS),
            idle: Duration::from_secs(120),
            lease: Duration::from_secs(3600),
            warm: 0,
            clock: Clock::System,
        }
    }
}

/// What time it is, in milliseconds since 1970: leases outlive processes, so no other clock will do.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The machine's.
    System,
    /// One that began at a moment and goes as tokio's: tests stop it and set it forward.
    Steady { began: Instant, began_ms: i64 },
}

impl Clock {
    pub fn now_ms(&self) -> i64 {
        match self {
            Clock::System => millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Clock::Steady { began, began_ms } => began_ms.saturating_add(millis(began.elapsed())),
        }
    }
}

pub(crate) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

/// A start waits for the disk and for the kernel more than it computes.
const FEWEST_STARTS: usize = 4;

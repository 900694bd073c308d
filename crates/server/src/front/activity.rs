//! When the last request was made: a daemon that was started on demand ends after a while without one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The requests under way, and the end of the last one.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    busy: AtomicUsize,
    /// When a request last ended, since `began`.
    last_ms: AtomicU64,
}

/// A request that is being answered.
pub(super) struct Busy<'a>(&'a Activity);

impl Activity {
    pub(super) fn new() -> Activity {
        Activity { began: Instant::now(), busy: AtomicUsize::new(0), last_ms: AtomicU64::new(0) }
    }

    pub(super) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    /// How long there was no request.
    pub(super) fn quiet_for(&self) -> Duration {
        if self.busy.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_ms.store(now, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

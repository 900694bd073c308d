//! How fast something comes. A server that sends a byte now and then would keep the download waiting for ever, and gc with
//! it.

use std::time::{Duration, Instant};

pub(crate) struct Pace {
    began: Instant,
    since: Instant,
    bytes: u64,
    window: Duration,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace::within(WINDOW, now)
    }

    /// Judged after so long each time.
    pub(crate) fn within(window: Duration, now: Instant) -> Pace {
        Pace { began: now, since: now, bytes: 0, window }
    }

    pub(crate) fn is_too_slow(&mut self, more: u64, now: Instant) -> bool {
        self.bytes = self.bytes.saturating_add(more);
        if now.saturating_duration_since(self.began) > MAX_DOWNLOAD_TIME {
            return true;
        }
        let passed = now.saturating_duration_since(self.since);
        if passed < self.window {
            return false;
        }
        let required = u128::from(LEAST) * passed.as_millis() / 1000;
        let is_slow = u128::from(self.bytes) < required;
        (self.since, self.bytes) = (now, 0);
        is_slow
    }
}

/// What has to come within a second, on the average of a window: a modem could do it.
pub(crate) const LEAST: u64 = 4 << 10;
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// For all of it, however fast it comes.
const MAX_DOWNLOAD_TIME: Duration = Duration::from_secs(6 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_now_and_then_is_too_slow() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut dripping = Pace::new(start);
        assert!(
            !dripping.is_too_slow(1, at(20)) && !dripping.is_too_slow(1, at(50)),
            "it may still speed up"
        );
        assert!(dripping.is_too_slow(1, at(61)));
        let mut steady = Pace::new(start);
        assert!((1..100).all(|minute| !steady.is_too_slow(61 * LEAST, at(60 * minute))));
        assert!(steady.is_too_slow(61 * LEAST, at(60 * 105)), "each window counts by itself");
        assert!(steady.is_too_slow(u64::MAX, at(7 * 60 * 60)), "it has no end");
    }
}

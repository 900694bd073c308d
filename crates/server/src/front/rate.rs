//! How often a grant may ask: a bucket for each, which fills by time and is emptied by requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The buckets of all grants.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<String, Bucket>>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    seen: Instant,
}

impl Rates {
    /// Takes one request of a grant that may make so many a second; in how many seconds to come again, if it is too many.
    pub(super) fn take(&self, grant: &str, rate: Option<u32>, now: Instant) -> Result<(), u64> {
        let rate = f64::from(rate.unwrap_or(USUAL).max(1));
        let most = rate * BURST;
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > MANY {
            // One that is full again is as good as none.
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.seen).as_secs() < 60);
        }
        let bucket = buckets.entry(grant.to_string()).or_insert(Bucket { left: most, seen: now });
        let since = now.saturating_duration_since(bucket.seen).as_secs_f64();
        *bucket = Bucket { left: (bucket.left + since * rate).min(most), seen: now };
        if bucket.left < 1.0 {
            return Err(((1.0 - bucket.left) / rate).ceil().max(1.0) as u64);
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// Requests a second, where a grant says nothing.
const USUAL: u32 = 500;
/// So many seconds' worth may come at once.
const BURST: f64 = 2.0;
/// More grants than a machine has.
const MANY: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_is_emptied_by_requests_and_filled_by_time() {
        let rates = Rates::default();
        let begin = Instant::now();
        for _ in 0..4 {
            assert_eq!(rates.take("a", Some(2), begin), Ok(()));
        }
        assert_eq!(rates.take("a", Some(2), begin), Err(1));
        assert_eq!(rates.take("b", Some(2), begin), Ok(()), "each grant has its own");
        assert_eq!(rates.take("a", Some(2), begin + Duration::from_millis(500)), Ok(()));
        assert_eq!(rates.take("a", Some(2), begin + Duration::from_millis(500)), Err(1));
    }
}

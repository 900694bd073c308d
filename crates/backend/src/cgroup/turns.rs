//! Processor time as the kernel gives it: so much of every period.

use belljar_spec::Cpus;

/// Microseconds of processor time, in so many that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    pub(crate) quota: u32,
    pub(crate) period: u32,
}

impl Turns {
    /// The shortest period in which this share is a quota that the kernel takes.
    pub(crate) fn of(cpus: Cpus) -> Turns {
        let in_period = |period: u32| Turns { quota: cpus.as_millis().saturating_mul(period / 1000), period };
        let usual = in_period(USUAL);
        if usual.quota >= LEAST_QUOTA { usual } else { in_period(MAX_PERIOD_MICROS) }
    }
}

/// The kernel's own default.
const USUAL: u32 = 100_000;
/// `max_cfs_quota_period` and `min_cfs_quota_period`, kernel/sched/core.c: together just enough for a thousandth of a processor.
const MAX_PERIOD_MICROS: u32 = 1_000_000;
const LEAST_QUOTA: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_that_can_be_asked_for_is_one_that_the_kernel_takes() {
        for (share, quota, period) in [
            ("0.001", 1_000, 1_000_000),
            ("0.005", 5_000, 1_000_000),
            ("0.009", 9_000, 1_000_000),
            ("0.01", 1_000, 100_000),
            ("0.5", 50_000, 100_000),
            ("1.5", 150_000, 100_000),
            ("4096", 409_600_000, 100_000),
        ] {
            let cpus: Cpus = share.parse().expect("a share");
            assert_eq!(Turns::of(cpus), Turns { quota, period }, "{share}");
        }
    }
}

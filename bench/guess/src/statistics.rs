//! Two sets of samples, and how far they lie apart.

/// Nanoseconds.
pub(crate) type Samples = Vec<f64>;

/// What two sets come to. Of sets that do not differ, both statistics lie between -2 and 2 in 95 of 100 runs.
pub(crate) struct Compared {
    pub(crate) medians: (f64, f64),
    /// Mann and Whitney's U, as a number of standard deviations: by order alone, so that single slow answers count little.
    pub(crate) rank_sum: f64,
    /// Welch's t of what lies below the 95th percentile of both.
    pub(crate) welch: f64,
}

pub(crate) fn compare(one: &[f64], two: &[f64]) -> Compared {
    let bound = quantile(one, 0.95).max(quantile(two, 0.95));
    Compared {
        medians: (quantile(one, 0.5), quantile(two, 0.5)),
        rank_sum: rank_sum(one, two),
        welch: welch(&below(one, bound), &below(two, bound)),
    }
}

fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn below(samples: &[f64], bound: f64) -> Samples {
    samples.iter().copied().filter(|sample| *sample <= bound).collect()
}

/// Ranks of equal samples are their mean; there are so few that the deviation needs no correction.
fn rank_sum(one: &[f64], two: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        one.iter().map(|sample| (*sample, true)).chain(two.iter().map(|sample| (*sample, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut from) = (0.0, 0);
    while from < all.len() {
        let count = all[from..].iter().take_while(|(sample, _)| *sample == all[from].0).count();
        let mean = from as f64 + (count as f64 + 1.0) / 2.0;
        ranks += mean * all[from..from + count].iter().filter(|(_, is_one)| *is_one).count() as f64;
        from += count;
    }
    let (n, m) = (one.len() as f64, two.len() as f64);
    let u = ranks - n * (n + 1.0) / 2.0;
    (u - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

fn welch(one: &[f64], two: &[f64]) -> f64 {
    let (a, b) = (mean(one), mean(two));
    (a - b) / (variance(one, a) / one.len() as f64 + variance(two, b) / two.len() as f64).sqrt()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn variance(samples: &[f64], mean: f64) -> f64 {
    samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (samples.len() as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_lie_apart_are_told_and_equal_ones_are_not() {
        let one: Samples = (0..1000).map(f64::from).collect();
        let later: Samples = one.iter().map(|sample| sample + 100.0).collect();
        let same = compare(&one, &one);
        assert!(same.rank_sum.abs() < 0.01 && same.welch.abs() < 0.01);
        let apart = compare(&later, &one);
        assert!(apart.rank_sum > 5.0 && apart.welch > 5.0);
        assert_eq!(apart.medians.0 - apart.medians.1, 100.0);
    }

    #[test]
    fn ranks_are_those_of_a_table() {
        // U is 2 of 9, its mean 4.5 and its deviation the root of 5.25.
        let z = rank_sum(&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0]);
        assert!((z - (2.0 - 4.5) / 5.25_f64.sqrt()).abs() < 1e-9, "{z}");
    }
}

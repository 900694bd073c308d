//! Samples of one case, and how they are printed.

use crate::Outcome;
use std::time::{Duration, Instant};

pub(crate) struct Case {
    pub(crate) name: String,
    times: Vec<Duration>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>) -> Case {
        Case { name: name.into(), times: Vec::new() }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    pub(crate) fn time(&mut self, work: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
        let start = Instant::now();
        work()?;
        self.add(start.elapsed());
        Ok(())
    }

    /// The value below which this share of the samples lies, in milliseconds.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort();
        let index = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
        sorted.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// A table of cases with their ratio to one of them.
pub(crate) fn print(title: &str, cases: &[Case], reference: &str) {
    let base = cases.iter().find(|case| case.name == reference).map_or(f64::NAN, Case::median);
    println!("\n{title}\n  {:<44} {:>10} {:>10} {:>10}  x {reference}", "", "median ms", "p10", "p90");
    for case in cases.iter().filter(|case| !case.times.is_empty()) {
        let (median, low, high) = (case.median(), case.quantile(0.1), case.quantile(0.9));
        println!("  {:<44} {median:>10.2} {low:>10.2} {high:>10.2}  {:.2}", case.name, median / base);
    }
}

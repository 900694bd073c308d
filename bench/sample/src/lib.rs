//! What the benchmarks share: samples of a case, how they are printed, and a word on how busy the machine is.

#![expect(clippy::print_stdout, reason = "a benchmark is there to print")]

mod figures;

pub use figures::Figures;

use std::time::{Duration, Instant};

/// One thing that is measured, several times.
pub struct Case {
    pub name: String,
    times: Vec<Duration>,
}

impl Case {
    pub fn new(name: impl Into<String>) -> Case {
        Case { name: name.into(), times: Vec::new() }
    }

    pub fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// Measures some work. What went wrong takes no time.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = work();
        self.add(start.elapsed());
        outcome
    }

    /// In milliseconds.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The value below which this share of the samples lies, in milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort();
        let index = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
        sorted.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }
}

/// A table of cases with their ratio to one of them.
pub fn print(title: &str, cases: &[Case], reference: &str) {
    let base = cases.iter().find(|case| case.name == reference).map_or(f64::NAN, Case::median);
    println!("\n{title}\n  {:<44} {:>10} {:>10} {:>10}  x {reference}", "", "median ms", "p10", "p90");
    for case in cases.iter().filter(|case| !case.times.is_empty()) {
        let (median, low, high) = (case.median(), case.quantile(0.1), case.quantile(0.9));
        println!("  {:<44} {median:>10.3} {low:>10.3} {high:>10.3}  {:.3}", case.name, median / base);
    }
}

/// The same, where the slowest count: the median, and the value that one in a hundred exceeds.
pub fn print_tails(title: &str, cases: &[Case], reference: &str) {
    let base = cases.iter().find(|case| case.name == reference).map_or(f64::NAN, Case::median);
    println!("\n{title}\n  {:<44} {:>10} {:>10} {:>8}  x {reference}", "", "p50 ms", "p99 ms", "rounds");
    for case in cases.iter().filter(|case| !case.times.is_empty()) {
        let (median, high, rounds) = (case.median(), case.quantile(0.99), case.times.len());
        println!("  {:<44} {median:>10.3} {high:>10.3} {rounds:>8}  {:.3}", case.name, median / base);
    }
}

/// Figures of a busy machine are figures of something else.
pub fn say_how_busy() {
    let line = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = line.split(' ').next().unwrap_or_default();
    println!("load average at the start: {load}");
    if load.parse::<f64>().is_ok_and(|load| load > QUIET) {
        println!("warning: this machine is busy; figures below are only good for their ratios, if at all");
    }
}

const QUIET: f64 = 0.5;

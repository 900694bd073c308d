//! In a daemon: the counters of all shims, of those that live and of those that ended.

use super::{Values, file, zeros};
use belljar_fleet::SandboxDir;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was counted since this daemon began.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Shims>);

#[derive(Debug, Default)]
struct Shims {
    /// Of those that ended.
    ended: Values,
    living: BTreeMap<u64, Watched>,
    next: u64,
}

#[derive(Debug)]
struct Watched {
    file: Option<File>,
    pid: u32,
    /// What it had counted when it was found.
    base: Values,
    last: Values,
}

/// A shim whose counters are read. Dropped when it has ended, they stay in the sum.
#[derive(Debug)]
pub(crate) struct Ticket {
    metrics: Arc<Metrics>,
    number: u64,
}

/// All of it at one moment.
pub(crate) struct Summed {
    pub(super) values: Values,
    pub(super) shims: u64,
    pub(super) resident_bytes: u64,
}

impl Metrics {
    /// A file for a shim that is about to be started. Without one, it is not counted.
    pub(crate) fn prepare(place: &SandboxDir) -> Option<File> {
        file::create(&place.counters()).ok()
    }

    /// Counts a shim that was started, from the beginning.
    pub(crate) fn started(self: &Arc<Metrics>, file: Option<File>, pid: u32) -> Ticket {
        self.watch(Watched { file, pid, base: zeros(), last: zeros() })
    }

    /// Counts a shim that was found alive, from now on: another daemon told of what was before.
    pub(crate) fn found(self: &Arc<Metrics>, place: &SandboxDir, pid: u32) -> Ticket {
        let file = File::open(place.counters()).ok();
        let base = file.as_ref().and_then(file::read);
        // What cannot be read now would be counted from its beginning later.
        let file = file.filter(|_| base.is_some());
        let base = base.unwrap_or_else(zeros);
        self.watch(Watched { file, pid, last: base.clone(), base })
    }

    /// Reads all of them, without waiting for a shim.
    pub(crate) fn sum(&self) -> Summed {
        let mut shims = self.lock();
        let mut values = shims.ended();
        let mut resident_bytes = 0;
        for watched in shims.living.values_mut() {
            watched.add_to(&mut values);
            resident_bytes += resident(watched.pid);
        }
        Summed { values, shims: shims.living.len() as u64, resident_bytes }
    }

    fn watch(self: &Arc<Metrics>, watched: Watched) -> Ticket {
        let mut shims = self.lock();
        shims.next += 1;
        let number = shims.next;
        shims.living.insert(number, watched);
        Ticket { metrics: Arc::clone(self), number }
    }

    fn lock(&self) -> MutexGuard<'_, Shims> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shims {
    fn ended(&self) -> Values {
        if self.ended.is_empty() { zeros() } else { self.ended.clone() }
    }
}

impl Watched {
    fn add_to(&mut self, sum: &mut Values) {
        if let Some(now) = self.file.as_ref().and_then(file::read) {
            self.last = now;
        }
        for ((sum, last), base) in sum.iter_mut().zip(&self.last).zip(&self.base) {
            *sum = sum.saturating_add(last.saturating_sub(*base));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shims = self.metrics.lock();
        if let Some(mut watched) = shims.living.remove(&self.number) {
            let mut ended = shims.ended();
            watched.add_to(&mut ended);
            shims.ended = ended;
        }
    }
}

/// proc_pid_status(5). `smaps_rollup` would tell shared pages apart, and cannot be read where a process that holds secrets keeps others
/// from looking at it.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    resident.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_stays_in_the_sum_and_what_was_before_is_not_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = SandboxDir::new(folder.path());
        let metrics = Arc::new(Metrics::default());
        let file = Metrics::prepare(&place).unwrap();
        let shim = file.try_clone().unwrap();
        let count = |number: u64| {
            let mut values = zeros();
            values[0] = number;
            file::write(&shim, &values).unwrap();
        };
        let ticket = metrics.started(Some(file), std::process::id());
        count(5);
        let next_daemon = Arc::new(Metrics::default());
        let found = next_daemon.found(&place, std::process::id());
        count(7);
        let first = |metrics: &Metrics| metrics.sum().values[0];
        assert_eq!((first(&metrics), first(&next_daemon)), (7, 2));
        assert!(metrics.sum().shims == 1 && metrics.sum().resident_bytes > 0);
        // Its directory goes with it.
        fs::remove_file(place.counters()).unwrap();
        count(8);
        drop((ticket, found));
        assert_eq!((first(&metrics), first(&next_daemon)), (8, 3));
        assert_eq!((metrics.sum().shims, metrics.sum().resident_bytes), (0, 0));
    }
}

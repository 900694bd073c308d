//! Names that led to no connection because they had no address, counted for one sandbox: each left the host in a question,
//! and says what the sandbox wants it to say. Counted where names are allowed one by one; in open mode a sandbox may send
//! anything anywhere. Pure, but for the lock. Called by `serving`.

use crate::resolve::NoAddress;
use belljar_spec::egress::{HostName, Mode};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct UnresolvedNames {
    mode: Mode,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    /// Resolvers said that these have no address.
    absent: HashSet<HostName>,
    /// No resolver said anything about these, since then. A resolver that is down is no fault of the sandbox: they are forgotten
    /// after a while. A server that reads names and answers none learns as many in that time.
    unanswered: HashMap<HostName, Instant>,
}

impl UnresolvedNames {
    pub(crate) fn new(mode: Mode) -> UnresolvedNames {
        UnresolvedNames { mode, names: Mutex::default() }
    }

    /// Whether one more may be asked for. One that was asked for before always may.
    pub(crate) fn has_room_for(&self, name: &HostName, now: Instant) -> bool {
        let mut names = self.lock();
        names.unanswered.retain(|_, since| now.duration_since(*since) < UNANSWERED_COUNTS_FOR);
        names.absent.len() + names.unanswered.len() < MAX_UNRESOLVED_NAMES
            || names.absent.contains(name)
            || names.unanswered.contains_key(name)
    }

    pub(crate) fn remember(&self, name: &HostName, why: &NoAddress, now: Instant) {
        match self.mode {
            Mode::Open => return,
            Mode::None | Mode::Strict | Mode::Ask => {}
        }
        let mut names = self.lock();
        if names.absent.len() + names.unanswered.len() >= MAX_UNRESOLVED_NAMES {
            return;
        }
        match why {
            NoAddress::NoSuchName | NoAddress::NoRecord => {
                names.unanswered.remove(name);
                names.absent.insert(name.clone());
            }
            NoAddress::Unanswered(_) if names.absent.contains(name) => {}
            NoAddress::Unanswered(_) => {
                names.unanswered.insert(name.clone(), now);
            }
        }
    }

    /// It has an address by now.
    pub(crate) fn forget(&self, name: &HostName) {
        let mut names = self.lock();
        names.absent.remove(name);
        names.unanswered.remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than a program has that is only mistaken; far fewer than are needed to carry data out in names.
pub(crate) const MAX_UNRESOLVED_NAMES: usize = 1000;
/// Longer than a resolver takes to be restarted.
const UNANSWERED_COUNTS_FOR: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> HostName {
        format!("d{number}.example").parse().expect("a name")
    }

    #[test]
    fn a_sandbox_asks_for_only_so_many_names_that_do_not_exist() {
        let (unresolved, now) = (UnresolvedNames::new(Mode::Strict), Instant::now());
        for number in 0..MAX_UNRESOLVED_NAMES {
            assert!(unresolved.has_room_for(&name(number), now), "{number}");
            unresolved.remember(&name(number), &NoAddress::NoSuchName, now);
            unresolved.remember(&name(number), &NoAddress::NoRecord, now);
        }
        let later = now + 2 * UNANSWERED_COUNTS_FOR;
        assert!(!unresolved.has_room_for(&name(MAX_UNRESOLVED_NAMES), later));
        assert!(unresolved.has_room_for(&name(0), later), "it may be asked for again");
        // A name that has an address by now takes no room.
        unresolved.forget(&name(0));
        assert!(unresolved.has_room_for(&name(MAX_UNRESOLVED_NAMES), later));
    }

    #[test]
    fn a_resolver_that_is_down_for_a_while_costs_no_name_later() {
        let (unresolved, now) = (UnresolvedNames::new(Mode::Strict), Instant::now());
        let silence = NoAddress::Unanswered("timed out".into());
        for number in 0..MAX_UNRESOLVED_NAMES {
            unresolved.remember(&name(number), &silence, now);
        }
        assert!(
            !unresolved.has_room_for(&name(MAX_UNRESOLVED_NAMES), now),
            "a server may read them all the same"
        );
        assert!(unresolved.has_room_for(&name(MAX_UNRESOLVED_NAMES), now + UNANSWERED_COUNTS_FOR));
    }

    #[test]
    fn in_open_mode_no_name_is_counted() {
        let (unresolved, now) = (UnresolvedNames::new(Mode::Open), Instant::now());
        for number in 0..=MAX_UNRESOLVED_NAMES {
            unresolved.remember(&name(number), &NoAddress::NoSuchName, now);
        }
        assert!(unresolved.has_room_for(&name(MAX_UNRESOLVED_NAMES + 1), now));
        assert!(unresolved.lock().absent.is_empty(), "nor kept");
    }
}

//! Slots for what costs a process and a sandbox: so many in all, of which no grant has more than half.

use crate::answer::Refusal;
use belljar_fleet::Caller;
use belljar_spec::ErrorCode;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Slots {
    most: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

impl Slots {
    pub(super) const fn new(most: usize) -> Slots {
        Slots { most, taken: Mutex::new(BTreeMap::new()) }
    }

    /// One of them, if there is one for this caller. `what` names what they are for, and after `later` seconds it is worth asking again.
    pub(super) fn take(&'static self, caller: &Caller, what: &str, later: u64) -> Result<Slot, Refusal> {
        let full = |message: String| {
            let error = ErrorCode::TooManyRequests.error(message);
            Refusal::later(error.hint("ask again when one of them has ended"), later)
        };
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= self.most {
            return Err(full(format!("too many {what} at the same time")));
        }
        let own = taken.entry(caller.id().to_string()).or_default();
        if !caller.is_owner() && *own >= self.most / 2 {
            return Err(full(format!("this grant has too many {what} at the same time")));
        }
        *own += 1;
        Ok(Slot { slots: self, whose: caller.id().to_string() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held for as long as the request is under way.
pub(super) struct Slot {
    slots: &'static Slots,
    whose: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        match taken.get_mut(&self.whose) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.whose)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::GrantRules;

    #[test]
    fn no_grant_takes_what_others_need() {
        static SLOTS: Slots = Slots::new(4);
        let grant = |id: &str| Caller::granted(id, GrantRules::default());
        let (one, other, owner) = (grant("one"), grant("other"), Caller::owner());
        let take = |caller: &Caller| SLOTS.take(caller, "runs", 2);
        let held = [take(&one).ok().unwrap(), take(&one).ok().unwrap()];
        assert!(take(&one).is_err());
        let another = take(&other).ok().unwrap();
        let last = take(&owner).ok().unwrap();
        assert!(take(&owner).is_err() && take(&other).is_err());
        drop((held, last));
        // A slot that was given back can be taken again.
        let all: Vec<Slot> = (0..3).map(|_| take(&owner).ok().unwrap()).collect();
        assert!(take(&owner).is_err());
        drop((all, another));
        assert!(SLOTS.lock().is_empty());
    }
}

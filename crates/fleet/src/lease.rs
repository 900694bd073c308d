//! Holds on a sandbox, each with an end unless it is renewed or used. Knows no clock: it is told what time it is.

use crate::identity::Role;
use crate::permission::OWNER;
use belljar_api::LeaseInfo;
use serde::{Deserialize, Serialize};

/// A hold on a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub id: String,
    /// The grant that holds it.
    pub holder: String,
    pub role: Role,
    pub since_ms: i64,
    pub until_ms: i64,
    /// How long it counts from its last use.
    pub lasts_s: u64,
}

/// The holds on one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Leases {
    list: Vec<Lease>,
}

impl Lease {
    pub(crate) fn new(id: String, holder: &str, role: Role, lasts_s: u64, now_ms: i64) -> Lease {
        let until_ms = after(now_ms, lasts_s);
        Lease { id, holder: holder.into(), role, since_ms: now_ms, until_ms, lasts_s }
    }

    pub(crate) fn info(&self) -> LeaseInfo {
        LeaseInfo {
            id: self.id.clone(),
            holder: self.holder.clone(),
            owner: self.role == Role::Owner,
            since_ms: self.since_ms,
            until_ms: self.until_ms,
        }
    }

    /// Goes on from now. Never ends earlier than it would have.
    fn prolong(&mut self, now_ms: i64) {
        self.until_ms = self.until_ms.max(after(now_ms, self.lasts_s));
    }
}

impl Leases {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.list.iter()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Lease> {
        self.list.iter().find(|lease| lease.id == id)
    }

    pub(crate) fn add(&mut self, lease: Lease) {
        self.remove(&lease.id);
        self.list.push(lease);
    }

    /// Whether a holder may have one more of this length: an error says what it has too much of. Bounded so that a grant that joins in
    /// a loop makes neither the record nor its answers grow, and a join costs the same whatever happened before.
    pub(crate) fn may_add(&self, holder: &str, lasts_s: u64) -> Result<(), String> {
        let most = if holder == OWNER { MAX_LEASES_OF_OWNER } else { MAX_LEASES_OF_GRANT };
        let held = || self.list.iter().filter(|lease| lease.holder == holder);
        if held().count() >= most {
            return Err(format!("{most} leases, as many as it may have,"));
        }
        let together = held().fold(lasts_s, |sum, lease| sum.saturating_add(lease.lasts_s));
        // Not for the owner of this machine: `belljar start` takes a new long lease before it gives the old one back, beside those
        // of shells and commands.
        match holder != OWNER && together > MAX_TOTAL_S {
            true => Err(format!("leases of more than {MAX_TOTAL_S} seconds together")),
            false => Ok(()),
        }
    }

    /// The same for one that is to last longer than it did.
    pub(crate) fn may_last(&self, id: &str, lasts_s: u64) -> Result<(), String> {
        let Some(lease) = self.get(id) else { return Ok(()) };
        let others = self.list.iter().filter(|other| other.holder == lease.holder && other.id != id);
        let together = others.fold(lasts_s, |sum, lease| sum.saturating_add(lease.lasts_s));
        match lease.holder != OWNER && together > MAX_TOTAL_S.max(lease.lasts_s) {
            true => Err(format!("leases of more than {MAX_TOTAL_S} seconds together")),
            false => Ok(()),
        }
    }

    /// Counts anew from now, for as long as before or as is said.
    pub(crate) fn renew(&mut self, id: &str, lasts_s: Option<u64>, now_ms: i64) -> Option<&Lease> {
        let lease = self.list.iter_mut().find(|lease| lease.id == id)?;
        lease.lasts_s = lasts_s.unwrap_or(lease.lasts_s);
        lease.until_ms = after(now_ms, lease.lasts_s);
        Some(lease)
    }

    /// A request was made under a lease, or by a holder who named none: then all that it holds were used.
    pub(crate) fn used(&mut self, holder: &str, id: Option<&str>, now_ms: i64) {
        let named = id.is_some_and(|id| self.get(id).is_some_and(|lease| lease.holder == holder));
        for lease in self.list.iter_mut().filter(|lease| lease.holder == holder) {
            if !named || Some(lease.id.as_str()) == id {
                lease.prolong(now_ms);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Lease> {
        let at = self.list.iter().position(|lease| lease.id == id)?;
        Some(self.list.remove(at))
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Lets go of those whose time is over; whether there were any.
    pub(crate) fn expire(&mut self, now_ms: i64) -> bool {
        let before = self.list.len();
        self.list.retain(|lease| lease.until_ms > now_ms);
        self.list.len() < before
    }

    /// All count that much longer: it is not known how much of their use was not written to disk.
    pub(crate) fn give_slack(&mut self, length_ms: i64) {
        for lease in &mut self.list {
            lease.until_ms = lease.until_ms.saturating_add(length_ms);
        }
    }

    /// When the next one ends.
    pub(crate) fn next_end(&self) -> Option<i64> {
        self.list.iter().map(|lease| lease.until_ms).min()
    }
}

fn after(now_ms: i64, seconds: u64) -> i64 {
    now_ms.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

/// How many leases a grant may have on one sandbox.
const MAX_LEASES_OF_GRANT: usize = 128;
/// The same for the owner of this machine: each `belljar exec` has one, and hundreds may run at once.
const MAX_LEASES_OF_OWNER: usize = 4096;
/// How long the leases of one grant on one sandbox may be together: two of the longest, so that a long one can be replaced.
pub(crate) const MAX_TOTAL_S: u64 = 2 * 31_536_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(list: &[(&str, &str, u64)]) -> Leases {
        let mut leases = Leases::default();
        for (id, holder, lasts_s) in list {
            leases.add(Lease::new((*id).into(), holder, Role::Owner, *lasts_s, 0));
        }
        leases
    }

    fn until(leases: &Leases, id: &str) -> Option<i64> {
        leases.get(id).map(|lease| lease.until_ms)
    }

    #[test]
    fn a_lease_ends_unless_it_is_renewed() {
        let mut held = leases(&[("a", "g", 10), ("b", "g", 20)]);
        assert_eq!(held.next_end(), Some(10_000));
        assert!(!held.expire(9_999));
        assert_eq!(held.renew("a", None, 9_999).map(|lease| lease.until_ms), Some(19_999));
        assert!(held.expire(19_999));
        assert_eq!((held.get("a"), held.next_end()), (None, Some(20_000)));
        assert_eq!(held.renew("a", None, 0), None);
        assert_eq!(held.renew("b", Some(1), 0).map(|lease| lease.until_ms), Some(1_000));
        assert!(held.expire(1_000) && held.is_empty() && held.next_end().is_none());
    }

    #[test]
    fn use_prolongs_what_the_user_holds() {
        let mut held = leases(&[("a", "g", 10), ("b", "g", 10), ("c", "h", 10)]);
        held.used("g", Some("a"), 5_000);
        assert_eq!([until(&held, "a"), until(&held, "b")], [Some(15_000), Some(10_000)]);
        held.used("g", None, 6_000);
        assert_eq!([until(&held, "a"), until(&held, "b")], [Some(16_000), Some(16_000)]);
        held.used("g", Some("c"), 7_000);
        assert_eq!(
            until(&held, "c"),
            Some(10_000),
            "a lease of another holder is not prolonged by naming it"
        );
        held.used("g", Some("a"), 1_000);
        assert_eq!(until(&held, "a"), Some(17_000), "a clock that was set back takes nothing away");
    }

    #[test]
    fn a_holder_has_only_so_many_and_not_for_ever() {
        let mut held = leases(&[("other", "h", 1)]);
        for number in 0..MAX_LEASES_OF_GRANT {
            assert_eq!(held.may_add("g", 1), Ok(()));
            held.add(Lease::new(number.to_string(), "g", Role::Owner, 1, 0));
        }
        assert!(held.may_add("g", 1).is_err());
        assert!(held.may_add("h", 1).is_ok() && held.may_add(OWNER, 1).is_ok(), "others are not kept out");
        held.remove("0");
        assert!(held.may_add("g", 1).is_ok());
        let year = MAX_TOTAL_S / 2;
        let mut long = leases(&[("a", "g", year), ("b", "g", year - 1)]);
        assert!(long.may_add("g", 1).is_ok() && long.may_add("g", 2).is_err());
        assert!(long.may_last("b", year).is_ok() && long.may_last("b", year + 1).is_err());
        assert!(long.renew("b", Some(1), 0).is_some() && long.may_add("g", year - 1).is_ok());
    }

    #[test]
    fn the_owner_of_this_machine_takes_long_leases_beside_others() {
        let year = MAX_TOTAL_S / 2;
        let held = leases(&[("start", OWNER, year), ("again", OWNER, year), ("shell", OWNER, 3600)]);
        assert_eq!(held.may_add(OWNER, year), Ok(()));
        assert_eq!(held.may_last("shell", year), Ok(()));
    }

    #[test]
    fn lengths_without_measure_do_not_overflow() {
        let mut held = leases(&[("a", "g", u64::MAX)]);
        assert_eq!(until(&held, "a"), Some(i64::MAX));
        held.used("g", None, i64::MAX);
        assert!(!held.expire(i64::MAX - 1));
    }
}

//! How many connections there may be at once: of one sandbox by its policy, of all together by what a process can have
//! open. Without the second, one sandbox could take every descriptor, and no other would be served. And the more there are,
//! the less may wait in the buffers of each: the kernel gives a socket many mebibytes, and has only so many for all.

use belljar_sys::rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The places of all sandboxes that a gateway serves, in descriptors.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    most: u32,
    taken: AtomicU32,
}

/// How a sandbox's connections come here, and so what one costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// They are accepted here.
    Accepted,
    /// The guest accepted them, and a socket more relays them.
    Relayed,
}

impl Arrival {
    /// Descriptors of one connection: the client's and the server's socket, and what relays.
    fn cost(self) -> u32 {
        match self {
            Arrival::Accepted => 2,
            Arrival::Relayed => 3,
        }
    }
}

impl DescriptorBudget {
    /// As many as this process may have descriptors for.
    pub(crate) fn here() -> DescriptorBudget {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX));
        let most = descriptors.saturating_sub(FOR_OTHER_THINGS);
        DescriptorBudget::of(u32::try_from(most).unwrap_or(u32::MAX))
    }

    fn of(most: u32) -> DescriptorBudget {
        DescriptorBudget { most, taken: AtomicU32::new(0) }
    }

    /// The table of one sandbox, with so many seats at most.
    pub(crate) fn table(self: &Arc<DescriptorBudget>, most: u32, arrival: Arrival) -> Arc<Table> {
        Arc::new(Table { most, cost: arrival.cost(), taken: AtomicU32::new(0), places: Arc::clone(self) })
    }
}

/// The places of one sandbox.
#[derive(Debug)]
pub(crate) struct Table {
    most: u32,
    /// Descriptors of each.
    cost: u32,
    taken: AtomicU32,
    places: Arc<DescriptorBudget>,
}

impl Table {
    /// One more, if there is one. No sandbox has more than are left for others, so that the next sandbox finds some.
    pub(crate) fn take(self: &Arc<Table>) -> Option<Seat> {
        let left = self.places.most.saturating_sub(self.places.taken.load(Ordering::Relaxed));
        let most = self.most.min(left / self.cost);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < most).then_some(taken + 1));
        taken.ok()?;
        self.places.taken.fetch_add(self.cost, Ordering::Relaxed);
        Some(Seat(Arc::clone(self)))
    }

    /// How much may wait at a socket of the latest connection; nothing while there are few, and the kernel knows best.
    pub(crate) fn buffer(&self) -> Option<usize> {
        match self.crowd() {
            Crowd::Few => None,
            Crowd::Many => Some(BUFFER),
            Crowd::VeryMany => Some(SMALL_BUFFER),
        }
    }

    /// How many there are by now.
    pub(crate) fn crowd(&self) -> Crowd {
        let (own, all) = (self.taken(), self.places.taken.load(Ordering::Relaxed));
        match own {
            ..=FEW if all <= FEW_OF_ALL * Arrival::Accepted.cost() => Crowd::Few,
            ..=MANY => Crowd::Many,
            _ => Crowd::VeryMany,
        }
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// How many connections there are: the more, the less may wait at the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    Few,
    Many,
    VeryMany,
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Table>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.places.taken.fetch_sub(self.0.cost, Ordering::Relaxed);
    }
}

/// Sandboxes, their commands and their records have descriptors as well, and so have the pipes of the relay.
const FOR_OTHER_THINGS: u64 = 384;
/// Large downloads come over few connections; over more than these, each is slower.
const FEW: u32 = 8;
const FEW_OF_ALL: u32 = 32;
const MANY: u32 = 128;
/// As much as any user may ask for (/proc/sys/net/core/rmem_max): some mebibytes a second from far away.
const BUFFER: usize = 208 * 1024;
const SMALL_BUFFER: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_as_many_as_its_policy_says() {
        let table = Arc::new(DescriptorBudget::of(100)).table(2, Arrival::Accepted);
        let first = table.take();
        let _second = table.take().expect("the second");
        assert!(first.is_some() && table.take().is_none());
        drop(first);
        assert_eq!(table.taken(), 1);
        assert!(table.take().is_some());
    }

    #[test]
    fn the_more_connections_the_smaller_their_buffers() {
        let table = Arc::new(DescriptorBudget::of(10_000)).table(1000, Arrival::Accepted);
        let mut seats = Vec::new();
        for (taken, expected) in
            [(8, None), (9, Some(BUFFER)), (128, Some(BUFFER)), (129, Some(SMALL_BUFFER))]
        {
            seats.resize_with(taken, || table.take());
            assert_eq!(table.buffer(), expected, "{taken}");
        }
    }

    #[test]
    fn the_greedy_leave_as_many_as_they_have() {
        let places = Arc::new(DescriptorBudget::of(180));
        let tables = [(); 3].map(|()| places.table(1000, Arrival::Accepted));
        let mut seats = Vec::new();
        for (table, expected) in tables.iter().zip([45, 23, 11]) {
            seats.extend(std::iter::from_fn(|| table.take()));
            assert_eq!(table.taken(), expected);
        }
        drop(seats);
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_relayed_takes_a_descriptor_more() {
        let places = Arc::new(DescriptorBudget::of(180));
        let (relayed, accepted) =
            (places.table(1000, Arrival::Relayed), places.table(1000, Arrival::Accepted));
        let seats: Vec<Seat> = std::iter::from_fn(|| relayed.take()).collect();
        assert_eq!((seats.len(), places.taken.load(Ordering::Relaxed)), (30, 90));
        // What others have is counted in what they cost.
        let others: Vec<Seat> = std::iter::from_fn(|| accepted.take()).collect();
        assert_eq!(others.len(), 23);
        drop((seats, others));
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}

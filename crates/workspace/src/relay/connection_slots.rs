//! Limits the number of connections.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The slots for connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// One slot; released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot(Arc<ConnectionSlots>);

impl ConnectionSlots {
    /// `false` if no slot becomes free in time.
    pub(super) fn wait_for_one(&self, time_limit: Duration) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.given_back.wait_timeout_while(taken, time_limit, |taken| *taken >= CONNECTIONS);
        *waited.unwrap_or_else(PoisonError::into_inner).0 < CONNECTIONS
    }

    pub(super) fn take(places: &Arc<ConnectionSlots>) -> ConnectionSlot {
        *places.taken.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        ConnectionSlot(places.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.given_back.notify_one();
    }
}

/// A fetch and a push of a few worktrees at once; each is a thread or two and a git.
const CONNECTIONS: usize = 8;

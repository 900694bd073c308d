//! Connections that wait for the next request.

use crate::client::connect::Line;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections that wait for the next request. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    idle: Arc<Mutex<Vec<Line>>>,
}

impl Pool {
    /// One that is still open.
    pub(crate) async fn take(&self) -> Option<Line> {
        loop {
            let mut line = self.idle().pop()?;
            // The answer before was read to its end, so this is a moment or the news that it is closed.
            if line.ready().await.is_ok() {
                return Some(line);
            }
        }
    }

    /// For one whose answer was read to its end.
    pub(crate) fn give_back(&self, line: Line) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE_CONNECTIONS && !line.is_closed() {
            idle.push(line);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Line>> {
        // A list of connections is whole whichever thread panicked.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of a burst are closed again.
const MAX_IDLE_CONNECTIONS: usize = 32;

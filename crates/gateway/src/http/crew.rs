//! Tasks that a library starts for a connection, and that end with it.

use hyper::rt::Executor;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// The tasks of one connection.
#[derive(Clone, Default)]
pub(super) struct Crew(Arc<Mutex<JoinSet<()>>>);

impl Crew {
    /// A handle that aborts all tasks when it is dropped.
    pub(super) fn shift(&self) -> Shift {
        Shift(self.clone())
    }
}

impl<F> Executor<F> for Crew
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, work: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are done would be kept.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _ = work.await;
        });
    }
}

/// While it is held, the crew works.
pub(super) struct Shift(Crew);

impl Drop for Shift {
    fn drop(&mut self) {
        // Not the set itself: a task of the crew may hold the last handle, and cannot wait for itself.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

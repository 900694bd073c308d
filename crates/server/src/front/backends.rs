//! Which backends work here, and so which profiles. Trying them takes a while, so it is done now and then, and by one task at a time.

use belljar_engine::{BackendReport, Engine};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What was found when the backends were last tried.
#[derive(Default)]
pub(super) struct Backends(Mutex<Option<(Instant, Arc<Vec<BackendReport>>)>>);

impl Backends {
    pub(super) async fn reports(&self) -> Arc<Vec<BackendReport>> {
        let mut known = self.0.lock().await;
        if let Some((tried, reports)) = known.as_ref()
            && tried.elapsed() < COUNTS
        {
            return Arc::clone(reports);
        }
        let reports = tokio::task::spawn_blocking(|| Engine::new().backends()).await.unwrap_or_default();
        let reports = Arc::new(reports);
        *known = Some((Instant::now(), Arc::clone(&reports)));
        reports
    }
}

/// A machine does not change much faster.
const COUNTS: Duration = Duration::from_secs(60);

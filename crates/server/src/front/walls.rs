//! Which walls work here, and so which profiles. Trying them takes a while, so it is done now and then, and by one at a time.

use belljar_engine::{Engine, WallReport};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What was found when the walls were last tried.
#[derive(Default)]
pub(super) struct Walls(Mutex<Option<(Instant, Arc<Vec<WallReport>>)>>);

impl Walls {
    pub(super) async fn reports(&self) -> Arc<Vec<WallReport>> {
        let mut known = self.0.lock().await;
        if let Some((tried, reports)) = known.as_ref()
            && tried.elapsed() < COUNTS
        {
            return Arc::clone(reports);
        }
        let reports = tokio::task::spawn_blocking(|| Engine::new().walls()).await.unwrap_or_default();
        let reports = Arc::new(reports);
        *known = Some((Instant::now(), Arc::clone(&reports)));
        reports
    }
}

/// A machine does not change much faster.
const COUNTS: Duration = Duration::from_secs(60);

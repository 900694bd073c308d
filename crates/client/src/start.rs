//! Where no daemon listens, one is started, and waited for.

use crate::connect::{Line, Target};
use crate::error::ClientError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Starts a daemon.
#[derive(Clone)]
pub(crate) struct Starter {
    start: Arc<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl Starter {
    pub(crate) fn new(start: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Starter {
        Starter { start: Arc::new(start) }
    }

    /// Starts one and waits until it listens. Whether it is ours that listens in the end does not matter.
    pub(crate) async fn connect(&self, target: &Target) -> Result<Line, ClientError> {
        let no = |source: io::Error, hint: &str| ClientError::NoDaemon {
            address: target.name(),
            source,
            hint: hint.into(),
        };
        (self.start)().map_err(|error| no(error, "`belljar serve` says what is wrong"))?;
        let until = Instant::now() + READY;
        let mut pause = FIRST_PAUSE;
        loop {
            match target.connect().await {
                Ok(line) => return Ok(line),
                Err(error) if !nobody_listens(&error) => return Err(target.unanswered(error)),
                Err(error) if Instant::now() >= until => {
                    return Err(no(
                        error,
                        "one was started and did not listen in time; `belljar serve` says why",
                    ));
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether an error means that there is no daemon, and not that there is one that refuses us.
pub(crate) fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A machine with all processors busy starts a program in this time.
const READY: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

//! Where no daemon listens, one is started, and waited for.

use crate::client::connect::{Line, Target};
use crate::client::error::ClientError;
use belljar_spec::{CommandLine, Hint, hint};
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Starts a daemon.
#[derive(Clone)]
pub(crate) struct Starter {
    start: Arc<dyn Fn() -> io::Result<Child> + Send + Sync>,
}

impl Starter {
    pub(crate) fn new(start: impl Fn() -> io::Result<Child> + Send + Sync + 'static) -> Starter {
        Starter { start: Arc::new(start) }
    }

    /// Starts one and waits until it listens. Whether it is ours that listens in the end does not matter.
    pub(crate) async fn connect(&self, target: &Target) -> Result<Line, ClientError> {
        let no =
            |source: io::Error, hint: Hint| ClientError::NoDaemon { address: target.name(), source, hint };
        let mut child = (self.start)().map_err(|error| {
            let hint = hint_of(error.kind());
            no(error, hint)
        })?;
        let mut until = Instant::now() + READY;
        let mut pause = FIRST_PAUSE;
        loop {
            match target.connect().await {
                Ok(line) => return Ok(line),
                Err(error) if !no_listener(&error) => return Err(target.unanswered(error)),
                Err(error) if Instant::now() >= until => {
                    return Err(no(
                        error,
                        hint!("one was started and does not listen; {} says why", CommandLine::Serve),
                    ));
                }
                Err(_) => sleep(pause).await,
            }
            // One that ended was not needed, and another one listens soon; or there is something wrong with it.
            if let Ok(Some(_)) = child.try_wait() {
                until = until.min(Instant::now() + ANOTHER);
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

/// Whether an error means that there is no daemon, and not that there is one that refuses us.
pub(crate) fn no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// What to do about a daemon that could not be started: it begins by writing to the state directory.
fn hint_of(kind: io::ErrorKind) -> Hint {
    match kind {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "set XDG_STATE_HOME to a folder that you can write to".into()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full: free some space".into()
        }
        _ => hint!("{} says what is wrong", CommandLine::Serve),
    }
}

/// A machine with all processors busy starts a program in this time.
const READY: Duration = Duration::from_secs(20);
/// Two that were started at once are this far apart, and more.
const ANOTHER: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_that_cannot_be_written_is_named_as_the_cause() {
        for (kind, expected) in [
            (io::ErrorKind::ReadOnlyFilesystem, "XDG_STATE_HOME"),
            (io::ErrorKind::PermissionDenied, "XDG_STATE_HOME"),
            (io::ErrorKind::StorageFull, "the disk is full"),
            (io::ErrorKind::NotFound, "belljar serve"),
        ] {
            assert!(hint_of(kind).to_string().contains(expected), "{kind}");
        }
    }
}

//! What a sandbox's task waits for while it keeps receiving commands: one thing at a time.

use crate::command::{Answer, Change};
use crate::machine::Phase;
use crate::sandbox_dir::SandboxDir;
use crate::shim::{Shim, ShimPlan, Shims, Status, Stop};
use crate::snapshots::{SnapshotOrder, SnapshotReport, Subject};
use crate::sweep::remove_place;
use belljar_api::SandboxInfo;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::Lock;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// Something under way.
pub(super) type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What came of it.
pub(super) enum Done {
    /// It is its turn to be started; nothing if there are no turns any more.
    Turn(Option<OwnedSemaphorePermit>),
    Started(Result<Arc<dyn Shim>, SandboxError>),
    Found(Finding),
    Changed {
        change: Change,
        to: Phase,
        outcome: Result<(), SandboxError>,
        answer: Answer<SandboxInfo>,
    },
    Snapped {
        outcome: Result<SnapshotReport, SandboxError>,
        answer: Answer<SnapshotReport>,
    },
    /// The shim's status, and how many requests had entered it when that was asked.
    Looked {
        status: Result<Status, SandboxError>,
        entered: u64,
    },
    Ended(Result<(), SandboxError>),
}

/// Whether a place has a shim.
pub(super) enum Finding {
    Alive {
        shim: Arc<dyn Shim>,
        paused: bool,
    },
    Dead,
    /// A process holds the lock and does not answer.
    Mute,
}

pub(super) fn turn(starts: Arc<Semaphore>) -> Work {
    Box::pin(async move { Done::Turn(starts.acquire_owned().await.ok()) })
}

pub(super) fn start(
    shims: Arc<dyn Shims>,
    place: SandboxDir,
    plan: ShimPlan,
    turn: OwnedSemaphorePermit,
) -> Work {
    Box::pin(async move {
        let started = timeout(START, shims.start(&place, &plan)).await.unwrap_or_else(|_| Err(mute()));
        drop(turn);
        Done::Started(started)
    })
}

/// Finds the shim of a place, which may be about to come up, or to die.
pub(super) fn find(shims: Arc<dyn Shims>, place: SandboxDir) -> Work {
    Box::pin(async move {
        let deadline = Instant::now() + MUTE;
        loop {
            if let Ok(Ok(Some(shim))) = timeout(SHIM_ANSWER_TIMEOUT, shims.find(&place)).await
                && let Ok(Ok(status)) = timeout(SHIM_ANSWER_TIMEOUT, shim.status()).await
            {
                return Done::Found(Finding::Alive { shim, paused: status.paused });
            }
            if let Free::Yes(_) | Free::Missing = is_free(&place) {
                return Done::Found(Finding::Dead);
            }
            if Instant::now() >= deadline {
                return Done::Found(Finding::Mute);
            }
            sleep(GLANCE).await;
        }
    })
}

pub(super) fn change(shim: Arc<dyn Shim>, change: Change, to: Phase, answer: Answer<SandboxInfo>) -> Work {
    Box::pin(async move {
        let changed = async {
            match change {
                Change::Pause => shim.pause().await,
                Change::Resume => shim.resume().await,
                Change::Stop | Change::Delete => Ok(()),
            }
        };
        let outcome = timeout(SHIM_ANSWER_TIMEOUT, changed).await.unwrap_or_else(|_| Err(mute()));
        Done::Changed { change, to, outcome, answer }
    })
}

pub(super) fn snapshot(
    shim: Arc<dyn Shim>,
    order: Box<SnapshotOrder>,
    answer: Answer<SnapshotReport>,
) -> Work {
    Box::pin(async move {
        let outcome = timeout(SNAPSHOT, shim.snapshot(&order)).await.unwrap_or_else(|_| Err(mute()));
        Done::Snapped { outcome, answer }
    })
}

/// The same for a sandbox that no shim holds.
pub(super) fn snapshot_stopped(
    subject: Subject,
    order: Box<SnapshotOrder>,
    answer: Answer<SnapshotReport>,
) -> Work {
    Box::pin(async move {
        let work = move || {
            let Free::Yes(_held) = is_free(&subject.place) else { return Err(mute()) };
            subject.check(&order)?;
            subject.carry_out(&order)
        };
        let outcome = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(mute()));
        Done::Snapped { outcome, answer }
    })
}

pub(super) fn look(shim: Arc<dyn Shim>, entered: u64) -> Work {
    Box::pin(async move {
        let status = timeout(SHIM_ANSWER_TIMEOUT, shim.status()).await.unwrap_or_else(|_| Err(mute()));
        Done::Looked { status, entered }
    })
}

/// Ends the shim that holds a place, and removes the place if its files are to go. The lock tells whether the shim has ended,
/// not the shim's answer. A shim that `died` could not clean up after itself.
pub(super) fn end(
    shims: Arc<dyn Shims>,
    place: SandboxDir,
    shim: Option<Arc<dyn Shim>>,
    files: Stop,
    died: bool,
) -> Work {
    Box::pin(async move { Done::Ended(end_of(&*shims, place, shim, files, died).await) })
}

pub(crate) async fn end_of(
    shims: &dyn Shims,
    place: SandboxDir,
    shim: Option<Arc<dyn Shim>>,
    files: Stop,
    died: bool,
) -> Result<(), SandboxError> {
    let shim = match shim {
        Some(shim) => Some(shim),
        None => timeout(SHIM_ANSWER_TIMEOUT, shims.find(&place)).await.ok().and_then(Result::ok).flatten(),
    };
    let answer = match shim {
        Some(shim) => timeout(END, shim.stop(files)).await.unwrap_or_else(|_| Err(mute())),
        None => Ok(()),
    };
    let deadline = Instant::now() + SHIM_ANSWER_TIMEOUT;
    let held = loop {
        match is_free(&place) {
            Free::Yes(held) => break held,
            Free::Missing => return Ok(()),
            Free::No if Instant::now() >= deadline => return Err(answer.err().unwrap_or_else(mute)),
            Free::No => sleep(GLANCE).await,
        }
    };
    if died {
        // It could not tidy up behind itself. Those of others are held by them.
        let state = place.directory().ancestors().nth(3).map(Path::to_path_buf);
        let _ = tokio::task::spawn_blocking(move || belljar_engine::sweep_leftovers(state.as_deref())).await;
    }
    match files {
        Stop::Keep => Ok(()),
        // A tree can be large.
        Stop::Wipe => tokio::task::spawn_blocking(move || remove_place(&place, held))
            .await
            .unwrap_or_else(|_| Err(mute())),
    }
}

enum Free {
    Yes(Lock),
    No,
    Missing,
}

fn is_free(place: &SandboxDir) -> Free {
    match place.hold() {
        Ok(Some(held)) => Free::Yes(held),
        Err(error) if error.kind() == ErrorKind::NotFound => Free::Missing,
        // Who cannot tell must not touch it.
        Ok(None) | Err(_) => Free::No,
    }
}

pub(super) fn mute() -> SandboxError {
    ErrorCode::DaemonUnreachable
        .error("the shim of the sandbox does not answer")
        .hint("try again; `keeper.log` in its directory may say why")
}

/// How long a shim may take to answer something that is done at once.
const SHIM_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one may take to come up: a large repository may have to be cloned first.
const START: Duration = Duration::from_secs(600);
/// How long it may take to end all that runs, and to put files in order.
const END: Duration = Duration::from_secs(60);
/// Copying some gigabytes takes its time, and so does a start.
const SNAPSHOT: Duration = Duration::from_secs(300);
/// How long one may be silent that was starting when we were killed.
const MUTE: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(20);

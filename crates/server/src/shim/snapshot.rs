//! `POST /keeper/snapshot`: a snapshot of the sandbox, or a return to one.
//!
//! ```text
//! nothing runs, nothing would be lost or begin anew ──> layered: all processes end, the files become a layer, the sandbox is made again
//! else ──────────────────────────────────────────────> copied: all processes are paused, the files are copied, they are resumed
//! ```
//! In both ways no process writes while the files are taken. Requests that come meanwhile wait.

use super::LiveSandbox;
use super::extract::Body;
use super::failure::Answer;
use axum::Json;
use axum::extract::State;
use belljar_api::SnapshotMethod;
use belljar_engine::{Keeps, Sandbox, Snapshotted};
use belljar_fleet::SandboxDir;
use belljar_fleet::snapshots::{SnapshotOrder, SnapshotReport, Subject};
use belljar_spec::{ErrorCode, SandboxError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

pub(super) async fn snapshot(
    State(live): State<Arc<LiveSandbox>>,
    Body(order): Body<SnapshotOrder>,
) -> Answer<Json<SnapshotReport>> {
    live.used();
    let restored = match &order {
        SnapshotOrder::Restore { snapshot, .. } => Some(snapshot.clone()),
        SnapshotOrder::Take { .. } => None,
    };
    // To its end also if the daemon goes away meanwhile: a sandbox must not stay paused, nor a snapshot unrecorded.
    let carried = tokio::spawn(async move {
        let report = carry_out(&live, order).await?;
        let sandbox = live.sandbox();
        if let Some(taken) = &report.snapshot {
            sandbox.record_snapshot(taken, Snapshotted::Taken { copied: report.copied });
        }
        if let Some(restored) = &restored {
            sandbox.record_snapshot(restored, Snapshotted::Restored);
        }
        Ok::<_, SandboxError>(report)
    });
    Ok(Json(carried.await.unwrap_or_else(cut_short)?))
}

/// What a snapshot of this sandbox has.
pub(super) fn subject(place: &SandboxDir, name: &str, key: &str, sandbox: &Sandbox, keeps: Keeps) -> Subject {
    Subject {
        place: place.clone(),
        name: name.to_string(),
        key: key.to_string(),
        backend: sandbox.backend().to_string(),
        keeps,
    }
}

async fn carry_out(live: &Arc<LiveSandbox>, order: SnapshotOrder) -> Result<SnapshotReport, SandboxError> {
    // One at a time, and none while the sandbox is paused or resumed by a caller.
    let _one = live.one_snapshot().await;
    let (subject, looked) = (live.subject().clone(), order.clone());
    blocking(move || subject.check(&looked)).await?;
    let alone = match order.how() {
        SnapshotMethod::Copied => None,
        SnapshotMethod::Auto if live.subject().keeps.counts => None,
        SnapshotMethod::Layered if live.subject().keeps.counts => return Err(counts()),
        SnapshotMethod::Auto | SnapshotMethod::Layered => alone(live).await,
    };
    match (alone, order.how()) {
        (Some(gate), how) => {
            if how == SnapshotMethod::Auto && has_private_files(live).await {
                drop(gate);
                return copied(live, order).await;
            }
            let subject = live.subject().clone();
            let since = Instant::now();
            let report = live.between(move || subject.carry_out(&order)).await;
            drop(gate);
            report.map(|report| report.since(since))
        }
        (None, SnapshotMethod::Layered) => Err(ErrorCode::InUse
            .error("the sandbox is in use: a command runs in it, or files of it are read or written")
            .hint("wait until that has ended, or end it")),
        (None, SnapshotMethod::Auto | SnapshotMethod::Copied) => copied(live, order).await,
    }
}

/// Nothing is done inside from now on. What takes a moment, such as a request that was just answered, is waited for.
async fn alone(live: &Arc<LiveSandbox>) -> Option<OwnedRwLockWriteGuard<()>> {
    if live.is_paused() {
        return None;
    }
    let deadline = Instant::now() + MOMENT;
    loop {
        match live.alone() {
            Some(gate) => return Some(gate),
            None if live.commands.running() > 0 || Instant::now() >= deadline => return None,
            None => sleep(LOOK_INTERVAL).await,
        }
    }
}

/// Whether there is something in `/tmp` or `/dev/shm`, which ends with the processes of a sandbox. What cannot be looked into may hold
/// something.
async fn has_private_files(live: &LiveSandbox) -> bool {
    let sandbox = live.sandbox();
    for directory in ["/tmp", "/dev/shm"] {
        let first = async { sandbox.list(directory).await?.next().await };
        if !matches!(first.await, Ok(None)) {
            return true;
        }
    }
    false
}

async fn copied(live: &Arc<LiveSandbox>, order: SnapshotOrder) -> Result<SnapshotReport, SandboxError> {
    let SnapshotOrder::Take { new, .. } = order else {
        return Err(ErrorCode::InUse
            .error("the sandbox is in use, and its files cannot be replaced under its processes")
            .hint("stop it first"));
    };
    let sandbox = live.sandbox();
    let was_paused = sandbox.is_paused();
    let since = Instant::now();
    if !was_paused {
        sandbox.pause().await?;
    }
    let subject = live.subject().clone();
    let report = blocking(move || subject.copy(&new)).await;
    if !was_paused {
        sandbox.resume().await?;
    }
    report.map(|report| report.since(since))
}

/// Why it is not started again.
fn counts() -> SandboxError {
    ErrorCode::NotSupported
        .error("the sandbox has a budget for a model or for bytes, which would be counted anew if it was started again")
        .hint("stop it first; a snapshot can also be copied")
}

fn cut_short<T>(_: JoinError) -> Result<T, SandboxError> {
    Err(ErrorCode::Internal.error("the snapshot was cut short"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    spawn_blocking(work).await.unwrap_or_else(cut_short)
}

/// For what is about to end.
const MOMENT: Duration = Duration::from_millis(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

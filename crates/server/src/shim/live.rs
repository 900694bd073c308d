//! What a shim keeps: the sandbox, its commands, and what is known of both.

use super::commands::Registry;
use belljar_engine::Sandbox;
use belljar_fleet::snapshots::{SnapshotReport, Subject};
use belljar_fleet::{ShimPlan, Status, Stop};
use belljar_spec::{ErrorCode, SandboxError};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

/// The sandbox of this process, and all that belongs to it.
pub struct LiveSandbox {
    pub(super) plan: ShimPlan,
    /// Another one after a snapshot.
    sandbox: Mutex<Arc<Sandbox>>,
    /// Held for reading while something is done in it, and for writing while it is replaced.
    gate: Arc<RwLock<()>>,
    /// What the first thread is to do between two sets of processes.
    replacing: mpsc::UnboundedSender<Replacement>,
    pub(super) commands: Arc<Registry>,
    token: String,
    subject: Subject,
    snapshotting: tokio::sync::Mutex<()>,
    used_ms: AtomicI64,
    leaving: watch::Sender<Option<Ending>>,
    /// Its sandbox and all its commands have ended.
    over: watch::Sender<bool>,
    /// How many conversations with clients are open.
    conversations: watch::Sender<usize>,
    doubted: Notify,
}

/// Something that is done in a sandbox: its beginning and its end count as use.
pub(super) struct Using {
    live: Arc<LiveSandbox>,
    _gate: OwnedRwLockReadGuard<()>,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.live.used();
    }
}

/// A conversation with a client: a connection, or a WebSocket that a connection became. The shim does not end in the middle of it.
pub(super) struct Conversation(Arc<LiveSandbox>);

impl Drop for Conversation {
    fn drop(&mut self) {
        self.0.conversations.send_modify(|count| *count -= 1);
    }
}

/// What is done while no process is inside.
pub(super) struct Replacement {
    pub(super) work: Box<dyn FnOnce() -> Result<SnapshotReport, SandboxError> + Send>,
    pub(super) answer: oneshot::Sender<Result<SnapshotReport, SandboxError>>,
}

/// Why a shim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// A stop was requested.
    Requested(Stop),
    /// Its sandbox has gone.
    Alone,
}

impl LiveSandbox {
    /// A sandbox, as it was planned. Every client that has the token may use it.
    pub(super) fn new(
        plan: ShimPlan,
        sandbox: Arc<Sandbox>,
        commands: Arc<Registry>,
        token: String,
        subject: Subject,
        replacing: mpsc::UnboundedSender<Replacement>,
    ) -> Arc<LiveSandbox> {
        Arc::new(LiveSandbox {
            plan,
            sandbox: Mutex::new(sandbox),
            gate: Arc::default(),
            replacing,
            commands,
            token,
            subject,
            snapshotting: tokio::sync::Mutex::default(),
            used_ms: AtomicI64::new(super::now_ms()),
            leaving: watch::Sender::new(None),
            over: watch::Sender::new(false),
            conversations: watch::Sender::new(0),
            doubted: Notify::new(),
        })
    }

    /// What of it a snapshot has.
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Until this is dropped, no other snapshot is taken.
    pub(super) async fn one_snapshot(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.snapshotting.lock().await
    }

    /// Whether this is the token. Takes as long for every wrong one.
    pub(super) fn knows(&self, token: &[u8]) -> bool {
        let ours = self.token.as_bytes();
        let different =
            ours.iter().zip(token).fold(0, |different, (ours, theirs)| different | (ours ^ theirs));
        std::hint::black_box(different) == 0 && ours.len() == token.len()
    }

    pub(super) fn status(&self) -> Status {
        Status {
            commands: self.commands.running(),
            paused: self.is_paused(),
            used_ms: self.used_ms.load(Ordering::Relaxed).max(self.commands.changed_ms()),
        }
    }

    /// Notes that it is used now.
    pub(super) fn used(&self) {
        self.used_ms.store(super::now_ms(), Ordering::Relaxed);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.sandbox().is_paused()
    }

    /// The sandbox, as it is now.
    pub(super) fn sandbox(&self) -> Arc<Sandbox> {
        Arc::clone(&self.sandbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sandbox was made again.
    pub(super) fn replace(&self, sandbox: Arc<Sandbox>) {
        *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = sandbox;
    }

    /// Something is done in it, until this is dropped. Nothing can be done in a sandbox that ends; one that is being replaced is waited for.
    pub(super) async fn using(self: &Arc<LiveSandbox>) -> Result<Using, SandboxError> {
        let _gate = Arc::clone(&self.gate).read_owned().await;
        if self.leaving.borrow().is_some() {
            return Err(ErrorCode::SandboxNotAlive.error("the sandbox is being stopped"));
        }
        self.used();
        Ok(Using { live: Arc::clone(self), _gate })
    }

    /// Nothing is done in it, and nothing begins, until this is dropped; `None` while something is.
    pub(super) fn alone(&self) -> Option<OwnedRwLockWriteGuard<()>> {
        let gate = Arc::clone(&self.gate).try_write_owned().ok()?;
        (self.commands.running() == 0).then_some(gate)
    }

    /// Has the first thread end what is inside, do something, and make the sandbox again.
    pub(super) async fn between(
        &self,
        work: impl FnOnce() -> Result<SnapshotReport, SandboxError> + Send + 'static,
    ) -> Result<SnapshotReport, SandboxError> {
        let gone = || ErrorCode::SandboxNotAlive.error("the sandbox is being stopped");
        let (answer, answered) = oneshot::channel();
        self.replacing.send(Replacement { work: Box::new(work), answer }).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Its first process may have gone: has the watching task look.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Ready when its first process has gone.
    async fn deserted(&self) {
        loop {
            self.doubted.notified().await;
            if self.is_deserted().await {
                return;
            }
        }
    }

    /// Whether its first process has gone. A request without an answer is no proof: a guest that is out of resources does not answer
    /// either.
    async fn is_deserted(&self) -> bool {
        // One that was replaced since is gone, and its successor is not.
        let sandbox = self.sandbox();
        while !sandbox.is_gone() {
            match sandbox.stat("/").await {
                // Its streams end before it does.
                Err(error) if error.code == ErrorCode::GuestGone => sleep(GONE_RETRY_INTERVAL).await,
                Err(error) if error.code == ErrorCode::GuestUnresponsive => break,
                _ => return false,
            }
        }
        Arc::ptr_eq(&sandbox, &self.sandbox())
    }

    /// Ends the sandbox; the shim follows. What is said first counts.
    pub(super) fn leave(&self, ending: Ending) {
        self.leaving.send_if_modified(|leaving| {
            let first = leaving.is_none();
            leaving.get_or_insert(ending);
            first
        });
    }

    /// Ready when it is to end.
    pub(super) async fn left(&self) -> Ending {
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            ending = leaving.wait_for(Option::is_some) => ending.ok().and_then(|ending| *ending).unwrap_or(Ending::Alone),
            () = self.deserted() => {
                self.leave(Ending::Alone);
                Ending::Alone
            }
        }
    }

    /// Until this is dropped, a client is told something.
    pub(super) fn converse(self: &Arc<LiveSandbox>) -> Conversation {
        self.conversations.send_modify(|count| *count += 1);
        Conversation(Arc::clone(self))
    }

    /// Ready when the sandbox and all its commands have ended.
    pub(super) async fn over(&self) {
        // The sender is part of this value.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Nothing happens in it any more: ready when every client was told so, or does not read what it is told.
    pub(super) async fn say_farewell(&self) {
        self.over.send_replace(true);
        let mut conversations = self.conversations.subscribe();
        let _ = timeout(FAREWELL_TIMEOUT, conversations.wait_for(|count| *count == 0)).await;
    }

    /// All processes inside are paused.
    pub(super) async fn pause(&self) -> Result<(), SandboxError> {
        self.sandbox().pause().await
    }

    pub(super) async fn resume(&self) -> Result<(), SandboxError> {
        self.used();
        self.sandbox().resume().await
    }
}

/// Between two looks at one that seems to be gone.
const GONE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// A client that reads takes the last words in less.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

//! What a shim keeps: the sandbox, its commands, and what is known of both.

use super::commands::Registry;
use belljar_engine::Sandbox;
use belljar_fleet::{ShimPlan, Status, Stop};
use belljar_spec::{ErrorCode, SandboxError};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// The sandbox of this process, and all that belongs to it.
pub struct Kept {
    pub(super) plan: ShimPlan,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) commands: Arc<Registry>,
    token: String,
    used_ms: AtomicI64,
    leaving: watch::Sender<Option<Ending>>,
    /// Its sandbox and all its commands have ended.
    over: watch::Sender<bool>,
    /// How many conversations with clients are open.
    conversations: watch::Sender<usize>,
    doubted: Notify,
}

/// Something that is done in a sandbox: its beginning and its end count as use.
pub(super) struct Using(Arc<Kept>);

impl Drop for Using {
    fn drop(&mut self) {
        self.0.used();
    }
}

/// A conversation with a client: a connection, or a WebSocket that a connection became. The shim does not end in the middle of it.
pub(super) struct Conversation(Arc<Kept>);

impl Drop for Conversation {
    fn drop(&mut self) {
        self.0.conversations.send_modify(|count| *count -= 1);
    }
}

/// Why a shim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// A stop was requested.
    Asked(Stop),
    /// Its sandbox has gone.
    Alone,
}

impl Kept {
    /// A sandbox, as it was planned. Every client that has the token may use it.
    pub(super) fn new(
        plan: ShimPlan,
        sandbox: Arc<Sandbox>,
        commands: Arc<Registry>,
        token: String,
    ) -> Arc<Kept> {
        Arc::new(Kept {
            plan,
            sandbox,
            commands,
            token,
            used_ms: AtomicI64::new(super::now_ms()),
            leaving: watch::Sender::new(None),
            over: watch::Sender::new(false),
            conversations: watch::Sender::new(0),
            doubted: Notify::new(),
        })
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
        self.sandbox.is_paused()
    }

    /// Something is done in it, until this is dropped. Nothing can be done in a sandbox that ends.
    pub(super) fn using(self: &Arc<Kept>) -> Result<Using, SandboxError> {
        if self.leaving.borrow().is_some() {
            return Err(ErrorCode::SandboxNotAlive.error("the sandbox is being stopped"));
        }
        self.used();
        Ok(Using(Arc::clone(self)))
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
        while !self.sandbox.is_gone() {
            match self.sandbox.stat("/").await {
                // Its streams end before it does.
                Err(error) if error.code == ErrorCode::GuestGone => sleep(GONE_RETRY_INTERVAL).await,
                Err(error) if error.code == ErrorCode::GuestUnresponsive => return true,
                _ => return false,
            }
        }
        true
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
            said = leaving.wait_for(Option::is_some) => said.ok().and_then(|said| *said).unwrap_or(Ending::Alone),
            () = self.deserted() => {
                self.leave(Ending::Alone);
                Ending::Alone
            }
        }
    }

    /// Until this is dropped, a client is told something.
    pub(super) fn converse(self: &Arc<Kept>) -> Conversation {
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
        self.sandbox.pause().await
    }

    pub(super) async fn resume(&self) -> Result<(), SandboxError> {
        self.used();
        self.sandbox.resume().await
    }
}

/// Between two looks at one that seems to be gone.
const GONE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// A client that reads takes the last words in less.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

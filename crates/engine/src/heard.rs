//! Guests that stand still: whoever was stopped says nothing, and hangs up on nobody either.

use crate::Sandbox;
use crate::exec::{TO_KILL_A_TREE, deaf};
use belljar_spec::SandboxError;
use belljar_wire::message::{Reply, Request};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

impl Sandbox {
    /// Waits for an answer, for as long as the guest answers anything at all: removing a large tree takes its time. A guest
    /// that does not is ended.
    pub(crate) async fn heard<T>(
        &self,
        answer: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        let mut answer = pin!(answer);
        loop {
            if let Ok(outcome) = timeout(SILENCE, &mut answer).await {
                return outcome;
            }
            tokio::select! {
                biased;
                outcome = &mut answer => return outcome,
                looked = timeout(SILENCE, self.look()) => if looked.is_err() {
                    self.kill_deaf();
                    return Err(deaf());
                },
            }
        }
    }

    /// Asks what everybody can answer at once.
    async fn look(&self) -> Result<(), SandboxError> {
        let (mut to, mut from) = self.open_stream()?;
        to.send_message(&Request::Stat { path: "/".into() }).await?;
        from.receive_message::<Reply>().await.map(drop)
    }
}

/// As long as a guest that was told to end a command may be silent.
const SILENCE: Duration = TO_KILL_A_TREE;

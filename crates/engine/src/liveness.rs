//! Guests that are unresponsive: a process that is stopped answers nothing, and closes no connection either.

use crate::Sandbox;
use crate::drive::KILL_TIMEOUT;
use crate::held::GuestProcess;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_wire::message::{Reply, Request};
use std::future::Future;
use std::pin::pin;
use tokio::time::timeout;

impl Sandbox {
    /// Waits for a reply, for as long as the guest replies to anything at all: removing a large tree takes its time. A guest that
    /// does not is killed.
    pub(crate) async fn reply_or_dead<T>(
        &self,
        reply: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        let mut reply = pin!(reply);
        loop {
            if let Ok(outcome) = timeout(KILL_TIMEOUT, &mut reply).await {
                return outcome;
            }
            tokio::select! {
                biased;
                outcome = &mut reply => return outcome,
                probed = timeout(KILL_TIMEOUT, self.probe()) => if probed.is_err() {
                    self.guest().kill_unresponsive();
                    return Err(unresponsive());
                },
            }
        }
    }

    /// Asks for something that every guest can answer at once.
    async fn probe(&self) -> Result<(), SandboxError> {
        let (mut to, mut from) = self.open_stream()?;
        to.send_message(&Request::Stat { path: "/".into() }).await?;
        from.receive_message::<Reply>().await.map(drop)
    }
}

/// The guest did not reply, and was killed.
fn unresponsive() -> SandboxError {
    let message = "the sandbox stopped responding and was ended";
    ErrorCode::GuestUnresponsive
        .error(message)
        .hint(hint!("make a new one, or start it again ({})", Term::CreateSandbox))
}

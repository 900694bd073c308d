//! Pausing: all processes inside are stopped, and continue where they were. The guest is not stopped, so files can be
//! read and written meanwhile; a service elsewhere stops the sandbox as a whole.

use crate::Sandbox;
use crate::faults::guest_gone;
use belljar_spec::{Assurance, ErrorCode, SandboxError, Term, hint};
use belljar_sys::errno;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{Reply, Request};

impl Sandbox {
    /// Stops every process inside, between two instructions, and returns when they have been told. They use no processor
    /// until [`Sandbox::resume`]; what they hold stays theirs. No new command starts meanwhile (`sandbox_paused`); one that
    /// runs can be killed, and its timeout still ends it. A paused sandbox can be paused again, and disposed of.
    pub async fn pause(&self) -> Result<(), SandboxError> {
        self.change(&Request::Pause, true).await
    }

    /// Resumes every process that [`Sandbox::pause`] stopped.
    pub async fn resume(&self) -> Result<(), SandboxError> {
        self.change(&Request::Resume, false).await
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.guest().is_paused()
    }

    async fn change(&self, request: &Request, to: bool) -> Result<(), SandboxError> {
        if self.assurance() != Assurance::Remote && !self.assurance().is_at_least(Assurance::Namespace) {
            let message =
                format!("the backend {} has no hold on all processes of a sandbox at once", self.backend());
            return Err(ErrorCode::NotSupported
                .error(message)
                .hint(hint!("use {}", Term::Backend.to("native"))));
        }
        let _one = self.pausing().lock().await;
        let (_to, mut from) = self.request(request).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Done => {}
            Reply::Failed(fault) => {
                let errno = errno::parse(fault.errno).unwrap_or(Errno::IO);
                let message = format!("cannot {} the sandbox: {errno}", fault.doing);
                return Err(ErrorCode::NotSupported.error(message).hint("try again"));
            }
            _ => return Err(guest_gone()),
        }
        self.guest().set_paused(to);
        Ok(())
    }
}

/// The error of a command for a sandbox that is paused.
pub(crate) fn paused() -> SandboxError {
    ErrorCode::SandboxPaused
        .error("the sandbox is paused, and no command starts in it")
        .hint("resume it first")
}

//! Which ports programs inside have opened: asked of the guest, which reads the kernel's list of the sandbox's own network.

use crate::Sandbox;
use crate::faults::guest_gone;
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_wire::message::{Reply, Request};

impl Sandbox {
    /// The TCP ports that programs inside listen at, in order, without those that belljar serves to the sandbox. A program inside decides
    /// which they are: at most [`MAX_LISTENING`] are told.
    pub async fn listening(&self) -> Result<Vec<u16>, SandboxError> {
        let unsupported = || {
            ErrorCode::NotSupported
                .error(format!("the backend {} has no network of its own that had ports", self.backend()))
                .hint(hint!("use {}", Term::Backend.to("native")))
        };
        // Where connections inside are the host's to make, the guest's network is the host's.
        if !self.assurance().isolates() || self.guest().dial()?.is_some() {
            return Err(unsupported());
        }
        let (_to, mut from) = self.request(&Request::Listening).await?;
        match self.reply_or_dead(from.receive_message()).await? {
            Reply::Ports(mut ports) => {
                ports.sort_unstable();
                ports.dedup();
                ports.truncate(MAX_LISTENING);
                Ok(ports)
            }
            Reply::Failed(_) => Err(unsupported()),
            _ => Err(guest_gone()),
        }
    }
}

/// More than a person reads.
const MAX_LISTENING: usize = 64;

//! The egress sockets of a container's network namespace, opened from outside: the container itself never has a power over it.

use super::helper::Helper;
use crate::Plan;
use crate::guest::{SetupFailure, not_ready};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::errno;
use belljar_sys::rustix::fd::{BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{EgressReport, EgressSetup, Step};

/// A helper that waits for the container to be there; none where there is no egress.
pub(super) struct Opener(Option<(Helper, EgressSetup)>);

/// The egress: what it is, and its sockets.
pub(super) type Opened = Option<(EgressReport, Vec<OwnedFd>)>;

impl Opener {
    pub(super) fn start(plan: &Plan) -> Result<Opener, SandboxError> {
        Ok(Opener(
            plan.egress().map(|egress| Helper::start(plan).map(|helper| (helper, egress))).transpose()?,
        ))
    }

    /// Opens the egress sockets in the network namespace that this process is in. By its handle, which never means another process.
    pub(super) fn open(self, process: BorrowedFd<'_>) -> Result<Opened, SandboxError> {
        let Some((helper, egress)) = self.0 else { return Ok(None) };
        let failed = |doing: &str, errno: Errno| {
            let message = format!("cannot {doing}: {errno}");
            ErrorCode::StartFailed.error(message).hint(hint!(
                "{} says what this machine's kernel lacks; {} needs no network",
                Term::Capabilities,
                Term::Egress.to("none")
            ))
        };
        let steps = vec![Step::JoinNetwork, Step::OpenEgress(egress)];
        let pending = helper.carry_out(steps, &[process])?;
        let done = helper.finish(pending).map_err(|failure| match failure {
            SetupFailure::Step(fault) => failed(&fault.doing, errno::parse(fault.errno).unwrap_or(Errno::IO)),
            SetupFailure::Late(time_limit) => not_ready(time_limit),
            SetupFailure::Silent => failed("open the egress sockets", Errno::IO),
        })?;
        Ok(done.egress_sockets)
    }
}

//! The guest's program as a helper on the host, with root's powers: it puts the stage together, and opens the egress
//! sockets in a container's network namespace. It carries out the same steps as the guest of any other backend, and ends.

use super::container_dir::ContainerDir;
use crate::guest::{ControlSocket, PendingSetup, Process, SetupFailure};
use crate::layout::Layout;
use crate::mountpoints::Mountpoints;
use crate::{Guest, Plan, embedded};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::launch::{Capabilities, Launch, Namespaces, Program, launch as start};
use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_wire::message::{Confinement, EgressReport, FileRoot, Privileges, Setup, Step, Syscalls};

pub(super) struct Helper(Guest);

impl Helper {
    /// Starts one, which waits for its steps.
    pub(super) fn start(plan: &Plan) -> Result<Helper, SandboxError> {
        let (control_socket, guest_end) = ControlSocket::new()?;
        let launch = Launch {
            program: Program::Open(embedded::program()?),
            argv: &[c"belljar-guest"],
            env: &[c"MALLOC_ARENA_MAX=1"],
            namespaces: Namespaces::NONE,
            identity: None,
            capabilities: Capabilities::Usual,
            cgroup: None,
            tasks_files: &[],
            inherit: &[guest_end.as_fd()],
            stderr: None,
        };
        let (started, ()) = start(&launch, |_| ()).map_err(|errno| {
            ErrorCode::StartFailed
                .error(format!("cannot start a helper: {errno}"))
                .hint("there may be too many processes or open files: `ulimit -u`, `ulimit -n`")
                .caused_by(errno)
        })?;
        Ok(Helper(
            Guest::starting(control_socket, Process::without_namespace(started), None).ready_within(plan),
        ))
    }

    /// Makes what mounts need in folders of the host. They are removed after the helper, if no other process takes them over.
    pub(super) fn make_mountpoints(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        place: &ContainerDir,
    ) -> Result<(), SandboxError> {
        self.0.make_mountpoints(plan, layout, &[place.root(), place.private()])
    }

    /// Has it carry out these steps.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        passed: &[BorrowedFd<'_>],
    ) -> Result<PendingSetup, SandboxError> {
        self.0.send_setup(&setup(steps), passed)
    }

    /// Waits until it has, and lets it go. Gives the mount points, and the sockets that it opened.
    pub(super) fn finish(mut self, pending: PendingSetup) -> Result<Done, SetupFailure> {
        self.0.finish(pending)?;
        Ok(Done { mountpoints: self.0.take_mountpoints(), egress_sockets: self.0.take_egress() })
    }
}

/// What a helper leaves.
pub(super) struct Done {
    pub(super) mountpoints: Option<Mountpoints>,
    pub(super) egress_sockets: Option<(EgressReport, Vec<OwnedFd>)>,
}

fn setup(steps: Vec<Step>) -> Setup {
    Setup {
        version: belljar_wire::VERSION,
        steps,
        confinement: Confinement {
            rlimits: Vec::new(),
            privileges: Privileges::Unchanged,
            syscalls: Syscalls::Default,
            landlock: None,
            supervision: None,
        },
        files: FileRoot::Sandbox,
        workspace: "/".into(),
    }
}

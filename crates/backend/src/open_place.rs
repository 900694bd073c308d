//! The guest without isolation, for `host` and `container`: it still starts commands, kills their trees and holds file
//! operations beneath the workspace; it hides nothing.

use crate::cgroup::Cgroup;
use crate::guest::{ControlSocket, Process, SetupFailure, not_ready};
use crate::{Drawing, Enforcement, Guest, Meanwhile, Plan, embedded};
use belljar_spec::{ErrorCode, Origin, SandboxError};
use belljar_sys::launch::{Capabilities, Launch, Namespaces, Program, launch as start};
use belljar_sys::rustix::fd::AsFd;
use belljar_sys::rustix::process::geteuid;
use belljar_wire::message::{Confinement, FileRoot, Privileges, Setup, Step, Syscalls};

pub(crate) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    let (cgroup, _) = Enforcement::begin(plan)?;
    let (control_socket, guest_end) = ControlSocket::new()?;
    let failed = |what: String| ErrorCode::StartFailed.error(format!("cannot start the guest: {what}"));
    let tasks_files = cgroup.as_ref().map(Cgroup::tasks_files).transpose()?.unwrap_or_default();
    let tasks_files: Vec<_> = tasks_files.iter().map(AsFd::as_fd).collect();
    let (started, ()) = start(
        &Launch {
            program: Program::Open(embedded::program()?),
            argv: &[c"belljar-guest"],
            env: &[c"MALLOC_ARENA_MAX=1"],
            namespaces: Namespaces::NONE,
            identity: None,
            capabilities: Capabilities::Usual,
            cgroup: cgroup.as_ref().and_then(Cgroup::birthplace),
            tasks_files: &tasks_files,
            inherit: &[guest_end.as_fd()],
            stderr: None,
        },
        |_| (),
    )
    .map_err(|errno| failed(errno.to_string()))?;
    drop(guest_end);
    let mut guest =
        Guest::starting(control_socket, Process::without_namespace(started), cgroup).ready_within(plan);
    let pending = guest.send_setup(&setup(plan)?, &[])?;
    meanwhile()?;
    guest.send_first(plan, plan.layout()?)?;
    guest.finish(pending).map_err(|failure| match failure {
        SetupFailure::Step(fault) => failed(format!("{} (error {})", fault.doing, fault.errno)),
        SetupFailure::Silent => failed("it died".into()),
        SetupFailure::Late(time_limit) => not_ready(time_limit),
    })?;
    Ok(guest)
}

pub(crate) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    let (_cgroup, enforcement) = Enforcement::begin(plan)?;
    let us = geteuid().as_raw();
    let held = enforcement.report(&plan.limits);
    Ok(Drawing { program: None, command: None, user: (us, us), setup: setup(plan)?, held })
}

fn setup(plan: &Plan) -> Result<Setup, SandboxError> {
    Ok(Setup {
        version: belljar_wire::VERSION,
        steps: vec![Step::Subreaper],
        confinement: Confinement {
            rlimits: rlimits(plan),
            privileges: Privileges::Unchanged,
            syscalls: Syscalls::Default,
            landlock: None,
            supervision: None,
        },
        files: FileRoot::Beneath(vec![plan.workspace()?.to_string()]),
        workspace: plan.workspace()?.to_string(),
    })
}

/// The host's own limits are the default without isolation.
fn rlimits(plan: &Plan) -> Vec<(u32, u64)> {
    let open_files = plan.limits.open_files;
    if open_files.origin == Origin::Requested {
        vec![(crate::plan::RLIMIT_NOFILE, open_files.value)]
    } else {
        Vec::new()
    }
}

//! From a plan to a guest among the host's processes, with a supervisor beside it.

use super::PrivateDir;
use super::check::{landlock_abi, not_confined, refused};
use super::supervisor::{Supervisor, Terms};
use crate::cgroup::Cgroup;
use crate::guest::{ControlSocket, Process, SetupFailure, Supervised, not_ready};
use crate::layout::Layout;
use crate::{Drawing, Enforcement, Guest, Meanwhile, Plan, embedded};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::errno;
use belljar_sys::launch::{Capabilities, Launch, Namespaces, Program, launch as start};
use belljar_sys::rustix::fd::AsFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::geteuid;
use belljar_wire::message::{FileRoot, Setup};
use std::ffi::CString;

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    let landlock_abi = landlock_abi()?;
    let layout = plan.layout()?;
    let private = PrivateDir::make(&plan.private(), &layout.files)?;
    let (cgroup, enforcement) = Enforcement::begin(plan)?;
    let (control_socket, guest_end) = ControlSocket::new()?;
    let failed = |what: String| ErrorCode::StartFailed.error(format!("cannot start the guest: {what}"));
    let tasks_files = cgroup.as_ref().map(Cgroup::tasks_files).transpose()?.unwrap_or_default();
    let tasks_files: Vec<_> = tasks_files.iter().map(AsFd::as_fd).collect();
    let abi = CString::new(landlock_abi.to_string()).unwrap_or_default();
    let (started, holder) = start(
        &Launch {
            program: Program::Open(embedded::program()?),
            argv: &[c"belljar-guest", c"hold", &abi],
            env: &[c"MALLOC_ARENA_MAX=1"],
            namespaces: Namespaces::NONE,
            identity: None,
            capabilities: Capabilities::Usual,
            cgroup: cgroup.as_ref().and_then(Cgroup::birthplace),
            tasks_files: &tasks_files,
            inherit: &[guest_end.as_fd()],
            stderr: None,
        },
        |holder| holder,
    )
    .map_err(|errno| failed(errno.to_string()))?;
    drop(guest_end);
    let mut guest =
        Guest::starting(control_socket, Process::without_namespace(started), cgroup).ready_within(plan);
    let pending = guest.send_setup(&setup(plan, layout, &enforcement, landlock_abi), &[])?;
    meanwhile()?;
    guest.send_first(plan, layout)?;
    guest.finish(pending).map_err(|failure| match failure {
        SetupFailure::Step(fault) => {
            not_confined(&fault.doing, errno::parse(fault.errno).unwrap_or(Errno::IO))
        }
        SetupFailure::Silent => failed("it died".into()),
        SetupFailure::Late(time_limit) => not_ready(time_limit),
    })?;
    let listener = guest.take_listener().ok_or_else(|| failed("it handed over no listener".into()))?;
    let egress = plan.egress();
    let terms = Terms {
        egress: egress.as_ref(),
        writable: layout.writable_on_host(),
        holder: i32::try_from(holder).unwrap_or(i32::MAX),
    };
    let (supervisor, egress) = Supervisor::start(listener, terms).map_err(|errno| {
        refused(
            format!("the supervisor of the sandbox cannot work here: {errno}"),
            hint!("{} tries each backend by itself", Term::Capabilities),
        )
    })?;
    guest.supervise(Supervised { supervisor, _private: private });
    if let Some((report, sockets)) = egress {
        guest.has_egress(report, sockets);
    }
    Ok(guest)
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    let landlock_abi = landlock_abi()?;
    let layout = plan.layout()?;
    let (_cgroup, enforcement) = Enforcement::begin(plan)?;
    let us = geteuid().as_raw();
    let held = enforcement.report(&plan.limits);
    let setup = setup(plan, layout, &enforcement, landlock_abi);
    Ok(Drawing { program: None, command: None, user: (us, us), setup, held })
}

fn setup(plan: &Plan, layout: &Layout, enforcement: &Enforcement, landlock_abi: u32) -> Setup {
    let written =
        layout.writable_on_host().iter().filter_map(|path| Some(path.to_str()?.to_string())).collect();
    Setup {
        version: belljar_wire::VERSION,
        steps: vec![belljar_wire::message::Step::Subreaper],
        confinement: plan.supervised(layout, enforcement, landlock_abi),
        files: FileRoot::Beneath(written),
        workspace: layout.workspace.clone(),
    }
}

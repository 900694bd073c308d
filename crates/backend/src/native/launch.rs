//! From a plan to a guest behind namespaces.

use super::check::{refused, setup_failed};
use super::identity::{Identity, user_inside};
use super::prepared;
use super::steps::{Sources, steps};
use crate::cgroup::Cgroup;
use crate::guest::{ControlSocket, Process, SetupFailure};
use crate::layout::Layout;
use crate::{Drawing, Enforcement, Guest, Meanwhile, Plan, embedded};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::launch::{Capabilities, Launch, Namespaces, launch as start};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_wire::message::{FileRoot, Setup};

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    let identity = Identity::choose(plan.id, plan.admin())?;
    let (cgroup, enforcement) = Enforcement::begin(plan)?;
    let (control_socket, guest_end) = ControlSocket::new()?;
    control_socket.send_network(plan.egress().as_ref())?;
    let (process, view) = start_guest(plan, identity, cgroup.as_ref(), &guest_end)?;
    drop(guest_end);
    // From here on dropping the guest ends the process and removes the cgroup.
    let mut guest = Guest::starting(control_socket, process, cgroup).ready_within(plan);
    let (layout, mut sources) = view?;
    guest.make_mountpoints(plan, layout, &[])?;
    let mut setup = setup(plan, layout, identity, &sources, &enforcement);
    let (steps, root) = prepared::apply(plan, setup.steps, identity, &mut sources);
    setup.steps = steps;
    guest.hold(root);
    let mounts: Vec<_> = sources.mounts.iter().map(AsFd::as_fd).collect();
    let pending = guest.send_setup(&setup, &mounts).map_err(|error| match error.code {
        // The guest was no longer there to receive it.
        ErrorCode::GuestGone => setup_failed(SetupFailure::Silent, layout),
        _ => error,
    })?;
    meanwhile()?;
    let sent = guest.send_first(plan, layout);
    if let Err(late) = &sent
        && late.code == ErrorCode::NotReady
    {
        return Err(late.clone());
    }
    // One that could not be set up may be gone before it is sent anything: what it said is the reason.
    guest.finish(pending).map_err(|failure| setup_failed(failure, layout))?;
    sent.map(|()| guest)
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    let identity = Identity::choose(plan.id, plan.admin())?;
    // Made and removed again: it says what enforces which limit.
    let (_cgroup, enforcement) = Enforcement::begin(plan)?;
    let layout = plan.layout()?;
    let sources = Sources::open(layout, identity)?;
    let user = (user_inside(plan.admin()), identity.user_on_host().0);
    let setup = setup(plan, layout, identity, &sources, &enforcement);
    Ok(Drawing { program: None, command: None, user, setup, held: enforcement.report(&plan.limits) })
}

fn setup(
    plan: &Plan,
    layout: &Layout,
    identity: Identity,
    sources: &Sources,
    enforcement: &Enforcement,
) -> Setup {
    Setup {
        version: belljar_wire::VERSION,
        steps: steps(plan, layout, identity, sources),
        confinement: plan.confinement(layout, enforcement),
        files: FileRoot::Sandbox,
        workspace: layout.workspace.clone(),
    }
}

/// What the sandbox will see, and where that comes from.
type Seen<'p> = (&'p Layout, Sources);

/// Starts the guest, and decides meanwhile what it will see.
fn start_guest<'p>(
    plan: &'p Plan,
    identity: Identity,
    cgroup: Option<&Cgroup>,
    control_socket: &OwnedFd,
) -> Result<(Process, Result<Seen<'p>, SandboxError>), SandboxError> {
    let tasks_files = cgroup.map(Cgroup::tasks_files).transpose()?.unwrap_or_default();
    let tasks_files: Vec<_> = tasks_files.iter().map(AsFd::as_fd).collect();
    let program = embedded::starting()?;
    let launch = Launch {
        program: program.program(),
        // It begins to make its network while we decide what it will see.
        argv: &[c"belljar-guest", c"network"],
        // One heap for all threads of the guest: it is mostly asleep.
        env: &[c"MALLOC_ARENA_MAX=1"],
        namespaces: Namespaces::ALL_BUT_NETWORK,
        identity: None,
        capabilities: Capabilities::Keep,
        cgroup: cgroup.and_then(Cgroup::birthplace),
        tasks_files: &tasks_files,
        inherit: &[control_socket.as_fd()],
        stderr: None,
    };
    let (started, view) = start(&launch, |pid| {
        // It needs its maps only when it gets its setup.
        identity.write_maps(pid).map_err(|errno| refused("map the sandbox's users", errno))?;
        let layout = plan.layout()?;
        Ok((layout, Sources::open(layout, identity)?))
    })
    .map_err(|errno| refused("make namespaces", errno))?;
    program.keep();
    Ok((Process::init(started), view))
}

//! From a plan to a guest behind bubblewrap's namespaces.

use super::args::{STAGE, STAGED_DEVICES, args, by_hand};
use super::check::program;
use crate::cgroup::Cgroup;
use crate::guest::{ControlSocket, Process, SetupFailure, not_ready};
use crate::layout::{Bind, BindOrigin, Layout};
use crate::native::{Identity, Sources, Users, after_root, bind_steps, private_step, root_step, user_inside};
use crate::{Drawing, Enforcement, Guest, Meanwhile, Plan, embedded};
use belljar_spec::{ErrorCode, SandboxError, Term, hint};
use belljar_sys::launch::{Capabilities, Launch, Namespaces, Program, launch as start};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::pipe::{PipeFlags, pipe_with};
use belljar_sys::rustix::process::{Pid, PidfdFlags, pidfd_open};
use belljar_wire::message::{Access, FileRoot, NodeKind, Setup, Source, Step};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

pub(super) fn launch(plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    let program = program()?;
    let identity = Identity::choose(plan.id, plan.admin())?;
    let (cgroup, enforcement) = Enforcement::begin(plan)?;
    let (control_socket, guest_end) = ControlSocket::new()?;
    let failed = |what: String| ErrorCode::StartFailed.error(format!("cannot start bubblewrap: {what}"));
    let pipe =
        |flags: PipeFlags| pipe_with(PipeFlags::CLOEXEC | flags).map_err(|errno| failed(errno.to_string()));
    // Read without waiting for its end: a process that bubblewrap left behind may hold the other one.
    let (complaints, their_stderr) = pipe(PipeFlags::NONBLOCK)?;
    let (info, their_info) = pipe(PipeFlags::empty())?;
    let path = CString::new(program.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    let layout = plan.layout()?;
    let mut sources = Sources::open_for(layout, identity, Users::One)?;
    let words: Vec<CString> = args(plan.admin(), layout, &mut sources)
        .into_iter()
        .map(CString::new)
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string()))?;
    let argv: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
    let tasks_files = cgroup.as_ref().map(Cgroup::tasks_files).transpose()?.unwrap_or_default();
    let tasks_files: Vec<_> = tasks_files.iter().map(AsFd::as_fd).collect();
    let (started, ()) = start(
        &Launch {
            program: Program::Path(&path),
            argv: &argv,
            env: &[],
            namespaces: Namespaces::NONE,
            // Bubblewrap maps the sandbox's user to the user who starts it: never root.
            identity: match identity {
                Identity::Own { .. } => None,
                Identity::Range { .. } => {
                    let (uid, gid) = identity.user_on_host();
                    Some(belljar_sys::launch::Identity { uid, gid })
                }
            },
            capabilities: Capabilities::Usual,
            cgroup: cgroup.as_ref().and_then(Cgroup::birthplace),
            tasks_files: &tasks_files,
            // The end that we read from as well: bubblewrap would die of writing to a pipe that a killed belljar left
            // without a reader, and its child would wait for its word forever.
            inherit: &[guest_end.as_fd(), embedded::program()?, their_info.as_fd(), info.as_fd()],
            stderr: Some(their_stderr.as_fd()),
        },
        |_| (),
    )
    .map_err(|errno| failed(errno.to_string()))?;
    drop((guest_end, their_stderr, their_info));
    let mut guest = Guest::starting(
        control_socket,
        Process::behind(started, guest_process(info, plan.limits.ready.value)),
        cgroup,
    )
    .ready_within(plan);
    guest.make_mountpoints(plan, layout, &[])?;

    let setup = setup(plan, layout, &sources, &enforcement);
    let mounts: Vec<_> = sources.mounts.iter().map(AsFd::as_fd).collect();
    let outcome = match guest.send_setup(&setup, &mounts) {
        Ok(pending) => {
            meanwhile()?;
            match guest.send_first(plan, layout) {
                Ok(()) => guest.finish(pending),
                Err(late) if late.code == ErrorCode::NotReady => return Err(late),
                // What it said before it went, if it said something, is the reason.
                Err(_) => guest.finish(pending).and(Err(SetupFailure::Silent)),
            }
        }
        Err(_) => Err(SetupFailure::Silent),
    };
    match outcome {
        Ok(()) => Ok(guest),
        Err(SetupFailure::Step(fault)) => Err(crate::native::setup_failed(SetupFailure::Step(fault), layout)),
        Err(SetupFailure::Late(time_limit)) => Err(not_ready(time_limit)),
        Err(SetupFailure::Silent) => {
            drop(guest);
            let mut text = String::new();
            let _ = File::from(complaints).take(4096).read_to_string(&mut text);
            let reason = text
                .lines()
                .next()
                .unwrap_or("it ended without an error message")
                .trim_start_matches("bwrap: ");
            Err(complained(reason, layout))
        }
    }
}

/// What bubblewrap's error is about: a requested share, which is no reason for a weaker backend, or the backend itself.
fn complained(reason: &str, layout: &Layout) -> SandboxError {
    let is_share = |bind: &&Bind| matches!(bind.origin, BindOrigin::Named | BindOrigin::Home);
    let mut shares = layout.binds.iter().filter(is_share);
    if let Some(share) = shares.find(|bind| reason.contains(&*bind.source.to_string_lossy())) {
        let message = format!("bubblewrap cannot mount `{}`: {reason}", share.source.display());
        return ErrorCode::StartFailed
            .error(message)
            .hint("omit it, or copy what is needed of it to another folder");
    }
    let message = format!("bubblewrap could not build the sandbox: {reason}");
    let is_refusal =
        ["namespace", "ot permitted", "ermission denied"].iter().any(|word| reason.contains(word));
    let hint = match is_refusal {
        true => crate::native::remedy_for_bubblewrap(),
        false => hint!("use {}, which needs no bubblewrap", Term::Backend.to("native")),
    };
    ErrorCode::BackendUnavailable.error(message).hint(hint)
}

pub(super) fn draw(plan: &Plan) -> Result<Drawing, SandboxError> {
    let program = program()?;
    let identity = Identity::choose(plan.id, plan.admin())?;
    // Made and removed again: it says what enforces which limit.
    let (_cgroup, enforcement) = Enforcement::begin(plan)?;
    let layout = plan.layout()?;
    let mut sources = Sources::open_for(layout, identity, Users::One)?;
    let words = args(plan.admin(), layout, &mut sources);
    let user = (user_inside(plan.admin()), identity.user_on_host().0);
    let setup = setup(plan, layout, &sources, &enforcement);
    let (command, held) = (Some(by_hand(&words, &layout.links)), enforcement.report(&plan.limits));
    Ok(Drawing { program: Some((program, words)), command, user, setup, held })
}

fn setup(plan: &Plan, layout: &Layout, sources: &Sources, enforcement: &Enforcement) -> Setup {
    Setup {
        version: belljar_wire::VERSION,
        steps: steps(plan, layout, sources),
        confinement: plan.confinement(layout, enforcement),
        files: FileRoot::Sandbox,
        workspace: layout.workspace.clone(),
    }
}

/// The guest's own process, which bubblewrap names in a line of JSON: `"child-pid": 123`. Killing it ends everything
/// inside, and then bubblewrap.
/// One that hangs before it says so is not waited for here.
fn guest_process(info: OwnedFd, time_limit: Duration) -> Option<OwnedFd> {
    let deadline = Instant::now() + time_limit;
    let mut info = File::from(info);
    let (mut text, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok()?;
        match poll(&mut [PollFd::new(&info, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        match info.read(&mut buffer).ok()? {
            0 => break,
            length => text.extend_from_slice(&buffer[..length]),
        }
        if text.len() > MAX_INFO_BYTES {
            return None;
        }
    }
    let text = String::from_utf8(text).ok()?;
    let (_, rest) = text.split_once("\"child-pid\":")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    pidfd_open(Pid::from_raw(digits.parse().ok()?)?, PidfdFlags::empty()).ok()
}

/// The guest's part where the root is made of layers: it leaves bubblewrap's behind, and takes along what is in it.
fn steps_in_layers(plan: &Plan, layout: &Layout, sources: &Sources, root: Step) -> Vec<Step> {
    let mut steps = vec![private_step(plan, layout, STAGE), root];
    // Bubblewrap has covered parts of it, so the kernel makes no second one.
    let (source, target) = (Source::Path("/proc".into()), "proc".to_string());
    steps.push(Step::Bind { source, target, kind: NodeKind::Directory, access: Access::ReadWrite });
    steps.extend(after_root(plan, layout, STAGED_DEVICES));
    steps.extend(bind_steps(layout, sources, |_| true));
    steps.extend(layout.mask_steps());
    steps.extend(plan.egress().map(Step::OpenEgress));
    steps.push(Step::Pivot);
    steps
}

/// The guest's part: what bubblewrap left to do in the root that it made.
fn steps(plan: &Plan, layout: &Layout, sources: &Sources) -> Vec<Step> {
    if let Some(root) = root_step(layout, sources, None) {
        return steps_in_layers(plan, layout, sources, root);
    }
    let mut steps = vec![private_step(plan, layout, STAGE)];
    steps.extend(after_root(plan, layout, STAGED_DEVICES));
    steps.extend(bind_steps(layout, sources, |bind| bind.origin != BindOrigin::System));
    steps.extend(layout.mask_steps());
    // The private filesystem, which covers the stage, and the stage itself.
    let stage = || STAGE.trim_start_matches('/').to_string();
    steps.extend([Step::Unmount { target: stage() }, Step::Unmount { target: stage() }]);
    steps.push(Step::RemoveDir { target: stage() });
    steps.extend(plan.egress().map(Step::OpenEgress));
    steps.push(Step::ReadOnlyRoot);
    steps
}

/// Some lines of JSON.
const MAX_INFO_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BindKind;
    use crate::plan::trial;

    #[test]
    fn what_a_person_is_shown_names_no_descriptor() {
        let plan = trial().unwrap();
        let words = draw(&plan).map(|drawing| drawing.command.unwrap());
        // Where bubblewrap is not installed there is nothing to show.
        let Ok(words) = words else { return };
        assert!(words.iter().all(|word| !word.ends_with("-fd") && !word.contains("/fd/")), "{words:?}");
        assert_eq!(words.last().map(String::as_str), Some("/bin/sh"));
    }

    #[test]
    fn a_complaint_about_a_share_is_none_about_the_backend() {
        let plan = trial().unwrap();
        let system = plan.layout().unwrap();
        assert_eq!(
            complained("No permissions to create a new namespace", system).code,
            ErrorCode::BackendUnavailable
        );
        assert_eq!(
            complained("Can't bind mount /oldroot/usr on /newroot/usr", system).code,
            ErrorCode::BackendUnavailable
        );
        let (kind, origin) = (BindKind::ReadOnly, BindOrigin::Named);
        let share = Bind { source: "/srv/share".into(), target: "srv/share".into(), kind, origin };
        let layout = Layout { binds: vec![share], ..Layout::default() };
        for reason in [
            "Can't find source path /srv/share: Permission denied",
            "Can't bind mount /oldroot/srv/share on /newroot/.stage/9: Operation not permitted",
        ] {
            assert_eq!(complained(reason, &layout).code, ErrorCode::StartFailed, "{reason}");
        }
        assert_eq!(
            complained("Can't mount proc on /newroot/proc", &layout).code,
            ErrorCode::BackendUnavailable
        );
    }
}

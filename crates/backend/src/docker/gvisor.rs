//! What is different where the container's kernel is gVisor: its guest connects through gVisor's own file server, no descriptor
//! passes, nobody outside can enter its network, and when memory runs out the whole kernel may be killed.

use super::door::{Knocked, Knocker, is_within};
use super::launch::{Container, setup_with};
use crate::cgroup::{Counters, Foreign};
use crate::guest::{Behind, Door, Process};
use crate::layout::Layout;
use crate::stubs::Stubs;
use crate::{Enforcement, Guest, Meanwhile, Plan};
use belljar_docker::Daemon;
use belljar_docker::bollard::models::ContainerState;
use belljar_docker::bollard::query_parameters::InspectContainerOptions;
use belljar_spec::SandboxError;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::AsFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::process::{Pid, PidfdFlags, pidfd_open};
use belljar_wire::message::Step;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// From a container that is being started to a guest that is ready.
pub(super) fn finish(
    plan: &Plan,
    layout: &Layout,
    mut container: Container,
    knocker: Knocker,
    enforcement: &Enforcement,
    mut stubs: Option<Stubs>,
    meanwhile: Meanwhile<'_>,
) -> Result<Guest, SandboxError> {
    meanwhile()?;
    if let Some(error) = container.not_started() {
        return Err(error);
    }
    let Some(knocked) = knocker.wait(plan.limits.ready.value)? else { return Err(did_not_knock()) };
    if !knocked.is_of(&container.id, FILE_SERVER_USER) {
        let message = "somebody else than the container knocked at its door";
        return Err(SandboxError::runtime("guest_died", message));
    }
    container.has_knocked.store(true, Ordering::SeqCst);
    container.place.strike();
    let failed =
        |what: &str, why: String| SandboxError::runtime("guest_died", format!("cannot {what}: {why}"));
    let kernel = kernel(&container.daemon, &container.id)?;
    let process = pidfd_open(kernel, PidfdFlags::empty())
        .map_err(|errno| failed("find the container's kernel", errno.to_string()))?;
    // Looked at while it is held: the number may have been given to somebody else since the daemon heard of it.
    if !is_within(kernel, &container.id) {
        return Err(failed("find the container's kernel", "it is gone".into()));
    }
    if let Some(stubs) = &mut stubs {
        stubs.wait_for(plan, process.as_fd())?;
    }
    let intake = plan.intake();
    let Knocked { door, .. } = knocked;
    let door =
        Door::muxed(door, intake.as_ref()).map_err(|error| failed("use the door", error.to_string()))?;
    let counted = Foreign::of(kernel.as_raw_nonzero().get() as u32);
    let refused = refused_forks(&counted);
    let behind = Contained { container, counted, refused, end: OnceLock::new() };
    let mut guest = Guest::starting(door, Process::contained(process), None)
        .ready_within(plan)
        .in_front_of(Box::new(behind), stubs);
    let steps = intake.map(Step::RelayIntake).into_iter().collect();
    let pending = guest.send_setup(&setup_with(steps, plan, layout, enforcement), &[])?;
    guest.send_first(plan, layout)?;
    guest.finish(pending).map_err(|failure| crate::native::setup_failed(failure, layout))?;
    Ok(guest)
}

/// gVisor's kernel as a process of the host: what the container lives and dies with.
fn kernel(daemon: &Daemon, id: &str) -> Result<Pid, SandboxError> {
    let state = state(daemon, id)?;
    let pid = state.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.ok_or_else(did_not_knock)
}

fn state(daemon: &Daemon, id: &str) -> Result<ContainerState, SandboxError> {
    let inspected = daemon.run("say how the container is", async |client| {
        client.inspect_container(id, None::<InspectContainerOptions>).await
    })?;
    Ok(inspected.state.unwrap_or_default())
}

fn did_not_knock() -> SandboxError {
    let message = "the guest cannot connect to belljar from within gVisor, or died";
    SandboxError::unavailable("gvisor_without_sockets", message).hint(
        "give runsc the arguments `--network=none` and `--host-uds=open` (before 2023: `--fsgofer-host-uds`) in \
         /etc/docker/daemon.json, and restart the daemon (docs/gvisor.md)",
    )
}

/// A container with gVisor's kernel in it.
struct Contained {
    container: Container,
    counted: Foreign,
    /// Whether a fork was refused: heard when it was. A moment later nobody is left who counts.
    refused: Arc<AtomicU64>,
    /// How it ended: asked once.
    end: OnceLock<Counters>,
}

impl Contained {
    /// What the kernel counted, and what the daemon saw of the end, if there was one.
    fn end(&self) -> Counters {
        // First: what counts is taken away with the container.
        let mut counted = self.counted.counters();
        counted.forks_refused = counted.forks_refused.max(self.refused.load(Ordering::SeqCst));
        let started = Instant::now();
        loop {
            match state(&self.container.daemon, &self.container.id) {
                Ok(state) if state.running == Some(true) && started.elapsed() < PATIENCE => {
                    thread::sleep(STEP)
                }
                Ok(state) => {
                    let oom_kills = counted.oom_kills.max(u64::from(state.oom_killed == Some(true)));
                    return Counters { oom_kills, ..counted };
                }
                Err(_) => return counted,
            }
        }
    }
}

impl Behind for Contained {
    fn counters(&self) -> Counters {
        self.counted.counters()
    }

    fn counters_at_end(&self) -> Counters {
        *self.end.get_or_init(|| self.end())
    }

    /// The daemon does not remove it by itself: whoever drops this does.
    fn leave(&mut self) {}
}

/// Counts the forks that are refused, as long as there is something to count them in.
fn refused_forks(counted: &Foreign) -> Arc<AtomicU64> {
    let refused = Arc::new(AtomicU64::new(0));
    let Some(file) = counted.refusals() else { return refused };
    let count = Arc::clone(&refused);
    let listen = move || {
        loop {
            // From its beginning: that it was read is what ends the waiting below.
            let mut text = [0; 256];
            let Ok(length) = file.read_at(&mut text, 0) else { return };
            let text = String::from_utf8_lossy(&text[..length]);
            let number = text.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse().ok());
            count.fetch_max(number.unwrap_or(0), Ordering::SeqCst);
            // Nobody is told that the counter was taken away: reading it says so.
            match poll(&mut [PollFd::new(&file, PollFlags::PRI)], Some(&NOW_AND_THEN)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    };
    // Without it, a sandbox that died of this limit is one that died.
    let _ = thread::Builder::new().name("forks".into()).stack_size(STACK).spawn(listen);
    refused
}

/// Who connects for the guest: gVisor's file server.
const FILE_SERVER_USER: u32 = 0;
/// The daemon hears of an end within milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(10);
const STACK: usize = 64 * 1024;
const NOW_AND_THEN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

//! What is different where the container's kernel is gVisor: its guest connects through gVisor's own file server, no
//! descriptor passes, no process outside can enter its network, and when memory runs out the whole kernel may be killed.

use super::control_socket::{Knocked, Knocker, is_within};
use super::launch::{Container, setup_with};
use crate::cgroup::{Counters, Foreign};
use crate::guest::{AtEnd, Behind, ControlSocket, Process, wait_for_end};
use crate::layout::Layout;
use crate::mountpoints::Mountpoints;
use crate::{Enforcement, Guest, Meanwhile, Plan};
use belljar_docker::Daemon;
use belljar_docker::bollard::models::ContainerState;
use belljar_docker::bollard::query_parameters::InspectContainerOptions;
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
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
    mut mountpoints: Option<Mountpoints>,
    meanwhile: Meanwhile<'_>,
) -> Result<Guest, SandboxError> {
    meanwhile()?;
    if let Some(error) = container.not_started() {
        return Err(error);
    }
    let Some(knocked) = knocker.wait(plan.limits.ready.value)? else { return Err(did_not_knock()) };
    if !knocked.is_of(&container.id, FILE_SERVER_USER) {
        let message = "a process other than the container's connected to its control socket";
        return Err(ErrorCode::GuestGone.error(message));
    }
    container.has_knocked.store(true, Ordering::SeqCst);
    container.place.strike();
    let failed = |what: &str, why: String| ErrorCode::GuestGone.error(format!("cannot {what}: {why}"));
    let kernel = kernel(&container.daemon, &container.id)?;
    let process = pidfd_open(kernel, PidfdFlags::empty())
        .map_err(|errno| failed("find the container's kernel", errno.to_string()))?;
    // Checked while the pidfd is held: the number may have been given to another process since the daemon learned of it.
    if !is_within(kernel, &container.id) {
        return Err(failed("find the container's kernel", "it is gone".into()));
    }
    if let Some(mountpoints) = &mut mountpoints {
        mountpoints.wait_for(process.as_fd())?;
    }
    let egress = plan.egress();
    let Knocked { control_socket, .. } = knocked;
    let control_socket = ControlSocket::muxed(control_socket, egress.as_ref())
        .map_err(|error| failed("use the control socket", error.to_string()))?;
    let counted = Foreign::of(kernel.as_raw_nonzero().get() as u32);
    let refused = refused_forks(&counted);
    let end = End {
        daemon: Arc::clone(&container.daemon),
        id: container.id.clone(),
        kernel: process
            .try_clone()
            .map_err(|error| failed("hold the container's kernel", error.to_string()))?,
        counted,
        refused,
        known: OnceLock::new(),
    };
    let behind = Contained { _container: container, end: Arc::new(end) };
    let mut guest = Guest::starting(control_socket, Process::contained(process), None)
        .ready_within(plan)
        .in_front_of(Box::new(behind), mountpoints);
    let steps = egress.map(Step::RelayEgress).into_iter().collect();
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
    ErrorCode::BackendUnavailable.error(message).hint(hint!(
        "give runsc the arguments `--network=none` and `--host-uds=open` (before 2023: `--fsgofer-host-uds`) in \
         /etc/docker/daemon.json, and restart the daemon ({})",
        CommandLine::Help.of("gvisor")
    ))
}

/// A container with gVisor's kernel in it.
struct Contained {
    _container: Container,
    end: Arc<End>,
}

/// How gVisor's kernel ends, and what is known of it then.
struct End {
    daemon: Arc<Daemon>,
    id: String,
    kernel: OwnedFd,
    counted: Foreign,
    /// Whether a fork was refused, recorded when it was: a moment later the counter is gone.
    refused: Arc<AtomicU64>,
    /// How it ended: asked once.
    known: OnceLock<Counters>,
}

impl End {
    /// What was counted until now. Waits a moment for the end: streams break before a kernel is gone, and also without that.
    fn counters(&self) -> Counters {
        // First: the counters are removed with the container.
        let mut counted = self.counted.counters();
        counted.forks_refused = counted.forks_refused.max(self.refused.load(Ordering::SeqCst));
        let at_end = || Counters { oom_kills: counted.oom_kills.max(self.oom_kills()), ..counted };
        once_over(&self.kernel, KERNEL_END_TIMEOUT, &self.known, at_end).unwrap_or(counted)
    }

    /// What the daemon saw of the end, a moment after it.
    fn oom_kills(&self) -> u64 {
        let started = Instant::now();
        loop {
            match state(&self.daemon, &self.id) {
                Ok(state) if state.running == Some(true) && started.elapsed() < KERNEL_END_TIMEOUT => {
                    thread::sleep(STEP)
                }
                Ok(state) => return u64::from(state.oom_killed == Some(true)),
                Err(_) => return 0,
            }
        }
    }
}

/// What is said of a process that has ended, said once. Of one that lives nothing is said, and so nothing is remembered.
fn once_over<T: Copy>(
    process: &OwnedFd,
    time_limit: Duration,
    known: &OnceLock<T>,
    say: impl FnOnce() -> T,
) -> Option<T> {
    wait_for_end(process, time_limit).then(|| *known.get_or_init(say))
}

impl Behind for Contained {
    fn counters(&self) -> Counters {
        self.end.counted.counters()
    }

    fn at_end(&self) -> AtEnd {
        let end = Arc::clone(&self.end);
        Box::new(move || end.counters())
    }

    /// The daemon does not remove it by itself: dropping this does.
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
            // The removal of the counter does not wake the poll: the next read fails.
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

/// The user that connects for the guest: gVisor's file server.
const FILE_SERVER_USER: u32 = 0;
/// A kernel whose streams broke ends within milliseconds, if it does, and the daemon hears of it within some more.
const KERNEL_END_TIMEOUT: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(10);
const STACK: usize = 64 * 1024;
const NOW_AND_THEN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_said_of_a_kernel_that_lives_is_not_remembered() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
        let pid = Pid::from_child(&child);
        let kernel = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        let known = OnceLock::new();
        assert_eq!(once_over(&kernel, Duration::ZERO, &known, || 1), None);
        child.kill().expect("our child");
        child.wait().expect("our child");
        let time_limit = Duration::from_secs(600);
        assert_eq!(once_over(&kernel, time_limit, &known, || 2), Some(2), "it has ended since");
        assert_eq!(once_over(&kernel, time_limit, &known, || 3), Some(2), "it is asked once");
    }
}

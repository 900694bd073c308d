//! From a plan to a guest in a container.
//!
//! ```text
//! place    a directory of our own, locked                     (container_dir.rs)
//! stage    what the container will be shown, on the host      (stage.rs)
//! create   one request                                        (container.rs)
//! start    one request, whose answer is not waited for
//! connect  the guest is there: process 1 of the container     (control_socket.rs)
//! network  its egress sockets are opened, from outside        (network.rs)
//! setup    as for every guest, over the control socket
//! ```
//!
//! The stage is struck as soon as the guest connects: the container's mounts are its own by then.

use super::check;
use super::container::{ContainerRequest, accept_warnings};
use super::container_dir::{ContainerDir, container_name};
use super::control_socket::{Knocker, control_socket_kind};
use super::gvisor;
use super::image::HostImage;
use super::look::refuse_links;
use super::network::{Opened, Opener};
use super::stage::{self, identity, shown};
use crate::cgroup::{Counters, Foreign};
use crate::guest::{Behind, ControlSocket, Process};
use crate::layout::Layout;
use crate::native::{Sources, user_of_container};
use crate::{Drawing, Enforcement, Guest, Meanwhile, Plan};
use belljar_docker::bollard::errors::Error;
use belljar_docker::bollard::models::ContainerCreateBody;
use belljar_docker::bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, StartContainerOptions, WaitContainerOptions,
};
use belljar_docker::{Daemon, refused};
use belljar_spec::{Admin, CommandLine, ErrorCode, Nesting, Root, Runtime, SandboxError, Term, hint};
use belljar_sys::rustix::process::geteuid;
use belljar_wire::message::{FileRoot, Setup, Step};
use futures_util::TryStreamExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(super) fn launch(runtime: Runtime, plan: &Plan, meanwhile: Meanwhile<'_>) -> Result<Guest, SandboxError> {
    accept(runtime, plan)?;
    let enforcement = Enforcement::of_container(plan)?;
    let connecting = thread::spawn(super::daemon);
    let place = ContainerDir::make(containers(plan)?, plan.id)?;
    let layout = plan.layout()?;
    let staged = stage::build(plan, layout, &place);
    // Before the stage's error: in a container there is often neither a daemon nor the right to mount.
    let daemon = connecting.join().unwrap_or_else(|_| super::daemon())?;
    let mut mountpoints = staged?;
    let knocker = Knocker::listen(&place.control_socket(), control_socket_kind(runtime))?;
    let mut container = Container::create(daemon, runtime, plan, layout, place)?.start(knocker.closer());
    if runtime == Runtime::Runsc {
        return gvisor::finish(plan, layout, container, knocker, &enforcement, mountpoints, meanwhile);
    }
    let opener = Opener::start(plan)?;
    meanwhile()?;
    let knocked = match knocker.wait(plan.limits.ready.value) {
        Ok(Some(knocked)) => knocked,
        Ok(None) => return Err(container.why_not_started()),
        Err(error) => return Err(container.not_started().unwrap_or(error)),
    };
    if !knocked.is_of(&container.id, user_of_container(plan.id)) {
        let message = "a process other than the container's first connected to its control socket";
        return Err(ErrorCode::GuestGone.error(message).hint(
            "the Docker daemon and belljar have to see the same processes: run both on the host itself",
        ));
    }
    container.has_knocked.store(true, Ordering::SeqCst);
    container.place.strike();
    if let Some(mountpoints) = &mut mountpoints {
        mountpoints.wait_for(std::os::fd::AsFd::as_fd(&knocked.process))?;
    }
    let counted = Foreign::of(knocked.pid.as_raw_nonzero().get() as u32);
    counted.limit_tcp(&plan.limits)?;
    let container = Contained { counted, container };
    let (control_socket, process) =
        (ControlSocket::knocked_at(knocked.control_socket), Process::contained(knocked.process));
    let mut guest = Guest::starting(control_socket, process, None)
        .ready_within(plan)
        .in_front_of(Box::new(container), mountpoints);
    let egress_sockets = opener.open(guest.process())?;
    let pending = guest.send_setup(&setup(plan, layout, &enforcement, &egress_sockets), &[])?;
    guest.send_first(plan, layout)?;
    guest.finish(pending).map_err(|failure| crate::native::setup_failed(failure, layout))?;
    if let Some((report, sockets)) = egress_sockets {
        guest.has_egress(report, sockets);
    }
    Ok(guest)
}

pub(super) fn draw(runtime: Runtime, plan: &Plan) -> Result<Drawing, SandboxError> {
    accept(runtime, plan)?;
    Enforcement::of_container(plan)?;
    let layout = plan.layout()?;
    let place = ContainerDir::imagined(containers(plan)?, plan.id);
    let sources = Sources::open(layout, identity(plan))?;
    let image = image_name(plan, layout)?;
    let shown = shown(plan, layout);
    let request = ContainerRequest {
        runtime,
        image: &image,
        owner: place.owner(),
        stage: &place.root(),
        shown: &shown,
    };
    let words = request.words(plan, layout);
    let enforcement = Enforcement::of_container(plan)?;
    let mut setup = setup(plan, layout, &enforcement, &None);
    setup.steps = stage::steps(plan, layout, &sources, &place);
    let user = user_of_container(plan.id);
    Ok(Drawing {
        program: Some(("docker".into(), words.clone())),
        command: Some(words),
        user: (user, user),
        setup,
        held: enforcement.report(&plan.limits),
    })
}

/// Whether we have the power to furnish a container.
pub(super) fn accept_us() -> Result<(), SandboxError> {
    if geteuid().is_root() {
        return Ok(());
    }
    let message = "the backend docker needs root, and belljar does not run as root";
    Err(ErrorCode::BackendUnavailable
        .error(message)
        .hint(hint!("run belljar as root, or use {}, which needs no root", Term::Backend.to("native"))))
}

/// What a container cannot be, by name.
fn accept(runtime: Runtime, plan: &Plan) -> Result<(), SandboxError> {
    check::accept(runtime)?;
    accept_us()?;
    if plan.nesting() == Nesting::Allowed {
        let message = "sandboxes inside of a container need powers that no container of belljar's has";
        return Err(ErrorCode::NotSupported.error(message).hint(hint!(
            "omit {}, or use {}",
            Term::Nested,
            Term::Backend.to("native")
        )));
    }
    if plan.admin() == Admin::Root {
        let message = "root in a container would be root of this machine: it has no users of its own";
        return Err(ErrorCode::NotSupported
            .error(message)
            .hint("omit `root`, or use the backend `native`, where root inside has no rights outside"));
    }
    Ok(())
}

fn containers(plan: &Plan) -> Result<&Path, SandboxError> {
    plan.containers().ok_or_else(|| {
        ErrorCode::StateFailed
            .error("there is no directory to put a container together in")
            .hint("set XDG_STATE_HOME to a folder that you can write to")
    })
}

/// The guest's own part: all has been put in its place before it started.
fn setup(plan: &Plan, layout: &Layout, enforcement: &Enforcement, egress_sockets: &Opened) -> Setup {
    let report = egress_sockets.as_ref().map(|(report, _)| report.clone());
    setup_with(vec![Step::NetworkIsReady { egress: plan.egress(), report }], plan, layout, enforcement)
}

pub(super) fn setup_with(steps: Vec<Step>, plan: &Plan, layout: &Layout, enforcement: &Enforcement) -> Setup {
    Setup {
        version: belljar_wire::VERSION,
        steps,
        confinement: plan.confinement(layout, enforcement),
        files: FileRoot::Sandbox,
        workspace: layout.workspace.clone(),
    }
}

/// A container that the daemon has. Dropped, it is gone, and its place after it.
pub(super) struct Container {
    pub(super) daemon: Arc<Daemon>,
    pub(super) id: String,
    name: String,
    starting: Mutex<Option<Receiver<Result<(), Error>>>>,
    /// How long its daemon may take to start it, and until when that is.
    time_limit: Duration,
    started_by: Instant,
    /// Whether its guest is there.
    pub(super) has_knocked: Arc<AtomicBool>,
    pub(super) is_left: bool,
    pub(super) place: ContainerDir,
}

impl Container {
    fn create(
        daemon: Arc<Daemon>,
        runtime: Runtime,
        plan: &Plan,
        layout: &Layout,
        place: ContainerDir,
    ) -> Result<Container, SandboxError> {
        let name = container_name(&plan.id.to_string());
        let shown = shown(plan, layout);
        let image = match plan.spec().root {
            Root::Host => HostImage::of(layout).have(&daemon)?,
            _ => image_name(plan, layout)?,
        };
        if plan.image().is_some() {
            refuse_links(&daemon, &image, &stage::must_be_plain(layout), containers(plan)?)?;
        }
        let request = ContainerRequest {
            runtime,
            image: &image,
            owner: place.owner(),
            stage: &place.root(),
            shown: &shown,
        };
        let body = request.body(plan, layout);
        // From here on dropping it removes whatever came of the request.
        let mut container = Container {
            daemon,
            id: String::new(),
            name,
            starting: Mutex::default(),
            time_limit: plan.limits.ready.value,
            started_by: Instant::now(),
            has_knocked: Arc::default(),
            is_left: false,
            place,
        };
        let created = container.ask_for(&body);
        // The name belongs to another container, which is not ours to remove.
        container.is_left = matches!(created, Err(Error::DockerResponseServerError { status_code: 409, .. }));
        let created = created.map_err(|error| not_created(runtime, &error))?;
        accept_warnings(plan, &created.1)?;
        container.id = created.0;
        if plan.image().is_some() {
            container.refuse_volumes()?;
        }
        Ok(container)
    }

    /// Where an image declares a volume that we put nothing at, the daemon puts one of its own: on its disk, without a limit.
    fn refuse_volumes(&self) -> Result<(), SandboxError> {
        let inspected = self.daemon.run("look at a container", async |client| {
            client.inspect_container(&self.name, None::<InspectContainerOptions>).await
        })?;
        let mut mounts = inspected.mounts.into_iter().flatten();
        let Some(volume) = mounts.find(|mount| mount.typ.as_deref() == Some("volume")) else {
            return Ok(());
        };
        let place = volume.destination.unwrap_or_default();
        let message =
            format!("the image declares a volume at `{place}`, where its files could not be limited");
        Err(ErrorCode::ImageRefused.error(message).hint(hint!(
            "make an image of it without that VOLUME ({}), or use another one",
            CommandLine::Build
        )))
    }

    fn ask_for(&self, body: &ContainerCreateBody) -> Result<(String, Vec<String>), Error> {
        let options = CreateContainerOptionsBuilder::default().name(&self.name).build();
        let created =
            self.daemon.try_run(async |client| client.create_container(Some(options), body.clone()).await)?;
        Ok((created.id, created.warnings))
    }

    /// Starts it in the background. Where nothing comes of it, `closer` ends the wait for the guest.
    fn start(mut self, closer: impl FnOnce() + Send + 'static) -> Container {
        let (daemon, id, has_knocked) =
            (Arc::clone(&self.daemon), self.id.clone(), Arc::clone(&self.has_knocked));
        let (tell, receiver) = channel();
        self.starting = Mutex::new(Some(receiver));
        self.started_by = Instant::now() + self.time_limit;
        self.place.note(&self.id);
        thread::spawn(move || {
            let options = None::<StartContainerOptions>;
            let started = daemon.try_run(async |client| client.start_container(&id, options).await);
            let is_started = started.is_ok();
            // Where the sandbox is gone already, nothing receives this.
            let _ = tell.send(started);
            // Mostly its guest has connected by now; else it may be unable to, and end without a message.
            let has_ended = || {
                let options = None::<WaitContainerOptions>;
                let ended = daemon.try_follow(async |client| {
                    client.wait_container(&id, options).try_for_each(async |_| Ok(())).await
                });
                // A request that timed out is no answer. The wait for the guest has its own time limit.
                !matches!(ended, Err(Error::RequestTimeoutError))
            };
            if !has_knocked.load(Ordering::SeqCst) && (!is_started || has_ended()) {
                closer();
            }
        });
        self
    }

    /// What came of the start, once. Waits for it as long as it may take; what takes longer can be asked for again.
    fn started(&mut self) -> Option<Result<(), Error>> {
        let starting = self.starting.get_mut().unwrap_or_else(PoisonError::into_inner);
        let receiver = starting.take()?;
        match receiver.recv_timeout(self.started_by.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {
                *starting = Some(receiver);
                Some(Err(Error::RequestTimeoutError))
            }
            receiver => receiver.ok(),
        }
    }

    /// Why it was not started, if it was not.
    pub(super) fn not_started(&mut self) -> Option<SandboxError> {
        match self.started()?.err()? {
            Error::RequestTimeoutError => {
                let message = format!(
                    "the Docker daemon has not started the container within {:?}, and it is not waited for",
                    self.time_limit
                );
                Some(ErrorCode::NotReady.error(message).hint(hint!(
                    "`docker info` says whether the daemon is well, its log says more (`journalctl \
                         -u docker`); on a busy machine allow more with {}",
                    Term::ReadyTimeout
                )))
            }
            error => Some(refused("start the container", &error)),
        }
    }

    fn why_not_started(mut self) -> SandboxError {
        self.not_started().unwrap_or_else(|| {
            ErrorCode::GuestGone.error("the container ended before its first process connected").hint(hint!(
                "its runtime may not let it reach belljar's socket: {} tries each backend by itself",
                Term::Capabilities
            ))
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A request that is broken off may leave anything, so it gets its time; a daemon that hangs does not get more of ours.
        self.started_by = self.started_by.max(Instant::now() + LAST_WORD);
        let started = self.started();
        if self.is_left {
            return;
        }
        let is_starting = matches!(started, Some(Err(Error::RequestTimeoutError)));
        // Its last process ended: then the daemon removes it by itself, and this waits until it has.
        if is_starting || self.daemon.remove_container(&self.name).is_err() {
            self.place.leave_a_trace();
        } else if self.has_knocked.load(Ordering::SeqCst) && !matches!(started, Some(Err(_))) {
            // Its daemon knew that it ran, and that it was removed, so it has forgotten nothing.
            self.place.forget(&self.id);
        }
    }
}

/// A container with a guest in it.
struct Contained {
    container: Container,
    counted: Foreign,
}

impl Behind for Contained {
    fn counters(&self) -> Counters {
        self.counted.counters()
    }

    fn leave(&mut self) {
        self.container.is_left = true;
    }
}

fn not_created(runtime: Runtime, error: &Error) -> SandboxError {
    let text = error.to_string();
    if text.contains("Unknown runtime") || text.contains("unknown or invalid runtime") {
        return check::no_runtime(runtime);
    }
    refused("make a container", error)
}

/// What the daemon calls the image.
fn image_name(plan: &Plan, layout: &Layout) -> Result<String, SandboxError> {
    match (&plan.spec().root, plan.image()) {
        (Root::Host, _) => Ok(HostImage::of(layout).name),
        (Root::Image(_), Some(image)) => Ok(image.id.clone()),
        (other, _) => Err(no_root(other)),
    }
}

fn no_root(root: &Root) -> SandboxError {
    let message =
        format!("a container cannot have the root `{root}`: the daemon has images, and shows the host's");
    ErrorCode::NotSupported.error(message).hint(hint!(
        "use {} or {}, or {}",
        Term::Rootfs.to("host"),
        Term::Rootfs.to("oci:IMAGE"),
        Term::Backend.to("native")
    ))
}

/// The time that a start still gets when the sandbox no longer waits for it: most of them are about to end.
const LAST_WORD: Duration = Duration::from_secs(5);

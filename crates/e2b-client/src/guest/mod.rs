//! The guest protocol, served on the host in the place of a guest: what is asked at the control socket becomes calls of a remote
//! sandbox's data plane. The engine above knows no difference.
//!
//! One thread waits at the control socket; each request is a task of the service's runtime. The sandbox is kept alive as long as the
//! control socket is open, and when the service has no such sandbox any more the socket is closed, as that of a guest that died.

mod accounts;
mod exec;
mod fault;
mod files;
mod pause;
mod ports;
mod stream;

use crate::rpc::Envd;
use crate::service::{RemoteSandbox, Service, Shared};
use accounts::Accounts;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::passing;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::net::{Shutdown, shutdown};
use belljar_sys::rustix::pipe::{PipeFlags, pipe_with};
use belljar_wire::message::{ExecEvent, Reply, Request};
use pause::Pause;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use stream::HostStream;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tracing::{debug, warn};

/// The user that commands run as, whom every template has.
pub const USER: &str = "user";
/// The user's home.
pub const HOME: &str = "/home/user";
/// Where commands start.
pub const WORKSPACE: &str = "/home/user/workspace";

/// A remote sandbox that is served as a guest is.
pub struct Serving {
    remote: Arc<Remote>,
    handle: Handle,
}

/// A remote sandbox, for the tasks that serve it.
struct Remote {
    envd: Envd,
    shared: Arc<Shared>,
    control_socket: OwnedFd,
    /// How long it lives without being heard of.
    lifetime_s: u64,
    pause: Pause,
    accounts: Accounts,
}

impl Serving {
    /// Serves `sandbox` at `control_socket`, the end of a guest, and keeps it alive: each time for `lifetime_s` from then on. The
    /// descriptor is at its end when that is over.
    pub fn begin(
        service: &Service,
        sandbox: &RemoteSandbox,
        control_socket: OwnedFd,
        lifetime_s: u64,
    ) -> Result<(Serving, OwnedFd), SandboxError> {
        let failed = |error: io::Error| {
            ErrorCode::StartFailed
                .error(format!("a remote sandbox cannot be served: {error}"))
                .caused_by(error)
        };
        let (alive, until) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let shared = Arc::clone(&service.shared);
        let remote = Arc::new(Remote {
            envd: Envd::new(&shared, sandbox, USER)?,
            shared,
            control_socket,
            lifetime_s,
            pause: Pause::default(),
            accounts: Accounts::default(),
        });
        let handle = service.handle().clone();
        let (theirs, tasks) = (Arc::clone(&remote), handle.clone());
        let serve = move || {
            serve(&theirs, &tasks);
            drop(until);
        };
        thread::Builder::new().name("belljar-remote".into()).spawn(serve).map_err(failed)?;
        Ok((Serving { remote, handle }, alive))
    }

    /// Makes the folder where commands start.
    pub fn make_workspace(&self, service: &Service) -> Result<(), SandboxError> {
        let envd = self.remote.envd.clone();
        service.wait_within(FIRST_CALL_TIMEOUT, async move {
            match envd.make_folder(WORKSPACE).await {
                Err(error) if fault::errno(&error) != fault::EXISTS => {
                    let message = format!(
                        "the folder {WORKSPACE} of the remote sandbox cannot be made: {}",
                        fault::describe(&error)
                    );
                    Err(ErrorCode::StartFailed
                        .error(message)
                        .hint("its template must have the user `user` with the home /home/user"))
                }
                _ => Ok(()),
            }
        })
    }

    /// Makes connections to ports that programs inside listen at. It blocks.
    pub fn dial(&self) -> impl Fn(u16) -> io::Result<TcpStream> + Send + Sync + use<> {
        let (remote, handle) = (Arc::clone(&self.remote), self.handle.clone());
        move |port| ports::dial(&remote, &handle, port)
    }
}

/// Serves until the control socket is closed, by either side.
fn serve(remote: &Arc<Remote>, handle: &Handle) {
    let keeping = handle.spawn(keep_alive(Arc::clone(remote)));
    let mut tasks = vec![keeping.abort_handle()];
    while let Ok(Some(descriptors)) = passing::receive(&remote.control_socket) {
        tasks.retain(|task| !task.is_finished());
        let Some(stream) = descriptors.into_iter().next() else { continue };
        let remote = Arc::clone(remote);
        let task = handle.spawn(async move {
            // An error here is a host that hung up.
            if let Err(error) = answer(&remote, UnixStream::from(stream)).await {
                debug!(%error, "a stream of a remote sandbox ended");
            }
        });
        tasks.push(task.abort_handle());
    }
    tasks.iter().for_each(tokio::task::AbortHandle::abort);
}

/// Extends the life of a sandbox that is used.
async fn keep_alive(remote: Arc<Remote>) {
    // The first time at once: one that was found again had a time of its own.
    loop {
        if !remote.pause.is_paused() {
            match remote.shared.keep_alive(&remote.envd.id, remote.lifetime_s).await {
                Ok(true) => {}
                Ok(false) => remote.must_exist().await,
                Err(error) => warn!(%error, "the life of a remote sandbox was not extended"),
            }
        }
        sleep(Duration::from_secs(remote.lifetime_s) / HEARTBEATS).await;
    }
}

impl Remote {
    /// Closes the control socket if the service has no such sandbox any more.
    async fn must_exist(&self) {
        if let Ok(false) = self.shared.exists(&self.envd.id).await {
            self.is_gone();
        }
    }

    fn is_gone(&self) {
        let _ = shutdown(&self.control_socket, Shutdown::Both);
    }
}

async fn answer(remote: &Arc<Remote>, stream: UnixStream) -> io::Result<()> {
    let (mut from, mut to) = HostStream::open(stream)?;
    let Some(request) = from.message().await? else { return Ok(()) };
    match request {
        Request::Exec(_) if remote.pause.is_paused() => to.message(&ExecEvent::Paused).await,
        Request::Exec(exec) => exec::run(remote, exec, from, to).await,
        Request::Pause => to.message(&outcome(pause::pause(remote).await)).await,
        Request::Resume => to.message(&outcome(pause::resume(remote).await)).await,
        Request::Connect { port } => {
            let refused = fault::fault(format!("connect to port {port}"), fault::NOT_SUPPORTED);
            to.message(&Reply::Failed(refused)).await
        }
        other => files::answer(remote, other, from, to).await,
    }
}

fn outcome(outcome: Result<(), belljar_wire::message::Fault>) -> Reply {
    outcome.map_or_else(Reply::Failed, |()| Reply::Done)
}

/// As often is a sandbox heard of in its life.
const HEARTBEATS: u32 = 3;
/// After a cold start.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(60);

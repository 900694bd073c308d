//! `belljar serve`: the daemon, in the foreground.

use crate::args::ServeArgs;
use crate::commands::upkeep::apply_retention;
use crate::log::LogFormat;
use belljar_api::client::Client;
use belljar_e2b::Bound;
use belljar_server::front::{self, AllowedHosts, Ready, Settings};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::Inherited;
use belljar_sys::rustix::fs::Mode;
use belljar_sys::rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit, setsid, umask};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tracing::{error, info, warn};

pub(crate) fn serve(options: ServeArgs) -> Result<u8, SandboxError> {
    // Before anything else is opened: what was handed over has the first numbers.
    let handed = handed();
    let handed_path = handed.first().and_then(path_of);
    if let Some(address) = options.listen.filter(|address| !address.ip().is_loopback()) {
        if !options.danger_plain_http {
            let message = format!("{address} can be reached from other machines, and nothing is encrypted");
            return Err(ErrorCode::RequestValue
                .error(message)
                .hint("listen at 127.0.0.1 behind a server that speaks TLS, or say --danger-plain-http"));
        }
        warn!(
            "{address} can be reached from other machines, and nothing is encrypted: tokens, files and all other data can be read and changed on the way"
        );
    }
    forget_the_shell();
    let socket = options.socket.clone().unwrap_or_else(|| belljar_api::socket_path_here(getuid().as_raw()));
    let configured = belljar_config::daemon()?;
    let e2b = super::e2b::settings(&options, &configured)?;
    let settings = Settings {
        directory: super::directory()?,
        socket,
        handed,
        listen: options.listen,
        allowed_hosts: AllowedHosts { names: options.host_names, origins: options.origins },
        idle_exit: options.idle_exit,
        max_upload: options.max_upload.map(belljar_spec::ByteSize::as_u64),
        shim_environment: options.log_format.map(LogFormat::variable).into_iter().collect(),
        warm: configured.warm.map_or(0, |set| set.value),
        program: None,
        time_limit: None,
        own: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        ErrorCode::Internal.error(format!("cannot make an event loop: {error}")).caused_by(error)
    })?;
    let daemon = Client::unix(handed_path.unwrap_or_else(|| settings.socket.clone()));
    let settings = Settings { own: Some(daemon.clone()), ..settings };
    let ready = |ready: &Ready, e2b: Option<Bound>| {
        say_ready(ready);
        if let Some(bound) = e2b {
            if let Some(address) = bound.address() {
                info!("listening at {address}, for E2B-compatible clients with a key");
            }
            tokio::spawn(async move {
                if let Err(failed) = bound.serve(daemon).await {
                    error!("E2B-compatible clients are not served: {}", failed.message);
                }
            });
        }
        // Only now is this the daemon of the state directory.
        if let Some(age) = configured.retention {
            start_retention(age.value);
        }
    };
    let outcome = runtime.block_on(async {
        let e2b = match e2b {
            Some(settings) => Some(Bound::new(settings).await?),
            None => None,
        };
        front::serve(settings, |listening| ready(listening, e2b)).await
    });
    runtime.shutdown_background();
    outcome.map(|()| 0)
}

/// Once at the start, and then once a day. The thread ends with the process: every removal survives being interrupted.
fn start_retention(age: Duration) {
    let run = move || {
        loop {
            apply_retention(age);
            thread::sleep(RETENTION_PERIOD);
        }
    };
    if let Err(error) = thread::Builder::new().name("retention".into()).spawn(run) {
        warn!("nothing is pruned: cannot start a thread: {error}");
    }
}

fn say_ready(ready: &Ready) {
    match &ready.socket {
        Some(socket) => info!("listening at {}", socket.display()),
        None => info!("listening at the socket that was handed over"),
    }
    if let Some(address) = ready.listen {
        info!("listening at http://{address}, for clients with a token");
    }
    if ready.living > 0 {
        info!("found {} sandboxes alive", ready.living);
    }
    if ready.swept > 0 {
        info!("swept {} whose shim was dead", ready.swept);
    }
}

/// Sockets that the process that started us, such as systemd, has opened for us (sd_listen_fds(3)).
fn handed() -> Vec<OwnedFd> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if pid == std::process::id() => Inherited::take().only(count as usize),
        // A shell that happens to start us may have a lock or a pipe open, which must not stay ours.
        _ => Inherited::take().only(0),
    }
}

/// Where clients find a socket that was handed over.
fn path_of(socket: &OwnedFd) -> Option<PathBuf> {
    let listener = UnixListener::from(socket.try_clone().ok()?);
    listener.local_addr().ok()?.as_pathname().map(Path::to_path_buf)
}

/// What a shell that happens to start us said for itself is not for all sandboxes after it. Also, a connection is an open file, and
/// the usual limit is made for programs with few of them.
fn forget_the_shell() {
    for resource in [Resource::Nofile, Resource::Fsize, Resource::As, Resource::Data, Resource::Cpu] {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    umask(Mode::from_raw_mode(0o022));
    // It may be one already: what ends a terminal does not end us.
    let _ = setsid();
}

const RETENTION_PERIOD: Duration = Duration::from_secs(24 * 3600);

//! The daemon's run: its sockets, its connections and its end.
//!
//! ```text
//!   take the state directory ─> find what lives ─> listen ─> ready ─> serve ─┬─ SIGTERM, SIGINT
//!                                                             ^               ├─ quiet for long enough
//!                                 the socket's file is gone ──┘               v
//!                             no new connection, a while for those that are, the fleet puts itself in order
//! ```

use super::activity::Activity;
use super::backends::Backends;
use super::connection::{Connection, Used};
use super::executable::Executable;
use super::listen::Socket;
use super::rate::Rates;
use super::{AllowedHosts, Front, notify, openapi};
use crate::link::Link;
use axum::Router;
use axum::body::Body;
use belljar_api::State;
use belljar_api::client::Client;
use belljar_fleet::{Filter, Fleet, GrantStore, Owner, Shims};
use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::new_id;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, rt};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tower::Service;
use tracing::{error, info, warn};

/// How a daemon is to run.
#[derive(Default)]
pub struct Settings {
    /// Where sandboxes and grants are kept: `<state>/fleet`.
    pub directory: PathBuf,
    /// Its unix socket.
    pub socket: PathBuf,
    /// Sockets that were handed over instead.
    pub handed: Vec<OwnedFd>,
    /// Where it listens on the network.
    pub listen: Option<SocketAddr>,
    pub allowed_hosts: AllowedHosts,
    /// Ends when no sandbox lives and there was no request for that long.
    pub idle_exit: Option<Duration>,
    /// The longest file that may be sent, in bytes.
    pub max_upload: Option<u64>,
    /// How many sandboxes of each kind that is asked for are started ahead.
    pub warm: usize,
    /// The program that shims are, for tests; left out, they are copies of this one's zygote.
    pub program: Option<PathBuf>,
    /// Variables of shims, beside those of this process.
    pub shim_environment: Vec<(&'static str, String)>,
    /// How long the head of a request may take to come.
    pub time_limit: Option<Duration>,
    /// A client of this daemon itself. Without one it serves no MCP clients.
    pub own: Option<Client>,
}

/// A daemon that listens.
#[derive(Debug)]
pub struct Ready {
    /// None for one that was handed over.
    pub socket: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    /// How many sandboxes it found alive.
    pub living: usize,
    /// How many it swept.
    pub swept: usize,
}

/// Runs a daemon until it is to end. `ready` is told when it listens.
pub async fn serve(settings: Settings, ready: impl FnOnce(&Ready)) -> Result<(), SandboxError> {
    let mut ends = Ends::new()?;
    let link = Arc::new(match settings.program {
        Some(program) => Link::of_program(program, &settings.directory),
        None => Link::new(&settings.directory, settings.shim_environment),
    });
    link.prepare();
    let fleet_settings =
        belljar_fleet::Settings { warm: settings.warm, ..belljar_fleet::Settings::default() };
    let starts = fleet_settings.starts;
    let shims = Arc::clone(&link) as Arc<dyn Shims>;
    let fleet = Fleet::open(&settings.directory, shims, fleet_settings).await?;
    for (name, error) in fleet.unknown() {
        warn!("`{name}` is not understood, and left as it is: {error}");
    }
    let grants = GrantStore::open(&settings.directory);
    if let Some(damage) = grants.damage() {
        error!("no grant counts: {damage}");
    }
    crate::link::runs::clear(&settings.directory);
    let front = Arc::new(Front {
        grants,
        link,
        allowed_hosts: settings.allowed_hosts,
        began: SystemTime::now(),
        used: Used::default(),
        rates: Rates::default(),
        activity: Activity::new(),
        backends: Backends::default(),
        starts,
        max_upload: settings.max_upload,
        description: openapi::description().to_json().unwrap_or_default().into(),
        run: new_id()?.to_string(),
        requests: AtomicU64::new(0),
        fleet: fleet.clone(),
        mcp: super::mcp::Sessions::default(),
        own: settings.own,
    });
    let listener = match settings.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let (socket, path) = match settings.handed.into_iter().next() {
        Some(handed) => (Socket::handed(handed)?, None),
        None => (Socket::bind(&settings.socket)?, Some(settings.socket)),
    };
    // One that a person runs in a terminal ends when that person says so.
    let hands_over = settings.idle_exit.is_some() || path.is_none();
    let living = living(&fleet).await;
    let listens = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let swept = fleet.swept_at_start().swept.len();
    notify::say("READY=1");
    ready(&Ready { socket: path, listen: listens, living, swept });

    let (stop, stopped) = watch::channel(false);
    // Apart: strangers must not take the places of the person whose machine it is.
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
    let open_to_network = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
    let routes = Arc::clone(&front).routes();
    let time_limit = settings.time_limit.unwrap_or(TO_ASK);
    let listeners = Listeners { routes, stopped, open: Arc::clone(&open), time_limit };
    if let Some(listener) = listener {
        tokio::spawn(Listeners { open: Arc::clone(&open_to_network), ..listeners.clone() }.tcp(listener));
    }
    let unix = tokio::spawn(listeners.unix(socket));
    tokio::select! {
        () = ends.requested() => {}
        () = quiet(&front, &fleet, settings.idle_exit) => {}
        () = replaced(&front, hands_over) => info!("the executable was replaced: the next request starts the new one"),
    }
    notify::say("STOPPING=1");
    stop.send_replace(true);
    // Short requests are finished; what streams on is cut.
    let _ = tokio::time::timeout(LAST_WORDS, async {
        tokio::join!(open.acquire_many(MAX_CONNECTIONS), open_to_network.acquire_many(MAX_CONNECTIONS))
    })
    .await;
    let outcome = fleet.shutdown().await;
    if let Ok(socket) = unix.await {
        socket.remove();
    }
    outcome
}

/// Signals that end a daemon.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Ends {
    fn new() -> Result<Ends, SandboxError> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                ErrorCode::Internal.error(format!("cannot listen for signals: {error}")).caused_by(error)
            })
        };
        Ok(Ends { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ready when no sandbox lives and there was no request for so long; never, if there is no such time.
async fn quiet(front: &Front, fleet: &Fleet, idle_exit: Option<Duration>) {
    let Some(idle_exit) = idle_exit else { return std::future::pending().await };
    loop {
        let quiet = front.activity.quiet_for();
        match idle_exit.checked_sub(quiet) {
            Some(left) if !left.is_zero() => tokio::time::sleep(left.min(BETWEEN_LOOKS)).await,
            _ if living(fleet).await == 0 => return,
            _ => tokio::time::sleep(BETWEEN_LOOKS).await,
        }
    }
}

/// Ready when another file has the name of our executable and no request is under way: sandboxes are held by their shims, and the next
/// client starts the new daemon.
async fn replaced(front: &Front, hands_over: bool) {
    let executable = Executable::of_this_process().filter(|_| hands_over);
    let Some(executable) = executable else { return std::future::pending().await };
    while !executable.is_replaced() || front.activity.quiet_for() < QUIET_BEFORE_HANDOVER {
        tokio::time::sleep(BETWEEN_EXECUTABLE_LOOKS).await;
    }
}

async fn living(fleet: &Fleet) -> usize {
    let all = fleet.list(&Filter::default(), &Owner::default()).await;
    all.items.iter().filter(|sandbox| sandbox.state != State::Stopped).count()
}

async fn listen(address: SocketAddr) -> Result<TcpListener, SandboxError> {
    TcpListener::bind(address).await.map_err(|error| {
        ErrorCode::Internal
            .error(format!("cannot listen at {address}: {error}"))
            .hint(hint!("name another address with {}", CommandLine::ServeListen))
            .caused_by(error)
    })
}

/// Takes connections, and looks after each of them.
#[derive(Clone)]
struct Listeners {
    routes: Router,
    stopped: watch::Receiver<bool>,
    open: Arc<Semaphore>,
    time_limit: Duration,
}

impl Listeners {
    async fn tcp(mut self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stopped.changed() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    if let Ok(own) = stream.local_addr() {
                        self.attend(TokioIo::new(stream), Connection::tcp(own.ip())).await;
                    }
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    /// Until the daemon is to stop; then the socket is given back.
    async fn unix(mut self, mut socket: Socket) -> Socket {
        let mut look = tokio::time::interval(BETWEEN_LOOKS);
        loop {
            tokio::select! {
                accepted = socket.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let connection = Connection::unix(&stream);
                        self.attend(TokioIo::new(stream), connection).await;
                    }
                    // Too many open files, for the moment.
                    Err(_) => tokio::time::sleep(BREATH).await,
                },
                _ = look.tick() => {
                    if !socket.is_in_place() && let Some(again) = again(&socket) {
                        socket = again;
                    }
                }
                _ = self.stopped.changed() => return socket,
            }
        }
    }

    async fn attend<I>(&self, io: I, connection: Arc<Connection>)
    where
        I: rt::Read + rt::Write + Unpin + Send + 'static,
    {
        // More than this wait in the kernel's queue.
        let Ok(place) = Arc::clone(&self.open).acquire_owned().await else { return };
        let (routes, mut stopped) = (self.routes.clone(), self.stopped.clone());
        let time_limit = self.time_limit;
        tokio::spawn(async move {
            let _place = place;
            let known = Arc::clone(&connection);
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Arc::clone(&known));
                routes.clone().call(request.map(Body::new))
            });
            let mut served = std::pin::pin!(
                http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(time_limit)
                    .max_headers(MAX_HEADERS)
                    .max_buf_size(MAX_HEAD_BYTES)
                    .serve_connection(io, service)
                    .with_upgrades()
            );
            loop {
                tokio::select! {
                    // A client that hung up does not want an answer.
                    _ = served.as_mut() => return,
                    () = connection.closed() => return,
                    _ = stopped.changed() => served.as_mut().graceful_shutdown(),
                }
            }
        });
    }
}

/// The socket's file was removed: it is made again, unless another daemon has taken its place.
fn again(socket: &Socket) -> Option<Socket> {
    match socket.bind_again()? {
        Ok(socket) => {
            warn!("the socket was gone, and is there again");
            Some(socket)
        }
        Err(error) => {
            error!("{}", error.message);
            None
        }
    }
}

/// More than clients need, fewer than files can be open.
const MAX_CONNECTIONS: u32 = 4096;
const MAX_HEADERS: usize = 100;
/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A client that takes longer than this for a head does not want an answer.
const TO_ASK: Duration = Duration::from_secs(30);
/// How long requests may take to end when the daemon does.
const LAST_WORDS: Duration = Duration::from_secs(10);
const BETWEEN_EXECUTABLE_LOOKS: Duration = Duration::from_secs(1);
/// A command asks for several things, one after the other.
const QUIET_BEFORE_HANDOVER: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(50);

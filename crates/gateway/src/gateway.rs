//! The gateway's event loop: one thread for all sandboxes of a process.

use crate::connection_limits::DescriptorBudget;
use crate::credentials::Credentials;
use crate::egress_sockets::{EgressSockets, Open, ResolverSocket, Source};
use crate::fetch::{self, FetchError};
use crate::github::Tokens;
use crate::live::{LivePolicy, LiveRule};
use crate::llm::Route;
use crate::pushes::Pushes;
use crate::record::Recorder;
use crate::sandbox_ca::Authority;
use crate::serving::{Alive, Serving};
use crate::upstream_proxy::Proxy;
use crate::{connection, dns};
use belljar_spec::egress::EgressPolicy;
use belljar_spec::secret::{Credential, GitHubGrant};
use belljar_spec::{FetchRequest, FetchResponse};
use belljar_vault::{SecretError, SecretStore};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug_span};

/// Serves the sockets of sandboxes. It stops when it is dropped and no sandbox is served any more.
pub struct Gateway {
    event_loop: Handle,
    places: Arc<DescriptorBudget>,
    until: Arc<oneshot::Sender<()>>,
}

impl Gateway {
    /// Starts the event loop.
    pub fn start() -> io::Result<Gateway> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let event_loop = runtime.handle().clone();
        let (until, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name("gateway".into()).spawn(move || {
            // Never sent: it ends when the last sender is dropped.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Gateway { event_loop, places: Arc::new(DescriptorBudget::here()), until: Arc::new(until) })
    }

    /// Credentials for a sandbox, with every value read once and a token minted if it was granted one. `trust` is PEM
    /// of authorities beside the system's.
    pub fn credentials(
        &self,
        credentials: Vec<Credential>,
        github: Option<GitHubGrant>,
        store: Arc<dyn SecretStore>,
        trust: &[u8],
        proxy: Option<Arc<Proxy>>,
    ) -> Result<Credentials, SecretError> {
        let Some(grant) = github else { return Credentials::new(credentials, store) };
        let tokens = Tokens::new(grant, Arc::clone(&store), trust, proxy)?;
        self.wait_for(Credentials::with_app(credentials, store, tokens)).unwrap_or_else(|| {
            let message = "no token could be made: the gateway is gone".into();
            Err(SecretError { message, hint: "try again".into() })
        })
    }

    /// Gives back what was made for a sandbox that was never served.
    pub fn forget(&self, credentials: Arc<Credentials>) {
        if credentials.has_tokens() {
            let _ = self.wait_for(async move { credentials.end().await });
        }
    }

    /// Does something on the event loop, and waits for it.
    fn wait_for<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        wait_for(&self.event_loop, work)
    }

    /// Serves a sandbox's sockets on these terms.
    pub fn serve(&self, egress_sockets: EgressSockets, terms: Terms) -> io::Result<Served> {
        let route = terms.llm.clone();
        let (rules, ports) = (terms.rules.clone(), terms.ports.clone());
        let serving = Serving::new(&self.places, terms, egress_sockets.addresses(), egress_sockets.arrival());
        let live = LivePolicy::new(serving, rules, ports);
        let (alive, over) = channel();
        let open = {
            let _within = self.event_loop.enter();
            egress_sockets.open()?
        };
        let span = debug_span!("gateway");
        let task = self
            .event_loop
            .spawn(attend(open, Arc::clone(&live), route, alive).instrument(span))
            .abort_handle();
        Ok(Served {
            event_loop: self.event_loop.clone(),
            live,
            task,
            over: Mutex::new(over),
            stopped: watch::Sender::new(false),
            _until: Arc::clone(&self.until),
        })
    }
}

/// What a sandbox is served by.
pub struct Terms {
    /// What it may reach.
    pub policy: EgressPolicy,
    /// Who keeps its record.
    pub recorder: Arc<Recorder>,
    /// Its route to a model, if it has one.
    pub llm: Option<Arc<Route>>,
    /// The secrets it may use without holding them.
    pub credentials: Arc<Credentials>,
    /// Who signs for servers whose TLS is looked into; needed where [`crate::decide::needs_authority`] says so.
    pub authority: Option<Arc<Authority>>,
    /// What holds for pushes to git hosts, where requests are inspected.
    pub pushes: Option<Pushes>,
    /// The proxy that its policy names, with the credentials for it.
    pub proxy: Option<Arc<Proxy>>,
    /// Rules that were added while its processes of before lived.
    pub rules: Vec<LiveRule>,
    /// The ports that its kernel leads to the gateway, where these are not all.
    pub ports: Option<Vec<u16>>,
}

/// A sandbox that is being served. Dropped, its connections end.
pub struct Served {
    event_loop: Handle,
    live: Arc<LivePolicy>,
    task: AbortHandle,
    /// Receives nothing; it ends when every sender is dropped.
    over: Mutex<Receiver<()>>,
    stopped: watch::Sender<bool>,
    _until: Arc<oneshot::Sender<()>>,
}

impl Served {
    /// Fetches something for the sandbox, by its policy. It ends with the sandbox, and when its caller gives it up.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let serving = self.live.now();
        let mut stopped = self.stopped.subscribe();
        let gone = || FetchError::Failed("the sandbox is gone".into());
        let work = async move {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => Err(gone()),
                outcome = fetch::fetch(serving, request) => outcome,
            }
        };
        // A set of tasks aborts them when it is dropped; a task by itself would keep running.
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.event_loop);
        match task.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None => Err(gone()),
        }
    }

    /// Its policy, which can change while it is served.
    pub fn policy(&self) -> &Arc<LivePolicy> {
        &self.live
    }

    /// Does something on the event loop that serves it, until the handle is aborted.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.event_loop.spawn(work).abort_handle()
    }

    /// The event loop that serves it.
    pub fn event_loop(&self) -> &Handle {
        &self.event_loop
    }

    /// Whether there are connections.
    pub fn is_busy(&self) -> bool {
        self.live.now().connections() > 0
    }

    /// Ends every connection, and waits for their last words in the record. Doing it twice is fine.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
        // Asked first: a place is free again before everything that belonged to it has said its last.
        let busy = self.is_busy();
        self.task.abort();
        if busy {
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = over.recv_timeout(LAST_WORDS);
        }
        // After the last request that could use it, and before the record ends.
        let serving = self.live.now();
        if serving.credentials.has_tokens() {
            let _ = wait_for(&self.event_loop, async move { serving.credentials.end().await });
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn wait_for<T: Send + 'static>(
    event_loop: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (done, outcome) = channel();
    event_loop.spawn(async move {
        let _ = done.send(work.await);
    });
    outcome.recv_timeout(EVENT_LOOP_TIMEOUT).ok()
}

/// Serves until it is aborted. `alive` is dropped with the last connection.
async fn attend(open: Open, live: Arc<LivePolicy>, route: Option<Arc<Route>>, alive: Alive) {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&live).keep_time());
    for socket in open.resolvers {
        match socket {
            ResolverSocket::Datagrams(socket) => {
                tasks.spawn(dns::serve::over_udp(socket, Arc::clone(&live)).in_current_span());
            }
            ResolverSocket::Relayed(source) => {
                let live = Arc::clone(&live);
                let relay = move |stream| dns::serve::relayed(stream, Arc::clone(&live));
                tasks.spawn(attend_latest(source, relay).in_current_span());
            }
        }
    }
    for listener in open.listeners {
        let (live, alive) = (Arc::clone(&live), alive.clone());
        let serve =
            move |stream, dialled| connection::serve(stream, dialled, Arc::clone(&live), alive.clone());
        tasks.spawn(accept(listener, serve).in_current_span());
    }
    for (listener, route) in open.routes.into_iter().zip(std::iter::repeat(route).flatten()) {
        let (live, alive) = (Arc::clone(&live), alive.clone());
        let serve = move |stream, _| Arc::clone(&route).serve(stream, live.now(), alive.clone());
        tasks.spawn(accept(listener, serve).in_current_span());
    }
    drop(alive);
    while tasks.join_next().await.is_some() {}
}

/// Serves one connection, the latest. An honest guest asks for names on one at a time; more would only be held open, and no
/// limit counts them.
async fn attend_latest<F>(source: Source, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut latest = JoinSet::new();
    loop {
        match source.next().await {
            Ok((stream, _)) => {
                latest.shutdown().await;
                latest.spawn(serve(stream).in_current_span());
            }
            Err(_) => sleep(ACCEPT_RETRY_INTERVAL).await,
        }
    }
}

async fn accept<F>(source: Source, serve: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    // While there are connections, a timer is always due soon: one that is set for earlier than every other makes the
    // event loop wake itself, which would be a system call for each connection.
    let mut soon = pin!(sleep(SOON));
    loop {
        tokio::select! {
            () = &mut soon, if !connections.is_empty() => soon.as_mut().reset(Instant::now() + SOON),
            accepted = source.next() => match accepted {
                Ok((stream, dialled)) => {
                    connections.spawn(serve(stream, dialled).in_current_span());
                }
                // Too many open files, or a connection that was gone again: neither ends the sandbox's network.
                Err(_) => sleep(ACCEPT_RETRY_INTERVAL).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Whatever is waited for has a shorter time of its own; an event loop that takes longer is stuck.
const EVENT_LOOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Sooner than any limit of a connection.
const SOON: Duration = Duration::from_secs(1);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Connections that are aborted write their last record; an event loop that cannot do that in this time is stuck.
const LAST_WORDS: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_sys::arrivals;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, UnixStream};

    #[tokio::test]
    async fn of_many_connections_that_ask_for_names_only_the_latest_is_held() {
        let (place, arriving) = arrivals::pair().expect("a place");
        let source = Source::Arrivals(UnixStream::from_std(arriving.into()).expect("usable"));
        let echo = |mut stream: TcpStream| async move {
            while let Ok(byte) = stream.read_u8().await {
                let _ = stream.write_u8(byte).await;
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(attend_latest(source, echo));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut held = Vec::new();
        for number in 0..100 {
            let mut ours = TcpStream::connect(address).await.expect("a connection");
            let (theirs, _) = listener.accept().await.expect("a connection");
            arrivals::put(&place, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53), &theirs)
                .expect("there is room");
            drop(theirs);
            ours.write_u8(number).await.expect("written");
            assert_eq!(ours.read_u8().await.expect("it is served"), number);
            held.push(ours);
        }
        held.pop();
        for mut earlier in held {
            earlier.read_u8().await.expect_err("it was let go");
        }
    }
}

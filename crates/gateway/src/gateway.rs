//! The gateway's event loop: one thread for all sandboxes of a process.

use crate::fetch::{self, FetchError, FetchRequest, FetchResponse};
use crate::intake::{Intake, Open};
use crate::places::Places;
use crate::record::Recorder;
use crate::serving::{Alive, Serving};
use crate::{connection, dns};
use belljar_spec::egress::EgressPolicy;
use std::io;
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

/// Serves the sockets of sandboxes. It stops when it is dropped and nobody is served any more.
pub struct Gateway {
    event_loop: Handle,
    places: Arc<Places>,
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
        Ok(Gateway { event_loop, places: Arc::new(Places::here()), until: Arc::new(until) })
    }

    /// Serves a sandbox's sockets by this policy.
    pub fn serve(&self, intake: Intake, policy: EgressPolicy, recorder: Arc<Recorder>) -> io::Result<Served> {
        let serving = Arc::new(Serving::new(&self.places, policy, intake.families(), recorder));
        let (alive, over) = channel();
        let open = {
            let _within = self.event_loop.enter();
            intake.open()?
        };
        let task = self.event_loop.spawn(attend(open, Arc::clone(&serving), alive)).abort_handle();
        Ok(Served {
            event_loop: self.event_loop.clone(),
            serving,
            task,
            over: Mutex::new(over),
            stopped: watch::Sender::new(false),
            _until: Arc::clone(&self.until),
        })
    }
}

/// A sandbox that is being served. Dropped, its connections end.
pub struct Served {
    event_loop: Handle,
    serving: Arc<Serving>,
    task: AbortHandle,
    /// Nothing comes of it, until there is nobody left to send.
    over: Mutex<Receiver<()>>,
    stopped: watch::Sender<bool>,
    _until: Arc<oneshot::Sender<()>>,
}

impl Served {
    /// Fetches something for the sandbox, by its policy. It ends with the sandbox, and when its caller gives it up.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let serving = Arc::clone(&self.serving);
        let mut stopped = self.stopped.subscribe();
        let gone = || FetchError::Failed("the sandbox is gone".into());
        let work = async move {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => Err(gone()),
                outcome = fetch::fetch(serving, request) => outcome,
            }
        };
        // A set of tasks aborts them when it is dropped; a task by itself would go on.
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.event_loop);
        match task.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None => Err(gone()),
        }
    }

    /// Whether there are connections.
    pub fn is_busy(&self) -> bool {
        self.serving.connections() > 0
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
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves until it is aborted. `alive` is dropped with the last connection.
async fn attend(open: Open, serving: Arc<Serving>, alive: Alive) {
    let mut tasks = JoinSet::new();
    for socket in open.resolvers {
        tasks.spawn(dns::serve::over_udp(socket, Arc::clone(&serving)));
    }
    for listener in open.listeners {
        tasks.spawn(accept(listener, Arc::clone(&serving), alive.clone()));
    }
    drop(alive);
    while tasks.join_next().await.is_some() {}
}

async fn accept(listener: TcpListener, serving: Arc<Serving>, alive: Alive) {
    let mut connections = JoinSet::new();
    // While there are connections, a timer is always due soon: one that is set for earlier than every other makes the
    // event loop wake itself, which would be a system call for each connection.
    let mut soon = pin!(sleep(SOON));
    loop {
        tokio::select! {
            () = &mut soon, if !connections.is_empty() => soon.as_mut().reset(Instant::now() + SOON),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (serving, alive) = (Arc::clone(&serving), alive.clone());
                    connections.spawn(connection::serve(stream, serving, alive));
                }
                // Too many open files, or a connection that was gone again: neither ends the sandbox's network.
                Err(_) => sleep(A_MOMENT).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Sooner than any limit of a connection.
const SOON: Duration = Duration::from_secs(1);
const A_MOMENT: Duration = Duration::from_millis(10);
/// Connections that are aborted write their last record; an event loop that cannot do that in this time is stuck.
const LAST_WORDS: Duration = Duration::from_secs(2);

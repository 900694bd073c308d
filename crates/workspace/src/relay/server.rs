//! Accepts connections and dispatches their requests.

use super::connection_slots::ConnectionSlots;
use super::line::Line;
use super::{RelayEvent, receive, upload};
use crate::inert::Leash;
use crate::quarantine::{HostRepository, QuarantineError, sweep};
use belljar_git::daemon::{self, Service};
use belljar_git::pkt;
use belljar_spec::git::RefPolicy;
use belljar_sys::arrivals;
use belljar_sys::rustix::event::{PollFd, PollFlags, poll};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The served repository and the rules for it.
pub struct RelayTerms {
    pub repository: HostRepository,
    pub policy: RefPolicy,
    /// Where quarantines are made: belljar's state directory.
    pub state: PathBuf,
    /// How long a fully received push may take to land when the relay ends; usually [`LANDING`].
    pub landing: Duration,
    /// The leash of every git for the sandbox; shared with all other work for it.
    pub leash: Leash,
    /// Called with every event, from several threads.
    pub note: Box<dyn Fn(RelayEvent) + Send + Sync>,
}

/// A running relay. On drop it accepts no more connections, aborts incomplete pushes, and waits for complete ones, but not for
/// ever.
#[derive(Debug)]
pub struct Relay {
    stop: Option<io::PipeWriter>,
    stopped: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
    /// Never receives a value; its other end is dropped with the last connection.
    ended: Receiver<Infallible>,
    landing: Duration,
    leash: Leash,
}

impl Relay {
    /// Serves these sockets, which already listen, or over which another process passes accepted connections. First sweeps the
    /// leftovers of an earlier relay that was killed.
    pub fn serve(listeners: Vec<OwnedFd>, mut terms: RelayTerms) -> Result<Relay, QuarantineError> {
        sweep(&terms.state)?;
        let (landing, leash) = (terms.landing, terms.leash.clone());
        terms.repository = terms.repository.on_leash(&leash);
        let state = terms.state.clone();
        let failed = || QuarantineError::file("serve a repository with quarantines in", &state);
        let (stopping, stop) = io::pipe().map_err(failed())?;
        let listeners: Vec<Source> =
            listeners.into_iter().map(Source::new).collect::<io::Result<_>>().map_err(failed())?;
        let stopped = Arc::new(AtomicBool::new(false));
        let acceptor = Acceptor {
            listeners,
            terms: Arc::new(Terms { terms, turn: Mutex::new(0) }),
            stop: Arc::new(OwnedFd::from(stopping)),
            stopped: stopped.clone(),
            places: Arc::default(),
        };
        let thread = thread::Builder::new().name("git-relay".to_string());
        let (ending, ended) = channel();
        let run = move || {
            acceptor.run();
            drop::<Sender<Infallible>>(ending);
        };
        let acceptor = thread.spawn(run).map_err(failed())?;
        Ok(Relay { stop: Some(stop), stopped, acceptor: Some(acceptor), ended, landing, leash })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // All waiting threads see this pipe close.
        drop(self.stop.take());
        if self.ended.recv_timeout(self.landing) == Err(RecvTimeoutError::Timeout) {
            self.leash.cut();
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// The terms as connections share them.
pub(super) struct Terms {
    terms: RelayTerms,
    /// One push at a time, so that the cost of unpacking is bounded by one push. The value is the disk space that all pushes so far
    /// have taken on the host.
    turn: Mutex<u64>,
}

impl Terms {
    /// Whether the sandbox is gone and the time limit for landing is over.
    pub(super) fn is_too_late(&self) -> bool {
        self.terms.leash.is_cut()
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, u64> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, event: RelayEvent) {
        (self.terms.note)(event);
    }
}

impl std::ops::Deref for Terms {
    type Target = RelayTerms;

    fn deref(&self) -> &RelayTerms {
        &self.terms
    }
}

struct Acceptor {
    listeners: Vec<Source>,
    terms: Arc<Terms>,
    stop: Arc<OwnedFd>,
    stopped: Arc<AtomicBool>,
    places: Arc<ConnectionSlots>,
}

impl Acceptor {
    fn run(self) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !self.stopped.load(Ordering::Acquire) {
            // If all slots are taken, a new connection waits in the kernel's queue, as long as its client likes.
            if self.places.wait_for_one(PAUSE) {
                threads.retain(|thread| !thread.is_finished());
                threads.extend(self.next().and_then(|socket| self.start(socket)));
            }
        }
        drop(self.listeners);
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// The next connection; `None` if there is none.
    fn next(&self) -> Option<TcpStream> {
        let mut files = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        files.extend(self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let _ = poll(&mut files, None);
        let ready = self.listeners.iter().zip(&files[1..]).find(|(_, file)| !file.revents().is_empty());
        let (listener, _) = ready?;
        match listener.accept() {
            Ok(socket) => Some(socket),
            Err(_) => {
                // Out of descriptors, or an aborted connection: pause, so as not to loop at full speed.
                thread::sleep(PAUSE);
                None
            }
        }
    }

    fn start(&self, socket: TcpStream) -> Option<JoinHandle<()>> {
        let line = Line::new(socket, self.stop.clone(), MAX_CONNECTION_TIME).ok()?;
        let terms = self.terms.clone();
        let place = ConnectionSlots::take(&self.places);
        let thread = thread::Builder::new().name("git-relay-one".to_string());
        let started = thread.spawn(move || {
            one(&line, &terms);
            drop(place);
        });
        started.ok()
    }
}

/// The source of connections.
enum Source {
    Listener(TcpListener),
    Arrivals(OwnedFd),
}

impl Source {
    fn new(socket: OwnedFd) -> io::Result<Source> {
        if arrivals::is_place(&socket) {
            return Ok(Source::Arrivals(socket));
        }
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Source::Listener(listener))
    }

    fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Source::Listener(listener) => listener.accept().map(|(socket, _)| socket),
            Source::Arrivals(place) => {
                let (_, socket) = arrivals::take(place)?.ok_or(ErrorKind::UnexpectedEof)?;
                Ok(TcpStream::from(socket))
            }
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Listener(listener) => listener.as_fd(),
            Source::Arrivals(place) => place.as_fd(),
        }
    }
}

/// One connection, from its first line.
fn one(line: &Line, terms: &Terms) {
    let refuse = |why: String| {
        let _ = line.write(&pkt::data(format!("ERR {why}").as_bytes()));
        line.finish(REFUSED);
        terms.note(RelayEvent::Unserved { why });
    };
    let request = match line.packet(FIRST_LINE) {
        Ok(data) => daemon::parse(&data).map_err(|error| error.to_string()),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(error.to_string()),
        // The client is gone, and can be sent no reason.
        Err(_) => return line.cut(),
    };
    match request {
        Err(why) => refuse(why),
        Ok(request) if request.path != PATH => refuse(format!("there is one repository here, `{PATH}`")),
        Ok(request) => match request.service {
            Service::UploadPack => upload::serve(line, terms),
            Service::ReceivePack => receive::serve(line, terms, request.version),
        },
    }
}

/// Time limit for a fully received push to land after its sandbox has ended. An honest push of the largest size takes less; the
/// user waits for it at a prompt.
pub const LANDING: Duration = Duration::from_secs(30);
/// The repository's path: there is only one.
const PATH: &str = "/repo";
/// Time limit of a connection: a clone of a large repository onto a slow disk.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(30 * 60);
/// git writes the first line before it waits for anything.
const FIRST_LINE: Duration = Duration::from_secs(10);
/// How much of a refused request is read before the connection is closed.
const REFUSED: u64 = 64 * 1024;
const PAUSE: Duration = Duration::from_millis(100);

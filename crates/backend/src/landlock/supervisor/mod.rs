//! The supervisor of a sandbox without namespaces: it answers the system calls that its filter tells it, from outside of it.
//!
//! ```text
//! program: socket()  -> we make it, tied to the loopback device, and keep it too       (tcp, unix; table)
//!          connect() -> we connect what we kept, to our own listener; the gateway gets (tcp)
//!                       the other end, with the address that was dialled
//!          UDP       -> an end of a pair, on which no address means anything           (names)
//!          chmod()   -> we open it, judge the descriptor, and change it                (attributes)
//! ```
//!
//! The kernel carries out no call of a program that names an address or a path. Threads take turns in asking for the next call, so one
//! that waits keeps no other from being answered. When the last of this is dropped, the listener is closed, and every call that would
//! have been told to it fails with `ENOSYS`: a sandbox without its supervisor has no network, and never one without rules.

mod attributes;
mod caller;
pub(crate) mod judge;
mod names;
mod signals;
mod table;
mod tcp;
mod unix;

use crate::Dial;
use belljar_sys::arrivals;
use belljar_sys::notify::{self, Answer};
use belljar_sys::rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{CWD, Stat, readlinkat};
use belljar_sys::rustix::io::{Errno, write};
use belljar_sys::rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};
use belljar_sys::rustix::process::{Resource, Rlimit, getegid, geteuid, getrlimit, setrlimit};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use belljar_wire::message::{Caught, EgressReport, EgressSetup, Families};
use caller::Caller;
use judge::{Address, Call, MAX_ADDRESS, Network, NewSocket, Pointer};
use names::Pairs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use table::Table;
use tcp::Outcome;
use unix::OwnSockets;

/// A supervisor at work. Dropped, it ends.
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
}

/// What all its threads use.
struct Shared {
    listener: OwnedFd,
    network: Network,
    /// Where our own connections arrive: at the sandbox's address.
    gate: OwnedFd,
    gate_address: SocketAddrV4,
    /// One dial at a time.
    dialling: Mutex<()>,
    /// One number of the window is given at a time.
    numbering: Mutex<()>,
    places: Places,
    table: Table,
    pairs: Pairs,
    own_sockets: OwnSockets,
    /// Real paths below which the sandbox may write.
    writable: Vec<PathBuf>,
    user: u32,
    group: u32,
    /// The process above the guest.
    holder: i32,
    /// Calls that wait in a thread of their own.
    waiting: AtomicUsize,
    turn: Mutex<()>,
    /// Readable when it is over.
    over: OwnedFd,
}

/// Where connections are put for the gateway.
#[derive(Default)]
struct Places {
    connections: Option<OwnedFd>,
    names: Option<OwnedFd>,
    routes: Vec<(u16, OwnedFd)>,
}

/// What a supervisor is to hold to.
pub(crate) struct Terms<'t> {
    pub(crate) egress: Option<&'t EgressSetup>,
    /// Real paths below which the sandbox may write.
    pub(crate) writable: Vec<PathBuf>,
    /// The process above the guest.
    pub(crate) holder: i32,
}

impl Supervisor {
    /// Starts to answer. Gives the egress sockets too, at which the gateway takes connections.
    pub(crate) fn start(
        listener: OwnedFd,
        terms: Terms<'_>,
    ) -> Result<(Supervisor, Option<(EgressReport, Vec<OwnedFd>)>), Errno> {
        make_room();
        // A kernel that cannot has slower answers.
        let _ = notify::take_turns(&listener);
        let (places, ends) = Places::make(terms.egress)?;
        let (gate, gate_address) = gate()?;
        let network = Network {
            own: *gate_address.ip(),
            routes: places.routes.iter().map(|(port, _)| *port).collect(),
            has_names: places.connections.is_some(),
        };
        let shared = Arc::new(Shared {
            listener,
            network,
            gate,
            gate_address,
            dialling: Mutex::default(),
            numbering: Mutex::default(),
            places,
            table: Table::new(),
            pairs: Pairs::new()?,
            own_sockets: OwnSockets::default(),
            writable: terms.writable,
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            holder: terms.holder,
            waiting: AtomicUsize::new(0),
            turn: Mutex::default(),
            over: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let supervisor = Supervisor { shared: Arc::clone(&shared) };
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            start_thread(move || shared.serve())?;
        }
        let names = Arc::downgrade(&shared);
        start_thread(move || names::serve(&names))?;
        Ok((supervisor, ends))
    }

    /// Connects to servers of the sandbox's own.
    pub(crate) fn dial(&self) -> Dial {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move |port| {
            let shared = shared.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
            shared.connect_from_outside(port)
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = write(&self.shared.over, &1u64.to_ne_bytes());
        self.shared.pairs.wake();
    }
}

impl Places {
    /// The other ends are in the order of a report: connections, names, each of the routes.
    fn make(egress: Option<&EgressSetup>) -> Result<(Places, Option<(EgressReport, Vec<OwnedFd>)>), Errno> {
        let mut places = Places::default();
        let Some(egress) = egress else { return Ok((places, None)) };
        let mut ends = Vec::new();
        if egress.catch.is_some() {
            let ((connections, one), (names, other)) = (arrivals::pair()?, arrivals::pair()?);
            places.connections = Some(connections);
            places.names = Some(names);
            ends.extend([one, other]);
        }
        for port in &egress.routes {
            let (place, end) = arrivals::pair()?;
            places.routes.push((*port, place));
            ends.push(end);
        }
        let is_caught = egress.catch.is_some();
        let report = EgressReport {
            families: Families::Ipv4,
            caught: if is_caught { Caught::EveryPort } else { Caught::Nothing },
            listeners: u16::from(is_caught),
            routes: vec![1; egress.routes.len()],
        };
        Ok((places, Some((report, ends))))
    }
}

/// A listener at an address of 127.0.0.0/8 that no other sandbox has, as far as chance goes: below those of names.
fn gate() -> Result<(OwnedFd, SocketAddrV4), Errno> {
    let mut random = [0; 3];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    let [a, b, c] = random;
    let address = Ipv4Addr::new(127, 1 + a % 126, b, 1 + c % 254);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddr::new(address.into(), 0))?;
    listen(&socket, BACKLOG)?;
    match SocketAddr::try_from(getsockname(&socket)?)? {
        SocketAddr::V4(bound) => Ok((socket, bound)),
        SocketAddr::V6(_) => Err(Errno::AFNOSUPPORT),
    }
}

/// What is kept for programs are open files of ours, and most systems begin with few. Commands have a limit of their own.
fn make_room() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let thread = thread::Builder::new().name("supervisor".into()).stack_size(STACK).spawn(work);
    thread.map(drop).map_err(|_| Errno::AGAIN)
}

impl Shared {
    /// Answers calls until it is over, or no process is left that could make one.
    fn serve(self: &Arc<Shared>) {
        loop {
            let waiting = {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let mut ready =
                    [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.over, PollFlags::IN)];
                match poll(&mut ready, None) {
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) => {}
                }
                let [listener, over] = ready.map(|fd| fd.revents());
                if !over.is_empty()
                    || (listener.contains(PollFlags::HUP) && !listener.contains(PollFlags::IN))
                {
                    return;
                }
                notify::receive(&self.listener)
            };
            match waiting {
                Ok(waiting) => {
                    // A call that could not be answered must not leave its caller waiting.
                    if catch_unwind(AssertUnwindSafe(|| self.attend(&waiting))).is_err() {
                        Caller::new(&self.listener, waiting.id, waiting.thread)
                            .answer(Answer::Error(Errno::IO));
                    }
                }
                // The caller was killed.
                Err(Errno::NOENT) => {}
                Err(_) => return,
            }
        }
    }

    fn is_over(&self) -> bool {
        let mut ready = [PollFd::new(&self.over, PollFlags::IN)];
        poll(&mut ready, Some(&belljar_sys::rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
            .is_ok_and(|ready| ready > 0)
    }

    /// Answers one call.
    fn attend(self: &Arc<Shared>, waiting: &notify::Waiting) {
        let caller = Caller::new(&self.listener, waiting.id, waiting.thread);
        let outcome = match Call::of(waiting) {
            Call::Socket(Ok(kind), flags) => {
                let given = match kind {
                    NewSocket::Udp { ipv6 } => names::give_end(self, &caller, ipv6, flags),
                    NewSocket::Tcp { .. } | NewSocket::Unix { .. } => {
                        tcp::give_socket(self, &caller, kind, flags)
                    }
                };
                match given {
                    // The descriptor was the answer.
                    Ok(()) => return,
                    Err(errno) => Ok(Outcome::Now(Answer::Error(errno))),
                }
            }
            Call::Socket(Err(errno), _) => Err(errno),
            Call::Connect { socket, address, length } => self.connect(&caller, socket, address, length),
            Call::Bind { socket, address, length } => self.bind(&caller, socket, address, length).map(done),
            Call::Listen { socket, backlog } => self.listen(&caller, socket, backlog).map(done),
            Call::Send { socket, to } => match self.pair(&caller, socket) {
                Ok(Some(pair)) => names::send_to(self, &caller, &pair, to).map(Outcome::Now),
                // Another descriptor with a number of the window: no socket inside can use an address.
                Ok(None) => Ok(Outcome::Now(Answer::Continue)),
                Err(errno) => Err(errno),
            },
            Call::Receive { socket, into, flags } => match self.pair(&caller, socket) {
                Ok(Some(pair)) => Ok(names::receive(self, waiting.id, waiting.thread, pair, into, flags)),
                Ok(None) => Ok(Outcome::Now(Answer::Continue)),
                Err(errno) => Err(errno),
            },
            Call::SocketName { socket, of, address, length } => match self.pair(&caller, socket) {
                Ok(Some(pair)) => names::name_of(&caller, &pair, of, address, length).map(done),
                Ok(None) => Ok(Outcome::Now(Answer::Continue)),
                Err(errno) => Err(errno),
            },
            Call::Change { of, to } => attributes::change(self, &caller, of, to).map(done),
            Call::Signal { to } => signals::send(self, &caller, to).map(Outcome::Now),
            Call::Unknown => Err(Errno::NOSYS),
        };
        match outcome.unwrap_or_else(|errno| Outcome::Now(Answer::Error(errno))) {
            Outcome::Now(answer) => caller.answer(answer),
            Outcome::Later(work) => {
                if let Err(errno) = self.later(waiting.id, waiting.thread, work) {
                    caller.answer(Answer::Error(errno));
                }
            }
        }
    }

    fn connect(
        self: &Arc<Shared>,
        caller: &Caller<'_>,
        socket: i32,
        address: Pointer,
        length: u32,
    ) -> Result<Outcome, Errno> {
        let number = caller.socket(socket)?;
        let address = self.address(caller, address, length)?;
        if let Some(pair) = self.pairs.find(number) {
            return names::connect_to(self, &pair, &address).map(done);
        }
        // It was let go: it is connected, listens, or came by accept(2).
        let kept = self.table.take(number).ok_or(Errno::ISCONN)?;
        Ok(match kept.kind {
            NewSocket::Tcp { ipv6 } => tcp::connect_to(self, number, kept, ipv6, &address),
            NewSocket::Unix { .. } => unix::connect_to(self, caller, number, kept, &address),
            NewSocket::Udp { .. } => Outcome::Now(Answer::Error(Errno::OPNOTSUPP)),
        })
    }

    fn bind(&self, caller: &Caller<'_>, socket: i32, address: Pointer, length: u32) -> Result<(), Errno> {
        let link = caller.socket(socket)?;
        if self.pairs.find(link).is_some() {
            return Ok(());
        }
        let Some(mut kept) = self.table.take(link) else {
            // Of an interface's list: netlink(7) lets a program choose its number, and there is nothing else to choose.
            return Err(Errno::INVAL);
        };
        let outcome = self.address(caller, address, length).and_then(|address| match kept.kind {
            NewSocket::Tcp { ipv6 } => tcp::bind_to(self, &mut kept, ipv6, &address),
            NewSocket::Unix { .. } => unix::bind_to(self, caller, &mut kept, &address),
            NewSocket::Udp { .. } => Err(Errno::OPNOTSUPP),
        });
        self.table.put_back(link, kept);
        outcome
    }

    fn listen(&self, caller: &Caller<'_>, socket: i32, backlog: i32) -> Result<(), Errno> {
        let number = caller.socket(socket)?;
        let Some(mut kept) = self.table.take(number) else {
            return if self.table.is_listening(number) { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        };
        let outcome = match kept.kind {
            NewSocket::Tcp { ipv6 } => tcp::listen_at(self, number, &mut kept, ipv6, backlog),
            NewSocket::Unix { .. } => unix::listen_at(&kept, backlog),
            NewSocket::Udp { .. } => Err(Errno::OPNOTSUPP),
        };
        if outcome.is_err() {
            self.table.put_back(number, kept);
        }
        outcome
    }

    /// The address that a call names.
    fn address(&self, caller: &Caller<'_>, address: Pointer, length: u32) -> Result<Address, Errno> {
        if length > MAX_ADDRESS {
            return Err(Errno::INVAL);
        }
        Address::parse(&caller.read(address, length as usize)?)
    }

    /// The pair that a descriptor is an end of.
    fn pair(&self, caller: &Caller<'_>, socket: i32) -> Result<Option<Arc<names::Pair>>, Errno> {
        match caller.socket(socket) {
            Ok(number) => Ok(self.pairs.find(number)),
            Err(Errno::NOTSOCK | Errno::BADF) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a file lies below a place that the sandbox may write, by the name that the kernel has for it. One in memory has no
    /// place, and is the program's own.
    fn is_writable(&self, file: &OwnedFd) -> Result<bool, Errno> {
        let name = readlinkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_path_buf();
        Ok(self.writable.iter().any(|writable| name.starts_with(writable)))
    }

    /// We may have powers that programs inside do not have: only what is the sandbox user's is changed for them.
    fn must_own(&self, found: &Stat) -> Result<(), Errno> {
        if found.st_uid == self.user { Ok(()) } else { Err(Errno::PERM) }
    }
}

fn done((): ()) -> Outcome {
    Outcome::Now(Answer::Value(0))
}

/// Calls that are answered at once. What may take long has a thread of its own.
const THREADS: usize = 4;
const STACK: usize = 256 * 1024;
const BACKLOG: i32 = 4096;

//! What stands for UDP: one end of a pair of local sockets, on which the kernel ignores every address. What a program sends comes to us
//! as one packet, wherever it meant to send it; questions for names go to the gateway, and everything else nowhere.
//!
//! Ends get numbers of a window that the filter knows, so that calls in which an address matters to the program (it wants to know
//! where an answer came from) are told to us. Outside of the window an end is as harmless, and works less well.

use super::Shared;
use super::caller::Caller;
use super::judge::{Address, Flags, MAX_ADDRESS, NameOf, Pointer, ReceivedInto, SentTo, sockaddr};
use super::table::{Sweeps, held_by_programs, inode};
use super::tcp::Outcome;
use belljar_sys::arrivals;
use belljar_sys::notify::{Answer, Place};
use belljar_sys::rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use belljar_sys::rustix::fd::{AsFd, OwnedFd};
use belljar_sys::rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use belljar_sys::rustix::io::{Errno, read, write};
use belljar_sys::rustix::net::sockopt::{Timeout, socket_timeout};
use belljar_sys::rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use belljar_wire::message::WINDOWS;
use belljar_wire::pump::tcp_pair;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A pair.
pub(super) struct Pair {
    /// What programs send arrives here.
    outer: OwnedFd,
    /// The program's end, too.
    inner: OwnedFd,
    ipv6: bool,
    peers: Mutex<Peers>,
    /// A program has its end: before, no look at descriptors finds it.
    has_arrived: AtomicBool,
}

/// Whom a program thinks it talks to.
#[derive(Default, Clone, Copy)]
struct Peers {
    connected: Option<SocketAddr>,
    asked: Option<SocketAddr>,
}

impl Pair {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the next answer seems to come from.
    fn answering(&self) -> SocketAddr {
        let peers = *self.peers();
        peers.asked.or(peers.connected).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DNS)))
    }
}

/// All pairs.
pub(super) struct Pairs {
    pairs: Mutex<HashMap<u64, Arc<Pair>>>,
    sweeps: Mutex<Sweeps>,
    /// Readable when there is a new one, or an end to it all.
    changed: OwnedFd,
}

impl Pairs {
    pub(super) fn new() -> Result<Pairs, Errno> {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Pairs { pairs: Mutex::default(), sweeps: Mutex::default(), changed })
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<u64, Arc<Pair>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, number: u64) -> Option<Arc<Pair>> {
        self.pairs().get(&number).cloned()
    }

    /// Nothing more comes of it.
    fn let_go(&self, over: &Arc<Pair>) {
        self.pairs().retain(|_, pair| !Arc::ptr_eq(pair, over));
    }

    /// Has the thread that answers look again.
    pub(super) fn wake(&self) {
        let _ = write(&self.changed, &1u64.to_ne_bytes());
    }

    fn keep(&self, number: u64, pair: Arc<Pair>) -> Result<(), Errno> {
        let mut pairs = self.pairs();
        let mut sweeps = self.sweeps.lock().unwrap_or_else(PoisonError::into_inner);
        if sweeps.is_due(pairs.len(), MAX_PAIRS) {
            let held = held_by_programs();
            pairs.retain(|number, pair| held.contains(number) || !pair.has_arrived.load(Ordering::SeqCst));
            sweeps.done(pairs.len());
        }
        if pairs.len() >= MAX_PAIRS {
            return Err(Errno::NFILE);
        }
        pairs.insert(number, pair);
        drop(pairs);
        self.wake();
        Ok(())
    }
}

/// Gives the caller an end of a new pair.
pub(super) fn give_end(shared: &Shared, caller: &Caller<'_>, ipv6: bool, flags: Flags) -> Result<(), Errno> {
    let (outer, inner) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    fcntl_setfl(&outer, fcntl_getfl(&outer)? | OFlags::NONBLOCK)?;
    if flags.non_blocking {
        fcntl_setfl(&inner, fcntl_getfl(&inner)? | OFlags::NONBLOCK)?;
    }
    let number = inode(&inner)?;
    let pair =
        Arc::new(Pair { outer, inner, ipv6, peers: Mutex::default(), has_arrived: AtomicBool::new(false) });
    shared.pairs.keep(number, Arc::clone(&pair))?;
    // Of two threads that look for a number at once the second would close the first one's.
    let _one = shared.numbering.lock().unwrap_or_else(PoisonError::into_inner);
    let place = free_number(caller).map_or(Place::Lowest, Place::At);
    let given = match caller.answer_with(&pair.inner, place, flags.close_on_exec) {
        // A lower limit on open files than the window.
        Err(Errno::BADF | Errno::MFILE | Errno::INVAL) if place != Place::Lowest => {
            caller.answer_with(&pair.inner, Place::Lowest, flags.close_on_exec)
        }
        other => other,
    };
    match given {
        Ok(()) => pair.has_arrived.store(true, Ordering::SeqCst),
        Err(_) => drop(shared.pairs.pairs().remove(&number)),
    }
    given
}

/// A number of the window that the caller has not in use.
fn free_number(caller: &Caller<'_>) -> Option<u32> {
    WINDOWS
        .iter()
        .flat_map(|(first, count)| *first..first + count)
        .find(|number| caller.descriptor(*number as i32) == Err(Errno::BADF))
}

/// connect(2): nothing but a note.
pub(super) fn connect_to(shared: &Shared, pair: &Pair, address: &Address) -> Result<(), Errno> {
    match address {
        Address::Inet(address) => {
            if !shared.network.has_names && !address.ip().is_loopback() {
                return Err(Errno::NETUNREACH);
            }
            pair.peers().connected = Some(*address);
            Ok(())
        }
        Address::Nothing => {
            *pair.peers() = Peers::default();
            Ok(())
        }
        Address::Path(_) | Address::Abstract | Address::Unnamed => Err(Errno::AFNOSUPPORT),
    }
}

/// A send with an address, or without one: notes the address, and lets the kernel send it to us.
pub(super) fn send_to(
    shared: &Shared,
    caller: &Caller<'_>,
    pair: &Pair,
    to: SentTo,
) -> Result<Answer, Errno> {
    let (address, length) = match to {
        SentTo::Address { address, length } => (address, length),
        SentTo::Header(header) => {
            let header = caller.read(header, NAME_IN_HEADER)?;
            (Pointer(word(&header, 0)), word(&header, 8) as u32)
        }
    };
    let to = match address.is_null() || length == 0 {
        true => pair.peers().connected,
        false => match Address::parse(&caller.read(address, length.min(MAX_ADDRESS) as usize)?)? {
            Address::Inet(address) => {
                pair.peers().asked = Some(address);
                Some(address)
            }
            _ => return Err(Errno::AFNOSUPPORT),
        },
    };
    if to.is_none() {
        return Err(Errno::DESTADDRREQ);
    }
    shared.network.asks(to)?;
    // The kernel uses no address on such a socket, nor on any other that a program could put in its place meanwhile.
    Ok(Answer::Continue)
}

/// recvfrom(2) and its sisters: receives in the caller's place, and says that the server answered which was asked.
pub(super) fn receive(
    shared: &Arc<Shared>,
    id: u64,
    thread: u32,
    pair: Arc<Pair>,
    into: ReceivedInto,
    flags: u32,
) -> Outcome {
    if flags & (MSG_OOB | MSG_ERRQUEUE) != 0 {
        return Outcome::Now(Answer::Error(Errno::AGAIN));
    }
    let is_blocking = flags & MSG_DONTWAIT == 0
        && fcntl_getfl(&pair.inner).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    let shared = Arc::clone(shared);
    let work = move || {
        let caller = Caller::new(&shared.listener, id, thread);
        receive_into(&caller, &pair, into, flags, is_blocking).unwrap_or_else(Answer::Error)
    };
    match is_blocking {
        true => Outcome::Later(Box::new(work)),
        false => Outcome::Now(work()),
    }
}

fn receive_into(
    caller: &Caller<'_>,
    pair: &Pair,
    into: ReceivedInto,
    flags: u32,
    is_blocking: bool,
) -> Result<Answer, Errno> {
    if is_blocking {
        wait_for_packet(caller, pair)?;
    }
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let peek = if flags & MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    let (_, length) = recv(&pair.inner, &mut packet[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC | peek)?;
    packet.truncate(length.min(MAX_PACKET_BYTES));
    let from = sockaddr(pair.answering(), pair.ipv6);
    let told = |written: usize| {
        let all = if flags & MSG_TRUNC != 0 { length } else { written };
        Answer::Value(i64::try_from(all).unwrap_or(i64::MAX))
    };
    match into {
        ReceivedInto::Buffer { buffer, size, address, length } => {
            let fits = packet.len().min(usize::try_from(size).unwrap_or(usize::MAX));
            caller.write(buffer, &packet[..fits])?;
            write_address(caller, address, length, &from)?;
            Ok(told(fits))
        }
        ReceivedInto::Header(header) => into_header(caller, header, &packet, &from).map(told),
        ReceivedInto::Headers(header) => {
            let written = into_header(caller, header, &packet, &from)?;
            caller.write(header.plus(HEADER), &(written as u32).to_ne_bytes())?;
            // One message, of those that were asked for.
            Ok(Answer::Value(1))
        }
    }
}

/// Waits for a packet as long as the caller does.
fn wait_for_packet(caller: &Caller<'_>, pair: &Pair) -> Result<(), Errno> {
    let limit = socket_timeout(&pair.inner, Timeout::Recv)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    while caller.is_waiting() {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Errno::AGAIN);
        }
        let mut ready = [PollFd::new(&pair.inner, PollFlags::IN)];
        if poll(&mut ready, Some(&LOOK_AGAIN)).unwrap_or(0) > 0 {
            return Ok(());
        }
    }
    Err(Errno::INTR)
}

/// Fills a `struct msghdr`; gives how many bytes fitted.
fn into_header(caller: &Caller<'_>, place: Pointer, packet: &[u8], from: &[u8]) -> Result<usize, Errno> {
    let header = caller.read(place, HEADER as usize)?;
    let (name, name_length) = (Pointer(word(&header, 0)), word(&header, 8) as u32);
    let (vectors, count) = (Pointer(word(&header, 16)), word(&header, 24));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > MAX_VECTORS {
        return Err(Errno::MSGSIZE);
    }
    let vectors = caller.read(vectors, count * 16)?;
    let mut rest = packet;
    for vector in vectors.chunks_exact(16) {
        let fits = rest.len().min(usize::try_from(word(vector, 8)).unwrap_or(usize::MAX));
        caller.write(Pointer(word(vector, 0)), &rest[..fits])?;
        rest = &rest[fits..];
    }
    if !name.is_null() {
        let fits = from.len().min(name_length as usize);
        caller.write(name, &from[..fits])?;
        caller.write(place.plus(8), &(from.len() as u32).to_ne_bytes())?;
    }
    // No control data; whether something was left out.
    caller.write(place.plus(40), &0u64.to_ne_bytes())?;
    let flags = if rest.is_empty() { 0 } else { MSG_TRUNC };
    caller.write(place.plus(48), &flags.to_ne_bytes())?;
    Ok(packet.len() - rest.len())
}

/// getsockname(2) and getpeername(2).
pub(super) fn name_of(
    caller: &Caller<'_>,
    pair: &Pair,
    of: NameOf,
    address: Pointer,
    length: Pointer,
) -> Result<(), Errno> {
    let connected = pair.peers().connected;
    let told = match (of, connected) {
        (NameOf::Peer, Some(peer)) => peer,
        (NameOf::Peer, None) => return Err(Errno::NOTCONN),
        // Names have addresses of the loopback, and a resolver sorts them by what reaches them.
        (NameOf::Own, Some(_)) => SocketAddr::from((Ipv4Addr::LOCALHOST, SOME_PORT)),
        (NameOf::Own, None) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    };
    write_address(caller, address, length, &sockaddr(told, pair.ipv6))
}

fn write_address(caller: &Caller<'_>, place: Pointer, length: Pointer, address: &[u8]) -> Result<(), Errno> {
    if place.is_null() || length.is_null() {
        return Ok(());
    }
    let room = caller.read(length, 4)?;
    let room = i32::from_ne_bytes(*room.first_chunk().ok_or(Errno::FAULT)?);
    let fits = address.len().min(usize::try_from(room).map_err(|_| Errno::INVAL)?);
    caller.write(place, &address[..fits])?;
    caller.write(length, &(address.len() as u32).to_ne_bytes())
}

/// Eight bytes of a structure; zero where it ends before.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Takes what programs send, and brings the answers, until there is an end to it all.
pub(super) fn serve(shared: &Weak<Shared>) {
    let mut line: Option<Line> = None;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_over() {
            return;
        }
        let pairs: Vec<Arc<Pair>> = shared.pairs.pairs().values().cloned().collect();
        let mut waiting = vec![PollFd::new(&shared.pairs.changed, PollFlags::IN)];
        waiting.extend(line.iter().map(|line| PollFd::new(&line.stream, PollFlags::IN)));
        waiting.extend(pairs.iter().map(|pair| PollFd::new(&pair.outer, PollFlags::IN | PollFlags::RDHUP)));
        let _ = poll(&mut waiting, Some(&LOOK_AGAIN_AT_ALL));
        let revents: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        let ready: Vec<bool> = revents.iter().map(|revents| !revents.is_empty()).collect();
        drop(waiting);
        if ready[0] {
            let _ = read(&shared.pairs.changed, &mut [0u8; 8][..]);
        }
        let of_pairs = if line.is_some() { &revents[2..] } else { &revents[1..] };
        if line.is_some() && ready[1] && line.as_mut().is_some_and(|line| line.bring_answers().is_err()) {
            line = None;
        }
        for (pair, revents) in pairs.iter().zip(of_pairs).filter(|(_, revents)| !revents.is_empty()) {
            ask_all(&shared, &mut line, pair);
            // The program shut its end down (shutdown(2)), and that is readable for ever.
            if revents.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
                shared.pairs.let_go(pair);
            }
        }
    }
}

/// Passes on what a program has sent.
fn ask_all(shared: &Shared, line: &mut Option<Line>, pair: &Arc<Pair>) {
    let mut question = vec![0; MAX_QUESTION_BYTES];
    while let Ok((_, length)) = recv(&pair.outer, &mut question[..], RecvFlags::DONTWAIT) {
        if length == 0 {
            // No program has the other end any more but us, or it sent nothing.
            return;
        }
        let peers = *pair.peers();
        // What is no question for a name leads nowhere. A program without an answer asks again, as after any lost packet.
        if shared.network.asks(peers.asked.or(peers.connected)).is_err() {
            continue;
        }
        let Some(place) = &shared.places.names else { continue };
        if line.is_none() {
            *line = Line::open(place).ok();
        }
        if line
            .as_mut()
            .is_some_and(|line| line.ask(&question[..length.min(MAX_QUESTION_BYTES)], pair).is_err())
        {
            *line = None;
        }
    }
}

/// The stream to the gateway, and who waits for an answer: they come in the order of the questions.
struct Line {
    stream: TcpStream,
    arrived: Vec<u8>,
    asking: VecDeque<Weak<Pair>>,
}

impl Line {
    fn open(place: &OwnedFd) -> io::Result<Line> {
        let (ours, theirs) = tcp_pair()?;
        arrivals::put(place, SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS), theirs.as_fd())?;
        let stream = TcpStream::from(ours);
        stream.set_nonblocking(true)?;
        Ok(Line { stream, arrived: Vec::new(), asking: VecDeque::new() })
    }

    fn ask(&mut self, question: &[u8], pair: &Arc<Pair>) -> io::Result<()> {
        if self.asking.len() >= MAX_ASKING {
            return Ok(());
        }
        let framed = [&(question.len() as u16).to_be_bytes()[..], question].concat();
        // A stream that takes only half of it is of no more use.
        match self.stream.write(&framed)? {
            all if all == framed.len() => self.asking.push_back(Arc::downgrade(pair)),
            _ => return Err(ErrorKind::WriteZero.into()),
        }
        Ok(())
    }

    /// The error is the end of the stream.
    fn bring_answers(&mut self) -> io::Result<()> {
        let mut buffer = [0; MAX_QUESTION_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.arrived.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while let Some((length, rest)) = self.arrived.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(answer) = rest.get(..length) else { break };
            // An empty answer means that the question deserves none.
            if let Some(pair) = self.asking.pop_front().and_then(|pair| pair.upgrade())
                && length > 0
            {
                let _ = send(&pair.outer, answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            self.arrived.drain(..2 + length);
        }
        Ok(())
    }
}

const DNS: u16 = 53;
const SOME_PORT: u16 = 40_000;
/// A `struct msghdr`, and what of it is about the address.
const HEADER: u64 = 56;
const NAME_IN_HEADER: usize = 16;
/// UIO_MAXIOV of the kernel.
const MAX_VECTORS: usize = 1024;
const MAX_PACKET_BYTES: usize = 65_536;
/// More than any question has, and any answer of ours.
const MAX_QUESTION_BYTES: usize = 4096;
/// A client with more questions at once has to ask again.
const MAX_ASKING: usize = 512;
const MAX_PAIRS: usize = 1024;
/// A caller that was killed is noticed after this time.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const LOOK_AGAIN_AT_ALL: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
// linux/socket.h
const MSG_OOB: u32 = 0x1;
const MSG_PEEK: u32 = 0x2;
const MSG_TRUNC: u32 = 0x20;
const MSG_DONTWAIT: u32 = 0x40;
const MSG_ERRQUEUE: u32 = 0x2000;

//! The thread, and how others have it open streams.

use super::line::Line;
pub use super::line::{Hangup, Local};
use crate::mux::{DATA_AT_ONCE, Event, MAX_HEADER_BYTES, MAX_STREAMS, Mux, Side, StreamId};
use belljar_sys::passing;
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::fd::{BorrowedFd, OwnedFd};
use belljar_sys::rustix::io::{Errno, ioctl_fionbio};
use belljar_sys::rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A connection that is being served. Dropped, it is closed, and with it the sockets of all streams.
#[derive(Debug)]
pub struct Pump {
    /// Sockets for new streams, with what these are for.
    orders: OwnedFd,
    /// How many streams were opened here and are not over, those among them that are only ordered.
    open: Arc<AtomicUsize>,
}

/// Gives the socket for a stream that the other side opens, by what it says of it; `None` refuses it. Must not wait.
pub type Receive = Box<dyn FnMut(&[u8]) -> Option<Local> + Send>;

impl Pump {
    /// Serves a connection until it ends, or the pump is dropped everywhere.
    pub fn start(connection: OwnedFd, side: Side, receive: Receive) -> io::Result<Pump> {
        ioctl_fionbio(&connection, true)?;
        let (orders, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let open = Arc::<AtomicUsize>::default();
        let mut work = Work {
            connection,
            orders: theirs,
            mux: Mux::new(side),
            lines: HashMap::new(),
            receive,
            open: Arc::clone(&open),
        };
        thread::Builder::new().name("mux".into()).stack_size(STACK).spawn(move || {
            let mut buffer = vec![0; DATA_AT_ONCE];
            while work.turn(&mut buffer).is_ok() {}
        })?;
        Ok(Pump { orders, open })
    }

    /// Opens a stream whose bytes come from this socket and go to it. `MFILE` means that as many are open as there can be, any
    /// other error that the connection is over.
    pub fn open(&self, header: &[u8], socket: BorrowedFd<'_>, hangup: Hangup) -> Result<(), Errno> {
        debug_assert!(header.len() <= MAX_HEADER_BYTES);
        // Counted before it is ordered: one that was ordered and is not opened would look like a guest that is gone.
        let one_more = |open| (open < MAX_STREAMS).then_some(open + 1);
        if self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return Err(if self.is_over() { Errno::PIPE } else { Errno::MFILE });
        }
        let order = [&[u8::from(hangup == Hangup::Cuts)], header].concat();
        passing::send_with(&self.orders, &order, &[socket]).map(drop)
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        let mut waiting = [PollFd::new(&self.orders, PollFlags::empty())];
        poll(&mut waiting, Some(&NOW)).is_ok_and(|ready| ready > 0)
    }

    /// Closes the connection.
    pub fn close(&self) {
        let _ = shutdown(&self.orders, Shutdown::Both);
    }
}

struct Work {
    connection: OwnedFd,
    orders: OwnedFd,
    mux: Mux,
    lines: HashMap<StreamId, Line>,
    receive: Receive,
    open: Arc<AtomicUsize>,
}

impl Work {
    /// Waits for the first thing that can be done, and does all that can. An error is the end.
    fn turn(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let queued = self.mux.outgoing().len();
        let mut interest = PollFlags::empty();
        if queued < MAX_QUEUED {
            interest |= PollFlags::IN;
        }
        if queued > 0 {
            interest |= PollFlags::OUT;
        }
        let mut waiting =
            vec![PollFd::new(&self.connection, interest), PollFd::new(&self.orders, PollFlags::IN)];
        let mut streams = Vec::new();
        for (stream, line) in &self.lines {
            if let Some(interest) = line.interest(&mut self.mux, queued < ENOUGH_QUEUED) {
                waiting.push(PollFd::new(&line.socket, interest));
                streams.push(*stream);
            }
        }
        match poll(&mut waiting, None) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        let mut open = self.mux.opened();
        let [connection, orders, lines @ ..] = &ready[..] else { return Ok(()) };
        if connection.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive(buffer)?;
        }
        if !orders.is_empty() {
            self.obey()?;
            open += 1;
        }
        for (stream, ready) in streams.into_iter().zip(lines) {
            if let Some(line) = self.lines.get_mut(&stream).filter(|_| !ready.is_empty()) {
                line.serve(*ready, &mut self.mux, buffer);
            }
        }
        self.lines.retain(|_, line| !line.is_over());
        self.open.fetch_sub(open - self.mux.opened(), Ordering::SeqCst);
        self.send()
    }

    /// Takes what the other side sent.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let length = match recv(&self.connection, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, length)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in self.mux.receive(&buffer[..length]).map_err(io::Error::other)? {
            match event {
                Event::Opened { stream, header } => self.opened(stream, &header),
                Event::Data { stream, bytes } => self.line(stream, |line, mux| line.take(&bytes, mux)),
                Event::Ended { stream } => self.line(stream, Line::end),
                Event::Cut { stream } => self.line(stream, Line::cut),
                Event::Stopped { stream } => self.line(stream, |line, _| line.stopped()),
            }
        }
        Ok(())
    }

    fn line(&mut self, stream: StreamId, then: impl FnOnce(&mut Line, &mut Mux)) {
        if let Some(line) = self.lines.get_mut(&stream) {
            then(line, &mut self.mux);
        }
    }

    fn opened(&mut self, stream: StreamId, header: &[u8]) {
        let line = (self.receive)(header).and_then(|local| Line::opened(local, stream).ok());
        match line {
            Some(line) => drop(self.lines.insert(stream, line)),
            None => {
                self.mux.cut(stream);
                self.mux.stop(stream);
            }
        }
    }

    /// Opens a stream that others want.
    fn obey(&mut self) -> io::Result<()> {
        let mut order = [0; MAX_HEADER_BYTES + 1];
        let (length, sockets) = passing::receive_with(&self.orders, &mut order)?;
        let Some((hangup, header)) = order[..length].split_first() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let hangup = if *hangup == 0 { Hangup::Waits } else { Hangup::Cuts };
        for socket in sockets {
            // They are counted before they are ordered, so there is room.
            let Some(stream) = self.mux.open(header) else { continue };
            match Line::new(socket, stream, hangup) {
                Ok(line) => drop(self.lines.insert(stream, line)),
                Err(_) => {
                    self.mux.cut(stream);
                    self.mux.stop(stream);
                }
            }
        }
        Ok(())
    }

    /// Sends what can be sent without waiting.
    fn send(&mut self) -> io::Result<()> {
        let outgoing = self.mux.outgoing();
        let mut sent = 0;
        while sent < outgoing.len() {
            match send(&self.connection, &outgoing[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(length) => sent += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        outgoing.drain(..sent);
        Ok(())
    }
}

/// With so much queued, no socket is read.
const ENOUGH_QUEUED: usize = 256 * 1024;
/// With so much queued, which is mostly answers to what the other side asks, nothing of it is heard either.
const MAX_QUEUED: usize = 1024 * 1024;
const STACK: usize = 256 * 1024;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

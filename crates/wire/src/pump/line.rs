//! A stream's socket, and what waits for it.

use crate::mux::{Mux, StreamId};
use belljar_sys::rustix::event::PollFlags;
use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::{Errno, ioctl_fionbio};
use belljar_sys::rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt,
};
use std::time::Duration;

impl From<OwnedFd> for Local {
    fn from(socket: OwnedFd) -> Local {
        Local { socket, alarm: None }
    }
}

/// What it means when the side that opened a stream closes its direction while bytes of it are still in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// They matter: the end comes after them.
    Waits,
    /// They do not: the other side is told at once.
    Cuts,
}

/// The socket of a stream that the other side opened.
pub struct Local {
    pub socket: OwnedFd,
    /// Closed when the other side has ended its direction or broken off: for kernels that do not tell a process polling a
    /// socket (POLLRDHUP) of an end that lies behind unread bytes.
    pub alarm: Option<OwnedFd>,
}

pub(crate) struct Line {
    pub(crate) socket: OwnedFd,
    alarm: Option<OwnedFd>,
    stream: StreamId,
    /// A connection of a program's, that can be reset.
    is_tcp: bool,
    hangup: Hangup,
    /// From the other side, for the socket.
    waiting: Vec<u8>,
    /// Whether the socket is still read.
    reads: bool,
    writes: Writes,
    /// The other end of the socket is closed, and that has been seen.
    abandoned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Open,
    /// The other side has said all: so will we, behind what waits.
    Ending,
    Over,
}

impl Line {
    pub(crate) fn new(socket: OwnedFd, stream: StreamId, hangup: Hangup) -> Result<Line, Errno> {
        ioctl_fionbio(&socket, true)?;
        let is_tcp = sockopt::socket_domain(&socket)? != AddressFamily::UNIX;
        Ok(Line {
            socket,
            alarm: None,
            stream,
            is_tcp,
            hangup,
            waiting: Vec::new(),
            reads: true,
            writes: Writes::Open,
            abandoned: false,
        })
    }

    /// The same, of a stream that the other side opened.
    pub(crate) fn opened(local: Local, stream: StreamId) -> Result<Line, Errno> {
        Ok(Line { alarm: local.alarm, ..Line::new(local.socket, stream, Hangup::Waits)? })
    }

    /// Both directions are over.
    pub(crate) fn is_over(&self) -> bool {
        !self.reads && self.writes == Writes::Over
    }

    /// What the socket has to be asked about; `None` where there is nothing to wait for. `room` says whether more can go out.
    pub(crate) fn interest(&self, mux: &mut Mux, room: bool) -> Option<PollFlags> {
        let mut interest = PollFlags::empty();
        if self.reads && room && mux.credit(self.stream).is_some_and(|credit| credit > 0) {
            interest |= PollFlags::IN;
        }
        if self.reads && self.hangup == Hangup::Cuts {
            interest |= PollFlags::RDHUP;
        }
        if !self.waiting.is_empty() {
            interest |= PollFlags::OUT;
        }
        // A socket that was abandoned is ready for ever: it is looked at only for what it still holds.
        (!self.abandoned || !interest.is_empty()).then_some(interest)
    }

    /// Does what the socket is ready for.
    pub(crate) fn serve(&mut self, ready: PollFlags, mux: &mut Mux, buffer: &mut [u8]) {
        if ready.contains(PollFlags::OUT) {
            self.flush(mux);
        }
        if self.reads && self.hangup == Hangup::Cuts && ready.contains(PollFlags::RDHUP) {
            while self.read(mux, buffer) {}
            if self.reads {
                self.reads = false;
                mux.cut(self.stream);
                self.discard(buffer);
            }
        } else if ready.contains(PollFlags::IN) {
            self.read(mux, buffer);
        }
        if ready.intersects(PollFlags::HUP | PollFlags::ERR) && !self.is_over() {
            self.see_abandoned(ready, mux, buffer);
        }
    }

    /// The peer is gone, so nothing can be written any more. What it wrote before still counts.
    fn see_abandoned(&mut self, ready: PollFlags, mux: &mut Mux, buffer: &mut [u8]) {
        // gVisor also reports an error when both sides ended in good order while some bytes are still unread.
        let is_error = || !matches!(sockopt::socket_error(&self.socket), Ok(Ok(())));
        if self.is_tcp && ready.contains(PollFlags::ERR) && is_error() {
            return self.reset(mux);
        }
        self.abandoned = true;
        if self.writes != Writes::Over {
            self.waiting.clear();
            self.writes = Writes::Over;
            mux.stop(self.stream);
        }
        if self.reads {
            self.read(mux, buffer);
        }
    }

    /// Sends on what there is, as far as there are credits; `false` when there is nothing more at the moment.
    fn read(&mut self, mux: &mut Mux, buffer: &mut [u8]) -> bool {
        let most = mux.credit(self.stream).unwrap_or(0).min(buffer.len());
        if !self.reads || most == 0 {
            return false;
        }
        match recv(&self.socket, &mut buffer[..most], RecvFlags::DONTWAIT) {
            Ok((_, length)) if length > 0 => {
                mux.send(self.stream, &buffer[..length]);
                true
            }
            Ok(_) => {
                self.reads = false;
                mux.end(self.stream);
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) if self.is_tcp => {
                self.reset(mux);
                false
            }
            // The peer closed its socket without reading all that it was sent, which is its own affair.
            Err(_) => {
                self.reads = false;
                mux.end(self.stream);
                false
            }
        }
    }

    /// Bytes from the other side.
    pub(crate) fn take(&mut self, bytes: &[u8], mux: &mut Mux) {
        if self.writes == Writes::Open {
            self.waiting.extend_from_slice(bytes);
            self.flush(mux);
        }
    }

    /// The other side has said all.
    pub(crate) fn end(&mut self, mux: &mut Mux) {
        self.alarm = None;
        if self.writes == Writes::Open {
            self.writes = Writes::Ending;
            self.flush(mux);
        }
    }

    /// The other side broke off.
    pub(crate) fn cut(&mut self, mux: &mut Mux) {
        self.alarm = None;
        if self.is_tcp {
            return self.reset(mux);
        }
        self.flush(mux);
        self.waiting.clear();
        if self.writes != Writes::Over {
            self.writes = Writes::Over;
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// The other side does not read any more: we do not either, and a process that writes gets an error.
    pub(crate) fn stopped(&mut self) {
        self.reads = false;
        if !self.is_tcp {
            let _ = shutdown(&self.socket, Shutdown::Read);
            self.discard(&mut [0; 4096]);
        }
    }

    /// Takes what was written before the peer could write no more. Left unread, it would turn the end into an error.
    fn discard(&self, buffer: &mut [u8]) {
        while recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT).is_ok_and(|(_, length)| length > 0) {}
    }

    /// Ends both directions at once, and lets both peers see that it was not in good order.
    fn reset(&mut self, mux: &mut Mux) {
        if self.is_tcp {
            // With nothing left to linger for, closing sends a reset.
            let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
        self.reads = false;
        self.writes = Writes::Over;
        self.waiting.clear();
        mux.cut(self.stream);
        mux.stop(self.stream);
    }

    fn flush(&mut self, mux: &mut Mux) {
        while !self.waiting.is_empty() {
            match send(&self.socket, &self.waiting, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(length) => {
                    self.waiting.drain(..length);
                    mux.taken(self.stream, length);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) if self.is_tcp => return self.reset(mux),
                Err(_) => {
                    self.waiting.clear();
                    self.writes = Writes::Over;
                    mux.stop(self.stream);
                }
            }
        }
        if self.writes == Writes::Ending {
            self.writes = Writes::Over;
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }
}

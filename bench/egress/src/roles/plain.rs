//! Serves wishes. Must not be what is measured: one thread for everything that is short, and a thread with large
//! writes, or none at all, for what is long.

use crate::request::{Arrived, Wish, arrived};
use belljar_sys::rustix::buffer::spare_capacity;
use belljar_sys::rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use belljar_sys::rustix::fd::{AsRawFd, OwnedFd};
use belljar_sys::rustix::fs::{MemfdFlags, memfd_create, sendfile};
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{SocketFlags, accept_with};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

struct Connection {
    stream: TcpStream,
    /// What came of the request; empty once it is known to be an echo.
    request: Vec<u8>,
    echo: bool,
}

enum Next {
    /// There will be more.
    Wait,
    /// It is served.
    Over,
    /// It takes long, and a thread of its own.
    Long(Wish),
}

pub(crate) fn serve(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, data(listener), EventFlags::IN)?;
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut events = Vec::with_capacity(256);
    loop {
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let key = event.data;
            if key == data(listener) {
                accept(listener, &epoll, &mut connections)?;
            } else if let Some(connection) = connections.get_mut(&key.u64()) {
                let next = connection.resume();
                if !matches!(next, Next::Wait)
                    && let Some(connection) = connections.remove(&key.u64())
                {
                    connection.end(&epoll, &next);
                }
            }
        }
    }
}

/// Accepts every waiting client. A connection that is over at once never gets into the list.
fn accept(listener: &TcpListener, epoll: &OwnedFd, waiting: &mut HashMap<u64, Connection>) -> io::Result<()> {
    loop {
        let stream = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => TcpStream::from(socket),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut connection = Connection { stream, request: Vec::new(), echo: false };
        match connection.resume() {
            Next::Wait => {
                let key = data(&connection.stream);
                epoll::add(epoll, &connection.stream, key, EventFlags::IN)?;
                waiting.insert(key.u64(), connection);
            }
            next @ (Next::Over | Next::Long(_)) => connection.end(epoll, &next),
        }
    }
}

impl Connection {
    fn resume(&mut self) -> Next {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Next::Over,
            Ok(length) if self.echo => {
                let _ = self.stream.write_all(&piece[..length]);
                Next::Wait
            }
            Ok(length) => {
                self.request.extend_from_slice(&piece[..length]);
                self.understand()
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Next::Wait,
            Err(_) => Next::Over,
        }
    }

    fn understand(&mut self) -> Next {
        match arrived(&self.request) {
            Arrived::Part => Next::Wait,
            Arrived::Nonsense => Next::Over,
            Arrived::All(Wish::Byte) => {
                let _ = self.stream.write_all(&[1]);
                Next::Over
            }
            Arrived::All(Wish::Echo) => {
                self.request = Vec::new();
                self.echo = true;
                // The client waits for a sign that it has arrived.
                let _ = self.stream.write_all(&[1]);
                Next::Wait
            }
            Arrived::All(long @ (Wish::Copied(_) | Wish::Lent(_))) => Next::Long(long),
        }
    }

    fn end(self, epoll: &OwnedFd, next: &Next) {
        let Next::Long(wish) = *next else { return };
        // It is in the list only if it had to wait.
        let _ = epoll::delete(epoll, &self.stream);
        thread::spawn(move || {
            self.stream.set_nonblocking(false)?;
            match wish {
                Wish::Copied(bytes) => copied(&self.stream, bytes),
                Wish::Lent(bytes) => lent(&self.stream, bytes),
                Wish::Byte | Wish::Echo => Ok(()),
            }
        });
    }
}

fn copied(mut to: &TcpStream, mut left: u64) -> io::Result<()> {
    let bytes = vec![7; PIECE];
    while left > 0 {
        let length = left.min(PIECE as u64);
        to.write_all(&bytes[..length as usize])?;
        left -= length;
    }
    Ok(())
}

fn lent(to: &TcpStream, mut left: u64) -> io::Result<()> {
    let mut memory = File::from(memfd_create("bytes", MemfdFlags::CLOEXEC)?);
    memory.write_all(&vec![7; PIECE])?;
    while left > 0 {
        let mut from = 0;
        left -= sendfile(to, &memory, Some(&mut from), left.min(PIECE as u64) as usize)? as u64;
    }
    Ok(())
}

/// A socket's number names it among the events.
fn data(socket: &impl AsRawFd) -> EventData {
    EventData::new_u64(socket.as_raw_fd() as u64)
}

/// One write: large, and still in the processor's cache.
const PIECE: usize = 512 * 1024;

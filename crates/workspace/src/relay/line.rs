//! A connection on which every wait is bounded.

use crate::quarantine::Incoming;
use belljar_git::pkt::{self, Announced};
use belljar_sys::rustix::event::{PollFd, PollFlags, Timespec, poll};
use belljar_sys::rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection from the sandbox. Every wait on it ends: at its deadline, with the relay, or when the client was silent for too
/// long.
#[derive(Debug, Clone)]
pub(super) struct Line {
    socket: Arc<TcpStream>,
    /// Readable as soon as the relay ends.
    stop: Arc<OwnedFd>,
    deadline: Instant,
}

impl Line {
    pub(super) fn new(socket: TcpStream, stop: Arc<OwnedFd>, longest: Duration) -> io::Result<Line> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Line { socket: Arc::new(socket), stop, deadline: Instant::now() + longest })
    }

    /// Reads some bytes; none at the end.
    pub(super) fn read(&self, buffer: &mut [u8], time_limit: Duration) -> io::Result<usize> {
        loop {
            match (&*self.socket).read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => return read,
            }
            self.wait(&[(self.socket.as_fd(), PollFlags::IN)], time_limit)?;
        }
    }

    fn read_exact(&self, mut buffer: &mut [u8], time_limit: Duration) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer, time_limit)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    /// Reads the data of one packet, and nothing beyond it.
    pub(super) fn packet(&self, time_limit: Duration) -> io::Result<Vec<u8>> {
        let mut digits = [0; 4];
        self.read_exact(&mut digits, time_limit)?;
        match pkt::announced(digits) {
            Ok(Announced::Data(length)) if length <= MAX_REQUEST_BYTES => {
                let mut data = vec![0; length];
                self.read_exact(&mut data, time_limit)?;
                Ok(data)
            }
            _ => Err(io::Error::new(ErrorKind::InvalidData, "not a request of git's")),
        }
    }

    /// Writes all of these bytes.
    pub(super) fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&*self.socket).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(&[(self.socket.as_fd(), PollFlags::OUT)], UNREAD)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends no more. Reads the client's remaining bytes, up to a limit: closing with unread bytes would reset the connection
    /// before the client has read the answer.
    pub(super) fn finish(&self, most: u64) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let mut buffer = vec![0; PIECE];
        let mut left = most;
        while let Ok(count @ 1..) = self.read(&mut buffer, FAREWELL) {
            left = left.saturating_sub(count as u64);
            if left == 0 {
                break;
            }
        }
        self.cut();
    }

    /// Closes both directions.
    pub(super) fn cut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Waits until another file is readable, at most until the connection's deadline.
    pub(super) fn wait_for(&self, other: BorrowedFd<'_>) -> io::Result<()> {
        self.wait(&[(other, PollFlags::IN)], Duration::MAX).map(drop)
    }

    /// Waits for one of these files, and returns which are ready.
    fn wait(&self, files: &[(BorrowedFd<'_>, PollFlags)], time_limit: Duration) -> io::Result<Vec<bool>> {
        let until =
            (Instant::now().checked_add(time_limit)).map_or(self.deadline, |until| until.min(self.deadline));
        let mut polled = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        polled.extend(files.iter().map(|(file, event)| PollFd::from_borrowed_fd(*file, *event)));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut ready = polled.iter().map(|file| !file.revents().is_empty());
        match ready.next() {
            Some(true) => Err(io::Error::new(ErrorKind::ConnectionAborted, "the sandbox has ended")),
            _ => Ok(ready.collect()),
        }
    }
}

impl Incoming for Line {
    fn read_unless(
        &mut self,
        buffer: &mut [u8],
        other: BorrowedFd<'_>,
        time_limit: Duration,
    ) -> io::Result<Option<usize>> {
        loop {
            let files = [(other, PollFlags::IN), (self.socket.as_fd(), PollFlags::IN)];
            // A readable `other` ends the wait for more.
            if self.wait(&files, time_limit)?.first() == Some(&true) {
                return Ok(None);
            }
            match (&*self.socket).read(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                read => return read.map(Some),
            }
        }
    }
}

pub(super) const PIECE: usize = 64 * 1024;
/// git's request has less than a hundred bytes.
const MAX_REQUEST_BYTES: usize = 4096;
/// Time limit for a client that does not read its answer.
const UNREAD: Duration = Duration::from_secs(60);
/// Time limit for a client with its answer to hang up.
const FAREWELL: Duration = Duration::from_secs(10);

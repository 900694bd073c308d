//! Questions for names: datagrams here, one stream to the host. Answers come in the order of the questions.

use belljar_sys::rustix::fd::{AsFd, BorrowedFd};
use belljar_wire::pump::{Hangup, Pump};
use belljar_wire::purpose::Purpose;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

pub(super) struct Names {
    socket: UdpSocket,
    pump: Arc<Pump>,
    line: Option<Line>,
}

/// The stream, and the clients that wait for an answer.
struct Line {
    stream: UnixStream,
    /// Bytes of answers that have not come whole.
    arrived: Vec<u8>,
    asking: VecDeque<SocketAddr>,
}

impl Names {
    /// The socket does not block.
    pub(super) fn new(socket: UdpSocket, pump: &Arc<Pump>) -> Names {
        Names { socket, pump: Arc::clone(pump), line: None }
    }

    /// What has to be waited for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let line = self.line.as_ref().map(|line| line.stream.as_fd());
        std::iter::once(self.socket.as_fd()).chain(line)
    }

    /// Forwards the queries that have arrived. A client without an answer asks again, as after any lost packet.
    pub(super) fn serve(&mut self) {
        if self.line.as_mut().is_some_and(|line| line.answer(&self.socket).is_err()) {
            self.line = None;
        }
        let mut question = [0; MAX_QUESTION_BYTES];
        while let Ok((length, client)) = self.socket.recv_from(&mut question) {
            if self.ask(&question[..length], client).is_err() {
                self.line = None;
            }
        }
    }

    fn ask(&mut self, question: &[u8], client: SocketAddr) -> io::Result<()> {
        let line = match &mut self.line {
            Some(line) => line,
            None => self.line.insert(Line::open(&self.pump)?),
        };
        if line.asking.len() >= MAX_ASKING {
            return Ok(());
        }
        let framed = [&(question.len() as u16).to_be_bytes()[..], question].concat();
        // A stream that takes only half of it is of no more use.
        match line.stream.write(&framed)? {
            all if all == framed.len() => line.asking.push_back(client),
            _ => return Err(ErrorKind::WriteZero.into()),
        }
        Ok(())
    }
}

impl Line {
    fn open(pump: &Pump) -> io::Result<Line> {
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        pump.open(&Purpose::Names.encode(), theirs.as_fd(), Hangup::Waits)?;
        Ok(Line { stream, arrived: Vec::new(), asking: VecDeque::new() })
    }

    /// Hands out the answers that have come. The error is the end of the stream.
    fn answer(&mut self, socket: &UdpSocket) -> io::Result<()> {
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
            // An empty answer means that the query deserves none. The client may be gone.
            if let Some(client) = self.asking.pop_front()
                && length > 0
            {
                let _ = socket.send_to(answer, client);
            }
            self.arrived.drain(..2 + length);
        }
        Ok(())
    }
}

/// More than any question has, and any answer of ours.
const MAX_QUESTION_BYTES: usize = 2048;
/// A client with more queries at once has to ask again.
const MAX_ASKING: usize = 512;

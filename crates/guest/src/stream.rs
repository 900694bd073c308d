//! One stream to the host, in frames, blocking.

use belljar_sys::rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use belljar_wire::frame::{self, Frame, FrameReader, Tag};
use belljar_wire::message::{self, Fault};
use belljar_wire::serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};

pub(crate) struct Stream {
    socket: File,
    reader: FrameReader,
    /// Ready when the host has closed its direction, where the socket itself does not say so.
    alarm: Option<OwnedFd>,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd) -> Stream {
        Stream { socket: File::from(socket), reader: FrameReader::default(), alarm: None }
    }

    /// A request from the control socket: a socket, and an alarm where the control socket passes one.
    pub(crate) fn knocking(descriptors: Vec<OwnedFd>) -> Option<Stream> {
        let mut descriptors = descriptors.into_iter();
        let stream = Stream::new(descriptors.next()?);
        Some(Stream { alarm: descriptors.next(), ..stream })
    }

    /// The next frame; `None` when the host closed its direction.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Frame>> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.reader.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self.reader.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next frame as a message; anything else is an error.
    pub(crate) fn receive_message<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
        match self.receive()? {
            Some(Frame { tag: Tag::Message, payload }) => {
                message::decode(&payload).ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub(crate) fn send(&mut self, tag: Tag, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        frame::encode(tag, payload, &mut bytes);
        self.socket.write_all(&bytes)
    }

    pub(crate) fn send_message<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        self.send(Tag::Message, &message::encode(message))
    }

    /// The socket, what was read of it but not yet taken, and the alarm.
    pub(crate) fn into_parts(self) -> (OwnedFd, FrameReader, Option<OwnedFd>) {
        (self.socket.into(), self.reader, self.alarm)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What went wrong, with the kernel's number if it was the kernel.
pub(crate) fn fault(doing: impl Into<String>, error: impl Into<io::Error>) -> Fault {
    Fault { doing: doing.into(), errno: error.into().raw_os_error().unwrap_or(0) }
}

//! One stream to the guest, in frames. What comes from there is hostile: a frame that makes no sense ends the stream.

use crate::faults::guest_gone;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_wire::frame::{self, Frame, FrameReader, Tag};
use belljar_wire::message;
use belljar_wire::serde::{Deserialize, Serialize};
use std::os::unix::net::UnixStream as StdStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The direction from the guest.
pub(crate) struct FromGuest {
    socket: OwnedReadHalf,
    reader: FrameReader,
    buffer: Box<[u8]>,
}

/// The direction to the guest.
pub(crate) struct ToGuest {
    socket: OwnedWriteHalf,
}

/// Both directions of a new stream.
pub(crate) fn open(stream: StdStream) -> Result<(ToGuest, FromGuest), SandboxError> {
    let failed = |error: std::io::Error| {
        ErrorCode::GuestStream.error(format!("cannot use a stream: {error}")).caused_by(error)
    };
    stream.set_nonblocking(true).map_err(failed)?;
    let (read, write) = UnixStream::from_std(stream).map_err(failed)?.into_split();
    let buffer = vec![0; frame::CHUNK].into_boxed_slice();
    Ok((ToGuest { socket: write }, FromGuest { socket: read, reader: FrameReader::default(), buffer }))
}

impl FromGuest {
    /// The next frame. May be dropped while it waits: nothing is lost.
    pub(crate) async fn receive(&mut self) -> Result<Frame, SandboxError> {
        loop {
            match self.reader.next_frame() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(guest_gone()),
            }
            match self.socket.read(&mut self.buffer).await {
                Ok(0) | Err(_) => return Err(guest_gone()),
                Ok(length) => self.reader.push(&self.buffer[..length]),
            }
        }
    }

    /// The next frame, which must be a message.
    pub(crate) async fn receive_message<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, SandboxError> {
        match self.receive().await? {
            Frame { tag: Tag::Message, payload } => message::decode(&payload).ok_or_else(guest_gone),
            _ => Err(guest_gone()),
        }
    }
}

impl ToGuest {
    pub(crate) async fn send(&mut self, tag: Tag, payload: &[u8]) -> Result<(), SandboxError> {
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        frame::encode(tag, payload, &mut bytes);
        self.send_frame(&bytes).await
    }

    /// Sends bytes that are a frame already.
    pub(crate) async fn send_frame(&mut self, bytes: &[u8]) -> Result<(), SandboxError> {
        self.socket.write_all(bytes).await.map_err(|_| guest_gone())
    }

    pub(crate) async fn send_message<T: Serialize>(&mut self, message: &T) -> Result<(), SandboxError> {
        self.send(Tag::Message, &message::encode(message)).await
    }

    /// Sends as much of these bytes, which are frames already, as there is room for. May be dropped while it waits.
    pub(crate) async fn send_some(&mut self, bytes: &[u8]) -> Result<usize, SandboxError> {
        self.socket.write(bytes).await.map_err(|_| guest_gone())
    }

    /// Closes our direction; the other one stays.
    pub(crate) async fn close(&mut self) {
        let _ = self.socket.shutdown().await;
    }
}

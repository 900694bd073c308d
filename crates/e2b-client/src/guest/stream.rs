//! The stream of a request, as the guest's end of it.

use belljar_wire::frame::{CHUNK, Frame, FrameReader, Tag, encode};
use belljar_wire::message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Both directions.
pub(super) struct HostStream;

/// What comes from the host.
pub(super) struct FromHost {
    half: OwnedReadHalf,
    reader: FrameReader,
}

/// What goes to it.
pub(super) struct ToHost(OwnedWriteHalf);

impl HostStream {
    pub(super) fn open(stream: StdUnixStream) -> io::Result<(FromHost, ToHost)> {
        stream.set_nonblocking(true)?;
        let (from, to) = UnixStream::from_std(stream)?.into_split();
        Ok((FromHost { half: from, reader: FrameReader::default() }, ToHost(to)))
    }
}

impl FromHost {
    /// The next frame; nothing when the host has closed its direction. Can be dropped while it waits.
    pub(super) async fn frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.reader.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            let mut buffer = vec![0; CHUNK];
            let length = self.half.read(&mut buffer).await?;
            if length == 0 {
                return Ok(None);
            }
            self.reader.push(&buffer[..length]);
        }
    }

    /// The next frame as a message.
    pub(super) async fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.frame().await? {
            None => Ok(None),
            Some(Frame { tag: Tag::Message, payload }) => {
                message::decode(&payload).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl ToHost {
    pub(super) async fn message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.frame(Tag::Message, &message::encode(message)).await
    }

    pub(super) async fn frame(&mut self, tag: Tag, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        encode(tag, payload, &mut bytes);
        self.0.write_all(&bytes).await
    }

    /// The same for more than fits into one; nothing for nothing.
    pub(super) async fn pieces(&mut self, tag: Tag, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(CHUNK) {
            self.frame(tag, piece).await?;
        }
        Ok(())
    }
}

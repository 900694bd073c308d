//! Files that come and go piece by piece: a whole one is never in memory.

use crate::Sandbox;
use crate::faults::{self, guest_gone};
use crate::stream::{FromGuest, ToGuest};
use belljar_spec::SandboxError;
use belljar_wire::frame::{CHUNK, Frame, Tag, encode};
use belljar_wire::message::{self, Reply, Request};

/// A file that is being read.
pub struct FileReader {
    from: FromGuest,
    /// The guest has said its last word.
    ended: bool,
}

/// A file that is being written. Nothing counts before [`FileWriter::finish`]: a file that was there keeps its content until
/// then, and one that was not is removed again when the writer is dropped.
pub struct FileWriter {
    to: ToGuest,
    from: FromGuest,
}

impl Sandbox {
    /// Opens a file to read it piece by piece.
    pub async fn open_file(&self, path: &str) -> Result<FileReader, SandboxError> {
        let (_to, mut from) = self.request(&Request::Read { path: path.into() }).await?;
        self.reply_or_dead(opened(&mut from)).await?;
        Ok(FileReader { from, ended: false })
    }

    /// Makes a file, or replaces the content of one, piece by piece. The folder must be there. Links are followed, and a file
    /// that is there stays the same file: its permissions, its owner and its other names are kept.
    pub async fn create_file(&self, path: &str) -> Result<FileWriter, SandboxError> {
        let (to, mut from) = self.request(&Request::Write { path: path.into() }).await?;
        self.reply_or_dead(opened(&mut from)).await?;
        Ok(FileWriter { to, from })
    }

    /// A file's content.
    pub async fn read_file(&self, path: &str) -> Result<Vec<u8>, SandboxError> {
        let mut reader = self.open_file(path).await?;
        let mut content = Vec::new();
        while let Some(piece) = reader.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Makes a file, or replaces its content. The folder must be there.
    pub async fn write_file(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        let mut writer = self.create_file(path).await?;
        writer.write(content).await?;
        writer.finish().await
    }
}

impl FileReader {
    /// The next bytes; `None` at the end. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, SandboxError> {
        if self.ended {
            return Ok(None);
        }
        let frame = self.from.receive().await?;
        match frame {
            Frame { tag: Tag::Data, payload } if !payload.is_empty() => return Ok(Some(payload)),
            _ => self.ended = true,
        }
        match frame {
            Frame { tag: Tag::Data, .. } => Ok(None),
            Frame { tag: Tag::Message, payload } => match message::decode(&payload) {
                Some(Reply::Failed(fault)) => Err(faults::file(&fault)),
                _ => Err(guest_gone()),
            },
            _ => Err(guest_gone()),
        }
    }
}

impl FileWriter {
    /// Adds bytes. Waits while the sandbox is slow to take them. Dropped while it waits, the writer is of no more use.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), SandboxError> {
        for piece in bytes.chunks(CHUNK) {
            self.send(piece).await?;
        }
        Ok(())
    }

    /// The file is complete. Only after this it has its new content.
    pub async fn finish(mut self) -> Result<(), SandboxError> {
        self.send(&[]).await?;
        done(&mut self.from).await
    }

    /// What went wrong inside is said at once, and not when all of a large file has been sent for nothing.
    async fn send(&mut self, piece: &[u8]) -> Result<(), SandboxError> {
        let mut frame = Vec::with_capacity(piece.len() + 8);
        encode(Tag::Data, piece, &mut frame);
        let mut sent = 0;
        while sent < frame.len() {
            let more = tokio::select! {
                biased;
                reply = self.from.receive_message(), if !piece.is_empty() => return Err(unasked(reply)),
                more = self.to.send_some(&frame[sent..]) => more,
            };
            match more {
                Ok(length) => sent += length,
                // It may have said why before it was gone.
                Err(_) => return Err(unasked(self.from.receive_message().await)),
            }
        }
        Ok(())
    }
}

/// What is said before all has been sent is why it is of no use to send more.
fn unasked(reply: Result<Reply, SandboxError>) -> SandboxError {
    match reply {
        Ok(Reply::Failed(fault)) => faults::file(&fault),
        Ok(_) => guest_gone(),
        Err(error) => error,
    }
}

async fn opened(from: &mut FromGuest) -> Result<(), SandboxError> {
    match from.receive_message().await? {
        Reply::Opened => Ok(()),
        Reply::Failed(fault) => Err(faults::file(&fault)),
        _ => Err(guest_gone()),
    }
}

pub(crate) async fn done(from: &mut FromGuest) -> Result<(), SandboxError> {
    match from.receive_message().await? {
        Reply::Done => Ok(()),
        Reply::Failed(fault) => Err(faults::file(&fault)),
        _ => Err(guest_gone()),
    }
}

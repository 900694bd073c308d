//! A connection to a server, by who watches over it until its record is written.

use super::framed::Framing;
use crate::credentials::Redact;
use crate::record::OpenRecord;
use crate::relay::silence;
use crate::serving::{Alive, Serving};
use belljar_audit::Ending;
use belljar_spec::egress::Refusal;
use hyper::body::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};

/// The connection and its record.
pub(super) struct Open {
    // Dropped in this order: the record is written before its last writer is gone.
    pub(super) record: Arc<Lock<OpenRecord>>,
    pub(super) serving: Arc<Serving>,
    /// What is said when the sandbox has no bytes left.
    pub(super) limit: Refusal,
    pub(super) _alive: Alive,
}

impl Open {
    pub(super) async fn until_closed(self, connection: impl Future<Output = Result<(), hyper::Error>>) {
        let counts = Arc::clone(&lock(&self.record).counts);
        let ending = tokio::select! {
            outcome = connection => match outcome {
                _ if counts.ran_out.load(Ordering::Relaxed) => Ending::ByteLimit,
                Ok(()) => Ending::Finished,
                Err(_) => Ending::ResetOutside,
            },
            () = silence(&counts) => Ending::IdleTimeout,
        };
        self.end(ending);
    }

    /// Bytes both ways, until the end or a long silence.
    pub(super) async fn resume(
        self,
        inside: TokioIo<Upgraded>,
        outside: TokioIo<Upgraded>,
        redact: Option<Redact>,
    ) {
        let counts = Arc::clone(&lock(&self.record).counts);
        let ending = tokio::select! {
            ended = both_ways(inside, outside, redact) => match ended {
                Ok(_) => Ending::Finished,
                Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Ending::ByteLimit,
                Err(_) => Ending::ResetOutside,
            },
            () = silence(&counts) => Ending::IdleTimeout,
        };
        self.end(ending);
    }

    fn end(&self, ending: Ending) {
        if ending == Ending::ByteLimit {
            self.serving.recorder.connection_refused(&self.limit);
        }
        lock(&self.record).ending = ending;
    }
}

/// What the server says is redacted as bodies are, message by message: as many bytes, so that frames stay what they are.
async fn both_ways(
    inside: TokioIo<Upgraded>,
    outside: TokioIo<Upgraded>,
    redact: Option<Redact>,
) -> io::Result<()> {
    let (mut from_inside, mut to_inside) = split(inside);
    let (mut from_outside, mut to_outside) = split(outside);
    let out = async {
        copy(&mut from_inside, &mut to_outside).await?;
        to_outside.shutdown().await
    };
    let back = async {
        match redact {
            None => {
                copy(&mut from_outside, &mut to_inside).await?;
            }
            Some(mut redact) => {
                let mut framing = Framing::web_socket();
                loop {
                    let mut piece = Vec::with_capacity(PIECE);
                    if from_outside.read_buf(&mut piece).await? == 0 {
                        to_inside.write_all(&framing.finish(&mut redact)).await?;
                        break;
                    }
                    let passed = framing.feed(&mut redact, Bytes::from(piece)).map_err(io::Error::other)?;
                    to_inside.write_all(&passed).await?;
                    to_inside.flush().await?;
                }
            }
        }
        to_inside.shutdown().await
    };
    tokio::try_join!(out, back).map(drop)
}

/// A record is whole at any time, whatever happened to who held it.
pub(super) fn lock(record: &Lock<OpenRecord>) -> MutexGuard<'_, OpenRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

const PIECE: usize = 16 * 1024;

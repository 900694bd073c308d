//! A blob, fetched into a file of ours: what is there already is not fetched again, and it counts only when its digest is right.

use super::client::{ATTEMPTS, Client};
use crate::digest::{Digest, Hasher};
use crate::disk::{self, LOOK};
use crate::document::Descriptor;
use crate::error::ImageError;
use crate::pace::{LEAST, Pace};
use belljar_state::lock_open_file;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fetches a blob into `path`, and gives it, from its beginning. Who fetches the same thing from the same server is waited for:
/// nothing, if it is not needed any more by then.
pub(crate) async fn fetch(
    client: &Client<'_>,
    blob: &Descriptor,
    layer: &Digest,
    path: &Path,
    reserve: u64,
    is_here: &dyn Fn() -> bool,
) -> Result<Option<File>, ImageError> {
    let mut part = loop {
        match Part::open(path, blob.size, reserve).map_err(ImageError::store("open", path))? {
            Some(part) => break part,
            None => tokio::time::sleep(WAITING).await,
        }
        if is_here() {
            return Ok(None);
        }
    };
    if is_here() {
        return Ok(None);
    }
    match part.fetch(client, blob, layer, path).await {
        Ok(()) => part.given().map(Some).map_err(ImageError::store("read", path)),
        Err(error) => {
            if matches!(error, ImageError::NoSpace(_) | ImageError::Mismatch { .. }) {
                // What cannot be finished, or is something else, only takes room.
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
    }
}

/// How an answer ended.
enum Ended {
    Whole,
    Early(ImageError),
}

/// As much of a blob as is here. Locked: no other process writes to it meanwhile.
struct Part {
    file: File,
    hasher: Hasher,
    have: u64,
    size: u64,
    pace: Pace,
    /// What stays free on the disk, and what was written since it was looked at.
    reserve: u64,
    unseen: u64,
}

impl Part {
    /// Not while another process has it.
    fn open(path: &Path, size: u64, reserve: u64) -> io::Result<Option<Part>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if !lock_open_file(&file, Duration::ZERO)? {
            return Ok(None);
        }
        let (hasher, pace) = (Hasher::new(), Pace::new(Instant::now()));
        let mut part = Part { file, hasher, have: 0, size, pace, reserve, unseen: LOOK };
        part.have = io::copy(&mut part.file, &mut part.hasher)?;
        if part.have > size {
            part.restart()?;
        }
        Ok(Some(part))
    }

    /// Until it is whole, and what its digest says.
    async fn fetch(
        &mut self,
        client: &Client<'_>,
        blob: &Descriptor,
        layer: &Digest,
        path: &Path,
    ) -> Result<(), ImageError> {
        let mut was_there = self.have > 0;
        let mut attempt = 0;
        // Before the first byte.
        let missing = self.size.saturating_sub(self.have);
        disk::look(&self.file, missing, self.reserve).map_err(ImageError::store("look at", path))?;
        loop {
            let before = self.have;
            let broken = match self.rest(client, blob, layer).await? {
                Ended::Whole => {
                    let (found, expected) = (self.digest(), blob.digest.to_string());
                    if found.to_string() == expected {
                        return Ok(());
                    }
                    self.restart().map_err(ImageError::store("empty", path))?;
                    if !was_there {
                        return Err(ImageError::Mismatch {
                            what: "blob",
                            expected,
                            found: found.to_string(),
                        });
                    }
                    // What an earlier try left may be damaged: once more, from the beginning.
                    was_there = false;
                    continue;
                }
                Ended::Early(why) => why,
            };
            // A connection that breaks after it brought something is no reason to give up.
            attempt = if self.have > before.saturating_add(SOMETHING) { 1 } else { attempt + 1 };
            if attempt > ATTEMPTS {
                return Err(broken);
            }
            client.wait(attempt, &broken.to_string()).await;
        }
    }

    /// The whole, from its beginning. It is not ours alone any more.
    fn given(mut self) -> io::Result<File> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.unlock()?;
        Ok(self.file)
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.unseen = self.unseen.saturating_add(chunk.len() as u64);
        if self.unseen >= LOOK {
            self.unseen = 0;
            disk::look(&self.file, chunk.len() as u64, self.reserve)?;
        }
        self.hasher.update(chunk);
        self.file.write_all(chunk)
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = Hasher::new();
        self.have = 0;
        Ok(())
    }

    fn digest(&mut self) -> Digest {
        std::mem::replace(&mut self.hasher, Hasher::new()).finish()
    }

    async fn rest(
        &mut self,
        client: &Client<'_>,
        blob: &Descriptor,
        layer: &Digest,
    ) -> Result<Ended, ImageError> {
        if self.have == self.size {
            return Ok(Ended::Whole);
        }
        let failed = |source| ImageError::store("write", "a blob")(source);
        let mut answer = client.blob(&blob.digest.to_string(), self.have).await?;
        if !(answer.status() == StatusCode::PARTIAL_CONTENT && begins_at(&answer, self.have)) {
            self.restart().map_err(failed)?;
            if answer.status() != StatusCode::OK {
                let (expected, found) = ("a part of it".to_string(), format!("answer {}", answer.status()));
                return Ok(Ended::Early(ImageError::Mismatch { what: "blob", expected, found }));
            }
        }
        loop {
            let chunk = match answer.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if self.have == self.size => return Ok(Ended::Whole),
                Ok(None) => {
                    let (expected, found) = (format!("{} bytes", self.size), format!("{} bytes", self.have));
                    return Ok(Ended::Early(ImageError::Mismatch { what: "blob", expected, found }));
                }
                Err(error) => return Ok(Ended::Early(client.broken(&error))),
            };
            self.have += chunk.len() as u64;
            if self.have > self.size {
                self.restart().map_err(failed)?;
                let (expected, found) = (format!("{} bytes", self.size), "more".to_string());
                return Err(ImageError::Mismatch { what: "blob", expected, found });
            }
            self.write(&chunk).map_err(failed)?;
            if self.pace.is_too_slow(chunk.len() as u64, Instant::now()) {
                return Err(client.too_slow(LEAST));
            }
            client.progress().fetched(layer, self.have, self.size);
        }
    }
}

/// `bytes 100-199/200`
fn begins_at(answer: &Response, offset: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let first = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
    first == Some(offset)
}

/// What a connection must have brought to have been worth it.
const SOMETHING: u64 = 64 << 10;
/// Between two looks at what another process fetches.
const WAITING: Duration = Duration::from_millis(100);

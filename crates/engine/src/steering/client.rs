//! The side of those who steer: which sandboxes take orders, and orders to one of them. Blocks; an order takes milliseconds.

use super::orders::{Order, Reply};
use super::{directory, socket_name};
use belljar_spec::egress::{LiveNotice, PolicyReport};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_state::is_written_to;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A sandbox that takes orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// The name of this life, which its audit log has too.
    pub id: String,
    /// Of one that is kept: its name and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The folder that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub backend: String,
    /// It asks a person.
    #[serde(default)]
    pub asks: bool,
    pub started_ms: i64,
    /// The process that holds it.
    pub pid: u32,
}

/// The sandboxes of this state directory that take orders, the oldest first.
pub fn steered(state: &Path) -> Vec<Steered> {
    let directory = directory(state);
    let Ok(entries) = fs::read_dir(&directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let living = names.filter(|name| !name.contains('.')).filter_map(|id| {
        let path = directory.join(&id);
        let file = File::open(&path).ok().filter(is_written_to)?;
        drop(file);
        serde_json::from_slice::<Steered>(&fs::read(&path).ok()?).ok().filter(|steered| steered.id == id)
    });
    let mut all: Vec<Steered> = living.collect();
    all.sort_by(|one, other| (one.started_ms, &one.id).cmp(&(other.started_ms, &other.id)));
    all
}

impl Steered {
    /// Has an order carried out.
    pub fn order(&self, state: &Path, order: &Order) -> Result<Reply, SandboxError> {
        let mut line = String::new();
        let mut reader = BufReader::new(self.send(state, order).map_err(|error| self.gone(error))?);
        reader.read_line(&mut line).map_err(|error| self.gone(error))?;
        let reply: Reply = serde_json::from_str(&line).map_err(|error| self.gone(error.into()))?;
        reply.accepted()
    }

    /// The policy in force.
    pub fn policy(&self, state: &Path) -> Result<PolicyReport, SandboxError> {
        match self.order(state, &Order::Show {})? {
            Reply::Policy(report) => Ok(*report),
            Reply::Changed { .. } | Reply::Notice(_) | Reply::Refused { .. } => {
                Err(self.gone(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// What happens from now on; first the questions that wait already.
    pub fn watch(&self, state: &Path) -> Result<Watching, SandboxError> {
        let stream = self.send(state, &Order::Watch {}).map_err(|error| self.gone(error))?;
        let failed = |error| self.gone(error);
        stream.set_read_timeout(None).map_err(failed)?;
        let ending = stream.try_clone().map_err(failed)?;
        Ok(Watching { reader: BufReader::new(stream), ending })
    }

    fn send(&self, state: &Path, order: &Order) -> io::Result<UnixStream> {
        let path = directory(state).join(socket_name(&self.id));
        let mut stream = short(&path, |path| UnixStream::connect(path))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(stream)
    }

    fn gone(&self, error: io::Error) -> SandboxError {
        ErrorCode::SandboxNotAlive
            .error(format!("the sandbox {} takes no orders: {error}", self.id))
            .hint("it may have ended: look at the list of sandboxes that live")
            .caused_by(error)
    }
}

/// What happens in a sandbox, as it happens.
pub struct Watching {
    reader: BufReader<UnixStream>,
    ending: UnixStream,
}

/// Ends a [`Watching`] that another thread waits in.
pub struct WatchEnd(UnixStream);

impl Drop for WatchEnd {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Watching {
    /// Dropped, the iterator ends.
    pub fn end(&self) -> io::Result<WatchEnd> {
        self.ending.try_clone().map(WatchEnd)
    }
}

impl Iterator for Watching {
    type Item = LiveNotice;

    fn next(&mut self) -> Option<LiveNotice> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // What a newer version tells beside it is skipped.
            if let Ok(Reply::Notice(notice)) = serde_json::from_str(&line) {
                return Some(notice);
            }
        }
    }
}

/// Removes what sandboxes left whose process was killed.
pub(super) fn sweep(state: &Path) {
    let directory = directory(state);
    let Ok(entries) = fs::read_dir(&directory) else { return };
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let id = name.trim_end_matches(".sock");
        let is_held = File::open(directory.join(id)).is_ok_and(|file| is_written_to(&file));
        if !is_held {
            let _ = fs::remove_file(directory.join(socket_name(id)));
            let _ = fs::remove_file(directory.join(id));
        }
    }
}

/// A socket's address has room for 107 bytes: a longer path is said by the descriptor of its directory.
pub(super) fn short<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(parent)?;
    work(&PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

/// The process that holds the sandbox answers at once, unless it is stopped.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

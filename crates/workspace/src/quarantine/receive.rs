//! Receives a pack from its sender into the quarantine.

use super::{Quarantine, QuarantineError};
use crate::inert::{Running, pack_limits};
use belljar_git::{ObjectId, PushRefusal};
use belljar_spec::git::PushLimits;
use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ChildStderr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The sender of a pack.
pub trait Incoming {
    /// Reads some bytes (none at the end), or `None` as soon as `other` is readable. An error if neither sends anything within the
    /// time limit; [`ErrorKind::ConnectionAborted`] if the relay is stopping.
    fn read_unless(
        &mut self,
        buffer: &mut [u8],
        other: BorrowedFd<'_>,
        time_limit: Duration,
    ) -> io::Result<Option<usize>>;
}

/// A received pack.
#[derive(Debug)]
pub struct Taken {
    /// `pack-HASH`; none if there was nothing in it.
    pub(super) name: Option<String>,
    /// Every object that was in it.
    pub(super) objects: HashSet<ObjectId>,
    /// The commits among them.
    pub(super) commits: HashSet<ObjectId>,
}

impl Quarantine {
    /// Takes a pack that begins with `begin`. It has to be complete except for objects that the host has: no delta may have one of
    /// those as its base (the capability `no-thin`), or the answer to a push would reveal the content of hidden objects.
    pub fn take(
        &self,
        begin: &[u8],
        incoming: &mut dyn Incoming,
        limits: PushLimits,
    ) -> Result<Taken, QuarantineError> {
        let mut buffer = vec![0; PIECE];
        let begin = self.header(begin, incoming, &mut buffer, limits)?;
        let mut indexer = Indexer::start(self, limits)?;
        let mut total = begin.len() as u64;
        let mut is_taking = indexer.write(&begin);
        let mut over = None;
        while is_taking {
            match incoming.read_unless(&mut buffer, indexer.stdout(), QUIET) {
                // index-pack has printed the pack's name, or an error; or it will now, at the end of its input.
                Ok(None | Some(0)) => break,
                // Is the pack complete? git reports at once if it is not.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {
                    over = Some(error);
                    break;
                }
                Err(error) => return Err(QuarantineError::Broken(error)),
                Ok(Some(count)) => {
                    total += count as u64;
                    if total > limits.bytes.as_u64() {
                        return Err(QuarantineError::Refused(PushRefusal::Bytes { most: limits.bytes }));
                    }
                    is_taking = indexer.write(&buffer[..count]);
                }
            }
        }
        let name = indexer.finish().map_err(|error| over.map_or(error, QuarantineError::Broken))?;
        let (objects, commits) = self.objects_of(&name, limits)?;
        Ok(Taken { name: (!objects.is_empty()).then_some(name), objects, commits })
    }

    /// Checks the number of objects in the header, before git reserves memory for them.
    fn header(
        &self,
        begin: &[u8],
        incoming: &mut dyn Incoming,
        buffer: &mut [u8],
        limits: PushLimits,
    ) -> Result<Vec<u8>, QuarantineError> {
        let mut begin = begin.to_vec();
        let (nothing, _open) = io::pipe().map_err(QuarantineError::file("open", &self.directory))?;
        while begin.len() < HEADER {
            let read =
                incoming.read_unless(buffer, nothing.as_fd(), QUIET).map_err(QuarantineError::Broken)?;
            match read {
                // Objects that cannot be packed (one is missing, a tree is malformed): git inside has ended, and printed why.
                None | Some(0) => {
                    return Err(QuarantineError::pack(
                        "none came: git in the sandbox ended first and says why above",
                    ));
                }
                Some(count) => begin.extend_from_slice(&buffer[..count]),
            }
        }
        let count = match (&begin[..4], &begin[4..8], begin[8..HEADER].try_into()) {
            (b"PACK", [0, 0, 0, 2 | 3], Ok(count)) => u64::from(u32::from_be_bytes(count)),
            _ => return Err(QuarantineError::pack("it does not begin like one")),
        };
        if count > limits.objects {
            return Err(QuarantineError::Refused(PushRefusal::Objects { most: limits.objects }));
        }
        Ok(begin)
    }

    /// The objects of the pack, none larger than a whole push may be: a few bytes can inflate to very many.
    fn objects_of(
        &self,
        name: &str,
        limits: PushLimits,
    ) -> Result<(HashSet<ObjectId>, HashSet<ObjectId>), QuarantineError> {
        let path = self.packs().join(format!("{name}.idx"));
        let index = fs::read(&path).map_err(QuarantineError::file("open", &path))?;
        let raw = self.format.digits() / 2;
        let names = names_in(&index, raw).ok_or_else(|| QuarantineError::pack("its index cannot be read"))?;
        let mut objects = HashSet::new();
        let mut commits = HashSet::new();
        if names.is_empty() {
            return Ok((objects, commits));
        }
        let question = ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", "--buffer"];
        let sizes = self.call().args(question).output_with(names.trim_ascii_end())?;
        let mut unfolded: u64 = 0;
        for line in sizes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let text = String::from_utf8_lossy(line);
            let words = text.split(' ').collect::<Vec<_>>();
            let unreadable = || QuarantineError::pack("an object of it cannot be read");
            let [id, kind, size] = words[..] else { return Err(unreadable()) };
            let (Ok(id), Ok(size)) = (ObjectId::parse(id.as_bytes()), size.parse::<u64>()) else {
                return Err(unreadable());
            };
            if kind == "commit" {
                commits.insert(id.clone());
            }
            unfolded = unfolded.saturating_add(size);
            if size > limits.bytes.as_u64() || unfolded > limits.bytes.as_u64().saturating_mul(UNFOLDS) {
                return Err(QuarantineError::Refused(PushRefusal::Bytes { most: limits.bytes }));
            }
            objects.insert(id);
        }
        Ok((objects, commits))
    }
}

/// The names in a pack's index as lines (gitformat-pack(5), version 2, which index-pack writes).
fn names_in(index: &[u8], raw: usize) -> Option<Vec<u8>> {
    let rest = index.strip_prefix(b"\xfftOc\0\0\0\x02")?;
    let (fan_out, rest) = rest.split_at_checked(256 * 4)?;
    let count = u32::from_be_bytes(*fan_out.last_chunk()?) as usize;
    let names = rest.get(..count.checked_mul(raw)?)?;
    let mut lines = Vec::with_capacity(count * (2 * raw + 1));
    for name in names.chunks_exact(raw) {
        lines.extend(
            name.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]),
        );
        lines.push(b'\n');
    }
    Some(lines)
}

/// A running `git index-pack`: it reads every object, names it by its content and checks its format.
struct Indexer {
    running: Running,
    complaints: Option<JoinHandle<Vec<u8>>>,
}

impl Indexer {
    fn start(quarantine: &Quarantine, limits: PushLimits) -> Result<Indexer, QuarantineError> {
        let most = format!("--max-input-size={}", limits.bytes.as_u64());
        let call = quarantine.call().args(["index-pack", "--stdin", "--strict", "--threads=1"]).arg(most);
        let mut running = call.limited(pack_limits(limits.bytes.as_u64())).with_thread().spawn()?;
        quarantine.note_indexer(running.id())?;
        let complaints = running.stderr.take().map(|stderr| thread::spawn(move || beginning(stderr)));
        Ok(Indexer { running, complaints })
    }

    /// `false` if it no longer reads.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.running.stdin.as_mut().is_some_and(|stdin| stdin.write_all(bytes).is_ok())
    }

    fn stdout(&self) -> BorrowedFd<'_> {
        self.running.stdout.as_ref().expect("stdout is piped and only taken by `finish`").as_fd()
    }

    /// The pack's name.
    fn finish(mut self) -> Result<String, QuarantineError> {
        drop(self.running.stdin.take());
        let output = self.running.wait_with_output().map_err(QuarantineError::Broken)?;
        let complaints = self.complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
        match output.status.code() {
            Some(0) => {}
            Some(_) => return Err(QuarantineError::pack(complaint(&complaints))),
            None => return Err(QuarantineError::pack("it takes too much to unpack")),
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        let hash = stdout.trim_end().strip_prefix("pack\t").unwrap_or_default();
        match ObjectId::parse(hash.as_bytes()) {
            Ok(hash) => Ok(format!("pack-{hash}")),
            Err(_) => Err(QuarantineError::pack("git did not say what it is")),
        }
    }
}

/// The beginning of its error output; the rest is read too, so that it does not block.
pub(super) fn beginning(mut stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = stderr.by_ref().take(COMPLAINTS).read_to_end(&mut kept);
    let _ = io::copy(&mut stderr, &mut io::sink());
    kept
}

/// git's first error is more specific than its last line.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines();
    let first = lines.clone().find_map(|line| line.strip_prefix("error: "));
    let line = first.or_else(|| lines.find_map(|line| line.strip_prefix("fatal: ")));
    line.unwrap_or("git cannot read it").to_string()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The header of every pack (gitformat-pack(5)).
const HEADER: usize = 12;
/// The total size of the objects as a multiple of a push's limit: text histories inflate to fifty times their pack.
const UNFOLDS: u64 = 100;
const PIECE: usize = 64 * 1024;
/// A sender that has sent everything waits for git, which computes for minutes if the sandbox's share of a processor is small; that
/// must not look like an idle sender.
const QUIET: Duration = Duration::from_secs(600);
const COMPLAINTS: u64 = 16 * 1024;

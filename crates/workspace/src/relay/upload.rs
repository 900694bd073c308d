//! A fetch: the host's own git, which shows branches and tags and nothing else.

use super::RelayEvent;
use super::line::{Line, PIECE};
use super::server::Terms;
use crate::inert::{Call, GitError};
use crate::quarantine::{HostRepository, SPENT};
use belljar_git::pkt::{self, Packet};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStderr, ChildStdin};
use std::thread;
use std::time::Duration;

/// Serves a fetch or a clone.
pub(super) fn serve(line: &Line, terms: &Terms) {
    match fetch(line, &terms.repository) {
        Ok(bytes) => terms.note(RelayEvent::Fetched { bytes }),
        Err(error) => {
            let _ = line.write(&pkt::data(unreadable(&error).as_bytes()));
            terms.note(RelayEvent::Broken { why: error.to_string() });
        }
    }
    line.finish(PIECE as u64);
}

/// Why nothing can be served, without the host's paths.
pub(super) fn unreadable(error: &GitError) -> String {
    match error {
        GitError::Spent { .. } => format!("ERR {SPENT}"),
        _ => "ERR the repository cannot be read on the host".to_string(),
    }
}

/// Both directions at once: a client may write while it should read.
fn fetch(line: &Line, repository: &HostRepository) -> Result<u64, GitError> {
    let mut git = call(repository).spawn()?;
    let (stdin, stdout, stderr) = (git.stdin.take(), git.stdout.take(), git.stderr.take());
    let inbound = line.clone();
    thread::spawn(move || forward(&inbound, stdin));
    thread::spawn(move || ignore(stderr));
    let mut bytes = 0;
    if let Some(mut stdout) = stdout {
        let mut buffer = vec![0; PIECE];
        // The client is gone, the deadline has passed or the relay ends: dropping the process ends git.
        while line.wait_for(stdout.as_fd()).is_ok() {
            match stdout.read(&mut buffer) {
                Ok(count @ 1..) if line.write(&buffer[..count]).is_ok() => bytes += count as u64,
                _ => break,
            }
        }
    }
    Ok(bytes)
}

/// git's upload-pack, with our rules for the visible refs, not the repository's. Always protocol 0, even if a client asks for
/// another: in protocol 2 any object can be requested by its name, even a hidden one (gitprotocol-v2(5), `want`).
fn call(repository: &HostRepository) -> Call {
    let call = repository
        .call()
        .args(["upload-pack", "--strict"])
        .arg(format!("--timeout={}", SILENT.as_secs()))
        .arg(repository.directory());
    let call = SETTINGS.iter().fold(call, |call, (key, value)| call.config(key, value));
    // The last matching rule counts: first hide all, then show some.
    let call = call.config("transfer.hideRefs", "refs");
    SHOWN.iter().fold(call, |call, prefix| call.config("transfer.hideRefs", format!("!{prefix}")))
}

/// Forwards the client's packets. A client that sends `shallow` and `deepen` would get the parents of the commits that it names,
/// even hidden ones (upload-pack's `deepen`): so it may send one or the other, never both.
fn forward(line: &Line, stdin: Option<ChildStdin>) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    let mut packets = pkt::Reader::new(usize::MAX);
    let (mut ends, mut deepens) = (false, false);
    let mut buffer = vec![0; PIECE];
    loop {
        // git itself ends a client that is silent for too long; a client may wait long for a large pack.
        let count = match line.read(&mut buffer, Duration::MAX)? {
            0 => return Ok(()),
            count => count,
        };
        packets.feed(&buffer[..count]);
        while let Some(packet) = packets.take().map_err(io::Error::other)? {
            let bytes = match packet {
                Packet::Data(data) => {
                    ends |= data.starts_with(b"shallow ");
                    deepens |= data.starts_with(b"deepen");
                    pkt::data(&data)
                }
                Packet::Flush => pkt::FLUSH.to_vec(),
                Packet::Delim | Packet::ResponseEnd => {
                    return Err(io::Error::other("a packet of another protocol"));
                }
            };
            if ends && deepens {
                return Err(io::Error::other("a shallow history cannot be deepened here"));
            }
            stdin.write_all(&bytes)?;
        }
    }
}

/// git's messages are not shown anywhere.
fn ignore(stderr: Option<ChildStderr>) {
    if let Some(mut stderr) = stderr {
        let _ = io::copy(&mut stderr, &mut io::sink());
    }
}

/// Override the repository's own config, which may be more permissive.
const SETTINGS: [(&str, &str); 7] = [
    ("uploadpack.allowTipSHA1InWant", "false"),
    ("uploadpack.allowReachableSHA1InWant", "false"),
    ("uploadpack.allowAnySHA1InWant", "false"),
    ("uploadpack.allowRefInWant", "false"),
    ("uploadpack.allowFilter", "false"),
    ("uploadpack.advertiseBundleURIs", "false"),
    // As many as there can be connections are enough.
    ("pack.threads", "1"),
];
const SHOWN: [&str; 2] = ["refs/heads", "refs/tags"];
/// Time limit for a client that neither sends nor reads.
const SILENT: Duration = Duration::from_secs(120);

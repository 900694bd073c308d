//! File operations. What the data plane does more loosely than the contract (it makes folders on the way, and leaves half of a file that
//! was cut) is done by a script inside, as the sandbox's user.

use super::exec::{absolute, holds_workspace, mark};
use super::fault::{self, failed, fault};
use super::stream::{FromHost, ToHost};
use super::{Remote, USER};
use crate::filesystem::EntryInfo;
use crate::http::Failure;
use crate::rpc::CallError;
use belljar_sys::rustix::io::Errno;
use belljar_wire::frame::{Frame, Tag};
use belljar_wire::message::{Bytes, Change, ChangeKind, Entry, EntryKind, Fault, Metadata, Reply, Request};
use futures_util::stream::poll_fn;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

pub(super) async fn answer(
    remote: &Arc<Remote>,
    request: Request,
    from: FromHost,
    mut to: ToHost,
) -> io::Result<()> {
    let envd = &remote.envd;
    let reply = match request {
        Request::Read { path } => return read(remote, &path, to).await,
        Request::Write { path } => return write(remote, &path, from, to).await,
        Request::Watch { path, recursive } => return watch(remote, &path, recursive, from, to).await,
        Request::ReadDir { path } => return list(remote, &path, to).await,
        // Asked to see whether the guest answers, which is us. A service that is out of reach for a while is no guest that hangs.
        Request::Stat { path } if path == "/" => Reply::Metadata(root()),
        Request::Stat { path } => match envd.stat(&absolute(&path)).await {
            Ok(entry) => {
                let owner = remote.accounts.numbers(envd, &entry.owner, &entry.group).await;
                Reply::Metadata(entry.metadata(owner))
            }
            Err(error) => Reply::Failed(failed(format!("look at {path}"), &error)),
        },
        Request::Mkdir { path, recursive: true } => match envd.make_folder(&absolute(&path)).await {
            Err(error) if fault::errno(&error) == Errno::EXIST => match envd.stat(&absolute(&path)).await {
                Ok(found) if found.kind() != EntryKind::File => Reply::Done,
                _ => Reply::Failed(failed(format!("make {path}"), &error)),
            },
            made => done(format!("make {path}"), made),
        },
        Request::Mkdir { path, recursive: false } => {
            by_script(remote, format!("make {path}"), "mkdir -- \"$1\"", &[&absolute(&path)]).await
        }
        Request::Remove { path, recursive: true } if holds_workspace(&path) => {
            Reply::Failed(fault(format!("remove {path}"), Errno::BUSY))
        }
        Request::Remove { path, recursive: false } => {
            by_script(remote, format!("remove {path}"), "rm -- \"$1\"", &[&absolute(&path)]).await
        }
        Request::Remove { path, recursive: true } => {
            let removed = async {
                envd.stat(&absolute(&path)).await?;
                envd.remove(&absolute(&path)).await
            };
            done(format!("remove {path}"), removed.await)
        }
        Request::Rename { from, to } => {
            let doing = format!("rename {from} to {to}");
            by_script(remote, doing, RENAME, &[&absolute(&from), &absolute(&to)]).await
        }
        Request::SetAttributes { path, .. } => {
            Reply::Failed(fault(format!("set attributes of {path}"), fault::NOT_SUPPORTED))
        }
        // A service says nothing of its network.
        Request::Listening => Reply::Failed(fault("list ports".to_string(), fault::NOT_SUPPORTED)),
        Request::Exec(_) | Request::Connect { .. } | Request::Pause | Request::Resume => {
            Reply::Failed(fault("take something else for a file operation", Errno::INVAL))
        }
    };
    to.message(&reply).await
}

fn done(doing: String, outcome: Result<(), CallError>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(failed(doing, &error)),
    }
}

/// What a script of ours does; its complaint says what went wrong.
async fn by_script(remote: &Remote, doing: String, script: &str, args: &[&str]) -> Reply {
    match script_fault(remote, &doing, script, args).await {
        Ok(()) => Reply::Done,
        Err(fault) => Reply::Failed(fault),
    }
}

async fn script_fault(remote: &Remote, doing: &str, script: &str, args: &[&str]) -> Result<(), Fault> {
    match remote.envd.script(script, args).await {
        Ok((0, _)) => Ok(()),
        Ok((_, output)) => Err(fault(doing, fault::of_sentence(&output).unwrap_or(Errno::IO))),
        Err(error) => Err(failed(doing, &error)),
    }
}

async fn read(remote: &Remote, path: &str, mut to: ToHost) -> io::Result<()> {
    let doing = || format!("read {path}");
    let mut content = match remote.envd.read(USER, &absolute(path)).await {
        Ok(content) => content,
        Err(error) => return to.message(&Reply::Failed(failed(doing(), &error))).await,
    };
    to.message(&Reply::Opened).await?;
    loop {
        match content.next().await {
            Ok(Some(bytes)) => to.pieces(Tag::Data, &bytes).await?,
            Ok(None) => return to.frame(Tag::Data, &[]).await,
            Err(_) => return to.message(&Reply::Failed(fault(doing(), Errno::IO))).await,
        }
    }
}

async fn list(remote: &Remote, path: &str, mut to: ToHost) -> io::Result<()> {
    let entries = match remote.envd.list(&absolute(path)).await {
        Ok(entries) => entries,
        Err(error) => {
            // A path that is no folder is no folder, whatever the service calls it.
            let errno = match fault::errno(&error) {
                Errno::INVAL => Errno::NOTDIR,
                other => other,
            };
            return to.message(&Reply::Failed(fault(format!("list {path}"), errno))).await;
        }
    };
    let entry = |info: &EntryInfo| Entry { name: Bytes(info.name.clone().into_bytes()), kind: info.kind() };
    for some in entries.chunks(ENTRIES_AT_ONCE) {
        to.message(&Reply::Entries(some.iter().map(entry).collect())).await?;
    }
    to.message(&Reply::Entries(Vec::new())).await
}

/// The content goes into a file of its own, and from there in one step into the one that is meant: that stays the same file, and it has
/// its old content until all of the new one is there.
async fn write(remote: &Remote, path: &str, mut from: FromHost, mut to: ToHost) -> io::Result<()> {
    let doing = || format!("write {path}");
    let arriving = format!("/tmp/.belljar-{}", mark());
    to.message(&Reply::Opened).await?;
    let (pieces, mut arrived) = mpsc::channel(PIECES);
    let body = poll_fn(move |context| arrived.poll_recv(context));
    let uploading = remote.envd.write(USER, &arriving, body);
    let taking = async move {
        loop {
            match from.frame().await {
                Ok(Some(Frame { tag: Tag::Data, payload })) if payload.is_empty() => return true,
                Ok(Some(Frame { tag: Tag::Data, payload })) => {
                    if pieces.send(Ok(payload.into())).await.is_err() {
                        // The upload has failed, and says why.
                        return false;
                    }
                }
                _ => {
                    let _ = pieces.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                    return false;
                }
            }
        }
    };
    let (uploaded, is_whole) = tokio::join!(uploading, taking);
    let outcome = match (uploaded, is_whole) {
        (Ok(()), true) => script_fault(remote, &doing(), PUT, &[&arriving, &absolute(path)]).await,
        (Ok(()), false) => Err(fault(doing(), Errno::IO)),
        (Err(error), _) => Err(failed(doing(), &error)),
    };
    if outcome.is_err() {
        let _ = remote.envd.remove(&arriving).await;
    }
    to.message(&outcome.map_or_else(Reply::Failed, |()| Reply::Done)).await
}

async fn watch(
    remote: &Remote,
    path: &str,
    recursive: bool,
    mut from: FromHost,
    mut to: ToHost,
) -> io::Result<()> {
    let mut changes = match remote.envd.watch(&absolute(path), recursive).await {
        Ok(changes) => changes,
        Err(error) => {
            let errno = match fault::errno(&error) {
                Errno::INVAL => Errno::NOTDIR,
                other => other,
            };
            return to.message(&Reply::Failed(fault(format!("watch {path}"), errno))).await;
        }
    };
    to.message(&Reply::Opened).await?;
    loop {
        let next = tokio::select! {
            next = changes.next() => next,
            _ = from.frame() => return Ok(()),
        };
        let batch = match next {
            Ok(Some((kind, path))) => vec![Change { kind, path: Bytes(path.into_bytes()) }],
            // The folder is gone.
            Ok(None) => Vec::new(),
            Err(CallError::Rpc(error)) if error.code == "not_found" => Vec::new(),
            // What happened meanwhile is not known.
            Err(
                CallError::Rpc(_)
                | CallError::NoSandbox
                | CallError::Failed(Failure::Broken(_) | Failure::Late),
            ) => {
                vec![Change { kind: ChangeKind::Overflow, path: Bytes(Vec::new()) }]
            }
            Err(CallError::Failed(_)) => Vec::new(),
        };
        let is_last = batch.is_empty() || matches!(batch[..], [Change { kind: ChangeKind::Overflow, .. }]);
        to.message(&Reply::Changes(batch)).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// What every root is.
fn root() -> Metadata {
    Metadata {
        kind: EntryKind::Directory,
        size: 0,
        mtime_ms: 0,
        mode: 0o755,
        owner: (0, 0),
        link: None,
        attributes: Vec::new(),
    }
}

/// As rename(2): over no border between filesystems, and into no folder that is not there.
const RENAME: &str = r#"
[ -e "$1" ] || [ -L "$1" ] || { echo "No such file or directory" >&2; exit 1; }
[ -d "$(dirname -- "$2")" ] || { echo "No such file or directory" >&2; exit 1; }
mv -fT -- "$1" "$2""#;
const PUT: &str = r#"cat < "$1" > "$2"; code=$?; rm -f -- "$1"; exit "$code""#;
const ENTRIES_AT_ONCE: usize = 500;
const PIECES: usize = 8;

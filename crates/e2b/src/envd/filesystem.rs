//! Files, by calls: looked at, listed, made, moved, removed. Watching is `watch.rs`'s, content `files.rs`'s.

use super::route::Context;
use super::{paths, rpc, watch};
use crate::api::shapes::rfc3339;
use crate::connect::{Code, RpcError};
use crate::http::Body;
use crate::http::Incoming;
use belljar_api::{FileKind, FileStat, StartCommand};
use belljar_spec::ErrorCode;
use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::{Request, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    path: String,
    source: String,
    destination: String,
    depth: u32,
}

/// Answers a call to the service.
pub(crate) async fn answer(context: Context, method: &str, request: Request<Incoming>) -> Response<Body> {
    if let Err(error) = context.must_be_user(&request) {
        return if method == "WatchDir" { rpc::failed(&error) } else { rpc::answer(Err(error)) };
    }
    match method {
        "WatchDir" => watch::stream(context, request).await,
        "CreateWatcher" | "GetWatcherEvents" | "RemoveWatcher" => {
            rpc::answer(watch::poll(context, method, request).await)
        }
        _ => rpc::answer(act(&context, method, request).await),
    }
}

async fn act(context: &Context, method: &str, request: Request<Incoming>) -> Result<Value, RpcError> {
    let Asked { path, source, destination, depth } = rpc::unary(request).await?;
    let absolute = |path: &str| context.absolute(path);
    let path = absolute(&path);
    match method {
        "Stat" => Ok(json!({ "entry": entry(context, &path).await? })),
        "ListDir" => Ok(json!({ "entries": list(context, &path, depth.max(1)).await? })),
        "MakeDir" => {
            make_dir(context, &path).await?;
            Ok(json!({ "entry": entry(context, &path).await? }))
        }
        "Move" => {
            let (source, destination) = (absolute(&source), absolute(&destination));
            move_path(context, &source, &destination).await?;
            Ok(json!({ "entry": entry(context, &destination).await? }))
        }
        "Remove" => match context.sandbox.remove_file(&path, true).await {
            Err(error) if error.code() != ErrorCode::NotFound => Err(context.failed(error)),
            // One that is not there is removed.
            _ => Ok(rpc::empty()),
        },
        method => Err(RpcError::new(Code::Unimplemented, format!("there is no call `{method}`"))),
    }
}

/// What is known of a path, as clients are told it.
pub(crate) async fn entry(context: &Context, path: &str) -> Result<Value, RpcError> {
    let stat = context.sandbox.stat(path).await.map_err(|error| context.failed(error))?;
    let mut entry = json!({
        "name": paths::name(path),
        "type": type_name(stat.kind),
        "path": path,
        "size": stat.size.to_string(),
        "mode": stat.mode & 0o777,
        "permissions": permissions(stat.kind, stat.mode),
        "owner": user_name(context, stat.uid),
        "group": user_name(context, stat.gid),
        "modifiedTime": rfc3339(stat.mtime_ms),
    });
    let metadata: BTreeMap<&str, &String> = stat
        .attributes
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, value)))
        .collect();
    if !metadata.is_empty() {
        entry["metadata"] = json!(metadata);
    }
    if stat.kind == FileKind::Symlink {
        let (target, kind) = target(context, path, stat).await;
        entry["type"] = type_name(kind).into();
        entry["symlinkTarget"] = target.into();
    }
    Ok(entry)
}

/// Where a link leads at last, and what is there.
async fn target(context: &Context, path: &str, stat: FileStat) -> (String, FileKind) {
    let (mut path, mut stat) = (path.to_string(), stat);
    for _ in 0..MAX_LINKS {
        let Some(link) = stat.link else { break };
        let folder = paths::parent(&path).to_string();
        path = paths::absolute(&link, &folder, &folder);
        match context.sandbox.stat(&path).await {
            Ok(found) => stat = found,
            Err(_) => return (path, FileKind::Symlink),
        }
    }
    (path, stat.kind)
}

/// A folder, if `path` is one or leads to one.
pub(crate) async fn must_be_folder(context: &Context, path: &str) -> Result<(), RpcError> {
    let stat = context.sandbox.stat(path).await.map_err(|error| context.failed(error))?;
    let kind = if stat.kind == FileKind::Symlink { target(context, path, stat).await.1 } else { stat.kind };
    match kind {
        FileKind::Directory => Ok(()),
        _ => Err(RpcError::invalid(format!("path is not a directory: {path}"))),
    }
}

async fn list(context: &Context, path: &str, depth: u32) -> Result<Vec<Value>, RpcError> {
    must_be_folder(context, path).await?;
    let mut folders = vec![path.to_string()];
    let mut all = Vec::new();
    for level in 1..=depth {
        let mut next = Vec::new();
        for folder in folders {
            let found = match context.sandbox.list(&folder).await {
                Ok(found) => found,
                // Below the first one, a folder may be closed or be gone by now.
                Err(_) if level > 1 => continue,
                Err(error) => return Err(context.failed(error)),
            };
            let mut below: Vec<(String, FileKind)> =
                found.into_iter().map(|found| (paths::join(&folder, &found.name), found.kind)).collect();
            below.sort_by(|one, other| one.0.cmp(&other.0));
            if level < depth {
                next.extend(
                    below
                        .iter()
                        .filter(|(_, kind)| *kind == FileKind::Directory)
                        .map(|(path, _)| path.clone()),
                );
            }
            all.extend(below.into_iter().map(|(path, _)| path));
            if all.len() > MAX_LISTED {
                return Err(RpcError::new(
                    Code::ResourceExhausted,
                    format!("there are more than {MAX_LISTED} files"),
                ));
            }
        }
        folders = next;
        if folders.is_empty() {
            break;
        }
    }
    // What lies in a folder stands behind it.
    all.sort_by(|one, other| one.split('/').cmp(other.split('/')));
    // What was removed meanwhile is not there.
    let look = |path: String| async move {
        match entry(context, &path).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    let entries: Vec<Option<Value>> = stream::iter(all).map(look).buffered(AT_ONCE).try_collect().await?;
    Ok(entries.into_iter().flatten().collect())
}

async fn make_dir(context: &Context, path: &str) -> Result<(), RpcError> {
    match context.sandbox.stat(path).await {
        Ok(found) if found.kind == FileKind::Directory => {
            return Err(RpcError::new(Code::AlreadyExists, format!("directory already exists: {path}")));
        }
        Ok(_) => {
            return Err(RpcError::invalid(format!("path already exists but it is not a directory: {path}")));
        }
        Err(error) if error.code() == ErrorCode::NotFound => {}
        Err(error) => return Err(context.failed(error)),
    }
    context.sandbox.make_folder(path, true).await.map_err(|error| context.failed(error))
}

async fn move_path(context: &Context, source: &str, destination: &str) -> Result<(), RpcError> {
    context.sandbox.stat(source).await.map_err(|error| context.failed(error))?;
    let parent = paths::parent(destination);
    context.sandbox.make_folder(parent, true).await.map_err(|error| context.failed(error))?;
    match context.sandbox.move_file(source, destination).await {
        Ok(()) => Ok(()),
        // The home and /tmp may be on different filesystems.
        Err(error) if error.code() == ErrorCode::FileOperation => {
            let argv = ["mv", "-T", "--", source, destination].map(Into::into).into();
            let moved = context.sandbox.run(&StartCommand { argv, ..StartCommand::default() }).await;
            let result = moved.map_err(|error| context.failed(error))?.result.unwrap_or_default();
            match result.exit_code {
                Some(0) => Ok(()),
                _ => Err(RpcError::new(Code::Internal, result.stderr.unwrap_or_else(|| error.to_string()))),
            }
        }
        Err(error) => Err(context.failed(error)),
    }
}

fn type_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Symlink => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

/// As `ls -l` writes them.
fn permissions(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::File | FileKind::Other => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bit = |(at, letter): (usize, char)| if mode & (0o400_u32 >> at) == 0 { '-' } else { letter };
    std::iter::once(first).chain(bits.map(bit)).collect()
}

/// The users that every sandbox has; other numbers stand for themselves.
fn user_name(context: &Context, id: u32) -> String {
    match id {
        0 => "root".into(),
        USER_ID => context.user.clone(),
        65534 => "nobody".into(),
        id => id.to_string(),
    }
}

/// Where a file has what clients write on it: `user.e2b.*`.
pub(crate) const METADATA: &str = "e2b.";
/// The sandbox user's number, as sandboxes know it.
const USER_ID: u32 = 1000;
/// As many as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;
const MAX_LISTED: usize = 100_000;
/// How many files are looked at at the same time.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_look_as_ls_writes_them() {
        assert_eq!(permissions(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileKind::Directory, 0o4751), "drwxr-x--x");
    }
}

//! Reads a file of settings once. The same bytes are hashed, parsed and used.

use crate::fault::{argument, shown};
use crate::layer::Layer;
use crate::origin::{ConfigPaths, Position};
use crate::toml_text::TomlText;
use belljar_spec::{ErrorCode, SandboxError};
use belljar_sys::rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, stat};
use belljar_sys::rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) layer: Layer,
    /// The file, safe to show.
    pub(crate) name: Arc<str>,
    pub(crate) content: String,
}

impl Text {
    /// The line of a byte.
    pub(crate) fn place(&self, byte: usize) -> Position {
        TomlText { name: &self.name, content: &self.content }.place(byte)
    }
}

/// Why a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    #[error("it is a link")]
    Link,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is larger than {} KiB", MAX / 1024)]
    TooLarge,
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it cannot be read: {0}")]
    Failed(Errno),
}

/// The operator's file, if there is one. Counts only if no one but the operator can have written it.
pub(crate) fn operator(places: &ConfigPaths) -> Result<Option<Text>, SandboxError> {
    let path = &places.operator;
    let Some((file, found)) = found(path)? else { return Ok(None) };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let around = stat(folder).map_err(|errno| unreadable(path, Unread::Failed(errno)))?;
    for (what, found) in [(path.as_path(), found), (folder, around)] {
        if found.st_uid != places.operator_id || found.st_mode & WRITABLE_BY_OTHERS != 0 {
            let message = format!(
                "the operator's configuration `{}` does not count: others than root can change `{}`",
                shown(path),
                shown(what)
            );
            let what = argument(what);
            return Err(ErrorCode::ConfigInvalid
                .error(message)
                .hint(format!("as root: chown root:root {what} && chmod go-w {what}")));
        }
    }
    text(Layer::Operator, path, file).map(Some)
}

/// The user's file, if there is one.
pub(crate) fn user(places: &ConfigPaths) -> Result<Option<Text>, SandboxError> {
    let Some(path) = &places.user else { return Ok(None) };
    let Some((file, found)) = found(path)? else { return Ok(None) };
    if found.st_mode & WRITABLE_BY_ALL != 0 {
        let message = format!("your configuration `{}` does not count: everybody can change it", shown(path));
        return Err(ErrorCode::ConfigInvalid.error(message).hint(format!("chmod go-w {}", argument(path))));
    }
    text(Layer::User, path, file).map(Some)
}

/// The repository's file, if there is one. Its content is untrusted: no link is followed, so that it cannot expose other files, and
/// opening it never blocks.
pub(crate) fn repository(workspace: &Path) -> Result<Option<Vec<u8>>, Unread> {
    let folder = match openat(
        CWD,
        workspace.join(FOLDER),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        // A file, or a link: it may be meant for belljar.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return match stat(workspace.join(FOLDER).join(FILE)) {
                Ok(_) => Err(Unread::Link),
                Err(_) => Ok(None),
            };
        }
        Err(errno) => return Err(Unread::Failed(errno)),
    };
    match openat(&folder, FILE, READING | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(file) => bytes(file).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(Unread::Link),
        // A socket.
        Err(Errno::NXIO) => Err(Unread::NotAFile),
        Err(errno) => Err(Unread::Failed(errno)),
    }
}

/// Any file, read as a layer's: to check it before it is installed.
pub(crate) fn named(layer: Layer, path: &Path) -> Result<Text, SandboxError> {
    match found(path)? {
        Some((file, _)) => text(layer, path, file),
        None => Err(unreadable(path, Unread::Failed(Errno::NOENT))),
    }
}

/// Text of the repository's file.
pub(crate) fn repository_text(path: &Path, bytes: Vec<u8>) -> Result<Text, Unread> {
    let content = String::from_utf8(bytes).map_err(|_| Unread::NotText)?;
    Ok(Text { layer: Layer::Repository, name: shown(path).into(), content })
}

/// The content of a regular file of at most the size limit.
pub(crate) fn bytes(file: OwnedFd) -> Result<Vec<u8>, Unread> {
    let found = fstat(&file).map_err(Unread::Failed)?;
    if !FileType::from_raw_mode(found.st_mode).is_file() {
        return Err(Unread::NotAFile);
    }
    let mut bytes = Vec::new();
    // One byte over the limit: it can have grown since it was opened.
    let read = File::from(file).take(MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Unread::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if bytes.len() as u64 > MAX { Err(Unread::TooLarge) } else { Ok(bytes) }
}

fn found(path: &Path) -> Result<Option<(OwnedFd, Stat)>, SandboxError> {
    match open(path, READING, Mode::empty()) {
        Ok(file) => {
            let found = fstat(file.as_fd()).map_err(|errno| unreadable(path, Unread::Failed(errno)))?;
            Ok(Some((file, found)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::NXIO) => Err(unreadable(path, Unread::NotAFile)),
        Err(errno) => Err(unreadable(path, Unread::Failed(errno))),
    }
}

fn text(layer: Layer, path: &Path, file: OwnedFd) -> Result<Text, SandboxError> {
    let bytes = bytes(file).map_err(|why| unreadable(path, why))?;
    let content = String::from_utf8(bytes).map_err(|_| unreadable(path, Unread::NotText))?;
    Ok(Text { layer, name: shown(path).into(), content })
}

/// An existing file that cannot be used is not skipped: it may forbid something.
fn unreadable(path: &Path, why: Unread) -> SandboxError {
    let hint = match why {
        Unread::Failed(Errno::ACCESS) => format!("make it readable: chmod a+r {}", argument(path)),
        Unread::Failed(Errno::NOENT) => "name a file that exists".to_string(),
        Unread::Link | Unread::NotAFile | Unread::TooLarge | Unread::NotText | Unread::Failed(_) => {
            "replace it with a text file, or remove it".to_string()
        }
    };
    ErrorCode::ConfigInvalid
        .error(format!("the configuration `{}` cannot be used: {why}", shown(path)))
        .hint(hint)
}

/// Without waiting: a pipe without a writer would block us for ever.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
/// Far more than a person writes by hand.
const MAX: u64 = 64 * 1024;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_ALL: u32 = 0o002;
pub(crate) const FOLDER: &str = ".belljar";
pub(crate) const FILE: &str = "config.toml";

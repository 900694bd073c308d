//! The daemon's sockets. Its unix socket is made so that it is never open to other users, not even for a moment, and is made again
//! if its file was removed: the daemon's sandboxes must not become unreachable with a file.

use belljar_spec::{CommandLine, ErrorCode, SandboxError, hint};
use belljar_state::create_private;
use belljar_sys::rustix::process::geteuid;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// The unix socket of the daemon.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    /// None for one that was handed to us: the process that made it owns its file.
    file: Option<SocketFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Socket {
    /// Makes it, at a path where no process listens.
    pub(super) fn bind(path: &Path) -> Result<Socket, SandboxError> {
        let failed = |error: io::Error| {
            ErrorCode::Internal
                .error(format!("cannot listen at {}: {error}", path.display()))
                .hint(hint!("name another path with {}", CommandLine::ServeSocket))
                .caused_by(error)
        };
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            prepare(directory)?;
        }
        if StdStream::connect(path).is_ok() {
            return Err(ErrorCode::InUse
                .error(format!("another process already listens at {}", path.display()))
                .hint(hint!(
                    "another daemon runs; end it, or name another path with {}",
                    CommandLine::ServeSocket
                )));
        }
        // Under another name first: what can be found at the path is already closed to others.
        let draft = path.with_extension(format!("new-{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let made = || -> io::Result<(StdListener, fs::Metadata)> {
            let listener = StdListener::bind(&draft)?;
            fs::set_permissions(&draft, Permissions::from_mode(0o600))?;
            fs::rename(&draft, path)?;
            listener.set_nonblocking(true)?;
            Ok((listener, fs::symlink_metadata(path)?))
        };
        let (listener, found) = made().map_err(|error| {
            let _ = fs::remove_file(&draft);
            failed(error)
        })?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        let file = SocketFile { path: path.into(), device: found.dev(), inode: found.ino() };
        Ok(Socket { listener, file: Some(file) })
    }

    /// One that was made by the process that started us.
    pub(super) fn handed(descriptor: OwnedFd) -> Result<Socket, SandboxError> {
        let listener = StdListener::from(descriptor);
        let made = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        let listener = made.map_err(|error| {
            ErrorCode::Internal
                .error(format!("cannot listen at the socket that was handed over: {error}"))
                .caused_by(error)
        })?;
        Ok(Socket { listener, file: None })
    }

    /// Whether its file is still there, and still its own.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_none_or(SocketFile::is_in_place)
    }

    /// Makes it again where its file is gone. Clients that are connected stay connected.
    pub(super) fn bind_again(&self) -> Option<Result<Socket, SandboxError>> {
        self.file.as_ref().map(|file| Socket::bind(&file.path))
    }

    /// Removes the file, if it is ours.
    pub(super) fn remove(self) {
        if let Some(file) = self.file.filter(SocketFile::is_in_place) {
            let _ = fs::remove_file(file.path);
        }
    }
}

impl SocketFile {
    fn is_in_place(&self) -> bool {
        let found = fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

/// A directory that only we can change.
fn prepare(directory: &Path) -> Result<(), SandboxError> {
    let failed = |error: io::Error| {
        ErrorCode::Internal.error(format!("cannot make {}: {error}", directory.display())).caused_by(error)
    };
    create_private(directory).map_err(failed)?;
    let found = fs::symlink_metadata(directory).map_err(failed)?;
    let open_to_others = found.mode() & 0o022 != 0;
    let is_ours = found.uid() == geteuid().as_raw() || found.uid() == 0;
    if found.is_dir() && is_ours && !open_to_others {
        return Ok(());
    }
    let message = format!("{} is not a directory that only you can change", directory.display());
    Err(ErrorCode::PathRefused.error(message).hint(hint!(
        "other users could replace the socket; name a path of your own with {}",
        CommandLine::ServeSocket
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_closed_to_others_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/daemon.sock");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert!(socket.is_in_place());
        assert_eq!(Socket::bind(&path).unwrap_err().code, ErrorCode::InUse);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert!(!socket.is_in_place());
        let again = socket.bind_again().unwrap().unwrap();
        assert!(again.is_in_place() && StdStream::connect(&path).is_ok());
        socket.remove();
        assert!(path.exists(), "the old daemon must not remove the new one");
        again.remove();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_directory_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Socket::bind(&shared.join("s")).unwrap_err().code, ErrorCode::PathRefused);
    }

    #[tokio::test]
    async fn what_a_dead_daemon_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.sock");
        drop(StdListener::bind(&path).unwrap());
        assert!(Socket::bind(&path).is_ok());
    }
}

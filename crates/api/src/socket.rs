//! Where the daemon of a user listens, and where its clients look. One function of the environment, so that both always mean the
//! same path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The socket of the daemon of this user: `$BELLJAR_SOCKET`, else below `$XDG_RUNTIME_DIR`, else in a folder of its own.
///
/// A runtime directory that is not absolute counts as none, as its specification wants it.
pub fn socket_path(explicit: Option<OsString>, runtime: Option<OsString>, uid: u32) -> PathBuf {
    if let Some(path) = explicit.filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    let directory = match runtime.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => runtime.join("belljar"),
        None if uid == 0 => Path::new("/run/belljar").to_path_buf(),
        None => PathBuf::from(format!("/tmp/belljar-{uid}")),
    };
    directory.join(SOCKET_NAME)
}

/// The same, of our own environment.
pub fn socket_path_here(uid: u32) -> PathBuf {
    socket_path(std::env::var_os(SOCKET_VARIABLE), std::env::var_os("XDG_RUNTIME_DIR"), uid)
}

/// Names another socket.
pub const SOCKET_VARIABLE: &str = "BELLJAR_SOCKET";
const SOCKET_NAME: &str = "daemon.sock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_counts() {
        let cases = [
            (Some("/x/y.sock"), Some("/run/user/7"), 7, "/x/y.sock"),
            (None, Some("/run/user/7"), 7, "/run/user/7/belljar/daemon.sock"),
            (Some(""), Some("/run/user/0"), 0, "/run/user/0/belljar/daemon.sock"),
            (None, Some("relative"), 7, "/tmp/belljar-7/daemon.sock"),
            (None, None, 7, "/tmp/belljar-7/daemon.sock"),
            (None, None, 0, "/run/belljar/daemon.sock"),
        ];
        for (explicit, runtime, uid, expected) in cases {
            let found = socket_path(explicit.map(OsString::from), runtime.map(OsString::from), uid);
            assert_eq!(found, Path::new(expected), "{explicit:?} {runtime:?} {uid}");
        }
    }
}

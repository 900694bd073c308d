//! Sockets of the host that lie in what a sandbox sees. Mounting a folder read-only does not keep anybody from
//! connecting to a socket in it, so each one is hidden. The kernel lists the sockets that are bound; nothing is
//! searched for.

mod list;

use super::{Bind, seen_at};

/// The places inside where the host's sockets would be, without their leading slash.
pub(super) fn below(binds: &[Bind]) -> Vec<String> {
    let mut places: Vec<String> = list::bound().iter().filter_map(|socket| seen_at(socket, binds)).collect();
    places.sort();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn sockets_in_shared_folders_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let _listening = UnixListener::bind(path("with space.sock")).expect("a socket");
        let _datagrams = UnixDatagram::bind(path("datagrams")).expect("a socket");
        let bind = |source: &std::path::Path, target: &str| Bind {
            source: source.into(),
            target: target.into(),
            kind: BindKind::ReadWrite,
            origin: BindOrigin::Named,
        };
        let binds = [bind("/usr".as_ref(), "usr"), bind(folder.path(), "workspace")];
        assert_eq!(below(&binds), ["workspace/datagrams", "workspace/with space.sock"]);
    }
}

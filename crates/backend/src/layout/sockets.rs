//! Sockets of the host that lie in what a sandbox sees. Mounting a folder read-only does not keep anybody from
//! connecting to a socket in it, so each one is hidden. The kernel lists the sockets that are bound; nothing is
//! searched for.

mod list;

use super::{Bind, seen_at, spelled};

/// The places inside where the host's sockets would be, without their leading slash.
pub(super) fn below(binds: &[Bind]) -> Vec<String> {
    let seen = list::bound().into_iter().flat_map(|socket| seen_at(&socket, binds));
    let mut places: Vec<String> = seen.filter_map(|(_, place)| spelled(place)).collect();
    places.sort();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::path::Path;

    fn bind(source: &Path, target: &str) -> Bind {
        let (kind, origin) = (BindKind::ReadWrite, BindOrigin::Named);
        Bind { source: source.into(), target: target.into(), kind, origin }
    }

    #[test]
    fn sockets_in_shared_folders_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let _listening = UnixListener::bind(path("with space.sock")).expect("a socket");
        let _datagrams = UnixDatagram::bind(path("datagrams")).expect("a socket");
        let binds = [bind("/usr".as_ref(), "usr"), bind(folder.path(), "workspace")];
        assert_eq!(below(&binds), ["workspace/datagrams", "workspace/with space.sock"]);
    }

    #[test]
    fn a_socket_is_hidden_at_every_place_that_shows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let app = folder.path().join("app");
        std::fs::create_dir(&app).expect("a folder");
        let _listening = UnixListener::bind(app.join("s")).expect("a socket");
        let binds = [bind(folder.path(), "opt"), bind(&app, "workspace")];
        assert_eq!(below(&binds), ["opt/app/s", "workspace/s"]);
        let covered = [bind(folder.path(), "opt"), bind(&app, "workspace"), bind("/usr".as_ref(), "opt/app")];
        assert_eq!(below(&covered), ["workspace/s"]);
    }
}

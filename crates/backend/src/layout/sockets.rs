//! Sockets of the host that lie in what a sandbox sees. Mounting a folder read-only does not keep a process from connecting
//! to a socket in it, so each one is hidden. The kernel lists the sockets that are bound; nothing is searched for. Where
//! neither of its lists can be read, or a socket cannot be named to the guest, there is no sandbox.

mod list;

use super::{Bind, seen_at, spelled};
use belljar_spec::{ErrorCode, SandboxError};
use std::collections::HashMap;
use std::path::PathBuf;

/// The places inside where the host's sockets would be, without their leading slash.
pub(super) fn below(binds: &[Bind]) -> Result<Vec<String>, SandboxError> {
    let sockets = list::bound().map_err(|error| {
        let message = format!(
            "the kernel's list of unix sockets cannot be read ({error}), so those of the host cannot be hidden"
        );
        ErrorCode::NotSupported.error(message)
            .hint("let belljar ask the kernel (netlink, sock_diag), or read /proc/net/unix").caused_by(error)
    })?;
    hidden(sockets, binds)
}

fn hidden(sockets: Vec<PathBuf>, binds: &[Bind]) -> Result<Vec<String>, SandboxError> {
    let mut folders = RealFolders::default();
    let mut places = Vec::new();
    for socket in sockets {
        for (_, place) in seen_at(&folders.real(socket), binds) {
            let shown = place.display().to_string();
            places.push(spelled(place).ok_or_else(|| {
                let message =
                    format!("the socket `/{shown}` has a name that is not UTF-8, and cannot be hidden");
                ErrorCode::PathInvalid
                    .error(message)
                    .hint("end the service that listens there, or share a folder without it")
            })?);
        }
    }
    places.sort();
    places.dedup();
    Ok(places)
}

/// Where folders really are: sockets are listed under the name by which they were bound, which may lead over links. Each is
/// asked for once, since most sockets of a machine lie in a few.
#[derive(Default)]
struct RealFolders(HashMap<PathBuf, Option<PathBuf>>);

impl RealFolders {
    /// The real path of a socket. One in a folder that is not there any more, or not for us, keeps its name.
    fn real(&mut self, socket: PathBuf) -> PathBuf {
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else { return socket };
        let real = match self.0.get(folder) {
            Some(known) => known.as_ref(),
            None => self.0.entry(folder.to_path_buf()).or_insert(folder.canonicalize().ok()).as_ref(),
        };
        real.map(|real| real.join(name)).unwrap_or(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BindKind, BindOrigin};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
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
        assert_eq!(below(&binds).unwrap(), ["workspace/datagrams", "workspace/with space.sock"]);
    }

    #[test]
    fn a_datagram_socket_is_found_also_when_a_client_is_connected() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = UnixDatagram::bind(folder.path().join("log")).expect("a socket");
        let client = UnixDatagram::unbound().expect("a client");
        client.connect(folder.path().join("log")).expect("connected");
        let binds = [bind(folder.path(), "workspace")];
        assert_eq!(below(&binds).unwrap(), ["workspace/log"]);
        drop(client);
        assert_eq!(below(&binds).unwrap(), ["workspace/log"], "and gone again");
        drop(log);
        let listening = UnixListener::bind(folder.path().join("stream")).expect("a socket");
        let _client = UnixStream::connect(folder.path().join("stream")).expect("connected");
        let _accepted = listening.accept().expect("accepted");
        drop(listening);
        assert_eq!(below(&binds).unwrap(), Vec::<String>::new(), "only a connection has that name now");
    }

    #[test]
    fn a_socket_is_hidden_at_every_place_that_shows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let app = folder.path().join("app");
        std::fs::create_dir(&app).expect("a folder");
        let _listening = UnixListener::bind(app.join("s")).expect("a socket");
        let binds = [bind(folder.path(), "opt"), bind(&app, "workspace")];
        assert_eq!(below(&binds).unwrap(), ["opt/app/s", "workspace/s"]);
        let covered = [bind(folder.path(), "opt"), bind(&app, "workspace"), bind("/usr".as_ref(), "opt/app")];
        assert_eq!(below(&covered).unwrap(), ["workspace/s"]);
    }

    #[test]
    fn a_socket_that_was_bound_over_a_link_is_found_where_it_is() {
        let place = tempfile::tempdir().expect("a folder");
        let place = place.path().canonicalize().expect("real");
        let real = place.join("data/ada");
        std::fs::create_dir_all(real.join("p")).expect("folders");
        symlink(&real, place.join("home")).expect("a link");
        let _direct = UnixListener::bind(place.join("home/p/s")).expect("a socket");
        let _back = UnixListener::bind(place.join("home/p/../p/back")).expect("a socket");
        // The link lies in something that is seen as well, and leads out of it.
        let binds = [bind(&place.join("home"), "opt"), bind(&real.join("p"), "workspace")];
        assert_eq!(below(&binds).unwrap(), ["workspace/back", "workspace/s"]);
    }

    #[test]
    fn a_socket_whose_folder_is_gone_keeps_its_name() {
        let sockets = vec![PathBuf::from("/no/such/folder/s"), "/".into()];
        let binds = [bind("/no".as_ref(), "no")];
        assert_eq!(hidden(sockets, &binds).unwrap(), ["no/such/folder/s"]);
    }

    #[test]
    fn a_socket_that_cannot_be_named_is_not_passed_over() {
        let socket = Path::new("/no/such").join(OsStr::from_bytes(b"\xff.sock"));
        let refused = hidden(vec![socket.clone()], &[bind("/no".as_ref(), "no")]).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PathInvalid);
        assert_eq!(hidden(vec![socket], &[bind("/usr".as_ref(), "usr")]).unwrap(), Vec::<String>::new());
    }
}

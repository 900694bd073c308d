//! No socket file of the host is reached, wherever it lies and whenever it was bound.
//!
//! A service outside writes down who called. Ours is the last call, so when that one is in the book, the attacker's
//! would be as well.

use belljar_spec::{BackendName, ErrorCode, Permission};
use belljar_tests_containment::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use tempfile::TempDir;

/// A service that notes what each caller said.
struct Service {
    _program: HostProgram,
    book: TempDir,
}

impl Service {
    /// Binds `name` as seen from `directory`.
    fn bind(directory: &Path, name: &str) -> Service {
        Service::bind_in(0, directory, name)
    }

    /// The same in namespaces of its own, by their flags.
    fn bind_in(namespaces: u32, directory: &Path, name: &str) -> Service {
        let book = folder();
        let program = HostProgram::start(
            directory,
            r#"
import ctypes, os, socket, sys
assert ctypes.CDLL(None).unshare(int(sys.argv[3])) == 0
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen(64)
print('ready', flush=True)
while True:
    c, _ = s.accept()
    said = c.recv(100)
    with open(sys.argv[2], 'ab') as book:
        book.write(said + b'\n')
    c.close()
"#,
            &[name, book.path().join("book").to_str().unwrap(), &namespaces.to_string()],
        );
        Service { _program: program, book }
    }

    /// Whether another process connected before us.
    fn was_reached(&self, path: &Path) -> bool {
        let book = self.book.path().join("book");
        UnixStream::connect(path).unwrap().write_all(b"host").unwrap();
        assert!(eventually(|| fs::read_to_string(&book).is_ok_and(|text| text.contains("host"))));
        fs::read_to_string(&book).unwrap().contains("inside")
    }
}

/// Calls from inside, in every way that a path can be said.
fn call(jail: &Jail, directory: &str, name: &str) {
    jail.successes(
        r#"
directory, name = sys.argv[1:]
def call(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(b'inside')
attack('absolute', lambda: call(directory + '/' + name))
def there(path):
    os.chdir(directory)
    call(path)
attack('relative', lambda: there(name))
attack('dot', lambda: there('./' + name))
def by_descriptor():
    fd = os.open(directory + '/' + name, os.O_PATH)
    call('/proc/self/fd/%d' % fd)
attack('descriptor', by_descriptor)
def by_link():
    link = '/tmp/link-to-it'
    os.symlink(directory + '/' + name, link)
    call(link)
attack('link', by_link)
def by_root():
    call('/proc/self/root' + directory + '/' + name)
attack('root', by_root)
def by_hardlink():
    os.link(directory + '/' + name, directory + '/hard')
    call(directory + '/hard')
attack('hard link', by_hardlink)
def by_moved_parent():
    parent, last = os.path.split(directory)
    os.rename(directory, parent + '/moved')
    try:
        call(parent + '/moved/' + name)
    finally:
        os.rename(parent + '/moved', directory)
attack('moved', by_moved_parent)
"#,
        &[directory, name],
    );
}

const NAME: &str = "service.sock";
/// linux/sched.h
const CLONE_NEWNET: u32 = 0x4000_0000;

/// Before version 9 of Landlock the kernel cannot tell our sockets from the host's, and what is bound by a relative path,
/// after the start or in another network is not known when the others are hidden: SECURITY.md says so. gVisor has no Landlock at all.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what was not tried")]
fn refused_but_for_the_gap(test: impl Fn(BackendName) -> bool) {
    let sandbox = belljar_engine::Engine::new().create_blocking(&belljar_spec::SandboxSpec::default());
    let version = sandbox.expect("a sandbox can be made").landlock_abi();
    let has_gap = |backend: BackendName| version < 9 || !hides_late_sockets(backend);
    for backend in backends().iter().filter(|backend| has_gap(**backend)) {
        eprintln!("not tried: {backend}: this takes Landlock 9, and the kernel has {version} (known gap)");
    }
    refused_everywhere(|backend| !has_gap(backend) && test(backend));
}

fn refused_everywhere(test: impl Fn(BackendName) -> bool) {
    let reached: Vec<_> =
        backends().iter().filter(|backend| test(**backend)).map(ToString::to_string).collect();
    assert_eq!(reached, Vec::<String>::new(), "a service of the host was reached from inside");
}

#[derive(Clone, Copy)]
enum When {
    Before,
    After,
}

#[derive(Clone, Copy)]
enum Bound {
    Absolute,
    Relative,
}

/// Binds in `outside`, jails, calls at `inside`.
fn shared(backend: BackendName, permission: Option<Permission>, bound: Bound, when: When) -> bool {
    let shared = folder();
    let deep = shared.path().join("deep");
    fs::create_dir(&deep).unwrap();
    let bind = || match bound {
        Bound::Absolute => Service::bind(Path::new("/"), deep.join(NAME).to_str().unwrap()),
        Bound::Relative => Service::bind(&deep, NAME),
    };
    let before = matches!(when, When::Before).then(bind);
    let jail = jail_with(backend, |spec, _| match permission {
        Some(permission) => spec.shared = vec![share(shared.path(), permission)],
        None => spec.workspace = Some(shared.path().into()),
    });
    let service = before.unwrap_or_else(bind);
    let inside = match permission {
        Some(_) => deep.to_str().unwrap().to_string(),
        None => "/workspace/deep".into(),
    };
    call(&jail, &inside, NAME);
    service.was_reached(&deep.join(NAME))
}

#[test]
fn a_socket_in_the_workspace_is_out_of_reach() {
    refused_everywhere(|backend| shared(backend, None, Bound::Absolute, When::Before));
}

#[test]
fn a_socket_in_the_workspace_bound_by_a_relative_path_is_out_of_reach() {
    refused_but_for_the_gap(|backend| shared(backend, None, Bound::Relative, When::Before));
}

#[test]
fn a_socket_in_the_workspace_bound_after_the_start_is_out_of_reach() {
    refused_but_for_the_gap(|backend| shared(backend, None, Bound::Absolute, When::After));
}

#[test]
fn a_socket_in_a_read_only_share_is_out_of_reach() {
    refused_everywhere(|backend| shared(backend, Some(Permission::Read), Bound::Absolute, When::Before));
}

#[test]
fn a_socket_in_a_read_only_share_bound_by_a_relative_path_is_out_of_reach() {
    refused_but_for_the_gap(|backend| shared(backend, Some(Permission::Read), Bound::Relative, When::Before));
}

#[test]
fn a_socket_in_a_read_only_share_bound_after_the_start_is_out_of_reach() {
    refused_but_for_the_gap(|backend| shared(backend, Some(Permission::Read), Bound::Absolute, When::After));
}

#[test]
fn a_socket_in_a_writable_share_is_out_of_reach() {
    refused_everywhere(|backend| shared(backend, Some(Permission::Write), Bound::Absolute, When::Before));
}

#[test]
fn a_socket_in_a_writable_share_bound_by_a_relative_path_is_out_of_reach() {
    refused_but_for_the_gap(|backend| {
        shared(backend, Some(Permission::Write), Bound::Relative, When::Before)
    });
}

#[test]
fn a_socket_in_a_writable_share_bound_after_the_start_is_out_of_reach() {
    refused_but_for_the_gap(|backend| shared(backend, Some(Permission::Write), Bound::Absolute, When::After));
}

/// One folder, seen twice: as the workspace, and in a share that holds it or is it.
#[test]
fn a_socket_is_out_of_reach_at_every_place_that_shows_it() {
    refused_everywhere(|backend| {
        let shared = folder();
        let app = shared.path().join("app");
        fs::create_dir(&app).unwrap();
        let service = Service::bind(Path::new("/"), app.join(NAME).to_str().unwrap());
        for twice in [shared.path(), &app] {
            for permission in [Permission::Read, Permission::Write] {
                let jail = jail_with(backend, |spec, _| {
                    spec.workspace = Some(app.clone());
                    spec.shared = vec![share(twice, permission)];
                });
                call(&jail, "/workspace", NAME);
                call(&jail, app.to_str().unwrap(), NAME);
            }
        }
        service.was_reached(&app.join(NAME))
    });
}

/// The same where the second place is one of the system's own.
#[test]
fn a_socket_in_a_workspace_below_opt_is_out_of_reach_there_too() {
    if !is_root() {
        return;
    }
    refused_everywhere(|backend| {
        let place = tempfile::Builder::new().prefix("belljar-test-").tempdir_in("/opt").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let service = Service::bind(Path::new("/"), place.path().join(NAME).to_str().unwrap());
        let jail = jail_with(backend, |spec, _| spec.workspace = Some(place.path().into()));
        call(&jail, "/workspace", NAME);
        call(&jail, place.path().to_str().unwrap(), NAME);
        service.was_reached(&place.path().join(NAME))
    });
}

#[test]
fn a_socket_that_was_moved_into_the_workspace_is_out_of_reach() {
    refused_but_for_the_gap(|backend| {
        let elsewhere = folder();
        let service = Service::bind(Path::new("/"), elsewhere.path().join(NAME).to_str().unwrap());
        let jail = jail_with(backend, |_, workspace| {
            fs::rename(elsewhere.path().join(NAME), workspace.join(NAME)).unwrap();
        });
        call(&jail, "/workspace", NAME);
        service.was_reached(&jail.outside(NAME))
    });
}

/// As a service in a container of its own that shares the folder.
#[test]
fn a_socket_of_another_network_namespace_is_out_of_reach() {
    if !is_root() {
        return;
    }
    refused_but_for_the_gap(|backend| {
        let place = folder();
        let path = place.path().join(NAME);
        let service = Service::bind_in(CLONE_NEWNET, Path::new("/"), path.to_str().unwrap());
        let jail = jail_with(backend, |spec, _| spec.workspace = Some(place.path().into()));
        call(&jail, "/workspace", NAME);
        service.was_reached(&path)
    });
}

/// Bound under a name that leads over a link, and so listed under a path that nothing inside has.
#[test]
fn a_socket_that_was_bound_over_a_link_is_out_of_reach() {
    refused_everywhere(|backend| {
        let place = folder();
        let real = place.path().join("data");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, place.path().join("home")).unwrap();
        let path = place.path().join("home").join(NAME);
        let service = Service::bind(Path::new("/"), path.to_str().unwrap());
        let jail = jail_with(backend, |spec, _| spec.workspace = Some(real.clone()));
        call(&jail, "/workspace", NAME);
        service.was_reached(&path)
    });
}

#[test]
fn a_second_name_of_a_socket_is_out_of_reach() {
    refused_but_for_the_gap(|backend| {
        let elsewhere = folder();
        let path = elsewhere.path().join(NAME);
        let service = Service::bind(Path::new("/"), path.to_str().unwrap());
        let jail = jail_with(backend, |_, workspace| fs::hard_link(&path, workspace.join("other")).unwrap());
        call(&jail, "/workspace", "other");
        service.was_reached(&path)
    });
}

#[test]
fn a_socket_in_the_hosts_temporary_folder_is_out_of_reach() {
    refused_everywhere(|backend| {
        let place = folder();
        let path = place.path().join(NAME);
        let service = Service::bind(Path::new("/"), path.to_str().unwrap());
        call(&jail(backend), place.path().to_str().unwrap(), NAME);
        service.was_reached(&path)
    });
}

#[test]
fn a_socket_in_run_is_out_of_reach() {
    if !is_root() {
        return;
    }
    refused_everywhere(|backend| {
        let place = tempfile::Builder::new().prefix("belljar-test-").tempdir_in("/run").unwrap();
        let path = place.path().join(NAME);
        let service = Service::bind(Path::new("/"), path.to_str().unwrap());
        let jail = jail(backend);
        call(&jail, place.path().to_str().unwrap(), NAME);
        call(&jail, &place.path().to_str().unwrap().replace("/run/", "/var/run/"), NAME);
        service.was_reached(&path)
    });
}

#[test]
fn datagrams_to_a_socket_in_the_workspace_do_not_arrive() {
    refused_everywhere(|backend| {
        let mut receiver = None;
        let jail = jail_with(backend, |_, workspace| {
            let path = workspace.join("datagrams");
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            receiver = Some(socket);
            let _ = fs::set_permissions(&path, PermissionsExt::from_mode(0o777));
        });
        jail.successes(
            r#"
os.chdir('/workspace')
for path in ('/workspace/datagrams', 'datagrams'):
    attack(path, lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'inside', path))
"#,
            &[],
        );
        receiver.unwrap().recv(&mut [0; 16]).is_ok()
    });
}

#[test]
fn a_socket_itself_cannot_be_shared() {
    for backend in backends() {
        let place = folder();
        let path = place.path().join(NAME);
        let _service = Service::bind(Path::new("/"), path.to_str().unwrap());
        let refused = try_jail(*backend, |spec, _| spec.shared = vec![share(&path, Permission::Read)]);
        assert_eq!(refused.err().map(|error| error.code), Some(ErrorCode::PathRefused), "{backend}");
    }
}

/// Not an escape, but a way for any user of the machine to keep every other user from having a sandbox.
#[test]
fn sockets_of_others_do_not_keep_a_sandbox_from_starting() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("{} /usr/bin/sh/there", canary("x"));
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let hidden =
        is_root().then(|| tempfile::Builder::new().prefix("belljar-test-").tempdir_in("/opt").unwrap());
    let _private =
        hidden.as_ref().map(|place| Service::bind(Path::new("/"), place.path().join(NAME).to_str().unwrap()));
    for backend in backends() {
        let started = try_jail(*backend, |_, _| {});
        assert!(started.is_ok(), "{backend}: {:?}", started.err());
    }
}

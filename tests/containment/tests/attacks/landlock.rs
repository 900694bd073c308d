//! Attacks on the backend that has no namespaces: its commands are processes of the host, of the same user, in the host's network and among
//! its files. Only what that backend alone has to hold is here; the other subjects run on it too (`BELLJAR_BACKENDS=landlock`).

use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{Admin, BackendName, ErrorCode, Nesting, Permission, SandboxSpec};
use belljar_tests_containment::*;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LANDLOCK: BackendName = BackendName::Landlock;

/// Whether it is wanted, and works here.
fn is_selected() -> bool {
    let expected = std::env::var("BELLJAR_BACKENDS").unwrap_or_default();
    let is_named = expected.is_empty() || expected.split(',').any(|name| name.trim() == LANDLOCK.as_str());
    match is_named.then(|| try_jail(LANDLOCK, |_, _| {})) {
        None => false,
        Some(Ok(_)) => true,
        Some(Err(reason)) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{reason}"),
        Some(Err(reason)) => {
            skipped(&reason.to_string());
            false
        }
    }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
fn skipped(reason: &str) {
    eprintln!("skipped: backend landlock: {reason}");
}

/// A listener of the host's that nothing inside may reach.
fn host_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

fn has_no_visitor(listener: &TcpListener, what: &str) {
    let arrived = listener.accept();
    assert!(matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock), "{what}: {arrived:?}");
}

#[test]
fn an_address_that_another_process_changes_meanwhile_is_never_dialled() {
    if !is_selected() {
        return;
    }
    let (listener, port) = host_listener();
    let jail = jail(LANDLOCK);
    // The address lies in memory that another process writes all the time: the port of a server inside, and the host's.
    let result = jail.python(
        r#"
import mmap
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(4000)
ports = [struct.pack('>H', server.getsockname()[1]), struct.pack('>H', int(sys.argv[1]))]
shared = mmap.mmap(-1, 4096)
place = ctypes.addressof(ctypes.c_char.from_buffer(shared))
shared[0:16] = struct.pack('<H', 2) + ports[0] + bytes([127, 0, 0, 1]) + bytes(8)
other = os.fork()
if other == 0:
    while True:
        for _ in range(1000):
            shared[2:4] = ports[1]
            shared[2:4] = ports[0]
    os._exit(0)
connected = refused = 0
for attempt in range(10000):
    s = socket.socket()
    try:
        syscall(42, s.fileno(), place, 16)
        connected += 1
    except OSError:
        refused += 1
    s.close()
    if attempt % 1000 == 0:
        server.close()
        server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(4000)
        ports[0] = struct.pack('>H', server.getsockname()[1])
os.kill(other, 9)
print(connected, refused)
"#,
        &[&port],
    );
    let counted = text(&result.stdout);
    let counts: Vec<u32> = counted.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(counts[..], [_, refused] if refused > 0), "{counted} {}", text(&result.stderr));
    has_no_visitor(&listener, "an address that changed");
}

#[test]
fn a_socket_reaches_the_host_by_no_descriptor_and_from_no_process() {
    if !is_selected() {
        return;
    }
    let (listener, port) = host_listener();
    let jail = jail(LANDLOCK);
    let worked = jail.successes(
        r#"
import array
where = ('127.0.0.1', int(sys.argv[1]))
def through(make):
    s = make(); s.settimeout(1); s.connect(where); return s
def duplicate(to=None):
    s = socket.socket()
    n = os.dup(s.fileno()) if to is None else os.dup2(s.fileno(), to)
    return socket.socket(fileno=n)
def passed():
    a, b = socket.socketpair()
    s = socket.socket()
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])
    _, c, _, _ = b.recvmsg(1, 64)
    return socket.socket(fileno=array.array('i', c[0][2])[0])
attack('plain', lambda: through(socket.socket))
attack('duplicate', lambda: through(duplicate))
attack('in the window', lambda: through(lambda: duplicate(970)))
attack('passed', lambda: through(passed))
attack('ipv6', lambda: socket.create_connection(('::1', where[1]), 1))
attack('mapped', lambda: socket.create_connection(('::ffff:127.0.0.1', where[1]), 1))
attack('fast open', lambda: socket.socket().sendto(b'x', 0x20000000, where))
attack('datagram', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', where))
for family in range(3, 46):
    if family not in (10, 16):
        for kind in range(1, 7):
            attack(f'family {family} kind {kind}', lambda: socket.socket(family, kind, 0))
attack('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6))
attack('multipath', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attack('unix datagram', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
attack('unix datagram pair', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attack('io_uring', lambda: syscall(425, 4, ctypes.create_string_buffer(128)))
attack('device', lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 25, b'eth0\0'))
attack('thief', lambda: syscall(438, os.pidfd_open(os.getppid()), 3, 0))
def child():
    if os.fork() == 0:
        try:
            through(socket.socket); os._exit(0)
        except OSError:
            os._exit(1)
    if os.wait()[1] != 0: raise OSError('refused')
attack('child', child)
"#,
        &[&port],
    );
    assert!(worked.is_empty(), "{worked:?}");
    has_no_visitor(&listener, "a descriptor");
}

#[test]
fn processes_outside_are_neither_signalled_nor_limited_nor_read() {
    if !is_selected() {
        return;
    }
    let outside = folder();
    let program =
        HostProgram::start(outside.path(), "import time\nprint('ready', flush=True)\ntime.sleep(1000)", &[]);
    let pid = program.pid().to_string();
    let before = standing(program.pid());
    let jail = jail(LANDLOCK);
    let worked = jail.successes(
        r#"
import fcntl, resource
pid = int(sys.argv[1])
attack('kill', lambda: os.kill(pid, 9))
attack('probe', lambda: os.kill(pid, 0))
attack('handle', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
attack('proc handle', lambda: syscall(424, os.open(f'/proc/{pid}', os.O_RDONLY), 9, 0, 0))
attack('thread', lambda: syscall(200, pid, 9))
attack('queue', lambda: syscall(129, pid, 9, ctypes.create_string_buffer(128)))
def owner():
    r, w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, pid); fcntl.fcntl(r, 10, 9)
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
    os.write(w, b'x'); time.sleep(0.1); raise OSError('judged outside')
attack('owner', owner)
attack('limit', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))
attack('files', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
attack('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
attack('nice of all', lambda: os.setpriority(os.PRIO_USER, 0, 19))
attack('affinity', lambda: os.sched_setaffinity(pid, {0}))
attack('scheduler', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
attack('disk', lambda: syscall(251, 1, pid, 3 << 13))
attack('trace', lambda: syscall(101, 16, pid, 0, 0))
memory = ctypes.create_string_buffer(64)
ours, theirs = (ctypes.create_string_buffer(struct.pack('QQ', at, 8)) for at in (ctypes.addressof(memory), 0x400000))
attack('read', lambda: syscall(310, pid, ours, 1, theirs, 1, 0))
attack('descriptor', lambda: syscall(438, os.pidfd_open(pid), 0, 0))
for name in ('environ', 'mem', 'maps', 'io', 'auxv', 'fd/0'):
    attack(name, lambda: open(f'/proc/{pid}/{name}', 'rb').read(1) or None)
for name in ('root', 'cwd', 'exe', 'fd/0'):
    attack('link ' + name, lambda: os.readlink(f'/proc/{pid}/{name}'))
attack('oom', lambda: open(f'/proc/{pid}/oom_score_adj', 'w').write('1000'))
attack('share', lambda: syscall(29, 0x42454c4c, 4096, 0o1600))
"#,
        &[&pid],
    );
    assert!(worked.is_empty(), "{worked:?}");
    assert_eq!(standing(program.pid()), before, "the process was changed");
}

/// What of a process could be changed from elsewhere.
fn standing(pid: u32) -> (String, String, Vec<String>) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let stat = read("stat");
    // State aside: priority and niceness, and the policy near the end.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let of_interest = [15, 16, 38].map(|field| fields[field].to_string()).to_vec();
    let allowed = read("status").lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_string();
    (read("limits"), allowed, of_interest)
}

#[test]
fn a_file_outside_keeps_its_mode_owner_times_attributes_and_content() {
    if !is_selected() {
        return;
    }
    let outside = folder();
    let file = outside.path().join("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let of = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (
            found.mode(),
            found.uid(),
            found.gid(),
            found.mtime(),
            found.len(),
            found.ctime(),
            found.ctime_nsec(),
        )
    };
    let before = of(&file);
    let jail = jail(LANDLOCK);
    symlink(&file, jail.outside("link")).unwrap();
    symlink(outside.path(), jail.outside("folder")).unwrap();
    let path = file.to_str().unwrap();
    let worked = jail.successes(
        r#"
path = sys.argv[1]
os.chdir(sys.argv[2])
def magic():
    n = os.open(path, os.O_PATH)
    return f'/proc/self/fd/{n}', f'/dev/fd/{n}', f'/proc/{os.getpid()}/fd/{n}', n
for name in (path, 'link', 'folder/file', '../' + path.lstrip('/').replace('tmp/', '', 1)) + magic():
    attack(f'mode {name}', lambda: os.chmod(name, 0o777))
    attack(f'times {name}', lambda: os.utime(name, (1, 1)))
    attack(f'now {name}', lambda: os.utime(name))
    attack(f'owner {name}', lambda: os.chown(name, os.getuid(), os.getgid()))
    attack(f'attribute {name}', lambda: os.setxattr(name, 'user.x', b'1'))
    attack(f'less {name}', lambda: os.removexattr(name, 'user.x'))
    attack(f'truncate {name}', lambda: os.truncate(name, 0))
attack('at', lambda: os.chmod('file', 0o777, dir_fd=os.open('folder', os.O_PATH)))
attack('fchmodat2', lambda: syscall(452, os.open(path, os.O_PATH), b'', 0o777, 0x1000))
attack('empty', lambda: os.open(path, os.O_RDONLY | os.O_TRUNC))
attack('open', lambda: os.open(path, os.O_RDONLY))
attack('link out', lambda: os.link(path, 'hard'))
attack('handle', lambda: syscall(304, -100, ctypes.create_string_buffer(64), 0))
attack('system', lambda: os.chmod('/etc/hosts', 0o666))
attack('system by descriptor', lambda: os.fchmod(os.open('/etc/hosts', os.O_RDONLY), 0o666))
def own():
    open('own', 'w').close(); os.chmod('own', 0o750); os.utime('own', (5, 5)); os.setxattr('own', 'user.x', b'1')
own()
n = os.open('own', os.O_RDWR); os.fchmod(n, 0o700); os.chmod(f'/proc/self/fd/{n}', 0o711); os.chown(n, -1, os.getgid())
"#,
        &[path, jail.workspace.path().to_str().unwrap()],
    );
    assert!(worked.is_empty(), "{worked:?}");
    assert_eq!(of(&file), before, "the file was changed");
    let own = fs::metadata(jail.outside("own")).unwrap();
    assert_eq!((own.mode() & 0o7777, own.mtime()), (0o711, 5), "a file of its own can be changed");
}

#[test]
fn no_unix_socket_of_the_host_is_reached() {
    if !is_selected() {
        return;
    }
    let outside = folder();
    let jail = jail(LANDLOCK);
    let beside = UnixListener::bind(outside.path().join("socket")).unwrap();
    let shared = UnixListener::bind(jail.outside("socket")).unwrap();
    for listener in [&beside, &shared] {
        listener.set_nonblocking(true).unwrap();
    }
    symlink(outside.path().join("socket"), jail.outside("link")).unwrap();
    symlink(outside.path(), jail.outside("folder")).unwrap();
    let worked = jail.successes(
        r#"
os.chdir(sys.argv[2])
def reach(name, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind); s.connect(name); return s
relative = os.path.relpath(sys.argv[1])
for name in (sys.argv[1], relative, 'socket', './socket', 'link', 'folder/socket', '/proc/self/cwd/socket'):
    attack(name, lambda: reach(name))
attack('abstract', lambda: reach('\0/tmp/.X11-unix/X0'))
attack('moved', lambda: (os.rename('socket', 'moved'), reach('moved'))[1])
server = socket.socket(socket.AF_UNIX); server.bind('own'); server.listen()
reach('own'); reach(os.path.abspath('own')); server.accept()
"#,
        &[outside.path().join("socket").to_str().unwrap(), jail.workspace.path().to_str().unwrap()],
    );
    assert!(worked.is_empty(), "{worked:?}");
    for listener in [beside, shared] {
        let arrived = listener.accept();
        assert!(matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock), "{arrived:?}");
    }
}

#[test]
fn a_flood_of_calls_delays_its_own_sandbox_and_ends_with_it() {
    if !is_selected() {
        return;
    }
    let (flooding, other) = (jail(LANDLOCK), jail(LANDLOCK));
    let marker = canary("flood");
    let held = HeldCommandFor::start(
        &flooding,
        &[
            "python3",
            "-c",
            "import os, socket\nfor _ in range(20): os.fork()==0 and [None for _ in iter(int, 1) if not socket.socket().connect_ex(('127.0.0.1', 1))]\nos.wait()",
            &marker,
        ],
    );
    assert!(eventually(|| processes_with(&marker).len() > 10));
    let served = "import socket\ns = socket.create_server(('127.0.0.1', 0))\nfor _ in range(100): socket.create_connection(s.getsockname()).close()\nprint('END')";
    for jail in [&other, &flooding] {
        assert_eq!(text(&jail.run(&["python3", "-c", served]).stdout), "END\n");
    }
    drop(held);
    drop(flooding);
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

#[test]
fn a_command_that_kills_all_it_can_takes_nothing_but_its_sandbox() {
    if !is_selected() {
        return;
    }
    let outside = folder();
    let program =
        HostProgram::start(outside.path(), "import time\nprint('ready', flush=True)\ntime.sleep(1000)", &[]);
    let marker = canary("killer");
    let killing = jail(LANDLOCK);
    let held = HeldCommandFor::start(
        &killing,
        &[
            "python3",
            "-c",
            // A daemon that nothing of its own ends, and then every process that can be named.
            "import os, signal, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(1000)\ntime.sleep(0.2)\nfor name in os.listdir('/proc'):\n    if name.isdigit() and int(name) != os.getpid():\n        for task in os.listdir(f'/proc/{name}/task'):\n            try: os.kill(int(task), 9)\n            except OSError: pass\ntry: os.kill(-1, 9)\nexcept OSError: pass\ntime.sleep(1000)",
            &marker,
        ],
    );
    // It has killed its own kind by now, the guest among them or not.
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_alive(program.pid()), "a process outside was killed");
    drop(held);
    drop(killing);
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
    assert!(is_alive(program.pid()));
    assert_eq!(text(&jail(LANDLOCK).sh("echo fine").stdout), "fine\n", "another sandbox works");
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn without_its_supervisor_no_process_goes_on() {
    if !is_selected() {
        return;
    }
    let (workspace, state) = (folder(), folder());
    let marker = canary("orphan");
    let script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\nprint('ready', flush=True)\ntime.sleep(1000)";
    let mut belljar = run_belljar(workspace.path(), state.path(), &[], &["python3", "-c", script, &marker]);
    assert!(eventually(|| !processes_with(&marker).is_empty()));
    belljar.kill().unwrap();
    belljar.wait().unwrap();
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

fn run_belljar(workspace: &Path, state: &Path, env: &[(&str, &str)], argv: &[&str]) -> std::process::Child {
    Command::new(belljar())
        .args(["run", "--backend", "landlock", "--"])
        .args(argv)
        .current_dir(workspace)
        .env("XDG_STATE_HOME", state)
        .env("XDG_CONFIG_HOME", state)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn what_older_versions_of_landlock_lack_is_held_by_the_supervisor() {
    if !is_selected() {
        return;
    }
    let (workspace, state, outside) = (folder(), folder(), folder());
    let program =
        HostProgram::start(outside.path(), "import time\nprint('ready', flush=True)\ntime.sleep(1000)", &[]);
    let script = r#"
import os, signal, fcntl, subprocess, socket, sys, time
pid = int(sys.argv[1])
def attack(name, f):
    try: f()
    except OSError: return
    print(name)
attack('kill', lambda: os.kill(pid, 9))
if os.getpgid(pid) > 1: attack('group', lambda: os.kill(-os.getpgid(pid), 9))
# With scopes it means all of the sandbox, what waits for this program among them.
if int(sys.argv[2]) < 6: attack('all', lambda: os.kill(-1, 9))
attack('guest', lambda: os.kill(os.getppid(), 0) if os.getppid() == 1 else os.kill(1, 9))
attack('handle', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
r, w = os.pipe()
# Newer ones let it be said, and send nothing.
if int(sys.argv[2]) < 6: attack('owner', lambda: fcntl.fcntl(r, fcntl.F_SETOWN, pid))
child = subprocess.Popen(['sleep', '1000'])
child.send_signal(15); child.wait()
signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
s = socket.create_server(('127.0.0.1', 0))
socket.create_connection(s.getsockname())
print('END')
"#;
    for abi in ["3", "4", "5", "6"] {
        let variables = [("BELLJAR_LANDLOCK_ABI", abi)];
        let pid = program.pid().to_string();
        let belljar =
            run_belljar(workspace.path(), state.path(), &variables, &["python3", "-c", script, &pid, abi]);
        let output = belljar.wait_with_output().unwrap();
        assert_eq!(text(&output.stdout), "END\n", "version {abi}");
        assert!(is_alive(program.pid()), "version {abi}");
    }
}

#[test]
fn a_stranger_at_the_address_of_a_sandbox_is_turned_away() {
    if !is_selected() {
        return;
    }
    let before = listeners();
    let jail = jail(LANDLOCK);
    let gates: Vec<SocketAddr> = listeners().into_iter().filter(|one| !before.contains(one)).collect();
    assert!(!gates.is_empty(), "the supervisor listens");
    let strangers: Vec<TcpStream> = gates.iter().map(|gate| TcpStream::connect(gate).unwrap()).collect();
    // The next dial of the sandbox's own meets them first, and what they get is an end.
    let _ = jail.python("\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError: pass\n", &[]);
    for (mut stranger, gate) in strangers.into_iter().zip(gates) {
        stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let received = stranger.read(&mut [0; 16]);
        assert!(matches!(&received, Ok(0) | Err(_)), "{gate}: {received:?}");
    }
}

/// Listeners of this machine in 127.0.0.0/8, but 127.0.0.x.
fn listeners() -> Vec<SocketAddr> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = table.lines().filter(|line| line.contains(" 00000000:0000 0A "));
    let address = |line: &str| {
        let (ip, port) = line.split_whitespace().nth(1)?.split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.swap_bytes());
        Some(SocketAddr::new(ip.into(), u16::from_str_radix(port, 16).ok()?))
    };
    let is_ours = |one: &SocketAddr| match one {
        SocketAddr::V4(one) => one.ip().is_loopback() && one.ip().octets()[1] != 0,
        SocketAddr::V6(_) => false,
    };
    listening.filter_map(address).filter(is_ours).collect()
}

#[test]
fn nothing_stays_of_a_sandbox_that_has_ended() {
    if !is_selected() {
        return;
    }
    let jail = jail(LANDLOCK);
    let places =
        text(&jail.sh("echo x > $HOME/file && echo x > $TMPDIR/file && echo $HOME; echo $TMPDIR").stdout);
    let places: Vec<OsString> = places.lines().map(OsString::from).collect();
    assert!(places.len() == 2 && places.iter().all(|place| Path::new(place).join("file").exists()));
    drop(jail);
    assert!(places.iter().all(|place| !Path::new(place).exists()), "{places:?}");
}

/// Changes of a specification, by what they ask for.
type SpecChange = (&'static str, fn(&mut SandboxSpec, &Path));

#[test]
fn what_takes_mounts_is_refused_by_name_and_nothing_is_shown_unprotected() {
    if !is_selected() {
        return;
    }
    let requested: [SpecChange; 8] = [
        ("an overlay", |spec, _| spec.mode = WorkspaceMode::Overlay { layer: None }),
        ("a folder more to write to", |spec, _| {
            spec.shared.push(share(Path::new("/srv"), Permission::Write))
        }),
        ("a folder to read inside of one to write", |spec, folder| {
            fs::create_dir(folder.join("inside")).unwrap();
            spec.shared.push(share(&folder.join("inside"), Permission::Read));
        }),
        ("sandboxes inside", |spec, _| spec.nesting = Nesting::Allowed),
        ("root inside", |spec, _| spec.admin = Admin::Root),
        ("a repository", |_, folder| fs::create_dir_all(folder.join(".git/hooks")).unwrap()),
        ("a path that is not there yet", |spec, _| spec.protected.push("missing".parse().unwrap())),
        ("settings that the host runs", |_, folder| fs::create_dir(folder.join(".husky")).unwrap()),
    ];
    for (what, change) in requested {
        match try_jail(LANDLOCK, change) {
            Err(refusal) => {
                assert_eq!(refusal.code, ErrorCode::NotSupported, "{what}: {refusal}");
                assert!(refusal.hint.is_some(), "{what}");
            }
            Ok(_) => panic!("{what} is not refused"),
        }
    }
}

#[test]
fn a_folder_that_is_shared_to_be_read_is_read_and_no_more() {
    if !is_selected() {
        return;
    }
    let outside = folder();
    fs::write(outside.path().join("file"), "content").unwrap();
    fs::create_dir(outside.path().join("closed")).unwrap();
    let jail =
        try_jail(LANDLOCK, |spec, _| spec.shared.push(share(outside.path(), Permission::Read))).unwrap();
    let worked = jail.successes(
        r#"
os.chdir(sys.argv[1])
assert open('file').read() == 'content'
attack('write', lambda: open('file', 'w'))
attack('make', lambda: open('new', 'w'))
attack('remove', lambda: os.unlink('file'))
attack('link out', lambda: os.link('file', os.environ['HOME'] + '/file'))
attack('mode', lambda: os.chmod('file', 0o777))
attack('above', lambda: os.listdir('..'))
"#,
        &[outside.path().to_str().unwrap()],
    );
    assert!(worked.is_empty(), "{worked:?}");
}

#[test]
fn a_sandbox_of_one_branch_puts_nothing_where_git_of_another_branch_runs_it() {
    if !is_selected() {
        return;
    }
    let (repository, state) = (folder(), folder());
    let on_host = |argv: &[&str]| {
        let git = Command::new("git").args(argv).current_dir(repository.path()).output().unwrap();
        assert!(git.status.success(), "{argv:?}: {}", text(&git.stderr));
        text(&git.stdout)
    };
    on_host(&["init", "-q", "-b", "main"]);
    on_host(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]);
    let on_branch = |branch: &str, script: &str| {
        let argv = ["run", "--backend", "landlock", "--branch", branch, "--", "sh", "-c", script];
        text(&run_in(repository.path(), state.path(), &argv).stdout)
    };
    on_branch("other", "true");
    let attack = r#"common=$(git rev-parse --git-common-dir)
git config core.hooksPath /x; git config user.evil yes; touch "$common/config.worktree"
printf '#!/bin/sh\necho ran' > "$common/hooks/post-commit"; chmod +x "$common/hooks/post-commit"
for other in "$common"/../../*/repo; do [ "$other" -ef "$common" ] || ls "$other"; done 2> /dev/null
git config --unset core.hooksPath; rm "$common/hooks/post-commit"
git commit -q --allow-empty -m inside && git push -q && git branch more && git branch -D -q more && git log --oneline -1 --format=%s"#;
    assert_eq!(
        on_branch("work", attack),
        "inside\n",
        "nothing of the other's is seen, and then the work itself"
    );
    assert_eq!(on_host(&["log", "-1", "--format=%s", "work"]), "inside\n");
    assert_eq!(on_branch("other", "git config user.evil; git log -1 --format=%s"), "first\n");
    // Nor does one of another backend have what this one wrote.
    let native = ["run", "--backend", "native", "--branch", "work", "--", "git", "config", "user.evil"];
    let native = run_in(repository.path(), state.path(), &native);
    assert!(text(&native.stdout).is_empty(), "{}", text(&native.stdout));
}

#[test]
fn a_socket_for_names_that_was_shut_down_costs_nothing_outside() {
    if !is_selected() {
        return;
    }
    let (workspace, state) = (folder(), folder());
    let script = "import socket, sys\ns = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]\n\
        [one.shutdown(how) for how in (0, 1, 2) for one in s[how::3]]\nprint('ready', flush=True)\nsys.stdin.read()";
    let mut belljar = Command::new(belljar())
        .args(["run", "--backend", "landlock", "--", "python3", "-c", script])
        .current_dir(workspace.path())
        .env("XDG_STATE_HOME", state.path())
        .env("XDG_CONFIG_HOME", state.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    belljar.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let ticks = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", belljar.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = ticks() - before;
    drop(belljar.stdin.take());
    belljar.wait().unwrap();
    // Of processor time; a thread that finds something to read for ever takes 100, and on a busy machine some dozens.
    assert!(spent < 10, "{spent} ticks");
}

fn run_in(folder: &Path, state: &Path, argv: &[&str]) -> std::process::Output {
    let mut belljar = Command::new(belljar());
    belljar.args(argv).current_dir(folder).env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state);
    belljar.output().unwrap()
}

//! Numbers that the kernel counts for a user or for the whole machine: a sandbox gets a share of each, and leaves the rest to others.

use belljar_spec::{BackendName, ByteSize, ErrorCode, Runtime};
use belljar_tests_containment::*;
use std::fs;

/// Backends on the host's own kernel; gVisor has numbers of its own.
fn on_the_hosts_kernel() -> impl Iterator<Item = BackendName> {
    backends().iter().copied().filter(|backend| *backend != BackendName::Docker(Runtime::Runsc))
}

fn number(lines: &[String]) -> u64 {
    lines.first().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("no number: {lines:?}"))
}

#[test]
fn inotify_is_not_used_up_for_the_user() {
    let all: u64 =
        fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap().trim().parse().unwrap();
    for backend in nesting_backends() {
        for nesting in [belljar_spec::Nesting::Denied, belljar_spec::Nesting::Allowed] {
            let jail = jail_with(*backend, |spec, _| spec.nesting = nesting);
            let opened = jail.successes(
                r#"
count = 0
# In namespaces below its own as well, if it may make some.
for flags in (0, 0x10000000):
    if flags and libc.unshare(flags) != 0:
        continue
    while libc.inotify_init1(0) >= 0:
        count += 1
print(count)
"#,
                &[],
            );
            assert!(number(&opened) <= all / 4, "{backend}: {opened:?} of {all}");
        }
    }
}

#[test]
fn terminals_are_not_used_up_for_other_sandboxes() {
    for backend in on_the_hosts_kernel() {
        let opened = jail(backend).successes(
            r#"
count = 0
try:
    while count < 1000:
        os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
        count += 1
except OSError:
    pass
print(count)
"#,
            &[],
        );
        assert!((1..=256).contains(&number(&opened)), "{backend}: {opened:?}");
    }
}

#[test]
fn asynchronous_io_of_the_whole_machine_is_not_taken() {
    let io_setup = if cfg!(target_arch = "x86_64") { 206 } else { 0 };
    for backend in on_the_hosts_kernel() {
        let script = format!(
            "
context = ctypes.c_ulong(0)
result = libc.syscall({io_setup}, ctypes.c_uint(1), ctypes.byref(context))
print(result, ctypes.get_errno() == errno.ENOSYS)
"
        );
        // Programs take ENOSYS for a kernel without it, and use threads.
        assert_eq!(jail(backend).successes(&script, &[]), ["-1 True"], "{backend}");
    }
}

#[test]
fn pending_signals_and_queues_are_not_used_up_for_the_user() {
    for backend in nesting_backends() {
        let queued = jail(*backend).successes(
            r#"
import resource
for name, most in (('RLIMIT_SIGPENDING', 8192), ('RLIMIT_MSGQUEUE', 204800)):
    number = {'RLIMIT_SIGPENDING': 11, 'RLIMIT_MSGQUEUE': 12}[name]
    if max(resource.getrlimit(number)) > most:
        print(name, resource.getrlimit(number))
    attack(name, lambda: resource.setrlimit(number, (1 << 20, 1 << 20)))
real_time = signal.SIGRTMIN + 1
signal.pthread_sigmask(signal.SIG_BLOCK, [real_time])
count = 0
while count < 20000 and libc.sigqueue(os.getpid(), real_time, ctypes.c_void_p(0)) == 0:
    count += 1
if count > 8192:
    print('queued', count)
"#,
            &[],
        );
        assert_eq!(queued, Vec::<String>::new(), "{backend}");
    }
}

/// They are counted for the user whom the host knows; as root that is another one for each sandbox.
#[test]
fn descriptors_in_flight_leave_room_for_programs_that_may_have_more() {
    if is_root() {
        return;
    }
    for backend in nesting_backends() {
        let flying = jail(*backend).successes(
            r#"
import array
one, pairs, count = os.open('/dev/null', 0), [], 0
while count < 20000:
    pairs.append(socket.socketpair())
    try:
        for _ in range(8):
            fds = array.array('i', [one] * 250)
            pairs[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            count += 250
    except OSError:
        break
print(count)
"#,
            &[],
        );
        // A message has at most 253, and the kernel looks before it counts them.
        assert!(number(&flying) <= 4096 + 253, "{backend}: {flying:?}");
    }
}

#[test]
fn a_limit_on_memory_holds_the_buffers_of_connections() {
    for backend in on_the_hosts_kernel() {
        let limit = ByteSize::mebibytes(64);
        let started = try_jail(backend, |spec, _| spec.limits.memory = Some(limit));
        let Ok(jail) = started else {
            // Refused is held, too: no cgroup is ours.
            assert_eq!(started.err().map(|error| error.code), Some(ErrorCode::LimitUnavailable), "{backend}");
            continue;
        };
        let held = jail.successes(
            r#"
server = socket.create_server(('127.0.0.1', 0), backlog=200)
kept, total = [], 0
for _ in range(100):
    client = socket.create_connection(server.getsockname())
    kept += [client, server.accept()[0]]
    client.setblocking(False)
    try:
        while total < 1 << 30:
            total += client.send(b'x' * 65536)
    except BlockingIOError:
        pass
print(total)
"#,
            &[],
        );
        assert!(number(&held) < limit.as_u64(), "{backend}: {held:?}");
    }
}

/// A writer on the host would wait for as long as the sandbox holds it.
#[test]
fn no_file_is_leased() {
    for backend in on_the_hosts_kernel() {
        let folder = folder();
        fs::write(folder.path().join("file"), "x").unwrap();
        let jail = jail_with(backend, |spec, _| {
            spec.shared = vec![share(folder.path(), belljar_spec::Permission::Read)]
        });
        let leased = jail.successes(
            r#"
import fcntl
fd = os.open(sys.argv[1] + '/file', os.O_RDONLY)
attack('lease', lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))
attack('notify', lambda: fcntl.fcntl(os.open('/workspace', 0), fcntl.F_NOTIFY, 2))
"#,
            &[folder.path().to_str().unwrap()],
        );
        assert_eq!(leased, Vec::<String>::new(), "{backend}");
    }
}

//! Nothing inside has a privilege, and no system call gives one.

use belljar_spec::{BackendName, Nesting};
use belljar_tests_containment::*;
use std::fs;

/// Asked of the kernel: landlock_create_ruleset(2), LANDLOCK_CREATE_RULESET_VERSION.
#[test]
fn the_second_backend_is_in_force_where_the_kernel_has_it() {
    let script = "import ctypes; print(max(0, ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)))";
    let output = std::process::Command::new("/usr/bin/python3").args(["-c", script]).output().unwrap();
    let version: u32 = text(&output.stdout).trim().parse().unwrap();
    // gVisor's kernel has none.
    for backend in backends().iter().filter(|backend| hides_late_sockets(**backend)) {
        for nesting in [Nesting::Denied, Nesting::Allowed] {
            if nesting == Nesting::Allowed && is_docker(*backend) {
                continue;
            }
            let jail = jail_with(*backend, |spec, _| spec.nesting = nesting);
            let in_force = jail.sandbox.landlock_abi();
            assert!(
                in_force >= version.min(NEWEST_LANDLOCK),
                "{backend} {nesting:?}: {in_force} of {version}"
            );
        }
    }
}

#[test]
fn every_process_has_no_capability_no_new_privileges_and_a_filter() {
    for backend in backends() {
        for nesting in [Nesting::Denied, Nesting::Allowed] {
            if nesting == Nesting::Allowed && is_docker(*backend) {
                continue;
            }
            let jail = jail_with(*backend, |spec, _| spec.nesting = nesting);
            let marker = canary("status");
            let held = HeldCommand::start(&jail, &marker);
            let mut pids = held.pids();
            // Process 1, the supervisor, and its ancestors, up to us.
            let mut above = pids[0];
            while above > 1 && above != std::process::id() {
                let status = process_file(above, "status").unwrap();
                let namespaced = status
                    .lines()
                    .any(|line| line.starts_with("NSpid:") && line.split_whitespace().count() > 2);
                if namespaced || is_inside(above) {
                    pids.push(above);
                }
                let parent = field(&status, "PPid:").trim().parse().unwrap();
                above = if parent == 0 { 0 } else { beside(above, parent).unwrap() };
            }
            // PR_GET_NO_NEW_PRIVS
            let requested = "print('no_new_privs') if libc.prctl(39, 0, 0, 0, 0) == 1 else None";
            assert_eq!(jail.successes(requested, &[]), ["no_new_privs"], "{backend}");
            for pid in pids {
                let status = process_file(pid, "status").unwrap();
                let is_reported = |name: &str| status.contains(name) || tells_all_of_a_process(*backend);
                for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
                    let found = field(&status, set).trim();
                    assert!(
                        found == "0000000000000000" || !is_reported(set),
                        "{backend} {nesting:?} {pid} {set} {found}"
                    );
                }
                let found = field(&status, "NoNewPrivs:").trim();
                assert!(found == "1" || !is_reported("NoNewPrivs:"), "{backend} {found}");
                assert_eq!(field(&status, "Seccomp:").trim(), "2", "{backend}");
                for id in ["Uid:", "Gid:"] {
                    assert!(field(&status, id).split_whitespace().all(|id| id != "0"), "{backend} {status}");
                }
                if is_root() {
                    // A daemon names the user's own group once more.
                    let own = field(&status, "Gid:").split_whitespace().next().unwrap_or_default();
                    let groups = if is_docker(*backend) { own } else { "" };
                    let found = field(&status, "Groups:").trim().to_string();
                    assert!(
                        found.is_empty() || found == groups,
                        "{backend}: groups of the host's root: {found}"
                    );
                }
            }
        }
    }
}

fn field<'s>(status: &'s str, name: &str) -> &'s str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

#[test]
fn namespaces_cannot_be_made_or_joined() {
    for backend in backends() {
        let done = jail(*backend).successes(
            r#"
flags = dict(newns=0x20000, newcgroup=0x2000000, newuts=0x4000000, newipc=0x8000000, newuser=0x10000000,
    newpid=0x20000000, newnet=0x40000000, newtime=0x80)
def in_child(f):
    # In a child, so that one success does not help the next.
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            f()
            os.write(w, b'y')
        except OSError:
            pass
        os._exit(0)
    os.close(w)
    os.waitpid(pid, 0)
    if os.read(r, 1) != b'y':
        raise OSError()
def ran(r):
    if r == 0:
        os._exit(0)
    os.waitpid(r, 0)
for name, flag in flags.items():
    attack('unshare ' + name, lambda: in_child(lambda: syscall(272, flag)))
    attack('unshare user+' + name, lambda: in_child(lambda: syscall(272, flag | 0x10000000)))
    attack('unshare high ' + name, lambda: in_child(lambda: syscall(272, flag | (1 << 40))))
    if name != 'newtime':
        attack('clone ' + name, lambda: in_child(lambda: ran(syscall(56, flag | 17, 0, 0, 0, 0))))
        attack('clone high ' + name, lambda: in_child(lambda: ran(syscall(56, flag | 17 | (1 << 40), 0, 0, 0, 0))))
    args = ctypes.create_string_buffer(struct.pack('QQQQQQQQQQQ', flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
    attack('clone3 ' + name, lambda: in_child(lambda: ran(syscall(435, args, 88))))
for name in os.listdir('/proc/self/ns'):
    for pid in ('self', '1', str(os.getppid())):
        attack('setns %s %s' % (pid, name), lambda: syscall(308, os.open('/proc/%s/ns/%s' % (pid, name), 0), 0))
attack('setns pidfd', lambda: syscall(308, os.pidfd_open(os.getpid()), 0x10000000))
import fcntl
for request in range(0xb701, 0xb70b):
    attack('ns ioctl %x' % request, lambda: fcntl.ioctl(os.open('/proc/self/ns/user', 0), request) if request in (0xb701, 0xb702) else (_ for _ in ()).throw(OSError()))
"#,
            &[],
        );
        assert_eq!(done, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn mounts_cannot_be_made_changed_or_removed() {
    for backend in backends() {
        let done = jail(*backend).successes(
            r#"
os.mkdir('/tmp/m')
for kind in (b'tmpfs', b'proc', b'sysfs', b'overlay', b'cgroup2', b'fuse', b'devpts', b'mqueue', b'ext4', b'debugfs'):
    attack('mount ' + kind.decode(), lambda: syscall(165, b'x', b'/tmp/m', kind, 0, None))
    attack('fsopen ' + kind.decode(), lambda: syscall(430, kind, 0))
attack('bind', lambda: syscall(165, b'/proc', b'/tmp/m', None, 4096, None))
attack('remount', lambda: syscall(165, None, b'/usr', None, 32 | 4096, None))
attack('move', lambda: syscall(165, b'/usr', b'/tmp/m', None, 8192, None))
attack('shared', lambda: syscall(165, None, b'/', None, 1 << 20, None))
for place in (b'/proc/keys', b'/usr', b'/workspace', b'/tmp', b'/proc', b'/'):
    for flags in (0, 1, 2, 8):
        attack('umount ' + place.decode(), lambda: syscall(166, place, flags))
attack('pivot_root', lambda: syscall(155, b'/tmp', b'/tmp/m'))
attack('chroot', lambda: os.chroot('/tmp'))
attack('open_tree', lambda: syscall(428, -100, b'/', 1))
attack('open_tree_attr', lambda: syscall(467, -100, b'/', 1, None, 0))
attack('move_mount', lambda: syscall(429, -100, b'/usr', -100, b'/tmp/m', 0))
attack('fsmount', lambda: syscall(432, 3, 0, 0))
attack('fspick', lambda: syscall(433, -100, b'/', 0))
attack('mount_setattr', lambda: syscall(442, -100, b'/usr', 0, ctypes.create_string_buffer(struct.pack('QQQQ', 0, 1, 0, 0), 32), 32))
attack('swapon', lambda: syscall(167, b'/tmp/m', 0))
attack('quotactl', lambda: syscall(179, 0, b'/dev/vda', 0, None))
"#,
            &[],
        );
        assert_eq!(done, Vec::<String>::new(), "{backend}");
    }
}

/// With and without nesting.
#[test]
fn interfaces_that_reach_deep_into_the_kernel_are_refused() {
    for backend in backends() {
        for nesting in [Nesting::Denied, Nesting::Allowed] {
            if nesting == Nesting::Allowed && is_docker(*backend) {
                continue;
            }
            let jail = jail_with(*backend, |spec, _| spec.nesting = nesting);
            let done = jail.successes(
                r#"
zero = ctypes.create_string_buffer(4096)
try:
    own = os.pidfd_open(os.getpid())
except OSError:
    own = -1
calls = dict(keyctl=(250, 0, -3, 1), add_key=(248, b'user', b'a', b'b', 1, -2), request_key=(249, b'user', b'a', None, -2),
    bpf_map=(321, 0, ctypes.create_string_buffer(struct.pack('IIII', 2, 4, 4, 1), 128), 128),
    bpf_prog=(321, 5, zero, 128), io_uring=(425, 8, zero), io_uring_enter=(426, 0, 0, 0, 0, None, 0), io_uring_register=(427, -1, 0, None, 0),
    userfaultfd=(323, 0), userfaultfd_user=(323, 1), perf=(298, zero, 0, -1, -1, 0),
    fanotify=(300, 0, 0), fanotify_fid=(300, 0x200, 0), open_by_handle=(304, 3, zero, 0), modify_ldt=(154, 0, zero, 16),
    init_module=(175, zero, 1, b''), finit_module=(313, 0, b'', 0), delete_module=(176, b'x', 0), kexec=(246, 0, 0, None, 0), reboot=(169, 0xfee1dead, 672274793, 0, None),
    syslog=(103, 3, zero, 4096), settimeofday=(164, zero, None), clock_settime=(227, 0, zero), adjtimex=(159, ctypes.create_string_buffer(b'\1' * 208)),
    iopl=(172, 3), ioperm=(173, 0, 1, 1), acct=(163, None), vhangup=(153,), lookup_dcookie=(212, 0, zero, 10),
    personality_norandomize=(135, 0x40000), personality_read_implies_exec=(135, 0x400000), personality_mmap_zero=(135, 0x100000),
    pidfd_getfd=(438, own, 0, 0), name=(170, b'x', 1) if sys.argv[1] == 'Denied' else (250, 0, -3, 1),
    lsm_set=(460, 100, zero, 32, 0), kcmp_guest=(312, 1, os.getpid(), 0, 0, 0))
for name, args in calls.items():
    attack(name, lambda: syscall(*args))
# The same numbers by the other two entries: x32 (bit 30), and numbers past the end.
for number in (0x40000000 + 39, 0x40000000 + 272, 0x40000000 + 165, 0x40000000 + 321, 0x40000000 + 520, 0x40000000 + 41):
    attack('x32 %x' % number, lambda: syscall(number, 0, 0, 0))
for number in (470, 471, 500, 1000, 0x7fffffff):
    attack('unknown %d' % number, lambda: syscall(number, 0, 0, 0, 0, 0))
import fcntl
attack('TIOCSTI', lambda: fcntl.ioctl(0, 0x5412, b'x'))
attack('TIOCSTI high', lambda: syscall(16, 0, 0x5412 | (1 << 40), b'x'))
attack('TIOCLINUX', lambda: fcntl.ioctl(0, 0x541c, b'\2'))
"#,
                &[&format!("{nesting:?}")],
            );
            assert_eq!(done, Vec::<String>::new(), "{backend} {nesting:?}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_32_bit_programs_are_refused() {
    for backend in backends() {
        let jail = jail(*backend);
        // int 0x80 from a 64-bit program: 20 is getpid, 5 open, 310 unshare, 359 socket, 102 socketcall. And what the filter
        // refuses by the numbers of 64-bit ones: unshare, mount, socket.
        let done = jail.successes(
            r#"
import mmap
code = mmap.mmap(-1, 4096, prot=7)
# mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; ret -- rbx kept on the stack
code.write(bytes.fromhex('53 89f8 89f3 89d1 31d2 31f6 cd80 5b c3'))
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
for number, a, b in ((20, 0, 0), (310, 0x10000000, 0), (359, 40, 1), (359, 1, 1), (102, 1, 0), (64, 0, 0), (24, 0, 0),
        (272, 0x10000000, 0), (165, 0, 0), (41, 40, 1), (41, 17, 3)):
    r = call(number, a, b)
    if r >= 0:
        print('int 0x80', number, r)
"#,
            &[],
        );
        // As numbers of 64-bit calls: getuid and sched_yield.
        let is_harmless = |line: &String| line.starts_with("int 0x80 102 ") || line == "int 0x80 24 0";
        let done: Vec<String> =
            done.into_iter().filter(|line| knows_32_bit_calls(*backend) || !is_harmless(line)).collect();
        assert_eq!(done, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn with_nesting_a_namespace_inside_gives_access_to_nothing_hidden() {
    let secret = canary("nested");
    let home = std::env::var("HOME").unwrap();
    let planted = std::path::Path::new(&home).join(format!(".{secret}"));
    fs::write(&planted, &secret).unwrap();
    let shared = folder();
    fs::write(shared.path().join("f"), "good").unwrap();
    fs::set_permissions(shared.path().join("f"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .unwrap();
    let mut failures = Vec::new();
    for backend in nesting_backends() {
        let jail = jail_with(*backend, |spec, _| {
            spec.nesting = Nesting::Allowed;
            spec.shared = vec![share(shared.path(), belljar_spec::Permission::Read)];
        });
        let works = jail.run(&["unshare", "-rmpf", "mount", "-t", "tmpfs", "x", "/tmp"]);
        assert_eq!(works.exit_code, Some(0), "{backend}: nesting does not work: {}", text(&works.stderr));
        let attack = format!(
            r#"
import glob
libc.unshare(0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x2000000 | 0x8000000 | 0x4000000)
os.mkdir('/tmp/m')
if os.fork():
    os.wait()
    os._exit(0)
def mount(what, where, kind, flags, data=None):
    syscall(165, what, where, kind, flags, data)
mount(None, b'/', None, 0x40000 | 0x4000)
# What is masked in /proc.
def fresh_proc():
    mount(b'proc', b'/tmp/m', b'proc', 0)
    return open('/tmp/m/keys').read(), open('/tmp/m/interrupts').read()
attack('fresh proc', fresh_proc)
attack('fresh proc, fsopen', lambda: syscall(432, (lambda fd: syscall(431, fd, 6, None, None, 0) or fd)(syscall(430, b'proc', 0)), 0, 0))
attack('sysfs', lambda: mount(b'sysfs', b'/tmp/m', b'sysfs', 0))
for masked in (b'/proc/keys', b'/proc/interrupts', b'/proc/key-users'):
    for flags in (0, 2, 8):
        attack('unmask', lambda: syscall(166, masked, flags) or open(masked).read() or (_ for _ in ()).throw(OSError()))
attack('bind without masks', lambda: mount(b'/proc', b'/tmp/m', None, 4096) or open('/tmp/m/interrupts').read())
attack('tree without masks', lambda: syscall(428, -100, b'/proc', 1))
attack('root without mounts', lambda: syscall(428, -100, b'/', 1))
# Read-only stays.
share = {shared:?}
for flags in (32 | 4096, 32, 32 | 4096 | 2, 4096 | 32 | 1024):
    attack('remount', lambda: mount(None, share.encode(), None, flags) or open(share + '/f', 'w').write('evil'))
    attack('remount usr', lambda: mount(None, b'/usr', None, flags) or open('/usr/planted', 'w'))
attack('setattr', lambda: syscall(442, -100, share.encode(), 0x8000, ctypes.create_string_buffer(struct.pack('QQQQ', 0, 1, 0, 0), 32), 32))
os.mkdir('/tmp/b')
attack('bind and remount', lambda: (mount(share.encode(), b'/tmp/b', None, 4096), mount(None, b'/tmp/b', None, 32 | 4096), open('/tmp/b/f', 'w').write('evil')))
attack('umount share', lambda: syscall(166, share.encode(), 2))
for d in ('up', 'work', 'merged'):
    os.mkdir('/tmp/' + d)
def over():
    mount(b'overlay', b'/tmp/merged', b'overlay', 0, ('lowerdir=%s,upperdir=/tmp/up,workdir=/tmp/work' % share).encode())
    open('/tmp/merged/f', 'w').write('evil')
try:
    over()
except OSError:
    pass
# Devices, and other people's mounts.
attack('mknod', lambda: (os.mknod('/tmp/kmsg', 0o20666, os.makedev(1, 11)), os.open('/tmp/kmsg', 0)))
attack('devtmpfs', lambda: mount(b'x', b'/tmp/m', b'devtmpfs', 0))
attack('block', lambda: mount(b'/dev/vda', b'/tmp/m', b'ext4', 0))
for kind in (b'debugfs', b'tracefs', b'securityfs', b'bpf', b'configfs', b'pstore', b'efivarfs'):
    attack(kind.decode(), lambda: mount(b'x', b'/tmp/m', kind, 0) or kind == b'bpf' and (_ for _ in ()).throw(OSError()))
attack('setns to process 1', lambda: syscall(308, os.open('/proc/1/ns/mnt', 0), 0))
# Limits of the cgroup.
def cgroup(kind, data):
    mount(b'x', b'/tmp/m', kind, 0, data)
    try:
        writable = [p for p in glob.glob('/tmp/m/**', recursive=True) if os.access(p, os.W_OK)]
        if not writable:
            raise OSError()
        return writable[:3]
    finally:
        syscall(166, b'/tmp/m', 2)
attack('cgroup2', lambda: cgroup(b'cgroup2', None))
attack('cgroup memory', lambda: cgroup(b'cgroup', b'memory'))
attack('cgroup pids', lambda: cgroup(b'cgroup', b'pids'))
# And the home again.
for path in (sys.argv[1], '/proc/self/root' + sys.argv[1], '/proc/1/root' + sys.argv[1]):
    attack(path, lambda: open(path).read())
"#,
            shared = shared.path().to_str().unwrap()
        );
        let done = jail.successes(&attack, &[planted.to_str().unwrap()]);
        if !done.is_empty() || fs::read_to_string(shared.path().join("f")).unwrap() != "good" {
            failures.push(format!("{backend}: {done:?}"));
        }
    }
    fs::remove_file(&planted).unwrap();
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn what_proc_hides_stays_hidden() {
    for backend in backends() {
        let seen = jail(*backend).successes(
            r#"
for name in ('keys', 'key-users', 'interrupts', 'kcore', 'kmsg', 'timer_list', 'sched_debug', 'slabinfo', 'vmallocinfo', 'kpagecount', 'kpageflags', 'pagetypeinfo'):
    attack(name, lambda: open('/proc/' + name, 'rb').read(16) or (_ for _ in ()).throw(OSError()))
for name in ('acpi', 'asound', 'scsi'):
    attack(name, lambda: os.listdir('/proc/' + name) or (_ for _ in ()).throw(OSError()))
for directory, folders, files in os.walk('/proc/sys'):
    for name in files:
        path = directory + '/' + name
        if os.access(path, os.W_OK):
            attack('writable ' + path, lambda: os.write(os.open(path, os.O_WRONLY), open(path, 'rb').read()))
attack('sysrq', lambda: open('/proc/sysrq-trigger', 'w'))
# Addresses of the kernel.
for line in open('/proc/kallsyms') if os.path.exists('/proc/kallsyms') else ():
    if not line.startswith('0000000000000000'):
        print('kallsyms', line)
        break
"#,
            &[],
        );
        assert_eq!(seen, Vec::<String>::new(), "{backend}");
    }
}

/// The newest version that the guest knows.
const NEWEST_LANDLOCK: u32 = 9;

/// The root may be a directory of the host's user, as whom an ordinary user's sandbox runs: only its mount keeps it as it is.
#[test]
fn the_root_stays_read_only_where_users_may_be_made() {
    for backend in backends().iter().filter(|backend| **backend == BackendName::Native) {
        let workspace = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(belljar())
            .args(["run", "--nested", "--backend", backend.as_str(), "--workspace"])
            .arg(workspace.path())
            .args(["--", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", OPEN_THE_ROOT])
            .output()
            .unwrap();
        let received = String::from_utf8_lossy(&output.stdout);
        assert_eq!(received, "tried\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
}

const OPEN_THE_ROOT: &str = "
mount -o remount,bind,rw / && echo remounted
touch /etc/x && echo a file is there
chmod 777 /etc/hosts && echo a mode is changed
mkdir /tmp/root && mount --rbind / /tmp/root && mount -o remount,bind,rw /tmp/root && echo a copy is writable
echo tried";

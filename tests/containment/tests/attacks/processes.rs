//! A sandbox sees, signals and traces its own processes only, and none of them outlives its time.

use belljar_tests_containment::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn no_process_of_the_host_is_seen_or_signalled() {
    let marker = canary("host-process");
    let host = HostProgram::start(
        Path::new("/"),
        "import time; print('ready', flush=True); time.sleep(1000)",
        &[&marker],
    );
    for backend in backends() {
        let found = jail(*backend).successes(
            r#"
marker, pid = sys.argv[1].encode(), int(sys.argv[2])
for entry in os.listdir('/proc'):
    if entry.isdigit() and int(entry) != os.getpid():
        line = open('/proc/%s/cmdline' % entry, 'rb').read()
        if marker in line:
            print('seen', entry)
attack('signal', lambda: os.kill(pid, signal.SIGKILL))
attack('pidfd', lambda: os.pidfd_open(pid))
attack('trace', lambda: syscall(101, 16, pid, 0, 0))
attack('memory', lambda: open('/proc/%d/mem' % pid, 'rb'))
# Everybody that there is.
if os.fork() == 0:
    os.setsid()
    try:
        os.kill(-1, signal.SIGUSR1)
    except OSError:
        pass
    os._exit(0)
os.wait()
"#
            .replace("os.kill(-1, signal.SIGUSR1)", "os.kill(-1, signal.SIGCONT)")
            .as_str(),
            &[&marker, &host.pid().to_string()],
        );
        assert_eq!(found.iter().filter(|line| line.starts_with("seen")).count(), 0, "{backend}: {found:?}");
        assert_eq!(processes_with(&marker), [host.pid()], "{backend}: the host's process is gone: {found:?}");
    }
}

#[test]
fn the_first_process_cannot_be_killed_stopped_traced_read_or_limited_by_any_of_its_threads() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("bystander");
        // More threads in process 1, and something that dies with it.
        let bystander = HeldCommand::start(&jail, &marker);
        let done = jail.successes(
            r#"
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
# MAP_PRIVATE, MAP_ANONYMOUS and MAP_FIXED.
afar = ctypes.c_void_p(libc.mmap(7 << 32, 4096, 3, 0x32, -1, 0))
assert afar.value == 7 << 32, afar
threads = [int(t) for t in os.listdir('/proc/1/task')]
if len(threads) < 2:
    print('no threads to attack')
for t in threads:
    for s in list(range(1, 32)) + [34, 50, 64] if 'signals' in sys.argv else []:
        for send in (lambda: os.kill(t, s), lambda: syscall(200, t, s), lambda: syscall(234, 1, t, s)):
            try:
                send()
            except OSError:
                pass
        info = struct.pack('iii', s, 0, -1) + b'\0' * 116
        try:
            syscall(297, 1, t, s, ctypes.create_string_buffer(info, 128))
        except OSError:
            pass
    p = '/proc/%d/' % t
    for request in (16, 0x4206):
        attack('ptrace %d' % request, lambda: syscall(101, request, t, 0, 0))
    for name in ('mem', 'environ', 'maps', 'smaps', 'pagemap', 'auxv', 'stack', 'syscall', 'io', 'personality', 'map_files', 'fdinfo', 'fd', 'ns/mnt', 'exe', 'root', 'cwd', 'numa_maps', 'patch_state', 'timers', 'clear_refs'):
        for base in (p, '/proc/1/task/%d/' % t):
            def read(path):
                if os.path.islink(path):
                    return os.readlink(path)
                if os.path.isdir(path):
                    return os.listdir(path) and [os.readlink(path + '/' + e) for e in os.listdir(path)]
                got = open(path, 'rb').read(64)
                if not got:
                    raise OSError()
                return got
            attack('read ' + base + name, lambda: read(base + name))
    for name in ('mem', 'oom_score_adj', 'oom_adj', 'comm', 'coredump_filter', 'timerslack_ns', 'setgroups', 'uid_map', 'loginuid', 'sched', 'autogroup', 'clear_refs', 'attr/current', 'make-it-fail', 'timens_offsets'):
        for base in (p, '/proc/1/task/%d/' % t):
            attack('write ' + base + name, lambda: os.write(os.open(base + name, os.O_WRONLY), b'0'))
    limit = ctypes.create_string_buffer(struct.pack('QQ', 0, 0), 16)
    for resource in range(16):
        attack('prlimit %d of %d' % (resource, t), lambda: syscall(302, t, resource, limit, None))
        # One that looks like none to a reader that sees half of it.
        attack('prlimit %d of %d from afar' % (resource, t), lambda: syscall(302, t, resource, afar, None))
    local = ctypes.create_string_buffer(64)
    iov = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(local), 64), 16)
    remote = ctypes.create_string_buffer(struct.pack('QQ', 0x400000, 64), 16)
    attack('process_vm_readv', lambda: syscall(310, t, iov, 1, remote, 1, 0))
    attack('process_vm_writev', lambda: syscall(311, t, iov, 1, remote, 1, 0))
    attack('kcmp', lambda: syscall(312, t, os.getpid(), 0, 3, 3))
    attack('migrate_pages', lambda: syscall(256, t, 64, ctypes.create_string_buffer(b'\1' * 8), ctypes.create_string_buffer(b'\1' * 8)))
for t in threads:
    attack('setpgid', lambda: os.setpgid(t, os.getpid()))
try:
    fd = os.pidfd_open(1)
except OSError:
    fd = -1
for s in (9, 15, 19, 6, 11):
    try:
        signal.pidfd_send_signal(fd, s)
    except OSError:
        pass
for n in range(64):
    attack('pidfd_getfd %d' % n, lambda: syscall(438, fd, n, 0))
attack('process_madvise', lambda: syscall(440, fd, remote, 1, 21, 0))
attack('setns', lambda: syscall(308, fd, 0x20000))
attack('nice', lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
attack('scheduler', lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
attack('affinity', lambda: os.sched_setaffinity(1, {0}))
attack('move to my session', lambda: os.setpgid(os.getpid(), 1))
"#,
            if guards_process_one(*backend) { &["signals"] } else { &[] },
        );
        let done: Vec<String> = done.into_iter().filter(|line| !is_open(*backend, line)).collect();
        assert_eq!(done, Vec::<String>::new(), "{backend}");
        assert_eq!(jail.run(&["true"]).exit_code, Some(0), "{backend}: process 1 does not answer any more");
        assert!(!bystander.pids().is_empty(), "{backend}: process 1 died");
    }
}

/// Whether it is known that process 1 can be asked that: it holds no secret, and nothing of it can be changed.
fn is_open(backend: belljar_spec::BackendName, line: &str) -> bool {
    let shown = ["environ", "maps", "smaps", "auxv", "io", "fdinfo", "fd", "exe", "root", "cwd"];
    let name = line.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    !guards_process_one(backend) && line.starts_with("read ") && shown.contains(&name)
}

/// Where process 1 is not out of reach of signals, they end this sandbox or stop it, and no other; and it is still disposed of.
#[test]
fn a_signal_to_process_one_reaches_no_other_sandbox() {
    for backend in backends() {
        for number in [9, 15, 19] {
            let (jail, other) = (jail(*backend), jail(*backend));
            let (marker, bystander) = (canary("own"), canary("bystander"));
            let _own = HeldCommand::start(&jail, &marker);
            let held = HeldCommand::start(&other, &bystander);
            let script = format!("import os; os.kill(1, {number})");
            let _ = jail.run_for(&["/usr/bin/python3", "-c", &script], Duration::from_secs(5));
            assert_eq!(other.run(&["true"]).exit_code, Some(0), "{backend}: {number}");
            assert!(!held.pids().is_empty(), "{backend}: {number}");
            if guards_process_one(*backend) {
                assert_eq!(jail.run(&["true"]).exit_code, Some(0), "{backend}: {number}");
            }
            jail.sandbox.dispose_blocking();
            assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}: {number}");
        }
    }
}

/// Runs an attack that must be over after its timeout, and says whether anything of it still moves: `beat` grows.
fn still_beats(jail: &Jail, script: &str) -> bool {
    let result = jail.run_for(
        &["/usr/bin/python3", "-c", &format!("{PRELUDE}{BEAT}{script}")],
        Duration::from_millis(1500),
    );
    let size = || fs::metadata(jail.outside("beat")).map(|found| found.len()).unwrap_or(0);
    assert!(size() > 0, "the attack never started: {result:?}");
    let before = size();
    std::thread::sleep(Duration::from_millis(400));
    size() != before
}

const BEAT: &str = r#"
def beat():
    while True:
        with open('/workspace/beat', 'a') as f:
            f.write('x')
        time.sleep(0.02)
def detached(f):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(0); os.close(1); os.close(2)
            f()
        os._exit(0)
for s in range(1, 65):
    try:
        signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"#;

#[test]
fn a_daemon_that_forked_twice_does_not_outlive_its_timeout() {
    for backend in backends() {
        assert!(!still_beats(&jail(*backend), "detached(beat)\ntime.sleep(1000)"), "{backend}");
    }
}

#[test]
fn killing_the_supervisor_lets_nothing_outlive_its_timeout() {
    for backend in backends() {
        let script = "detached(beat)\ntime.sleep(0.3)\nos.kill(os.getppid(), 9)\ntime.sleep(1000)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

#[test]
fn stopping_the_supervisor_lets_nothing_outlive_its_timeout() {
    for backend in backends() {
        let jail = jail(*backend);
        let script = "detached(beat)\nos.kill(os.getppid(), 19)\ntime.sleep(1000)";
        assert!(!still_beats(&jail, script), "{backend}");
        assert_eq!(jail.run(&["true"]).exit_code, Some(0), "{backend}: the sandbox is of no use any more");
    }
}

/// Its first thread ended: the kernel calls such a process a zombie, though its other threads continue.
#[test]
fn a_process_that_lost_its_first_thread_does_not_outlive_its_timeout() {
    for backend in backends() {
        let script = "
def headless():
    threading.Thread(target=beat).start()
    libc.syscall(60, 0)
detached(headless)
time.sleep(1000)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

#[test]
fn children_of_a_process_that_lost_its_first_thread_do_not_outlive_its_timeout() {
    for backend in backends() {
        let script = "
def headless():
    threading.Thread(target=lambda: time.sleep(1000)).start()
    if os.fork() == 0:
        beat()
    libc.syscall(60, 0)
detached(headless)
time.sleep(1000)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

#[test]
fn a_command_that_lost_its_first_thread_does_not_outlive_its_timeout() {
    for backend in backends() {
        let script = "threading.Thread(target=beat).start()\nlibc.syscall(60, 0)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

#[test]
fn a_sibling_made_with_clone_parent_does_not_outlive_its_timeout() {
    for backend in backends() {
        // CLONE_PARENT: a child of the supervisor, or, from further below, of the caller's parent.
        let script = "
if syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
    if syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
        beat()
    os._exit(0)
time.sleep(1000)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

#[test]
fn a_stopped_and_traced_process_does_not_outlive_its_timeout() {
    for backend in backends() {
        let script = "
pid = os.fork()
if pid == 0:
    beat()
time.sleep(0.2)
syscall(101, 0x4206, pid, 0, 1)
detached(lambda: [time.sleep(0.001) or os.kill(os.getpid(), 0) for _ in range(10**9)])
time.sleep(1000)";
        assert!(!still_beats(&jail(*backend), script), "{backend}");
    }
}

/// Faster at forking than anybody is at looking.
#[test]
fn a_chain_that_forks_without_end_does_not_outlive_its_timeout() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("chain");
        let script = format!(
            "{PRELUDE}{BEAT}
def run():
    while True:
        if os.fork():
            os._exit(0)
open('/workspace/beat', 'w').write('x')
for _ in range(4):
    detached(run)
time.sleep(1000)"
        );
        let _ = jail.run_for(&["/usr/bin/python3", "-c", &script, &marker], Duration::from_millis(800));
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

#[test]
fn disposing_ends_everything() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("disposed");
        jail.python(
            &format!(
                "{BEAT}
def headless():
    threading.Thread(target=beat).start()
    libc.syscall(60, 0)
detached(headless)
detached(beat)"
            ),
            &[&marker],
        );
        assert!(eventually(|| !processes_with(&marker).is_empty()), "{backend}: nothing to end");
        jail.sandbox.dispose_blocking();
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

#[test]
fn tracing_works_inside_and_only_there() {
    for backend in backends() {
        let done = jail(*backend).successes(
            r#"
pid = os.fork()
if pid == 0:
    time.sleep(100)
    os._exit(0)
syscall(101, 16, pid, 0, 0)
os.waitpid(pid, 0)
syscall(101, 17, pid, 0, 0)
os.kill(pid, 9)
attack('supervisor', lambda: syscall(101, 16, os.getppid(), 0, 0))
attack('supervisor, seized', lambda: syscall(101, 0x4206, os.getppid(), 0, 0))
attack('supervisor, memory', lambda: open('/proc/%d/mem' % os.getppid(), 'r+b'))
attack('supervisor, descriptors', lambda: os.listdir('/proc/%d/fd' % os.getppid()))
for number in range(10):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        attack('supervisor, descriptor %d' % number, lambda: os.open('/proc/%d/fd/%d' % (os.getppid(), number), flags | os.O_NONBLOCK))
# A tracer may not lift the filter.
child = os.fork()
if child == 0:
    syscall(101, 0, 0, 0, 0)
    os.kill(os.getpid(), 19)
    os._exit(0)
os.waitpid(child, 0)
attack('filter suspended', lambda: syscall(101, 0x4200, child, 0, 1 << 21))
os.kill(child, 9)
"#,
            &[],
        );
        // How many there are, and nothing of what is behind them.
        let is_open =
            |line: &String| line.starts_with("supervisor, descriptors ") && !guards_process_one(*backend);
        let done: Vec<String> = done.into_iter().filter(|line| !is_open(line)).collect();
        assert_eq!(done, Vec::<String>::new(), "{backend}");
    }
}

/// Only a supervisor reports to its guest; no other process can, whatever of its descriptors /proc shows.
#[test]
fn no_process_inside_says_how_another_command_ended() {
    for backend in backends() {
        let jail = jail(*backend);
        let forger = format!(
            r#"{PRELUDE}
import glob
open('/workspace/up', 'w')
while True:
    for path in glob.glob('/proc/[0-9]*/fd/[0-9]*'):
        if path.split('/')[2] == str(os.getpid()):
            continue
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.write(descriptor, bytes(4))
            os.write(descriptor, bytes(4))
        except OSError:
            pass
        os.close(descriptor)
"#
        );
        let forging = HeldCommandFor::start(&jail, &["/usr/bin/python3", "-c", &forger]);
        assert!(eventually(|| jail.outside("up").exists()), "{backend}");
        for _ in 0..3 {
            let done = jail.sh("sleep 0.7; exit 7");
            assert_eq!(done.exit_code, Some(7), "{backend}: {done:?}");
        }
        drop(forging);
    }
}

/// A crash inside must not make the host run its crash handler: with a pattern that names one, a limit of 0 does not
/// keep the kernel from starting it; 1 does (fs/coredump.c).
#[test]
fn a_crash_inside_is_not_handed_to_a_program_of_the_host() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("core");
        let held = HeldCommand::start(&jail, &marker);
        for pid in held.pids() {
            let Ok(limits) = process_file(pid, "limits") else { continue };
            let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
            let values: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
            assert_eq!(values, ["1", "1"], "{backend}: {core}");
        }
    }
}

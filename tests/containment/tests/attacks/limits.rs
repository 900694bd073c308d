//! What a sandbox devours is its own, and gone with it.

use belljar_spec::{BackendName, ByteSize, ErrorCode};
use belljar_tests_containment::*;
use std::fs;
use std::time::Duration;

#[test]
fn a_fork_bomb_leaves_the_host_able_to_start_programs_and_ends_with_its_sandbox() {
    for backend in backends() {
        let marker = canary("bomb");
        let jail = jail_with(*backend, |spec, _| spec.limits.pids = Some(64));
        // On native it keeps every processor busy as well. A container's daemon shares them with it, and takes a minute to end it.
        let refused = if *backend == BackendName::Native { "pass" } else { "time.sleep(0.01)" };
        let bomb = format!(
            "{PRELUDE}
open('/workspace/started', 'w')
while True:
    try:
        os.fork()
    except OSError:
        {refused}
"
        );
        let running = HeldCommandFor::start(&jail, &["/usr/bin/python3", "-c", &bomb, &marker]);
        assert!(eventually(|| jail.outside("started").exists()), "{backend}");
        // A backend whose sandbox ends with its limit may have lost it before the test has looked.
        let is_over = || !outlives_its_limits(*backend) && wait_for(jail.sandbox.exists(".")).is_err();
        assert!(eventually(|| processes_with(&marker).len() > 16 || is_over()), "{backend}: no bomb");
        let allowed = if outlives_its_limits(*backend) { 64 } else { 20 * 64 };
        assert!(processes_with(&marker).len() <= allowed, "{backend}: more processes than allowed");
        for _ in 0..20 {
            assert!(
                std::process::Command::new("true").status().unwrap().success(),
                "{backend}: the host is hurt"
            );
        }
        drop(running);
        jail.sandbox.dispose_blocking();
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

#[test]
fn a_fork_bomb_ends_with_its_timeout() {
    for backend in backends() {
        let marker = canary("timed-bomb");
        let jail = jail_with(*backend, |spec, _| spec.limits.pids = Some(64));
        let script = ":(){ :|:& }; :; sleep 1000";
        let _ = jail.run_for(&["bash", "-c", script, &marker], Duration::from_millis(500));
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

#[test]
fn a_memory_hog_is_ended_and_not_its_neighbours() {
    for backend in backends() {
        let limit = ByteSize::mebibytes(64);
        let marker = canary("hog");
        let bystander_marker = canary("bystander");
        let bystander = HostProgram::start(
            std::path::Path::new("/"),
            "import time; b = bytearray(100 << 20); print('ready', flush=True); time.sleep(1000)",
            &[&bystander_marker],
        );
        let started = try_jail(*backend, |spec, _| spec.limits.memory = Some(limit));
        let Ok(jail) = started else {
            // Refused is held, too: no cgroup is ours.
            assert_eq!(started.err().map(|error| error.code), Some(ErrorCode::LimitUnavailable), "{backend}");
            continue;
        };
        // Anonymous memory, then memory that no process has: files in memory.
        for hog in [
            "b = []\nwhile True:\n    b.append(bytearray(1 << 20))",
            "fd = os.memfd_create('x')\nwhile True:\n    os.write(fd, b'x' * (1 << 20))",
            "f = open('/dev/shm/x', 'wb')\nwhile True:\n    f.write(b'x' * (1 << 20))",
        ] {
            let script = format!("{PRELUDE}{hog}");
            let argv = ["/usr/bin/python3", "-c", &script, &marker];
            let result = jail.run_for(&argv, Duration::from_secs(30));
            assert!(
                !result.is_ok_and(|result| result.exit_code == Some(0) || result.timed_out),
                "{backend}: {hog}"
            );
            assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
        }
        assert_eq!(
            processes_with(&bystander_marker),
            [bystander.pid()],
            "{backend}: another process was ended"
        );
    }
}

#[test]
fn a_filler_of_temporary_files_stops_at_its_limit_and_leaves_no_byte() {
    for backend in backends() {
        let jail = jail_with(*backend, |spec, _| spec.limits.disk = Some(ByteSize::mebibytes(8)));
        let available = || {
            let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
            let line = meminfo.lines().find(|line| line.starts_with("Shmem:")).unwrap().to_string();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = available();
        let written = jail.successes(
            r#"
total = 0
for place in ('/tmp', '/home/agent', '/dev/shm', '/run', '/', '/etc', '/dev', '/root', '/home', '/var', '/opt', '/sys', '/proc', '/dev/pts'):
    try:
        with open(place + '/filler', 'wb', buffering=0) as f:
            while True:
                total += f.write(b'x' * 65536)
                if total > 40 << 20:
                    break
    except OSError:
        pass
# And files with no content at all.
count = 0
try:
    while count < 200000:
        os.close(os.open('/tmp/e%d' % count, os.O_CREAT | os.O_WRONLY))
        count += 1
except OSError:
    pass
print(total, count)
"#,
            &[],
        );
        let numbers: Vec<u64> = written[0].split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] <= 9 << 20, "{backend}: {numbers:?}");
        assert!(numbers[1] < 100_000, "{backend}: {numbers:?}");
        jail.sandbox.dispose_blocking();
        // Other tests use memory too: what is looked for is 8 MiB that stay for ever.
        assert!(
            eventually(|| available() <= before + (6 << 10)) || available() < before + (64 << 10),
            "{backend}"
        );
    }
}

#[test]
fn open_files_are_limited() {
    for backend in backends() {
        let jail = jail_with(*backend, |spec, _| spec.limits.open_files = Some(32));
        let opened = jail.successes(
            r#"
import resource
attack('raised', lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)))
fds = []
try:
    while len(fds) < 4096:
        fds.append(os.open('/dev/null', 0))
except OSError:
    pass
for fd in fds:
    os.close(fd)
if len(fds) > 32:
    print('opened', len(fds))
"#,
            &[],
        );
        assert_eq!(opened, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn an_endless_printer_does_not_fill_the_hosts_memory() {
    for backend in backends() {
        let jail = jail(*backend);
        let script = format!("yes | head -c {}", 200_000_000 / call_costs(*backend));
        let mut command = belljar_spec::Command::new(["sh", "-c", script.as_str()]).unwrap();
        command.max_output = Some(ByteSize::mebibytes(1));
        let result = wait_for(jail.sandbox.exec(&command)).unwrap();
        assert_eq!(result.stdout.len(), 1 << 20, "{backend}");
        assert!(result.output_truncated, "{backend}");
    }
}

/// Limits of the user, not of the sandbox: real-time priority would stop the machine.
#[test]
fn nothing_inside_gets_real_time_priority() {
    for backend in backends() {
        let workspace = folder();
        // As for a user whom the host allows it.
        let output = std::process::Command::new("prlimit")
            .args(if is_root() { ["--rtprio=50:50", "--nice=40:40"] } else { ["--rtprio=0:0", "--nice=0:0"] })
            .arg(belljar())
            .args(["run", "--backend", backend.as_str(), "--workspace"])
            .arg(workspace.path())
            .args([
                "--",
                "/usr/bin/python3",
                "-c",
                &format!(
                    "{PRELUDE}
attack('fifo', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attack('rr', lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
attack('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
"
                ),
            ])
            .output()
            .unwrap();
        if text(&output.stderr).starts_with("prlimit:") {
            return; // The host allows it to no user.
        }
        assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{backend}");
    }
}

//! What is asked of sandboxes that live: connections into them, pauses and watches lead nowhere else.

use belljar_engine::ChangeKind;
use belljar_spec::{Command, ErrorCode};
use belljar_tests_containment::*;
use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

#[test]
fn no_listener_of_the_host_is_connected_to() {
    let listeners: Vec<TcpListener> = ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"]
        .into_iter()
        .filter_map(|address| TcpListener::bind(address).ok())
        .collect();
    for backend in backends() {
        // With egress too: a connection into the sandbox must not be taken for one of a program that wants to leave.
        let open = |spec: &mut belljar_spec::SandboxSpec| {
            spec.egress = Some(belljar_spec::egress::EgressPolicy::open());
        };
        for jail in [jail(*backend), jail_with(*backend, |spec, _| open(spec))] {
            for listener in &listeners {
                let port = listener.local_addr().unwrap().port();
                let outcome = wait_for(jail.sandbox.connect(port));
                listener.set_nonblocking(true).unwrap();
                let arrived = listener.accept();
                assert!(
                    matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock),
                    "{backend}: {arrived:?}"
                );
                assert_eq!(outcome.map(drop).unwrap_err().code, ErrorCode::ConnectionFailed, "{backend}");
            }
            assert!(jail.sandbox.refused().is_empty(), "{backend}: the gateway was asked");
        }
    }
    // The listeners would have seen it.
    let first = listeners.first().unwrap();
    let _held = TcpStream::connect(first.local_addr().unwrap()).unwrap();
    assert!(eventually(|| first.accept().is_ok()));
}

/// Every process inside wakes every other, all the time; some fork others, and some have lost their first thread.
const RESTLESS: &str = r#"
import ctypes, os, signal, threading, sys
def wake():
    while True:
        try:
            os.kill(-1, signal.SIGCONT)
        except OSError:
            pass
for n in range(6):
    if os.fork() == 0:
        if n == 0:
            while True:
                if os.fork() == 0:
                    os._exit(0)
                os.wait()
        if n == 1:
            threading.Thread(target=wake).start()
            # The first thread alone ends.
            ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
        wake()
print('ready', flush=True)
wake()
"#;

/// The states of all threads of these processes, and the processor time that they have used.
fn seen(pids: &[u32]) -> (Vec<char>, u64) {
    let (mut states, mut time) = (Vec::new(), 0);
    for pid in pids {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<&str> = fields.split(' ').collect();
            states.extend(fields[0].chars().filter(|state| !matches!(state, 'Z' | 'X')));
            time += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    states.sort_unstable();
    states.dedup();
    (states, time)
}

#[test]
fn no_process_inside_keeps_a_paused_sandbox_going() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("restless");
        let script = format!("exec -a {marker} /usr/bin/python3 -c \"$1\" {marker}");
        let held = HeldCommandFor::start(&jail, &["bash", "-c", &script, "bash", RESTLESS]);
        assert!(eventually(|| processes_with(&marker).len() >= 7), "{backend}");
        let around = processes_with(&marker).first().map(|pid| around(*pid)).unwrap_or_default();
        for _ in 0..5 {
            if !around.is_empty() {
                pause_behind_a_kernel(&jail, &around);
                continue;
            }
            wait_for(jail.sandbox.pause()).unwrap();
            let pids = processes_with(&marker);
            let before = seen(&pids);
            // One that waits for a child in vfork hangs in the kernel (D).
            assert!(before.0.iter().all(|state| matches!(state, 'T' | 'D')), "{backend}: {before:?}");
            sleep(Duration::from_millis(100));
            assert_eq!(seen(&pids), before, "{backend}: it uses no processor");
            assert_eq!(processes_with(&marker), pids, "{backend}: there is a new process");
            wait_for(jail.sandbox.resume()).unwrap();
            assert!(eventually(|| seen(&pids).1 > before.1), "{backend}: it goes on");
        }
        drop(held);
        wait_for(jail.sandbox.pause()).unwrap();
        drop(jail);
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

/// Where the host sees nothing of processes but the kernel around them: paused, that has nothing to do. A kernel may be too slow for
/// the restless; then the pause fails with an error, and all processes continue.
fn pause_behind_a_kernel(jail: &Jail, kernel: &[u32]) {
    let backend = jail.sandbox.backend();
    let used = || seen(kernel).1;
    match wait_for(jail.sandbox.pause()) {
        Ok(()) => {
            let before = used();
            sleep(Duration::from_millis(500));
            let ticks = used() - before;
            assert!(ticks < 15, "{backend}: it used {ticks} of 50 hundredths while it was paused");
            wait_for(jail.sandbox.resume()).unwrap();
        }
        Err(error) => {
            assert!(
                !stops_the_restless(backend) && error.code == ErrorCode::NotSupported,
                "{backend}: {error}"
            )
        }
    }
    let before = used();
    assert!(eventually(|| used() > before + 20), "{backend}: it goes on");
}

#[test]
fn a_pause_stops_no_process_outside() {
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    for backend in backends() {
        let (paused, other) = (jail(*backend), jail(*backend));
        wait_for(paused.sandbox.pause()).unwrap();
        assert_eq!(text(&other.sh("echo going").stdout), "going\n", "{backend}");
        assert_ne!(seen(&[bystander.id()]).0, ['T'], "{backend}");
    }
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_watch_sees_nothing_of_the_host() {
    let outside = folder();
    for backend in backends() {
        let jail = jail(*backend);
        std::os::unix::fs::symlink(outside.path(), jail.workspace.path().join("out")).unwrap();
        let seen = wait_for(async {
            // Where a look into each folder of a system takes minutes, at what leads out of it.
            let top = if sees_host_changes(*backend) { "/" } else { "/workspace" };
            let mut watch = jail.sandbox.watch(top, true).await.unwrap();
            fs::create_dir_all(outside.path().join("folder")).unwrap();
            fs::write(outside.path().join("folder/secret"), "").unwrap();
            fs::remove_dir_all(outside.path().join("folder")).unwrap();
            match sees_host_changes(*backend) {
                true => fs::write(jail.workspace.path().join("end"), "").unwrap(),
                false => drop(jail.sandbox.exec(&Command::new(["touch", "end"]).unwrap()).await.unwrap()),
            }
            let mut seen = Vec::new();
            loop {
                let change = watch.next().await.unwrap().unwrap();
                if change.path.to_string_lossy().ends_with("end") {
                    return seen;
                }
                if change.kind != ChangeKind::Overflow {
                    seen.push(change);
                }
            }
        });
        assert!(seen.is_empty(), "{backend}: {seen:?}");
    }
}

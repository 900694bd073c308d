//! kill -9 at any moment leaves nothing that the next start does not remove.

#![allow(clippy::unwrap_used)]

use belljar_spec::BackendName;
use belljar_sys::rustix::process::{Pid, Signal, kill_process};
use belljar_tests_containment::*;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// What could be left on this machine, apart from processes that a marker finds.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    mounts: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    orphans: BTreeSet<u32>,
}

fn look() -> Left {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut files = BTreeSet::new();
    for folder in ["/tmp", "/run", "/var/tmp", "/dev/shm", "/var/run"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        // Tests beside us, and those of others, make folders too; ours would have our name.
        let of_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.contains("belljar") && !name.contains("containment") && !name.contains("test")
        };
        files.extend(entries.map(|entry| entry.path()).filter(of_ours));
    }
    files.extend(unfinished_state());
    let mounts = mounts.lines().filter(|line| line.contains("belljar")).map(String::from).collect();
    Left { mounts, files, orphans: orphans() }
}

/// What belljar keeps for its user only while it is needed: notes of mount points.
fn unfinished_state() -> Vec<PathBuf> {
    let state = belljar_state::state_directory().unwrap();
    fs::read_dir(state.join("stubs")).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Bubblewraps that no process waits for any more: their parent is dead. (Before it has started the guest, a
/// bubblewrap has nothing of a sandbox's marker on its command line.)
fn orphans() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| name_and_parent(*pid) == Some(("bwrap".into(), 1))).collect()
}

/// From /proc/PID/stat (proc_pid_stat(5)); nothing of one that has ended.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.split_once('(')?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    Some((name.into(), fields.next()?.parse().ok()?))
}

/// The cgroups of ours that no process holds: other sandboxes may be alive beside us, and other users have theirs.
fn abandoned_cgroups() -> Vec<PathBuf> {
    let user = belljar_sys::rustix::process::geteuid().as_raw();
    let is_ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.uid() == user);
    let found = belljar_tests_hosts::cgroups(|name| name.starts_with("belljar-")).into_iter();
    found.filter(|path| is_ours(path) && !is_held(path)).collect()
}

fn is_held(path: &Path) -> bool {
    use belljar_sys::rustix::fs::{FlockOperation, flock};
    let Ok(file) = fs::File::open(path) else { return true };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

fn run(backend: &str, workspace: &Path, marker: &str) -> Command {
    let mut command = Command::new(belljar());
    command
        .args(["run", "--backend", backend, "--workspace"])
        .arg(workspace)
        .args(["--", "sh", "-c", "setsid sleep 1000 & sleep 1000; :", marker])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Numbers enough, the same in no two runs.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let bytes = canary("seed")
            .bytes()
            .fold(1469598103934665603u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(1099511628211));
        Dice(bytes | 1)
    }

    fn microseconds(&mut self, below: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % below)
    }
}

#[test]
fn killed_at_random_moments_200_times_nothing_is_left() {
    let marker = canary("killed");
    let workspace = folder();
    let before = look();
    let mut dice = Dice::new();
    // What Docker holds is killed in tests/docker, together with Docker.
    let is_own = |backend: &&BackendName| !matches!(backend, BackendName::Docker(_));
    let own_backends: Vec<BackendName> = backends().iter().filter(is_own).copied().collect();
    if own_backends.is_empty() {
        return;
    }
    for round in 0..200 {
        let backend = own_backends[round % own_backends.len()];
        let mut child = run(backend.as_str(), workspace.path(), &marker).spawn().unwrap();
        // By turns at any moment of the start, and at any moment of a start on a busy machine.
        let longest = if (round / own_backends.len()).is_multiple_of(2) { 8_000 } else { 30_000 };
        thread::sleep(dice.microseconds(longest));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    nothing_is_left(&marker, workspace.path(), &before);
}

/// Several at once in one process: a copy of one sandbox's descriptors must not keep another alive.
#[test]
fn killed_while_it_starts_many_at_once_nothing_is_left() {
    let marker = canary("many");
    let workspace = folder();
    let before = look();
    let mut dice = Dice::new();
    for _ in 0..40 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "hold_many_sandboxes"])
            .env("BELLJAR_HOLD_MARKER", &marker)
            .env("BELLJAR_HOLD_WORKSPACE", workspace.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(3) + dice.microseconds(40_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // A process that never executed anything has this test's name on its command line.
    let helper = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text(&line).contains("hold_many_sandboxes")
    };
    let own = std::env::current_exe().unwrap();
    let copies =
        || -> Vec<u32> { processes_with(own.to_str().unwrap()).into_iter().filter(helper).collect() };
    assert!(eventually(|| copies().is_empty()), "copies of the killed process live on: {:?}", copies());
    nothing_is_left(&marker, workspace.path(), &before);
}

/// Not a test: what the one above starts and kills.
#[test]
#[ignore = "started by another test"]
fn hold_many_sandboxes() {
    let (Ok(marker), Ok(workspace)) =
        (std::env::var("BELLJAR_HOLD_MARKER"), std::env::var("BELLJAR_HOLD_WORKSPACE"))
    else {
        return;
    };
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (marker, workspace) = (marker.clone(), workspace.clone());
            thread::spawn(move || {
                loop {
                    let spec = belljar_spec::SandboxSpec {
                        backend: belljar_spec::BackendChoice::Named(BackendName::Native),
                        workspace: Some(workspace.clone().into()),
                        ..Default::default()
                    };
                    let command = belljar_spec::Command::new(["sh", "-c", "sleep 1000; :", &marker]).unwrap();
                    let sandbox = belljar_engine::Engine::new().create_running(&spec, &command).unwrap();
                    thread::sleep(Duration::from_millis(5));
                    drop(sandbox);
                }
            })
        })
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
}

fn nothing_is_left(marker: &str, workspace: &Path, before: &Left) {
    // What the kernel and the guests do by themselves takes a moment; the rest is done by one more start.
    let status = Command::new(belljar())
        .args(["run", "--backend", backends()[0].as_str(), "--workspace"])
        .arg(workspace)
        .args(["--", "true"])
        .status()
        .unwrap();
    assert!(status.success(), "the next start fails");
    assert!(eventually(|| processes_with(marker).is_empty()), "processes: {:?}", processes_with(marker));
    let new_orphans = || -> Vec<u32> { orphans().difference(&before.orphans).copied().collect() };
    assert!(eventually(|| new_orphans().is_empty()), "bubblewraps: {:?}", new_orphans());
    let swept = || {
        let _ =
            Command::new(belljar()).args(["run", "--workspace"]).arg(workspace).args(["--", "true"]).status();
        abandoned_cgroups().is_empty()
    };
    assert!(abandoned_cgroups().is_empty() || swept(), "cgroups: {:?}", abandoned_cgroups());
    let new_files = || -> Vec<PathBuf> { look().files.difference(&before.files).cloned().collect() };
    assert!(eventually(|| new_files().is_empty()), "files: {:?}", new_files());
    let after = look();
    assert!(after.mounts.is_subset(&before.mounts), "mounts: {:?}", after.mounts);
    let mountpoints: Vec<_> = fs::read_dir(workspace).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(mountpoints.is_empty(), "{mountpoints:?}");
}

#[test]
fn a_guest_does_not_outlive_its_host_whatever_its_commands_do() {
    for backend in backends() {
        let marker = canary("orphan");
        let workspace = folder();
        let script = "import os, signal, threading, time, ctypes
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
for n in range(8):
    if os.fork() == 0:
        os.setsid()
        # Holds on to whatever it was given.
        threading.Thread(target=lambda: time.sleep(1000)).start()
        ctypes.CDLL(None).syscall(60, 0)
os.kill(os.getppid(), 19)
open('/workspace/up', 'w')
time.sleep(1000)";
        let mut child = Command::new(belljar())
            .args(["run", "--backend", backend.as_str(), "--workspace"])
            .arg(workspace.path())
            .args(["--", "/usr/bin/python3", "-c", script, &marker])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| workspace.path().join("up").exists()), "{backend}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(eventually(|| processes_with(&marker).is_empty()), "{backend}");
    }
}

/// Where there is no isolation, no namespace ends with the guest.
#[test]
fn a_command_does_not_outlive_its_guest_without_isolation_either() {
    let marker = canary("shimless");
    let workspace = folder();
    // One in front, and one that left the session and lost its parent; both ignore what can be ignored.
    let script = "import os, signal, sys, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0: os._exit(0)
open(os.path.join(sys.argv[2], f'up{os.getpid()}'), 'w')
time.sleep(1000)";
    let mut child = Command::new(belljar())
        .args(["run", "--backend", "host", "--workspace"])
        .arg(workspace.path())
        .args(["--", "/usr/bin/python3", "-c", script, &marker])
        .arg(workspace.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_up = || fs::read_dir(workspace.path()).unwrap().count() == 2;
    assert!(eventually(is_up), "the command did not start");
    let below = |parent: u32| -> Vec<u32> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| name_and_parent(*pid).is_some_and(|(_, found)| found == parent)).collect()
    };
    let guests = below(child.id());
    let supervisors: Vec<u32> = guests.iter().flat_map(|guest| below(*guest)).collect();
    assert_eq!((guests.len(), supervisors.len()), (1, 1), "a guest and its supervisor");
    for guest in guests {
        kill_process(Pid::from_raw(guest as i32).unwrap(), Signal::KILL).unwrap();
    }
    assert!(!child.wait().unwrap().success(), "a lost command is no success");
    let left = || -> Vec<u32> {
        let supervisors = supervisors.iter().copied().filter(|pid| name_and_parent(*pid).is_some());
        processes_with(&marker).into_iter().chain(supervisors).collect()
    };
    assert!(eventually(|| left().is_empty()), "{:?}", left());
}

//! A sandbox says itself when it is ready. One that does not is no sandbox: an error in time, and nothing left of it.

use belljar_engine::Engine;
use belljar_spec::{ErrorCode, ErrorKind, LimitsRequest, SandboxError};
use belljar_sys::rustix::process::{Pid, Signal, kill_process, nice};
use belljar_tests_conformance::*;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

for_every_backend![a_guest_that_hangs_is_an_error_in_time, a_sandbox_that_is_ready_is_not_hurried];

async fn a_guest_that_hangs_is_an_error_in_time(backend: BackendName) {
    if let BackendName::Docker(_) = backend {
        // Its first process is not below ours, and cannot be told from others' before it is ready.
        return;
    }
    let name = "ready::a_guest_that_hangs_is_an_error_in_time";
    if std::env::var_os("BELLJAR_AGAIN").is_some() {
        return hang(backend);
    }
    // In a process of its own: whatever is below that is this sandbox.
    let done = again(backend, name, "hang", ":").env("BELLJAR_BACKENDS", backend.as_str()).output().unwrap();
    let printed = text(&done.stdout) + &text(&done.stderr);
    assert!(done.status.success() && printed.contains("1 passed"), "{printed}");
}

fn hang(backend: BackendName) {
    let folder = TempDir::new().unwrap();
    // Mount points are made for what is protected and not there; they have to go as well.
    fs::create_dir(folder.path().join(".git")).unwrap();
    let limits = LimitsRequest { ready: Some(Duration::from_millis(700)), ..Default::default() };
    let mut spec = spec(backend);
    (spec.workspace, spec.limits) = (Some(folder.path().into()), limits);
    let late = (0..100).find_map(|_| stopped_while_made(&spec).err());
    let error =
        late.expect("of a hundred guests that were stopped at some moment, one was not ready by then");
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::NotReady), "{error}");
    assert!(error.hint.is_some_and(|hint| hint.to_string().contains("`limits.ready`")));
    wait_until("everything to be gone", || processes_below(std::process::id()).is_empty());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".git"], "a mount point was left behind");
    assert_eq!(fs::read_dir(folder.path().join(".git")).unwrap().count(), 0, "a mount point was left behind");
}

/// Makes a sandbox while another thread stops every process below us that is its guest. The guest may have been faster, though others
/// come first wherever it is to run.
fn stopped_while_made(spec: &belljar_spec::SandboxSpec) -> Result<(), SandboxError> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopper = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for pid in children(std::process::id()).into_iter().filter(|pid| is_guest(*pid)) {
                    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::STOP);
                }
            }
        });
        let maker = scope.spawn(|| {
            nice(19).unwrap();
            Engine::new().create_blocking(spec)
        });
        let made = maker.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        stopper.join().unwrap();
        made.map(|sandbox| {
            // Stopped after it was ready: that is a matter of commands.
            for pid in processes_below(std::process::id()) {
                let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::CONT);
            }
            sandbox.dispose_blocking();
        })
    })
}

/// The children of a process, and theirs: only these are scanned, since a scan of all processes comes too late.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let below: Vec<u32> = listed
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    below.into_iter().flat_map(|pid| [vec![pid], children(pid)].concat()).collect()
}

/// The guest, by the name it is started with. Not who stands by to clean up after us, which is the same program.
fn is_guest(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let is_ours = words[0] == b"belljar-guest" || words[0] == b"/proc/self/fd/4";
    is_ours && words.get(1) != Some(&b"reap".as_slice())
}

async fn a_sandbox_that_is_ready_is_not_hurried(backend: BackendName) {
    let limits = LimitsRequest { ready: Some(Duration::from_secs(20)), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    assert_eq!(fixture.limits().ready.value, Duration::from_secs(20));
    assert_eq!(fixture.answer("echo here").await, "here");
}

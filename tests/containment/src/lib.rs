//! What every attack needs: backends to attack, a jail to attack from, and checks from outside.
//!
//! Tests are judged from outside: did the byte arrive, did the file change, is the process still there. What the
//! attacker inside printed only ever makes a failure easier to read.
//!
//! `BELLJAR_BACKENDS` picks the backends (`native,bwrap`); one that does not work here is named as skipped, and with
//! `CI=true` is a failure. Docker's daemon is the one of `DOCKER_HOST`, which `./dev test` starts; an ordinary user need
//! not have one. Run the same test binaries as root and as an ordinary user: they ask who they are.

#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "tests speak and stop")]

pub mod credentials;
pub mod egress;
pub mod folders;
pub mod looking;

use belljar_engine::{Engine, ExecResult, Sandbox};
use belljar_spec::{
    BackendChoice, BackendName, Command, Permission, Runtime, SandboxError, SandboxSpec, SharedPath,
};
/// What backends do differently: the same questions as in the other suite.
pub use belljar_tests_conformance::{
    answers_its_own_pings, call_costs, can_exchange, devices_of_its_own, guards_low_ports,
    guards_process_one, has_ipv6, has_netfilter, hides_late_sockets, is_recorded, knows_32_bit_calls,
    names_begin_with, options_without_meaning, outlives_its_limits, sees_host_changes, stops_the_restless,
    tells_all_of_a_process, tells_of_read_only,
};
pub use belljar_tests_hosts::{around, beside, is_inside, kernel_around, process_file, processes_with};
use belljar_tests_hosts::{have_runtime, known_to_work, look_into_sentries};
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The backends to attack.
pub fn backends() -> &'static [BackendName] {
    static BACKENDS: OnceLock<Vec<BackendName>> = OnceLock::new();
    BACKENDS.get_or_init(|| {
        let all = "native,bwrap,docker,docker+runsc";
        let expected = std::env::var("BELLJAR_BACKENDS").unwrap_or_else(|_| all.into());
        let mut backends = Vec::new();
        for name in expected.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let backend = BackendName::ALL.into_iter().find(|backend| backend.as_str() == name);
            let backend = backend.unwrap_or_else(|| panic!("BELLJAR_BACKENDS names no backend: {name}"));
            let works = match backend {
                BackendName::Docker(runtime) => have_runtime(runtime.as_str()),
                _ => known_to_work(name).unwrap_or_else(|| tried(backend)),
            };
            if works {
                backends.push(backend);
            }
        }
        if backends.contains(&GVISOR) {
            look_into_sentries();
        }
        backends
    })
}

/// Those of them to attack from what runs on the host: the gateway, and what belljar reads, decides and starts there, as with a git
/// directory that an agent left. A backend hands it the sandbox's sockets and files, which are the same for each: one is enough, the
/// first that works, which is `native`. That connections, queries, refusals and commits take the same path with every backend has its
/// own tests, which use [`backends`]. With `BELLJAR_TESTS=all` (`./dev test full`) it is all of them.
pub fn gateway_backends() -> &'static [BackendName] {
    if is_full() { backends() } else { &backends()[..backends().len().min(1)] }
}

/// Those of them to attack from where the kernel inside has its part: one with this machine's, and gVisor. As above.
pub fn kernel_backends() -> &'static [BackendName] {
    static BACKENDS: OnceLock<Vec<BackendName>> = OnceLock::new();
    chosen(&BACKENDS, |backend| backend == GVISOR || Some(&backend) == backends().first())
}

/// Those of them with this machine's kernel inside, for what takes git and its like minutes in gVisor: mounts that Docker is asked for
/// are the same with both of its runtimes, and that gVisor keeps to them has shorter tests. As above.
pub fn linux_backends() -> &'static [BackendName] {
    static BACKENDS: OnceLock<Vec<BackendName>> = OnceLock::new();
    // Where nothing else works, gVisor is better than nothing.
    chosen(&BACKENDS, |backend| backend != GVISOR || backends().len() == 1)
}

const GVISOR: BackendName = BackendName::Docker(Runtime::Runsc);

fn chosen(
    chosen: &'static OnceLock<Vec<BackendName>>,
    is_selected: impl Fn(BackendName) -> bool,
) -> &'static [BackendName] {
    chosen.get_or_init(|| {
        backends().iter().copied().filter(|backend| is_full() || is_selected(*backend)).collect()
    })
}

/// Whether every test runs on every backend, even where the backend makes no difference.
fn is_full() -> bool {
    std::env::var("BELLJAR_TESTS").is_ok_and(|tests| tests == "all")
}

/// Whether this backend uses a Docker daemon.
pub fn is_docker(backend: BackendName) -> bool {
    matches!(backend, BackendName::Docker(_))
}

/// Those of them that let sandboxes be made inside: a container refuses that by name.
pub fn nesting_backends() -> impl Iterator<Item = &'static BackendName> {
    backends().iter().filter(|backend| !is_docker(**backend))
}

/// Whether a sandbox starts with this backend. Prints the reason if not; in CI that is a failure.
fn tried(backend: BackendName) -> bool {
    match try_jail(backend, |_, _| {}) {
        Ok(_) => true,
        Err(reason) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
            panic!("the backend {backend} is missing: {reason}")
        }
        Err(reason) => {
            eprintln!("skipped: backend {backend}: {reason}");
            false
        }
    }
}

/// Whether we are root; attacks by an ordinary user are another run of the same binary.
pub fn is_root() -> bool {
    belljar_sys::rustix::process::geteuid().is_root()
}

/// Something that exists nowhere else.
pub fn canary(what: &str) -> String {
    let bytes = fs::read("/proc/sys/kernel/random/uuid").unwrap();
    format!("canary-{what}-{}", String::from_utf8_lossy(&bytes).trim())
}

/// A folder outside, removed in the end. Every user may read it, so that only the isolation is in the way.
pub fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("belljar-containment-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Waits for something that the kernel or another process is about to do. Not a measure of time: false after a long one.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    is_so()
}

/// A sandbox, and the folder outside that is its workspace.
pub struct Jail {
    pub sandbox: Sandbox,
    pub workspace: TempDir,
}

/// A jail with nothing special.
pub fn jail(backend: BackendName) -> Jail {
    jail_with(backend, |_, _| {})
}

/// A jail whose specification is changed first, with the workspace's path at hand.
pub fn jail_with(backend: BackendName, change: impl FnOnce(&mut SandboxSpec, &Path)) -> Jail {
    try_jail(backend, change).unwrap_or_else(|error| panic!("{backend}: no sandbox: {error}"))
}

/// The same where a refusal is an answer too.
pub fn try_jail(
    backend: BackendName,
    change: impl FnOnce(&mut SandboxSpec, &Path),
) -> Result<Jail, SandboxError> {
    let workspace = folder();
    let mut spec = SandboxSpec {
        backend: BackendChoice::Named(backend),
        workspace: Some(workspace.path().to_path_buf()),
        ..SandboxSpec::default()
    };
    change(&mut spec, workspace.path());
    Ok(Jail { sandbox: Engine::new().create_blocking(&spec)?, workspace })
}

/// A shared path for a specification.
pub fn share(path: &Path, permission: Permission) -> SharedPath {
    SharedPath { path: path.to_path_buf(), permission }
}

impl Jail {
    /// Runs a command to its end.
    pub fn run(&self, argv: &[&str]) -> ExecResult {
        self.run_for(argv, Duration::from_secs(180)).unwrap_or_else(|error| panic!("{argv:?}: {error}"))
    }

    /// The same, with a timeout, and errors of the sandbox as an answer.
    pub fn run_for(&self, argv: &[&str], timeout: Duration) -> Result<ExecResult, SandboxError> {
        let mut command = Command::new(argv).unwrap();
        command.timeout = Some(timeout);
        wait_for(self.sandbox.exec(&command))
    }

    /// Runs a shell script.
    pub fn sh(&self, script: &str) -> ExecResult {
        self.run(&["sh", "-c", script])
    }

    /// Runs a Python script; `attack` of [`PRELUDE`] is there already.
    pub fn python(&self, script: &str, args: &[&str]) -> ExecResult {
        let script = format!("{PRELUDE}{script}");
        let argv: Vec<&str> = ["/usr/bin/python3", "-c", &script].iter().chain(args).copied().collect();
        self.run(&argv)
    }

    /// Runs a Python script that prints a line for every attack that worked, and returns these lines. A script that
    /// did not get to its end is a failure of the test.
    pub fn successes(&self, script: &str, args: &[&str]) -> Vec<String> {
        let script = format!("{script}\nprint('END')\n");
        let result = self.python(&script, args);
        let mut lines: Vec<String> = text(&result.stdout).lines().map(str::to_string).collect();
        let end = lines.pop();
        assert_eq!(end.as_deref(), Some("END"), "attack broke: {lines:?} {}", text(&result.stderr));
        lines
    }

    /// A path in the workspace, as it is outside.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.workspace.path().join(name)
    }
}

/// What scripts start with: `attack(name, f)` prints the name if `f` raises nothing and returns no failure, and
/// `syscall(number, ...)` raises on -1.
pub const PRELUDE: &str = r#"
import ctypes, ctypes.util, errno, os, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def syscall(number, *args):
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    r = libc.syscall(ctypes.c_long(number), *args)
    if r == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r
def attack(name, f):
    try:
        r = f()
    except (OSError, PermissionError, ValueError, subprocess.SubprocessError) as e:
        return
    print(name, repr(r)[:200], flush=True)
"#;

/// Runs a future to its end.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Bytes as people read them.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A Python program of the host's, outside of any sandbox.
pub struct HostProgram {
    child: Child,
}

impl HostProgram {
    /// Starts it in `directory` and waits for its first line, `ready`.
    pub fn start(directory: &Path, script: &str, args: &[&str]) -> HostProgram {
        let mut child = std::process::Command::new("/usr/bin/python3")
            .args(["-c", script])
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the host's program did not start");
        HostProgram { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The belljar executable: `BELLJAR_BIN`, or beside this test's own in the target directory, built if it is missing.
pub fn belljar() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("BELLJAR_BIN") {
                return path.into();
            }
            // target/[TRIPLE/]PROFILE/deps/this-test
            let own = std::env::current_exe().unwrap();
            let profile = own.parent().and_then(Path::parent).unwrap();
            let beside = profile.join("belljar");
            let mut build = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            build.args(["build", "--quiet", "-p", "belljar"]).current_dir(env!("CARGO_MANIFEST_DIR"));
            if profile.ends_with("release") {
                build.arg("--release");
            }
            // .../TRIPLE/debug, or .../debug: the directory above is the one with the mark.
            let target = profile.ancestors().find(|path| path.join(".rustc_info.json").exists());
            if let Some(target) = target {
                build.env("CARGO_TARGET_DIR", target);
            }
            if !beside.exists() || (is_root() && std::env::var_os("CARGO").is_some()) {
                assert!(build.status().is_ok_and(|status| status.success()), "cannot build belljar");
            }
            beside
        })
        .clone()
}

/// Appends what it is told, for a log that two processes write.
pub fn append(path: &Path, line: &str) {
    let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// A command that stays, so that it can be looked at from outside. Ended when dropped.
pub struct HeldCommand(());

impl HeldCommand {
    /// Starts a command with `marker` among its words, and waits until it is seen outside.
    pub fn start(jail: &Jail, marker: &str) -> HeldGuard {
        HeldCommand::run(jail, marker, "sleep 1000")
    }

    /// The same with a script.
    pub fn run(jail: &Jail, marker: &str, script: &str) -> HeldGuard {
        let command = Command::new(["sh", "-c", &format!("{script}; :"), marker]).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(jail.sandbox.spawn(&command)).unwrap();
        assert!(eventually(|| !processes_with(marker).is_empty()), "the command does not show outside");
        HeldGuard { marker: marker.into(), running: Some(running), runtime: Some(runtime) }
    }
}

/// See [`HeldCommand`].
pub struct HeldGuard {
    marker: String,
    running: Option<belljar_engine::Running>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl HeldGuard {
    /// Its processes, as the host numbers them.
    pub fn pids(&self) -> Vec<u32> {
        processes_with(&self.marker)
    }
}

impl Drop for HeldGuard {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            let _inside = runtime.enter();
            drop(self.running.take());
            drop(_inside);
            runtime.shutdown_background();
        }
    }
}

/// A command given word by word that stays until dropped.
pub struct HeldCommandFor(());

impl HeldCommandFor {
    /// Starts it.
    pub fn start(jail: &Jail, argv: &[&str]) -> HeldGuard {
        let command = Command::new(argv).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(jail.sandbox.spawn(&command)).unwrap();
        HeldGuard { marker: String::new(), running: Some(running), runtime: Some(runtime) }
    }
}

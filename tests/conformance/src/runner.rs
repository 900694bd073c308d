//! From one function to a test for every backend.

use crate::service::Elsewhere;
use crate::shared;
use belljar_engine::Engine;
use belljar_spec::{BackendName, ErrorKind, Runtime, SandboxError};
use belljar_tests_hosts::{have_runtime, known_to_work, look_into_sentries};
use std::env;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Docker's containers, by its own runtime.
pub const DOCKER: BackendName = BackendName::Docker(Runtime::Runc);
/// And by gVisor's.
pub const RUNSC: BackendName = BackendName::Docker(Runtime::Runsc);

/// One `#[test]` for each backend and function, in a module with the backend's name. A plain list runs on every backend. Where a
/// backend cannot change the outcome the test is ignored there (`./dev test full` and `--run-ignored all` run it), by group:
///
/// - `everywhere`: what the backend itself does, and for every subject at least one test that it works at all. Runs on each.
/// - `each_launcher`: what belljar's own code for the backend does on the host. Both runtimes of Docker are the same code: not `runsc`.
/// - `each_kernel`: what the guest does, which is the same program behind every backend; below it differs the kernel (`native`:
///   Linux, `runsc`: gVisor) and whether it has a root of its own (`host` has none). Runs on these three.
/// - `each_guest`: what the guest does in its own memory, whatever the kernel below it. Runs on `native` and `host`.
/// - `once`: what the gateway or the engine does, on the host; a backend only hands sockets over. Runs on `native`.
///
/// With `living` before the group's name: these need a sandbox with all the defaults that lives, and leave it so. On `docker` and
/// `runsc`, where a sandbox takes seconds of the processor to start and end, they run one after the other in one sandbox, as the
/// checks of the test [`ONE_SANDBOX`]; elsewhere each is a test of its own.
///
/// tests/README.md says for each subject which group holds what.
#[macro_export]
macro_rules! for_every_backend {
    ($($name:ident),* $(,)?) => { $crate::for_every_backend! { everywhere: $($name),*; } };
    (
        $(everywhere: $($all:ident),* $(,)?;)?
        $(each_launcher: $($launcher:ident),* $(,)?;)?
        $(each_kernel: $($kernel:ident),* $(,)?;)?
        $(each_guest: $($guest:ident),* $(,)?;)?
        $(once: $($once:ident),* $(,)?;)?
        $(living everywhere: $($living_all:ident),* $(,)?;)?
        $(living each_kernel: $($living_kernel:ident),* $(,)?;)?
    ) => {
        $crate::for_every_isolated_backend! {
            $(everywhere: $($all),*;)?
            $(each_launcher: $($launcher),*;)?
            $(each_kernel: $($kernel),*;)?
            $(each_guest: $($guest),*;)?
            $(once: $($once),*;)?
            $(living everywhere: $($living_all),*;)?
            $(living each_kernel: $($living_kernel),*;)?
        }
        $crate::for_every_backend!(@module container $crate::BackendName::Container
            => [$($($all)*)? $($($launcher)*)? $($($living_all)*)?] []
            [$($($kernel)*)? $($($guest)*)? $($($living_kernel)*)? $($($once)*)?]);
        $crate::for_every_backend!(@module host $crate::BackendName::Host
            => [$($($all)*)? $($($launcher)*)? $($($living_all)*)? $($($kernel)*)? $($($guest)*)? $($($living_kernel)*)?] [] [$($($once)*)?]);
    };
    (@module $module:ident $backend:expr => [$($run:ident)*] [$($living:ident)*] [$($ignored:ident)*]) => {
        mod $module {
            $(#[test]
            fn $run() {
                $crate::run($backend, super::$run);
            })*
            $(#[test]
            #[ignore = "this backend makes no difference to it: `./dev test full` runs it"]
            fn $ignored() {
                $crate::run($backend, super::$ignored);
            })*
            $crate::for_every_backend!(@one_sandbox $backend => [$($living)*]);
        }
    };
    (@one_sandbox $backend:expr => []) => {};
    (@one_sandbox $backend:expr => [$($living:ident)+]) => {
        #[test]
        fn in_one_sandbox() {
            $crate::run_in_one_sandbox($backend, &[
                $((stringify!($living), |backend| Box::pin(super::$living(backend)))),+
            ]);
        }
    };
}

/// The same for the backends that isolate, and so have a gateway.
#[macro_export]
macro_rules! for_every_isolated_backend {
    ($($name:ident),* $(,)?) => { $crate::for_every_isolated_backend! { everywhere: $($name),*; } };
    (
        $(everywhere: $($all:ident),* $(,)?;)?
        $(each_launcher: $($launcher:ident),* $(,)?;)?
        $(each_kernel: $($kernel:ident),* $(,)?;)?
        $(each_guest: $($guest:ident),* $(,)?;)?
        $(once: $($once:ident),* $(,)?;)?
        $(living everywhere: $($living_all:ident),* $(,)?;)?
        $(living each_kernel: $($living_kernel:ident),* $(,)?;)?
    ) => {
        $crate::for_every_backend!(@module native $crate::BackendName::Native
            => [$($($all)*)? $($($launcher)*)? $($($living_all)*)? $($($kernel)*)? $($($guest)*)? $($($living_kernel)*)? $($($once)*)?] [] []);
        $crate::for_every_backend!(@module bwrap $crate::BackendName::Bwrap
            => [$($($all)*)? $($($launcher)*)? $($($living_all)*)?] []
            [$($($kernel)*)? $($($guest)*)? $($($living_kernel)*)? $($($once)*)?]);
        $crate::for_every_backend!(@module landlock $crate::BackendName::Landlock
            => [$($($all)*)? $($($living_all)*)?] []
            [$($($launcher)*)? $($($kernel)*)? $($($guest)*)? $($($living_kernel)*)? $($($once)*)?]);
        $crate::for_every_backend!(@module e2b $crate::BackendName::E2b
            => [] [$($($living_all)*)?] []);
        $crate::for_every_backend!(@module docker $crate::DOCKER
            => [$($($all)*)? $($($launcher)*)?] [$($($living_all)*)?]
            [$($($kernel)*)? $($($guest)*)? $($($living_kernel)*)? $($($once)*)?]);
        $crate::for_every_backend!(@module runsc $crate::RUNSC
            => [$($($all)*)? $($($kernel)*)?] [$($($living_all)*)? $($($living_kernel)*)?]
            [$($($launcher)*)? $($($guest)*)? $($($once)*)?]);
    };
}

/// A test's function, for a list of several.
pub type Check = fn(BackendName) -> Pin<Box<dyn Future<Output = ()>>>;

/// Runs one test with one backend, if it is wanted and works here.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
pub fn run<T, F>(backend: BackendName, test: T)
where
    T: FnOnce(BackendName) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    if let Some((subject, why)) = lacks(backend, std::any::type_name::<T>()) {
        eprintln!("{backend} has no {subject}: {why}");
        return;
    }
    watched(backend, move |_| {
        if is_ready(backend) {
            let _elsewhere = elsewhere(backend);
            block_on(test(backend));
        }
    });
}

/// Runs checks one after the other, in one sandbox as long as it lives and answers; after one that fails the next gets another. Names
/// each as it ends, and all that failed.
#[expect(clippy::print_stderr, reason = "the names of the checks are the report")]
pub fn run_in_one_sandbox<const N: usize>(backend: BackendName, checks: &'static [(&'static str, Check); N]) {
    watched(backend, move |alive| {
        if !is_ready(backend) {
            return;
        }
        let _elsewhere = elsewhere(backend);
        shared::begin();
        let mut failed = Vec::new();
        for (name, check) in checks {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| block_on(check(backend))));
            match outcome {
                Ok(()) => block_on(shared::tidy()),
                Err(_) => {
                    failed.push(*name);
                    shared::replace();
                }
            }
            eprintln!("{name}: {}", if outcome.is_ok() { "ok" } else { "FAILED" });
            alive();
        }
        shared::end();
        assert!(failed.is_empty(), "{backend}: failed of {N}: {}", failed.join(", "));
    });
}

/// Runs a body on a thread of its own, so that a hang in blocking code fails too. A long one says now and then that it is alive.
fn watched(backend: BackendName, body: impl FnOnce(&dyn Fn()) + Send + 'static) {
    let (tell, receiver) = mpsc::channel();
    let body = thread::spawn(move || {
        body(&|| {
            let _ = tell.send(());
        });
    });
    let time_limit = if is_dockers(backend) { 2 * WAIT_TIMEOUT } else { WAIT_TIMEOUT };
    loop {
        match receiver.recv_timeout(time_limit) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("{backend}: nothing happened for {time_limit:?}: it hangs")
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(reason) = body.join() {
        panic::resume_unwind(reason);
    }
}

fn is_ready(backend: BackendName) -> bool {
    let is_usable = usable(backend);
    if is_usable && backend == RUNSC {
        look_into_sentries();
    }
    is_usable
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(future)
}

/// Runs the test `name`, its module's name before it, of this executable again: as a process of its own, started by a shell after
/// `preparation`. The test knows itself by the variable `BELLJAR_AGAIN`, whose value is `role`.
pub fn again(backend: BackendName, name: &str, role: &str, preparation: &str) -> Command {
    let (subject, name) = name.split_once("::").expect("a test is in a module");
    let name = format!("{subject}::{}::{name}", module(backend));
    let own = env::current_exe().expect("we know our own executable");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{preparation}; exec \"$0\" \"$@\"")]).arg(own);
    command
        .args(["--exact", &name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env("BELLJAR_AGAIN", role);
    command
}

/// Where [`for_every_backend`] puts a backend's tests.
fn module(backend: BackendName) -> &'static str {
    match backend {
        BackendName::Docker(runtime) if runtime != Runtime::Runc => runtime.as_str(),
        other => other.as_str(),
    }
}

/// The service of a test, where its backend is one.
fn elsewhere(backend: BackendName) -> Option<Elsewhere> {
    (backend == BackendName::E2b).then(Elsewhere::begin)
}

/// Whether this test is wanted and its backend works here; says so if not.
#[expect(clippy::print_stderr, reason = "who runs the tests is to know what did not run")]
fn usable(backend: BackendName) -> bool {
    let expected = env::var("BELLJAR_BACKENDS").unwrap_or_default();
    if !expected.is_empty() && !expected.split(',').any(|name| name.trim() == backend.as_str()) {
        eprintln!("skipped: {backend}: not named by BELLJAR_BACKENDS");
        return false;
    }
    if backend == BackendName::E2b {
        // Its service is a belljar with its own backend.
        return known_to_work("native").unwrap_or_else(|| tried(BackendName::Native).is_ok());
    }
    if let BackendName::Docker(runtime) = backend {
        return have_runtime(runtime.as_str());
    }
    if let Some(works) = known_to_work(backend.as_str()) {
        return works;
    }
    match tried(backend) {
        Ok(()) => true,
        Err(refusal)
            if refusal.kind() == ErrorKind::Unavailable && env::var("CI").as_deref() != Ok("true") =>
        {
            eprintln!("skipped: {backend}: {refusal}");
            false
        }
        Err(refusal) => panic!("{backend} does not work here: {refusal}"),
    }
}

/// Makes a sandbox, which takes a few milliseconds.
fn tried(backend: BackendName) -> Result<(), SandboxError> {
    // Without isolation there is no private workspace.
    let folder = TempDir::new().expect("there is room for a workspace");
    let mut spec = crate::spec(backend);
    spec.workspace = Some(folder.path().into());
    Engine::new().create_blocking(&spec)?.dispose_blocking();
    Ok(())
}

/// The subject of a test and why this backend has none of it, by the function's path (`contract::SUBJECT::NAME`).
fn lacks(backend: BackendName, function: &str) -> Option<(&'static str, &'static str)> {
    let is_subject = |(subject, _): &&(&str, &str)| function.contains(&format!("::{subject}::"));
    LACKS.iter().find(is_subject).copied().filter(|_| backend == BackendName::Landlock)
}

/// What `landlock` refuses by name; `landlock.rs` of containment tries that.
const LACKS: [(&str, &str); 5] = [
    ("agent_context", "it is mounted beside a folder"),
    ("devoured", "private files are the host's, and processes are counted by a cgroup alone"),
    ("image_roots", "a root is mounted"),
    ("roots", "a root is mounted"),
    ("pause", "it takes a process namespace"),
];

fn is_dockers(backend: BackendName) -> bool {
    matches!(backend, BackendName::Docker(_))
}

/// Far longer than the slowest test takes on a busy machine. Containers take longer, and programs in gVisor far longer.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

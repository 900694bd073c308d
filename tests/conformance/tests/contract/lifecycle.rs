//! From the first to the last moment of a sandbox, and beyond.

use belljar_engine::{Engine, Sandbox, Stage};
use belljar_spec::workspace::WorkspaceMode;
use belljar_spec::{
    Assurance, BackendName, Compare, ErrorCode, ErrorKind, SandboxError, SandboxSpec, Stdin, WorkspacePath,
};
use belljar_sys::rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use belljar_tests_conformance::*;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

for_every_backend! {
    everywhere:
        dispose_ends_what_runs,
        dispose_leaves_nothing_behind,
        sandboxes_live_side_by_side,
        a_guest_that_is_killed_is_an_error,
        a_guest_that_is_killed_takes_its_commands_along,
        a_caller_that_is_killed_leaves_nothing_running,
        a_workspace_outlives_its_sandbox,
        the_workspace_can_be_where_it_is_on_the_host,
        two_sandboxes_can_share_a_workspace;
    each_launcher:
        operations_after_dispose_fail,
        disposing_twice_is_fine,
        a_dropped_sandbox_ends_what_runs,
        an_abandoned_sandbox_ends_what_runs,
        a_sandbox_outlives_the_thread_that_made_it,
        what_a_sandbox_says_of_itself_is_true,
        a_sandbox_has_the_name_that_it_was_given_and_no_other_gets_it,
        the_stages_of_a_sandbox_are_told_as_they_begin,
        what_was_changed_in_the_folder_is_told_to_who_asked,
        without_a_workspace_it_is_empty_and_goes_away,
        a_refused_sandbox_leaves_nothing_behind;
    each_kernel:
        commands_run_side_by_side,
        a_sandbox_is_the_same_from_every_thread,
        many_commands_leave_no_zombies;
}

async fn operations_after_dispose_fail(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"kept").await.unwrap();
    fixture.dispose().await;
    let disposed = |outcome: Result<(), SandboxError>, what: &str| {
        let error = outcome.expect_err(what);
        assert_eq!(error.code, ErrorCode::SandboxNotAlive, "{what}");
    };
    disposed(fixture.exec(&sh("exit 0")).await.map(drop), "exec");
    disposed(fixture.spawn(&sh("exit 0")).await.map(drop), "spawn");
    disposed(fixture.first_command().map(drop), "first_command");
    disposed(fixture.read_file("file").await.map(drop), "read_file");
    disposed(fixture.write_file("file", b"x").await, "write_file");
    disposed(fixture.mkdir("d", true).await, "mkdir");
    disposed(fixture.readdir(".").await.map(drop), "readdir");
    disposed(fixture.exists("file").await.map(drop), "exists");
    disposed(fixture.remove("file", true).await, "remove");
    disposed(fixture.stat("file").await.map(drop), "stat");
    assert_eq!(fs::read(fixture.host("file")).unwrap(), b"kept");
}

async fn disposing_twice_is_fine(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.dispose().await;
    fixture.dispose().await;
    fixture.dispose_blocking();
    fixture.abandon();
    let fixture = SandboxFixture::new(backend).await;
    tokio::join!(fixture.dispose(), fixture.dispose());
}

/// A sandbox in which two commands run, one of them in the background of none.
async fn busy(backend: BackendName) -> (SandboxFixture, Marker) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let lasting = "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.1; done' $M";
    let mut command =
        sh(&format!("{lasting} >/dev/null 2>&1 </dev/null & {lasting} >/dev/null 2>&1 </dev/null &"));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    fixture.run(&command).await;
    marker.wait_for(2);
    (fixture, marker)
}

async fn dispose_ends_what_runs(backend: BackendName) {
    let (fixture, marker) = busy(backend).await;
    let mut command = sh("sleep 60");
    command.timeout = Some(Duration::from_secs(50));
    let (result, ()) = tokio::join!(fixture.exec(&command), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        fixture.dispose().await;
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Runtime);
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn a_dropped_sandbox_ends_what_runs(backend: BackendName) {
    let (fixture, marker) = busy(backend).await;
    let (sandbox, _folder) = fixture.into_parts();
    drop(sandbox);
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn an_abandoned_sandbox_ends_what_runs(backend: BackendName) {
    let (fixture, marker) = busy(backend).await;
    fixture.abandon();
    marker.wait_for_none();
}

async fn dispose_leaves_nothing_behind(backend: BackendName) {
    let before = own_children();
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir d; : > d/file; : > /tmp/file; (setsid sleep 60 &)").await;
    let id = fixture.id().to_string();
    let while_it_lives = own_children();
    fixture.dispose().await;
    assert!(!while_it_lives.is_subset(&before), "the test sees nothing");
    // Other tests of this process have children too, but not these.
    let left: Vec<_> =
        own_children().intersection(&while_it_lives).copied().filter(|pid| !before.contains(pid)).collect();
    assert!(left.is_empty() || std::env::var_os("NEXTEST").is_none(), "left: {left:?}");
    assert!(!cgroups_of(&id), "a cgroup is left");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    // A container is put together on the host: others that are starting can be seen there, for a moment.
    let is_anothers = |line: &str| line.contains("/docker/") && !line.contains(&id);
    let own = fixture.on_host().to_str().unwrap().to_string();
    let is_left = |line: &str| line.contains("belljar") || line.contains(&id) || line.contains(&own);
    let left: Vec<&str> = mounts.lines().filter(|line| is_left(line) && !is_anothers(line)).collect();
    assert!(left.is_empty(), "{left:?}");
    let names: Vec<_> =
        fs::read_dir(fixture.on_host()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["d"], "a mount point was left in the workspace");
}

fn own_children() -> HashSet<u32> {
    processes_below(std::process::id()).into_iter().collect()
}

fn cgroups_of(id: &str) -> bool {
    let homes = ["", "/memory", "/pids", "/cpu", "/cpu,cpuacct"];
    homes.iter().any(|home| Path::new(&format!("/sys/fs/cgroup{home}/belljar-{id}")).exists())
}

async fn commands_run_side_by_side(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // Each waits for all others: one after the other they would never end.
    let commands: Vec<_> = (0..40)
        .map(|number| {
            sh(&format!(": > here-{number}; while set -- here-*; [ $# -lt 40 ]; do sleep 0.2; done; echo {number}; exit {number}"))
        })
        .collect();
    let results = commands.iter().map(|command| fixture.exec(command));
    for (number, result) in (0..).zip(join_all(results).await) {
        let result = result.unwrap();
        assert_eq!((result.exit_code, text(&result.stdout)), (Some(number), format!("{number}\n")));
    }
    // And it is as good as new.
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

/// All of them at the same time, on this thread.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, outcome) in &mut futures {
            if outcome.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *outcome = Some(ready);
            }
        }
        let all = futures.iter().all(|(_, outcome)| outcome.is_some());
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, outcome)| outcome).collect()
}

async fn sandboxes_live_side_by_side(backend: BackendName) {
    // A container takes a hundred times as long to start, and Docker itself keeps containers apart: a few show that we do not mix
    // them up.
    let count = if matches!(backend, BackendName::Docker(_)) { 8 } else { 50 };
    live_side_by_side(backend, count).await;
}

/// As many as users have asked for, with the cheapest backend. With the others, sandboxes are the same to their neighbours.
#[test]
fn two_hundred_sandboxes_live_side_by_side() {
    run(BackendName::Native, |backend| live_side_by_side(backend, 200));
}

async fn live_side_by_side(backend: BackendName, count: usize) {
    // Each takes a few descriptors of ours, and some systems give a thousand unless asked.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let mut fixtures = Vec::new();
    for _ in 0..count {
        fixtures.push(SandboxFixture::new(backend).await);
    }
    let ids: HashSet<_> = fixtures.iter().map(|fixture| fixture.id()).collect();
    assert_eq!(ids.len(), count);
    for (number, fixture) in fixtures.iter().enumerate() {
        fixture.write_file("number", number.to_string().as_bytes()).await.unwrap();
    }
    let command = sh("cat number");
    for (number, result) in
        join_all(fixtures.iter().map(|fixture| fixture.exec(&command))).await.into_iter().enumerate()
    {
        assert_eq!(text(&result.unwrap().stdout), number.to_string());
    }
    // The end of one ends no other.
    fixtures[0].dispose().await;
    assert_eq!(fixtures[count - 1].answer("cat number").await, (count - 1).to_string());
}

async fn a_sandbox_outlives_the_thread_that_made_it(backend: BackendName) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut spec = spec(backend);
    spec.workspace = Some(folder.path().into());
    let made = std::thread::spawn(move || Engine::new().create_blocking(&spec)).join();
    let sandbox = made.unwrap().unwrap();
    // The kernel tells a child that its parent died when that thread does: prctl(2), PR_SET_PDEATHSIG.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        let result = sandbox.exec(&sh("echo alive")).await;
        assert_eq!(result.unwrap_or_else(|error| panic!("{error} ({})", error.code)).stdout, b"alive\n");
    }
}

async fn a_sandbox_is_the_same_from_every_thread(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let sandbox: &Sandbox = &fixture;
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let result = runtime.block_on(sandbox.exec(&sh(&format!("echo {number}")))).unwrap();
                assert_eq!(text(&result.stdout), format!("{number}\n"));
            });
        }
    });
}

/// The guest of a sandbox in which a marked command runs: above its shell and its supervisor.
fn guest_above(marker: &Marker) -> u32 {
    let command = marker.processes()[0];
    parent(parent(parent(command).unwrap()).unwrap()).unwrap()
}

/// Kills a process, or where the host has no number for it the kernel that it lives in.
fn kill(pid: u32) {
    let pid = kernel_around(pid).unwrap_or(pid);
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

async fn a_guest_that_is_killed_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = sh("sh -c 'while :; do sleep 0.1; done' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let (result, ()) = tokio::join!(fixture.exec(&command), async {
        marker.appears(1).await;
        kill(guest_above(&marker));
    });
    let gone = |outcome: Result<(), SandboxError>, what: &str| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Runtime, "{what}: {error}");
        assert!(error.hint.is_some(), "{what}");
    };
    gone(result.map(drop), "the command that ran");
    gone(fixture.exec(&sh("exit 0")).await.map(drop), "exec");
    gone(fixture.read_file("file").await.map(drop), "read_file");
    gone(fixture.write_file("file", &vec![0; 1_000_000]).await, "write_file");
    gone(fixture.exists("file").await.map(drop), "exists");
    fixture.dispose().await;
    assert_eq!(fixture.exec(&sh("exit 0")).await.unwrap_err().code, ErrorCode::SandboxNotAlive);
}

async fn a_guest_that_is_killed_takes_its_commands_along(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = sh("sh -c 'while :; do sleep 0.1; done' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let running = fixture.spawn(&command).await.unwrap();
    marker.wait_for(1);
    kill(guest_above(&marker));
    drop(running);
    // At the latest when the sandbox is disposed.
    fixture.dispose().await;
    let left = marker.processes();
    wait_a_moment_for_none(&marker);
    let survivors = marker.processes();
    for pid in survivors.iter().chain(&left) {
        if marker.processes().contains(pid) {
            kill(*pid);
        }
    }
    assert_eq!(survivors, Vec::<u32>::new(), "they outlived their guest");
}

fn wait_a_moment_for_none(marker: &Marker) {
    for _ in 0..100 {
        if marker.processes().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn a_caller_that_is_killed_leaves_nothing_running(backend: BackendName) {
    if std::env::var_os("BELLJAR_AGAIN").is_some() {
        let marker = std::env::var("MARKER_OF_CALLER").unwrap();
        let fixture = SandboxFixture::new(backend).await;
        let mut command = sh("(setsid sh -c 'trap \"\" HUP TERM; while :; do sleep 0.1; done' $M &); \
             sh -c 'while :; do sleep 0.1; done' $M; :");
        command.env = vec![("M".parse().unwrap(), marker.into())];
        let _ = fixture.exec(&command).await;
        return;
    }
    let marker = Marker::new();
    let mut again =
        again(backend, "lifecycle::a_caller_that_is_killed_leaves_nothing_running", "caller", ":");
    let null = std::process::Stdio::null;
    again.env("MARKER_OF_CALLER", marker.to_string()).stdout(null()).stderr(null());
    let mut caller = again.spawn().unwrap();
    marker.wait_for(2);
    let below = processes_below(caller.id());
    // A container's processes are below the daemon's.
    assert!(below.len() > 2 || matches!(backend, BackendName::Docker(_)));
    caller.kill().unwrap();
    caller.wait().unwrap();
    marker.wait_for_none();
    // The guest and the supervisors too.
    wait_until("the guest to go", || !below.iter().any(|pid| is_ours(*pid)));
    // And the next sandbox removes what is left of it.
    drop(SandboxFixture::new(backend).await);
}

/// Whether that process is one of belljar's.
fn is_ours(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.starts_with("belljar") || name.starts_with("bwrap"))
        && !fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty()
}

async fn what_a_sandbox_says_of_itself_is_true(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    assert_eq!(fixture.backend(), backend);
    assert_eq!(fixture.assurance(), backend.assurance());
    let is_strong = fixture.assurance().is_at_least(Assurance::Namespace);
    assert_eq!(is_strong || fixture.assurance() == Assurance::Remote, is_isolated(backend));
    assert_eq!(fixture.answer("pwd").await, fixture.workspace());
    if is_isolated(backend) {
        assert_eq!(fixture.workspace(), "/workspace");
    } else {
        assert_eq!(Path::new(fixture.workspace()), fixture.on_host().canonicalize().unwrap());
    }
}

async fn a_sandbox_has_the_name_that_it_was_given_and_no_other_gets_it(backend: BackendName) {
    let records = tempfile::tempdir().unwrap();
    let engine = Engine::new().with_records(records.path());
    let id = belljar_state::new_id().unwrap();
    let made = || SandboxFixture::made_by(&engine, backend, |spec| spec.id = Some(id));
    let fixture = made().await.unwrap();
    assert_eq!(fixture.id(), id);
    assert!(records.path().join(format!("{id}.jsonl")).exists());
    assert_eq!(made().await.err().unwrap().code, ErrorCode::NameTaken, "while it lives");
    assert_eq!(text(&fixture.run(&sh("echo well")).await.stdout), "well\n");
    fixture.dispose().await;
    assert_eq!(made().await.err().unwrap().code, ErrorCode::NameTaken, "and afterwards");
}

async fn the_stages_of_a_sandbox_are_told_as_they_begin(backend: BackendName) {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&reported);
    let engine = Engine::new().watched(Arc::new(move |stage| received.lock().unwrap().push(stage)));
    SandboxFixture::made_by(&engine, backend, |_| {}).await.unwrap();
    let all = [Stage::Credentials, Stage::Workspace, Stage::Sandbox];
    assert_eq!(std::mem::take(&mut *reported.lock().unwrap()), all);
    // The last one is where it went wrong.
    let missing = |spec: &mut SandboxSpec| {
        spec.mode = WorkspaceMode::Overlay { layer: Some("none".into()) };
    };
    let error = SandboxFixture::made_by(&engine, backend, missing).await.err().unwrap();
    assert_eq!(
        (error.code, reported.lock().unwrap().last()),
        (ErrorCode::WorkNotFound, Some(&Stage::Workspace))
    );
}

async fn a_workspace_outlives_its_sandbox(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("mkdir d; echo kept > d/file").await;
    let (sandbox, folder) = fixture.into_parts();
    sandbox.dispose().await;
    assert_eq!(fs::read_to_string(folder.path().join("d/file")).unwrap(), "kept\n");
    let again = SandboxFixture::with(backend, |spec| spec.workspace = Some(folder.path().into())).await;
    assert_eq!(again.answer("cat d/file").await, "kept");
}

async fn what_was_changed_in_the_folder_is_told_to_who_asked(backend: BackendName) {
    let change =
        "echo more >> kept; rm gone; mkdir -p new/folder; echo x > new/file; git init -q repo 2>&1; true";
    for compare in [Compare::Yes, Compare::No] {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kept", "gone", "same"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let spec = SandboxSpec { workspace: Some(folder.path().into()), compare, ..spec(backend) };
        let sandbox = Engine::new().create(spec).await.unwrap();
        let result = sandbox.exec(&sh(change)).await.unwrap();
        assert_eq!((result.exit_code, sandbox.touched()), (Some(0), None), "{}", text(&result.stdout));
        sandbox.abandon();
        let reported = serde_json::to_value(sandbox.touched()).unwrap();
        let path = |path: &str, how: &str| serde_json::json!({ "path": path, "how": how });
        let paths = [
            path("gone", "deleted"),
            path("kept", "modified"),
            path("new/file", "added"),
            path("new/folder", "added"),
            path("repo/.git/HEAD", "added"),
            path("repo/.git/refs/heads", "added"),
            path("repo/.git/refs/tags", "added"),
        ];
        let expected = match compare {
            Compare::Yes => {
                serde_json::json!({ "touched": { "added": 5, "modified": 1, "deleted": 1, "paths": paths } })
            }
            Compare::No => serde_json::Value::Null,
        };
        assert_eq!(reported, expected, "{compare:?}");
    }
}

async fn without_a_workspace_it_is_empty_and_goes_away(backend: BackendName) {
    if !isolates(backend) {
        let refusal = Engine::new().create(spec(backend)).await.err().expect("there is no private place");
        assert_eq!(refusal.code, ErrorCode::NotSupported);
        return;
    }
    let first = Engine::new().create(spec(backend)).await.unwrap();
    let entries = first.readdir(".").await.unwrap().len();
    assert_eq!(entries, 0, "{} is not empty", first.workspace());
    first.write_file("conformance-file", b"x").await.unwrap();
    let second = Engine::new().create(spec(backend)).await.unwrap();
    assert!(!second.exists("conformance-file").await.unwrap(), "two sandboxes share it");
    let on_host = Path::new(first.workspace()).join("conformance-file");
    first.dispose().await;
    assert!(!on_host.exists(), "{} is still there", on_host.display());
}

async fn the_workspace_can_be_where_it_is_on_the_host(backend: BackendName) {
    let fixture = SandboxFixture::with(backend, |spec| spec.workspace_path = WorkspacePath::SameAsHost).await;
    let on_host = fixture.on_host().canonicalize().unwrap();
    assert_eq!(fixture.answer("pwd -P").await, on_host.to_str().unwrap());
    let file = on_host.join("file");
    fixture.write_file(file.to_str().unwrap(), b"x").await.unwrap();
    assert_eq!(fs::read(file).unwrap(), b"x");
}

async fn two_sandboxes_can_share_a_workspace(backend: BackendName) {
    let one = SandboxFixture::new(backend).await;
    let folder = one.on_host().to_path_buf();
    let two = SandboxFixture::with(backend, |spec| spec.workspace = Some(folder)).await;
    one.write_file("file", b"from one").await.unwrap();
    assert_eq!(two.answer("cat file; echo two > file").await, "from one");
    assert_eq!(one.read_file("file").await.unwrap(), b"two\n");
}

async fn a_refused_sandbox_leaves_nothing_behind(backend: BackendName) {
    let cgroups = || -> Vec<_> {
        let ours = belljar_tests_hosts::cgroups(|name| name.starts_with("belljar-"));
        ours.into_iter().filter(|path| is_empty_cgroup(path)).collect()
    };
    let before: HashSet<_> = cgroups().into_iter().collect();
    let mut after: HashSet<_> = HashSet::new();
    for path in ["/no/such/folder", "/proc", "/"] {
        let refused = SandboxFixture::try_with(backend, |spec| spec.workspace = Some(path.into())).await;
        assert!(refused.is_err(), "{path}");
        after.extend(cgroups().into_iter().filter(|path| !before.contains(path)));
    }
    // Others start and end sandboxes meanwhile: only what stays counts.
    wait_until("cgroups of refused sandboxes to go", || {
        after.retain(|path| path.exists());
        after.is_empty()
    });
}

fn is_empty_cgroup(path: &Path) -> bool {
    fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
}

async fn many_commands_leave_no_zombies(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = sh("sh -c 'while :; do sleep 0.1; done' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    command.stdin = Stdin::Stream;
    let running = fixture.spawn(&command).await.unwrap();
    marker.wait_for(1);
    let guest = guest_above(&marker);
    for _ in 0..100 {
        fixture.sh("(true &); true & true").await;
    }
    // One command more gives the guest a chance to look.
    fixture.sh("sleep 0.2").await;
    fixture.sh(":").await;
    let below = processes_below(guest).len();
    drop(running);
    assert!(below < 20, "{below} processes are below the guest after 100 commands");
}

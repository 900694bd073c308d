//! A command devours what there is: memory, time, processes, private files, output. Each ends with its own code, with every backend,
//! as one run's result; and meanwhile and afterwards the machine is well: another sandbox starts, no process or used memory is left.

use belljar_engine::{Engine, Run, RunError};
use belljar_spec::{ByteSize, Command, ErrorCode, LimitHit, LimitsRequest, SandboxSpec};
use belljar_tests_conformance::*;
use std::fs;
use std::time::Duration;

for_every_isolated_backend![
    memory_that_runs_out_is_oom_killed,
    time_that_runs_out_is_a_timeout,
    a_fork_bomb_finds_no_process_left,
    a_filler_of_private_files_finds_no_room,
    endless_output_is_cut_and_not_stored,
];

async fn memory_that_runs_out_is_oom_killed(backend: BackendName) {
    let limits = LimitsRequest { memory: Some(ByteSize::mebibytes(64)), ..Default::default() };
    // `tail` keeps the end of what it reads, and so nearly all of it.
    let hog = "head -c 2000000000 /dev/zero | tail -c 1900000000 | wc -c";
    let Some(run) = devour(backend, hog, limits, |_| {}).await else { return };
    assert_eq!(run.error(), Some(RunError::Limit(LimitHit::OomKilled)), "{run:?}");
    assert!(!run.is_ok());
}

async fn time_that_runs_out_is_a_timeout(backend: BackendName) {
    let limits = LimitsRequest { timeout: Some(Duration::from_secs(2)), ..Default::default() };
    // Deaf to signals, and with children that left its session.
    let deaf = "trap '' TERM INT HUP; (setsid sleep 1000 &) ; while :; do sleep 1; done";
    let run = devour(backend, deaf, limits, |command| command.timeout = None).await.unwrap();
    assert_eq!(run.error(), Some(RunError::Limit(LimitHit::Timeout)), "{run:?}");
    assert_eq!(run.exit_code(), 124);
}

async fn a_fork_bomb_finds_no_process_left(backend: BackendName) {
    let limits = LimitsRequest { pids: Some(64), ..Default::default() };
    // As many as there can be, for a while; then the bomb itself gives up.
    let bomb = "i=0; while [ $i -lt 300 ]; do sleep 5 & i=$((i+1)); done; exit 0";
    let Some(run) = devour(backend, bomb, limits, |_| {}).await else { return };
    // gVisor's kernel counts among its own processes, and dies when it gets no more of them: no process is left to count.
    let is_lost = backend == RUNSC && run.error() == Some(RunError::SandboxFailed);
    // Without a control group the kernel refuses, and tells the command alone.
    let is_unseen = !cgroup_can_be_ours("pids") && run.exit_code() != 0;
    assert!(is_lost || is_unseen || run.error() == Some(RunError::Limit(LimitHit::PidsExhausted)), "{run:?}");
    // And one that does not give up ends with its time.
    let limits =
        LimitsRequest { pids: Some(64), timeout: Some(Duration::from_secs(3)), ..Default::default() };
    let endless = "b() { b | b & }; b; while :; do sleep 1; done";
    let run = devour(backend, endless, limits, |command| command.timeout = None).await.unwrap();
    assert!(
        [LimitHit::Timeout, LimitHit::PidsExhausted].map(RunError::Limit).map(Some).contains(&run.error())
            || backend == RUNSC && run.error() == Some(RunError::SandboxFailed),
        "{run:?}"
    );
}

async fn a_filler_of_private_files_finds_no_room(backend: BackendName) {
    let limits = LimitsRequest { disk: Some(ByteSize::mebibytes(16)), ..Default::default() };
    let filler = "cat /dev/zero > /tmp/a; cat /dev/zero > $HOME/b; cat /dev/zero > /dev/shm/c";
    let run = devour(backend, filler, limits, |_| {}).await.unwrap();
    assert_eq!(run.error(), Some(RunError::Limit(LimitHit::DiskFull)), "{run:?}");
    assert_ne!(run.exit_code(), 0);
}

async fn endless_output_is_cut_and_not_stored(backend: BackendName) {
    let most = ByteSize::mebibytes(1);
    let writer = "head -c 10000000000 /dev/zero";
    let run = devour(backend, writer, LimitsRequest::default(), |command| {
        command.max_output = Some(most);
        // Ten gigabytes, of which some pass in this time: hundreds of times what is kept.
        command.timeout = Some(Duration::from_secs(4));
    })
    .await
    .unwrap();
    let cut = [LimitHit::OutputTruncated, LimitHit::Timeout].map(RunError::Limit).map(Some);
    assert!(cut.contains(&run.error()), "{run:?}");
    let result = run.result.as_ref().unwrap();
    assert!(result.output_truncated);
    assert_eq!(result.stdout.len() as u64, most.as_u64(), "the beginning is kept, and no more");
    assert!(run.error() != cut[0] || run.exit_code() == 0, "what is dropped is no reason to end the command");
    assert!(most_memory() < OURS, "we took {} KiB ourselves", most_memory());
}

/// Runs a script that devours something, with an eye on the machine; `None` where nothing could hold it, and it was refused.
async fn devour(
    backend: BackendName,
    script: &str,
    limits: LimitsRequest,
    change: impl FnOnce(&mut Command),
) -> Option<Run> {
    let folder = tempfile::TempDir::new().unwrap();
    let marker = Marker::new();
    let mut command =
        Command::new(["sh", "-c", &format!("touch started; {script}"), &marker.to_string()]).unwrap();
    command.timeout = Some(Duration::from_secs(40));
    change(&mut command);
    let spec = SandboxSpec { workspace: Some(folder.path().into()), limits, ..spec(backend) };
    let before = Machine::now();
    let (engine, started) = (Engine::new(), folder.path().join("started"));
    let (run, well) = tokio::join!(engine.run_once(spec, &command), neighbour(backend, &started));
    let run = run.unwrap();
    if run.result.as_ref().is_err_and(|error| error.code == ErrorCode::LimitUnavailable) {
        assert!(!is_root(), "root holds every limit");
        return None;
    }
    assert!(well, "while one sandbox devoured, another did not start");
    marker.wait_for_none();
    wait_until("the machine to be as it was", || Machine::now().is_as_well_as(&before));
    Some(run)
}

/// Whether another sandbox with the same backend starts and works while the first one devours.
async fn neighbour(backend: BackendName, started: &std::path::Path) -> bool {
    for _ in 0..3000 {
        if started.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !started.exists() {
        // The first one was refused, and says so itself.
        return true;
    }
    let fixture = SandboxFixture::new(backend).await;
    let printed = fixture.answer("echo well").await;
    fixture.dispose().await;
    printed == "well"
}

/// What a machine has, as far as a sandbox could take it.
#[derive(Debug)]
struct Machine {
    /// Available, in KiB.
    memory: u64,
    /// Of files in memory, in KiB.
    shared: u64,
}

impl Machine {
    fn now() -> Machine {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let of = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Machine { memory: of("MemAvailable:"), shared: of("Shmem:") }
    }

    /// Others work here too: as much is gone as no test leaves behind by mistake.
    fn is_as_well_as(&self, before: &Machine) -> bool {
        self.memory + MUCH > before.memory && self.shared < before.shared + MUCH
    }
}

/// The most that this process ever had, in KiB.
fn most_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In KiB. Several tests run at the same time, and compilers beside them; ten gigabytes are still far more.
const MUCH: u64 = 3 << 20;
/// In KiB: what this process may have had with all its tests.
const OURS: u64 = 1 << 19;

//! Limits: held, named when they are hit, and refused where nothing could hold them.

use belljar_engine::{ExecResult, Output, Running};
use belljar_spec::{BackendName, ByteSize, Command, Cpus, ErrorCode, ErrorKind, LimitHit, LimitsRequest};
use belljar_tests_conformance::*;
use std::fs;
use std::time::{Duration, Instant};

for_every_backend! {
    everywhere:
        memory_is_held_and_named,
        memory_that_private_files_take_is_held,
        processes_are_held_and_named,
        a_command_that_finds_no_room_for_a_process_says_so,
        file_operations_work_when_processes_are_used_up,
        processors_are_held,
        open_files_are_held,
        disk_is_held_and_named,
        disk_is_one_for_all_private_folders,
        disk_does_not_count_the_workspace,
        writing_a_file_beyond_the_disk_says_so,
        a_limit_of_before_is_not_named_again;
    each_launcher:
        every_limit_has_a_default;
    each_kernel:
        wall_time_ends_a_command;
    each_guest:
        a_commands_own_time_wins,
        output_is_cut_at_the_sandboxs_limit,
        a_commands_own_cap_wins_over_the_sandboxs;
}

/// A sandbox with these limits; `None` where they are refused, which is only right where nothing could hold them.
async fn limited(backend: BackendName, name: &str, limits: LimitsRequest) -> Option<SandboxFixture> {
    match SandboxFixture::try_with(backend, |spec| spec.limits = limits).await {
        Ok(fixture) => Some(fixture),
        Err(refusal) => {
            assert_eq!((refusal.kind(), refusal.code), (ErrorKind::Unavailable, ErrorCode::LimitUnavailable));
            assert!(refusal.message.contains(name), "{refusal} does not name {name}");
            assert!(refusal.hint.is_some());
            let could_hold = match name {
                "disk" => is_isolated(backend),
                "cpus" => cgroup_can_be_ours("cpu"),
                "pids" => is_isolated(backend) || cgroup_can_be_ours("pids"),
                _ => cgroup_can_be_ours(name),
            };
            assert!(!could_hold, "{refusal}, though {name} could be held");
            None
        }
    }
}

async fn wall_time_ends_a_command(backend: BackendName) {
    let limits = LimitsRequest { timeout: Some(Duration::from_millis(300)), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    let mut command = sh("sleep 60");
    command.timeout = None;
    let result = fixture.run(&command).await;
    assert!(result.timed_out);
    assert_eq!(result.limit, Some(LimitHit::Timeout));
}

async fn a_commands_own_time_wins(backend: BackendName) {
    let limits = LimitsRequest { timeout: Some(Duration::from_millis(300)), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    let mut command = sh("sleep 1; exit 4");
    command.timeout = Some(Duration::from_secs(50));
    let result = fixture.run(&command).await;
    assert_eq!((result.exit_code, result.timed_out), (Some(4), false));
}

async fn output_is_cut_at_the_sandboxs_limit(backend: BackendName) {
    let limits = LimitsRequest { output: Some(ByteSize::bytes(1000)), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    let result = fixture.sh("head -c 5000 /dev/zero; head -c 999 /dev/zero >&2").await;
    assert_eq!((result.stdout.len(), result.stderr.len()), (1000, 999));
    assert_eq!(result.limit, Some(LimitHit::OutputTruncated));
}

async fn a_commands_own_cap_wins_over_the_sandboxs(backend: BackendName) {
    let limits = LimitsRequest { output: Some(ByteSize::bytes(1000)), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    let mut command = sh("head -c 5000 /dev/zero");
    command.max_output = Some(ByteSize::bytes(10));
    assert_eq!(fixture.run(&command).await.stdout.len(), 10);
}

async fn memory_is_held_and_named(backend: BackendName) {
    let limits = LimitsRequest { memory: Some(ByteSize::mebibytes(64)), ..Default::default() };
    let Some(fixture) = limited(backend, "memory", limits.clone()).await else { return };
    // `tail` keeps the last line, and there is only one.
    let result = fixture.sh("head -c 400000000 /dev/zero | tail -c 300000000 | wc -c").await;
    assert_eq!(result.limit, Some(LimitHit::OomKilled), "{result:?}");
    assert!(!text(&result.stdout).contains("300000000"));
    let fixture = after_the_limit(fixture, limits).await;
    // What fits, fits.
    let result = fixture.sh("head -c 20000000 /dev/zero | tail -c 10000000 | wc -c").await;
    assert_eq!((result.exit_code, result.limit), (Some(0), None));
}

async fn memory_that_private_files_take_is_held(backend: BackendName) {
    if !is_isolated(backend) {
        return;
    }
    let limits = LimitsRequest { memory: Some(ByteSize::mebibytes(64)), ..Default::default() };
    let Some(fixture) = limited(backend, "memory", limits).await else { return };
    let result = fixture.sh("head -c 300000000 /dev/zero > /tmp/file").await;
    assert_ne!(result.exit_code, Some(0));
    assert!([Some(LimitHit::OomKilled), Some(LimitHit::DiskFull)].contains(&result.limit), "{result:?}");
    if result.limit == Some(LimitHit::OomKilled) && !outlives_its_limits(backend) {
        return is_gone(&fixture).await;
    }
    // It was the command's fault, not the sandbox's end.
    fixture.remove("/tmp/file", false).await.unwrap_or_else(|error| panic!("{error} ({})", error.code));
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

async fn processes_are_held_and_named(backend: BackendName) {
    let limits = LimitsRequest { pids: Some(40), ..Default::default() };
    let Some(fixture) = limited(backend, "pids", limits).await else { return };
    let marker = Marker::new();
    // A shell that cannot fork gives up.
    let many = too_many(backend);
    let mut command = sh(&format!("for i in $(seq {many}); do sleep 20 & done; exit 0"));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let Some(result) = outlived(&fixture, backend, &command).await else { return };
    assert_ne!(result.exit_code, Some(0), "{many} processes where 40 are allowed");
    if cgroup_can_be_ours("pids") {
        assert_eq!(result.limit, Some(LimitHit::PidsExhausted));
    } else {
        assert!(text(&result.stderr).to_lowercase().contains("fork"), "{}", text(&result.stderr));
    }
}

async fn a_command_that_finds_no_room_for_a_process_says_so(backend: BackendName) {
    let limits = LimitsRequest { pids: Some(40), ..Default::default() };
    let Some(fixture) = limited(backend, "pids", limits).await else { return };
    let mut running = Vec::new();
    // Where the host's tasks are counted, a process is some of them.
    let many = if outlives_its_limits(backend) { 60 } else { 600 };
    for _ in 0..many {
        let mut one = match fixture.spawn(&command(["sleep", "60"])).await {
            // Why the last one is gone takes a moment to find out; that it is does not.
            Err(error) if !outlives_its_limits(backend) => {
                return all_hit_it(&fixture, &mut running, &error).await;
            }
            spawned => spawned.unwrap(),
        };
        // One that runs says nothing.
        if let Ok(word) = tokio::time::timeout(Duration::from_millis(50), next(&mut one)).await {
            if !outlives_its_limits(backend) {
                return all_hit_it(&fixture, &mut running, &word).await;
            }
            let error = word.expect_err("nothing ends here");
            assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::PidsExhausted), "{error}");
            return;
        }
        running.push(one);
    }
    panic!("{many} commands run, or wait for ever, where 40 processes are allowed");
}

/// Every command that began before the limit was reached is told of it.
async fn all_hit_it(fixture: &SandboxFixture, running: &mut [Running], after: &impl std::fmt::Debug) {
    let reported = next(running.first_mut().unwrap()).await;
    let Ok(Output::Ended(ended)) = reported else { panic!("{reported:?} after {after:?}") };
    assert_eq!(ended.limit, Some(LimitHit::PidsExhausted), "{ended:?}");
    is_gone(fixture).await
}

async fn file_operations_work_when_processes_are_used_up(backend: BackendName) {
    let limits = LimitsRequest { pids: Some(40), ..Default::default() };
    let Some(fixture) = limited(backend, "pids", limits).await else { return };
    let many = sh(&format!("for i in $(seq {}); do sleep 60 & done; exit 0", too_many(backend)));
    let Some(result) = outlived(&fixture, backend, &many).await else { return };
    if !outlives_its_limits(backend) {
        assert_eq!(result.limit, Some(LimitHit::PidsExhausted), "{result:?}");
        return is_gone(&fixture).await;
    }
    for _ in 0..5 {
        fixture.write_file("file", b"x").await.unwrap();
        assert_eq!(fixture.read_file("file").await.unwrap(), b"x");
    }
}

async fn processors_are_held(backend: BackendName) {
    let limits = LimitsRequest { cpus: Some("0.5".parse::<Cpus>().unwrap()), ..Default::default() };
    let Some(fixture) = limited(backend, "cpus", limits).await else { return };
    let marker = Marker::new();
    let mut command = sh("sh -c 'while :; do :; done' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let running = fixture.spawn(&command).await.unwrap();
    marker.wait_for(1);
    let pid = marker.processes()[0];
    let used = || match kernel_around(pid) {
        // What gVisor's kernel says of its processes counts the time that it was kept waiting itself.
        Some(kernel) => used_by_cgroup(kernel),
        None => used_by(pid),
    };
    let (start, before) = (Instant::now(), used());
    std::thread::sleep(Duration::from_millis(1500));
    // A share, not a time: more load only makes it smaller.
    let share = (used() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    drop(running);
    assert!(share < 0.75, "{share} of a processor where 0.5 are allowed");
}

/// The processor time of a process: proc_pid_stat(5), in hundredths of a second.
fn used_by(pid: u32) -> Duration {
    let stat = process_file(pid, "stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let hundredths = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * hundredths)
}

/// That of all processes of its cgroup together.
fn used_by_cgroup(pid: u32) -> Duration {
    let cgroups = process_file(pid, "cgroup").unwrap();
    let in_hierarchy = |name: &str| {
        cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|one| one == name).then(|| (controllers.to_string(), path.to_string()))
        })
    };
    if let Some((controllers, path)) = in_hierarchy("cpuacct") {
        let usage = fs::read_to_string(format!("/sys/fs/cgroup/{controllers}{path}/cpuacct.usage")).unwrap();
        return Duration::from_nanos(usage.trim().parse().unwrap());
    }
    let (_, path) = in_hierarchy("").unwrap();
    let stat = fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.stat")).unwrap();
    let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
    Duration::from_micros(micros.parse().unwrap())
}

async fn open_files_are_held(backend: BackendName) {
    let limits = LimitsRequest { open_files: Some(64), ..Default::default() };
    let fixture = SandboxFixture::with(backend, |spec| spec.limits = limits).await;
    assert_eq!(fixture.answer("ulimit -Sn; ulimit -Hn").await, "64\n64");
    assert_ne!(fixture.sh("ulimit -n 65").await.exit_code, Some(0), "it was raised from inside");
    let mut open =
        command(["bash", "-c", "for i in {1..100}; do exec {fd}</dev/null || exit 9; done; exit 0"]);
    open.timeout = Some(Duration::from_secs(30));
    assert_ne!(fixture.run(&open).await.exit_code, Some(0), "100 files where 64 are allowed");
}

fn small_disk() -> LimitsRequest {
    LimitsRequest { disk: Some(ByteSize::mebibytes(8)), ..Default::default() }
}

async fn disk_is_held_and_named(backend: BackendName) {
    let Some(fixture) = limited(backend, "disk", small_disk()).await else { return };
    for folder in ["/tmp", "$HOME", "/dev/shm"] {
        let result = fixture.sh(&format!("head -c 20000000 /dev/zero > {folder}/file")).await;
        assert_ne!(result.exit_code, Some(0), "20 MB in {folder}");
        assert_eq!(result.limit, Some(LimitHit::DiskFull), "{folder}");
        assert_eq!(fixture.sh(&format!("rm {folder}/file")).await.exit_code, Some(0));
    }
    assert_eq!(fixture.sh("echo small > /tmp/file").await.exit_code, Some(0), "there is room again");
}

async fn disk_is_one_for_all_private_folders(backend: BackendName) {
    let Some(fixture) = limited(backend, "disk", small_disk()).await else { return };
    let script = "for d in /tmp $HOME /dev/shm; do head -c 5000000 /dev/zero > $d/file || exit 7; done";
    assert_eq!(fixture.sh(script).await.exit_code, Some(7), "three times 5 MB where 8 are allowed");
    // A file for each byte is too much as well.
    let fixture = limited(backend, "disk", small_disk()).await.unwrap();
    let script = "cd /tmp && i=0; while [ $i -lt 40000 ]; do : > $i || exit 7; i=$((i+1)); done";
    let result = fixture.sh(script).await;
    assert_ne!(result.exit_code, Some(0), "40000 files on 8 MB");
}

async fn disk_does_not_count_the_workspace(backend: BackendName) {
    let Some(fixture) = limited(backend, "disk", small_disk()).await else { return };
    assert_eq!(fixture.sh("head -c 20000000 /dev/zero > file").await.exit_code, Some(0));
    assert_eq!(fs::metadata(fixture.host("file")).unwrap().len(), 20_000_000);
}

async fn writing_a_file_beyond_the_disk_says_so(backend: BackendName) {
    let Some(fixture) = limited(backend, "disk", small_disk()).await else { return };
    let error = fixture.write_file("/tmp/file", &vec![0; 20_000_000]).await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::DiskFull));
    assert!(!fixture.exists("/tmp/file").await.unwrap(), "what did not fit is not left behind");
    fixture.write_file("/tmp/file", b"small").await.unwrap();
}

async fn every_limit_has_a_default(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let limits = fixture.limits();
    assert!(limits.memory.value.as_u64() > 0 && limits.cpus.value.as_millis() > 0);
    assert!(limits.pids.value > 0 && limits.open_files.value > 0 && limits.disk.value.as_u64() > 0);
    assert!(limits.wall_time.value > Duration::ZERO && limits.output.value.as_u64() > 0);
}

async fn a_limit_of_before_is_not_named_again(backend: BackendName) {
    let limits = LimitsRequest { memory: Some(ByteSize::mebibytes(64)), ..Default::default() };
    let Some(fixture) = limited(backend, "memory", limits).await else { return };
    fixture.sh("head -c 400000000 /dev/zero | tail -c 300000000 | wc -c").await;
    if !outlives_its_limits(backend) {
        return is_gone(&fixture).await;
    }
    assert_eq!(fixture.sh("exit 1").await.limit, None);
}

/// A sandbox as good as before it ran into a limit: the same, or where that is gone, which it says, another one.
async fn after_the_limit(fixture: SandboxFixture, limits: LimitsRequest) -> SandboxFixture {
    if outlives_its_limits(fixture.backend()) {
        assert_eq!(fixture.answer("echo alive").await, "alive");
        return fixture;
    }
    is_gone(&fixture).await;
    SandboxFixture::with(fixture.backend(), |spec| spec.limits = limits).await
}

/// The limit took all of it: that is said, whatever is asked of it, and no limit is named again.
/// More processes than fit where 40 are allowed. Behind gVisor it is the host's tasks that are counted, many times as many.
fn too_many(backend: BackendName) -> u32 {
    if outlives_its_limits(backend) { 100 } else { 1000 }
}

/// The result of a command that takes too many processes. gVisor's kernel may be the one that finds none left, and then no process
/// may be left to count: the sandbox is gone, and that is all that is known.
async fn outlived(fixture: &SandboxFixture, backend: BackendName, command: &Command) -> Option<ExecResult> {
    match fixture.exec(command).await {
        Err(error) if !outlives_its_limits(backend) => {
            assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::GuestGone), "{error}");
            is_gone(fixture).await;
            None
        }
        result => Some(result.unwrap()),
    }
}

async fn is_gone(fixture: &SandboxFixture) {
    let error = fixture.exec(&sh("exit 1")).await.expect_err("the guest is gone");
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::GuestGone), "{error}");
    let error = fixture.read_file("file").await.expect_err("the guest is gone");
    assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::GuestGone), "{error}");
}

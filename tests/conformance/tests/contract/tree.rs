//! Ending a command ends all that descends from it, however it tries to stay. Judged by the host's list of processes.

use belljar_engine::{ExecResult, Output};
use belljar_spec::{BackendName, Command, ErrorCode, ErrorKind, LimitHit};
use belljar_tests_conformance::*;
use std::fs;
use std::time::Duration;

for_every_backend! {
    everywhere:
        a_fork_bomb_is_ended,
        killing_the_supervisor_saves_no_process,
        killing_everything_in_reach_leaves_a_working_sandbox;
    each_kernel:
        a_tree_that_dies_slowly_spares_its_neighbours,
        a_timeout_kills_what_takes_anothers_limits;
    each_guest:
        a_timeout_keeps_what_was_written_before,
        a_timeout_ends_only_its_own_command,
        a_timeout_is_kept_beside_those_who_come_and_go,
        an_abort_before_the_start_ends_it,
        the_first_of_timeout_and_abort_is_named,
        a_dropped_future_kills_the_tree,
        dropped_inputs_kill_the_tree,
        a_kill_is_followed_by_the_end,
        a_very_long_timeout_is_fine;
    living everywhere:
        a_timeout_kills_the_whole_tree,
        a_timeout_kills_what_forked_twice,
        a_timeout_kills_what_began_a_session,
        a_timeout_kills_what_ignores_signals,
        a_timeout_kills_who_flees_behind_the_dead,
        an_abort_kills_the_whole_tree,
        a_dropped_command_kills_the_tree;
    living each_kernel:
        a_timeout_kills_what_cleared_its_environment,
        a_timeout_kills_what_is_stopped,
        a_timeout_kills_what_changed_its_name,
        a_timeout_kills_what_has_no_name_in_letters,
        a_timeout_kills_what_keeps_nothing_open,
        a_file_stops_growing_after_a_timeout,
        a_chain_of_forks_is_ended;
}

/// A script that runs on until it is killed. `$M` is the marker: by that name, so that only this one carries it.
const LASTING: &str = "sh -c 'while :; do sleep 0.1; done' $M";

/// A script that knows its marker.
fn marked(script: &str, marker: &Marker) -> Command {
    let mut command = sh(&script.replace("LASTING", LASTING));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    command
}

/// Runs a script until `count` marked processes are there, lets time run out, and returns what became of it.
async fn timed_out(backend: BackendName, count: usize, script: &str) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = marked(script, &marker);
    // Long enough for all of them to be there and to be seen, or the test would show nothing.
    command.timeout = Some(Duration::from_millis(if sees_short_lives(backend) { 1500 } else { 4000 }));
    let (result, ()) = tokio::join!(fixture.run(&command), marker.appears(count));
    assert_killed(&result);
    assert_eq!(marker.processes(), Vec::<u32>::new(), "they outlived the timeout");
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

fn assert_killed(result: &ExecResult) {
    assert!(result.timed_out && !result.aborted, "{result:?}");
    assert_eq!(result.limit, Some(LimitHit::Timeout));
    assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
}

async fn a_timeout_kills_the_whole_tree(backend: BackendName) {
    let nested = "sh -c 'sh -c \"while :; do sleep 0.1; done\" $M & wait' &";
    timed_out(backend, 3, &format!("LASTING & {nested} LASTING; :")).await;
}

async fn a_timeout_kills_what_forked_twice(backend: BackendName) {
    timed_out(backend, 1, "((LASTING &) &); sleep 60; :").await;
}

async fn a_timeout_kills_what_began_a_session(backend: BackendName) {
    timed_out(backend, 1, "(setsid LASTING &); sleep 60; :").await;
}

async fn a_timeout_kills_what_cleared_its_environment(backend: BackendName) {
    timed_out(backend, 1, "(env -i setsid /bin/LASTING &); sleep 60; :").await;
}

async fn a_timeout_kills_what_ignores_signals(backend: BackendName) {
    let script = "trap '' HUP INT QUIT TERM USR1 USR2 PIPE CHLD TSTP TTIN TTOU
        setsid nohup LASTING >/dev/null &
        while :; do sleep 0.1; done";
    timed_out(backend, 1, script).await;
}

async fn a_timeout_kills_what_is_stopped(backend: BackendName) {
    timed_out(backend, 1, "LASTING & sleep 0.5; kill -STOP $!; kill -STOP $$").await;
}

async fn a_timeout_kills_what_changed_its_name(backend: BackendName) {
    // Parentheses and line ends in a process's name are there to confuse who reads /proc.
    let script = "cp /bin/sh ') R 1 1 1 (\n1'
        (setsid './) R 1 1 1 (\n1' -c 'while :; do sleep 0.1; done' $M &)
        sleep 60; :";
    timed_out(backend, 1, script).await;
}

async fn a_timeout_kills_what_has_no_name_in_letters(backend: BackendName) {
    let script = r#"name=$(printf '\377\376'); cp /bin/sh "$name"
        (setsid "./$name" -c 'while :; do sleep 0.1; done' $M &)
        sleep 60; :"#;
    timed_out(backend, 1, script).await;
}

async fn a_timeout_kills_what_takes_anothers_limits(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let (other, ours) = (Marker::new(), Marker::new());
    // What an earlier command left behind, and is not to be killed.
    fixture.run(&marked("(setsid LASTING </dev/null >/dev/null 2>&1 &)", &other)).await;
    other.wait_for(1);
    let script = "
import os, resource, time
def limit(pid):
    try: return resource.prlimit(pid, resource.RLIMIT_RSS)[1]
    except OSError: return -1
lowest = min((found for found in map(limit, map(int, filter(str.isdigit, os.listdir('/proc')))) if found > 0), default=-1)
if lowest > 0: resource.setrlimit(resource.RLIMIT_RSS, (lowest, lowest))
open('taken', 'w').close()
time.sleep(1000)
";
    fs::write(fixture.host("take.py"), script).unwrap();
    let mut command = marked("(setsid /usr/bin/python3 take.py $M &); sleep 60; :", &ours);
    command.timeout = Some(Duration::from_secs(4));
    let taken = async {
        while !fixture.host("taken").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (result, ()) = tokio::join!(fixture.run(&command), taken);
    assert_killed(&result);
    assert_eq!(ours.processes(), Vec::<u32>::new(), "it passed for another's");
    assert!(!other.processes().is_empty(), "another's was killed");
}

async fn a_timeout_kills_who_flees_behind_the_dead(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // Many zombies make a scan of all processes slow, and by its end the fleeing process is always another one.
    let script = "
import os, time
if os.fork() == 0:
    for _ in range(300):
        if os.fork() == 0: os._exit(0)
    time.sleep(1000)
while not os.path.exists('enough'):
    if os.fork(): os._exit(0)
open('fled', 'w').close()
";
    fs::write(fixture.host("flee.py"), script).unwrap();
    let mut command = sh("(setsid /usr/bin/python3 flee.py &); sleep 60; :");
    command.timeout = Some(Duration::from_millis(if sees_short_lives(backend) { 1000 } else { 3000 }));
    assert_killed(&fixture.run(&command).await);
    fs::write(fixture.host("enough"), "").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!fixture.host("fled").exists(), "it outlived the timeout");
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

async fn a_timeout_kills_what_keeps_nothing_open(backend: BackendName) {
    timed_out(backend, 1, "(setsid LASTING </dev/null >/dev/null 2>&1 &); sleep 60").await;
}

async fn a_timeout_keeps_what_was_written_before(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("echo out; echo err >&2; echo file > file; sleep 60");
    command.timeout = Some(Duration::from_millis(1000));
    let result = fixture.run(&command).await;
    assert_killed(&result);
    assert_eq!((text(&result.stdout).as_str(), text(&result.stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(fs::read(fixture.host("file")).unwrap(), b"file\n");
}

async fn a_timeout_ends_only_its_own_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let (ours, other) = (Marker::new(), Marker::new());
    // Its core files are its own affair.
    let running = fixture.spawn(&marked("ulimit -c 0; LASTING; :", &other)).await.unwrap();
    other.wait_for(1);
    let mut command = marked("LASTING; :", &ours);
    command.timeout = Some(Duration::from_millis(500));
    assert_killed(&fixture.run(&command).await);
    assert_eq!(ours.processes(), Vec::<u32>::new());
    assert!(!other.processes().is_empty(), "a neighbour was killed too");
    drop(running);
}

async fn a_timeout_is_kept_beside_those_who_come_and_go(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let ours = Marker::new();
    // During each scan some process has ended.
    let busy = "echo ready; while :; do (:); done & while :; do (:) | (:); done";
    let mut running = fixture.spawn(&sh(busy)).await.unwrap();
    read_until(&mut running, "ready\n").await;
    let mut command = marked("LASTING; :", &ours);
    command.timeout = Some(Duration::from_millis(500));
    assert_killed(&fixture.run(&command).await);
    assert_eq!(ours.processes(), Vec::<u32>::new());
    let more = tokio::time::timeout(Duration::from_millis(100), next(&mut running)).await;
    assert!(more.is_err(), "the neighbour ended: {more:?}");
}

async fn a_tree_that_dies_slowly_spares_its_neighbours(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let neighbour = Marker::new();
    let mut running = fixture.spawn(&marked("LASTING; :", &neighbour)).await.unwrap();
    neighbour.wait_for(1);
    // What it starts has its words until it is another program; itself it is the first.
    let first = neighbour.processes()[0];
    for _ in 0..4 {
        // The kernel needs a while to take so much memory back.
        let mut slow =
            sh("dd if=/dev/zero of=/dev/null bs=300M 2>/dev/null & dd if=/dev/zero of=/dev/null bs=300M");
        slow.timeout = Some(Duration::from_millis(700));
        assert_killed(&fixture.run(&slow).await);
        assert!(neighbour.processes().contains(&first), "a neighbour was killed too");
    }
    running.inputs.kill().await;
    end(&mut running).await;
}

async fn an_abort_kills_the_whole_tree(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let script = "(setsid LASTING &); LASTING & LASTING; :";
    let result = fixture.exec_until(&marked(script, &marker), marker.appears(3)).await.unwrap();
    assert!(result.aborted && !result.timed_out);
    assert_eq!((result.exit_code, result.signal.as_deref(), result.limit), (None, Some("SIGKILL"), None));
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn an_abort_before_the_start_ends_it(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for _ in 0..20 {
        let marker = Marker::new();
        let result = fixture.exec_until(&marked("LASTING; :", &marker), async {}).await.unwrap();
        assert!(result.aborted);
        assert_eq!(marker.processes(), Vec::<u32>::new());
    }
}

async fn the_first_of_timeout_and_abort_is_named(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("sleep 60");
    command.timeout = Some(Duration::from_millis(100));
    let later = tokio::time::sleep(Duration::from_secs(50));
    let result = fixture.exec_until(&command, later).await.unwrap();
    assert_eq!((result.timed_out, result.aborted), (true, false));
    command.timeout = Some(Duration::from_secs(50));
    let sooner = tokio::time::sleep(Duration::from_millis(100));
    let result = fixture.exec_until(&command, sooner).await.unwrap();
    assert_eq!((result.timed_out, result.aborted), (false, true));
}

async fn a_dropped_future_kills_the_tree(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let command = marked("(setsid LASTING &); LASTING; :", &marker);
    tokio::select! {
        result = fixture.exec(&command) => panic!("{result:?}"),
        () = marker.appears(2) => {}
    }
    marker.wait_for_none();
}

async fn a_dropped_command_kills_the_tree(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let running = fixture.spawn(&marked("(setsid LASTING &); LASTING; :", &marker)).await.unwrap();
    marker.wait_for(2);
    drop(running);
    marker.wait_for_none();
}

async fn dropped_inputs_kill_the_tree(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let running = fixture.spawn(&marked("LASTING; :", &marker)).await.unwrap();
    marker.wait_for(1);
    let belljar_engine::Running { events, inputs, .. } = running;
    drop(inputs);
    marker.wait_for_none();
    drop(events);
}

async fn a_kill_is_followed_by_the_end(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let script = "echo before; (setsid LASTING &); LASTING; :";
    let mut running = fixture.spawn(&marked(script, &marker)).await.unwrap();
    assert_eq!(next(&mut running).await.unwrap(), Output::Stdout(b"before\n".to_vec()));
    marker.wait_for(2);
    running.inputs.kill().await;
    let ended = end(&mut running).await;
    assert_eq!((ended.exit_code, ended.signal.as_deref()), (None, Some("SIGKILL")));
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn a_file_stops_growing_after_a_timeout(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command =
        sh("(setsid env -i /bin/sh -c 'while :; do echo >> grows; sleep 0.02; done' &); sleep 60");
    command.timeout = Some(Duration::from_millis(1000));
    assert_killed(&fixture.run(&command).await);
    let size = || fs::metadata(fixture.host("grows")).unwrap().len();
    let at_the_end = size();
    assert!(at_the_end > 0);
    assert_eq!(settles(size), at_the_end);
}

async fn a_fork_bomb_is_ended(backend: BackendName) {
    let fixture = SandboxFixture::try_with(backend, |spec| spec.limits.pids = Some(100)).await;
    let fixture = match fixture {
        // No fork bomb is started where no limit holds it.
        Err(refusal) if refusal.code == ErrorCode::LimitUnavailable && !cgroup_can_be_ours("pids") => return,
        fixture => fixture.unwrap_or_else(|error| panic!("{error}")),
    };
    let marker = Marker::new();
    let mut command =
        Command::new(["sh", "-c", "bomb() { bomb & bomb & wait; }; bomb", marker.to_string().as_str()])
            .unwrap();
    // Long enough for two looks at all processes of a busy machine.
    command.timeout = Some(Duration::from_secs(4));
    // Where the limit takes the whole sandbox, it does so before anybody could look.
    let bomb_is_seen = async {
        if outlives_its_limits(backend) {
            marker.appears(30).await;
        }
    };
    let (result, ()) = tokio::join!(fixture.exec(&command), bomb_is_seen);
    let result = result.unwrap_or_else(|error| panic!("{error} ({})", error.code));
    assert!(outlives_its_limits(backend) || result.limit.is_some(), "{result:?}");
    // Where the first shell gives up by itself its children continue: the next test checks that.
    if result.timed_out {
        assert_eq!(marker.processes(), Vec::<u32>::new());
    }
    fixture.dispose().await;
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn a_chain_of_forks_is_ended(backend: BackendName) {
    // Every process starts the next and ends: at each look it is another one.
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    fs::write(fixture.host("chain"), "[ -e stop ] || sh ./chain \"$1\" &\n").unwrap();
    let mut command = sh(&format!("for i in 1 2 3 4; do sh ./chain {marker} & done; sleep 60"));
    command.timeout = Some(Duration::from_millis(700));
    let result = fixture.exec(&command).await;
    let left = marker.processes();
    fs::write(fixture.host("stop"), "").unwrap();
    assert_killed(&result.unwrap_or_else(|error| panic!("{error} ({})", error.code)));
    assert_eq!(left, Vec::<u32>::new());
}

async fn killing_the_supervisor_saves_no_process(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let script = "(setsid LASTING &); kill -KILL $PPID; LASTING; :";
    match fixture.exec(&marked(script, &marker)).await {
        Ok(result) => assert!(result.timed_out || result.signal.is_some(), "{result:?}"),
        Err(error) => {
            assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::SupervisorKilled))
        }
    }
    marker.wait_for_none();
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

async fn killing_everything_in_reach_leaves_a_working_sandbox(backend: BackendName) {
    if !is_isolated(backend) {
        return; // There everything in reach is ours.
    }
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("kill -KILL 1; kill -TERM 1; kill -STOP 1; kill -KILL -1; sleep 60");
    command.timeout = Some(Duration::from_secs(20));
    // It may take its own supervisor along, which is an error of its own.
    let _ = fixture.exec(&command).await;
    if !guards_process_one(backend) {
        let error = fixture.exec(&sh("exit 0")).await.expect_err("process 1 was killed");
        return assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, ErrorCode::GuestGone));
    }
    assert_eq!(fixture.answer("echo alive").await, "alive");
    fixture.write_file("file", b"alive").await.unwrap();
}

async fn a_very_long_timeout_is_fine(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("exit 3");
    command.timeout = Some(Duration::MAX);
    assert_eq!(fixture.run(&command).await.exit_code, Some(3));
}

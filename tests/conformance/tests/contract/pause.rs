//! Pausing a sandbox, and resuming it. Judged by what the host sees of its processes.

use belljar_engine::{Input, Output};
use belljar_spec::{BackendName, ErrorCode, ErrorKind, Stdin, WindowSize};
use belljar_tests_conformance::*;
use std::fs;
use std::time::Duration;

for_every_backend! {
    everywhere:
        everything_is_paused_and_resumed,
        no_command_starts_while_it_is_paused,
        it_can_be_disposed_of_while_it_is_paused,
        without_isolation_it_is_refused_by_name;
    each_kernel:
        those_that_fork_all_the_time_stand_still_too,
        who_has_no_name_in_letters_continues_too,
        a_signal_kills_a_command_while_it_is_paused,
        a_job_that_was_stopped_before_stays_stopped,
        a_shell_does_not_take_a_pause_for_a_stopped_job,
        commands_that_start_and_pauses_do_not_get_in_each_others_way;
    each_guest:
        files_are_read_and_written_while_it_is_paused,
        a_timeout_ends_a_command_while_it_is_paused,
        a_command_is_killed_while_it_is_paused,
        pausing_twice_is_pausing_once,
        who_comes_and_goes_does_not_notice;
}

/// The state of each process, as the host sees it, and the processor time that they have used.
fn seen(marker: &Marker) -> (String, u64) {
    let (mut states, mut time) = (Vec::new(), 0);
    for pid in marker.processes() {
        let stat = process_file(pid, "stat").unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = fields.split(' ').collect();
        states.push(fields[0].to_string());
        time += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    }
    states.sort();
    states.dedup();
    (states.join(""), time)
}

/// Whether all of them do. A shell that has just made a process waits in the kernel until that one has begun its program
/// (vfork(2)): it stands as still as that one, and is not called stopped.
fn stand_still(marker: &Marker) -> bool {
    let states = seen(marker).0;
    !states.is_empty() && states.chars().all(|state| matches!(state, 'T' | 'D'))
}

async fn everything_is_paused_and_resumed(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let marker = Marker::new();
    let script = format!(
        "(while :; do :; done) & (trap '' TERM; sleep 1000; : {marker}) & setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > ticks; done; : {marker}' & \
         echo ready; while :; do :; done; : {marker}"
    );
    let mut running = fixture.spawn(&sh(&script)).await.unwrap();
    read_until(&mut running, "ready\n").await;
    assert!(!fixture.is_paused());
    fixture.pause().await.unwrap();
    assert!(fixture.is_paused());
    // They have been told; one that runs on another processor just now stops in a moment.
    wait_until("everything to stand still", || stand_still(&marker));
    let before = seen(&marker);
    let ticks = fs::read(fixture.host("ticks")).ok();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(seen(&marker), before, "it uses no processor");
    assert_eq!(fs::read(fixture.host("ticks")).ok(), ticks);
    fixture.resume().await.unwrap();
    assert!(!fixture.is_paused());
    wait_until("it to go on", || seen(&marker).1 > before.1);
    wait_until("all of it to go on", || fs::read(fixture.host("ticks")).ok() != ticks);
    drop(running);
    marker.wait_for_none();
}

async fn those_that_fork_all_the_time_stand_still_too(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let marker = Marker::new();
    // Each process makes the next one and ends: they could not be stopped one by one.
    let script = format!(
        "f() {{ (f) & }}; echo ready; f; g() {{ (sh -c ': {marker}'; g) & }}; g; sleep 1000; : {marker}"
    );
    let mut running = fixture.spawn(&sh(&script)).await.unwrap();
    read_until(&mut running, "ready\n").await;
    for _ in 0..10 {
        fixture.pause().await.unwrap();
        let before: Vec<u32> = marker.processes();
        assert!(!before.is_empty() || !sees_short_lives(backend));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(marker.processes(), before);
        assert!(!seen(&marker).0.contains(['R', 'S']), "{:?}", seen(&marker));
        fixture.resume().await.unwrap();
    }
    drop(running);
    marker.wait_for_none();
}

async fn who_comes_and_goes_does_not_notice(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    // Children that end, or leave for a session of their own, while their parent is paused.
    let script =
        "echo ready; while [ ! -e enough ]; do setsid sh -c : & sh -c : | sh -c :; done; wait; echo done";
    let mut running = fixture.spawn(&sh(script)).await.unwrap();
    read_until(&mut running, "ready\n").await;
    for _ in 0..10 {
        fixture.pause().await.unwrap();
        fixture.resume().await.unwrap();
    }
    fixture.write_file("enough", b"").await.unwrap();
    let (stdout, stderr, ended) = drain(&mut running).await;
    assert_eq!((text(&stdout).as_str(), text(&stderr).as_str()), ("done\n", ""), "{ended:?}");
    assert_eq!(ended.exit_code, Some(0));
}

async fn who_has_no_name_in_letters_continues_too(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let script = r#"name=$(printf '\377\376'); cp /bin/sh "$name"
        exec "./$name" -c 'echo ready; i=0; while :; do i=$((i+1)); echo $i > ticks; done'"#;
    let mut running = fixture.spawn(&sh(script)).await.unwrap();
    read_until(&mut running, "ready\n").await;
    fixture.pause().await.unwrap();
    let before = fs::read(fixture.host("ticks")).ok();
    fixture.resume().await.unwrap();
    wait_until("it to go on", || fs::read(fixture.host("ticks")).ok() != before);
}

async fn no_command_starts_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    fixture.pause().await.unwrap();
    let error = fixture.exec(&sh("touch started")).await.unwrap_err();
    assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::SandboxPaused));
    assert!(!fixture.host("started").exists());
    fixture.resume().await.unwrap();
    assert_eq!(fixture.answer("echo again").await, "again");
}

async fn files_are_read_and_written_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let mut running = fixture.spawn(&sh("echo ready; sleep 1000")).await.unwrap();
    read_until(&mut running, "ready\n").await;
    fixture.pause().await.unwrap();
    fixture.mkdir("d", false).await.unwrap();
    fixture.write_file("d/file", b"meanwhile").await.unwrap();
    fixture.rename("d/file", "d/moved").await.unwrap();
    assert_eq!(fixture.read_file("d/moved").await.unwrap(), b"meanwhile");
    assert_eq!(fixture.readdir("d").await.unwrap().len(), 1);
}

async fn a_timeout_ends_a_command_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let marker = Marker::new();
    let mut command = sh(&format!("sleep 1000 & sleep 1000; : {marker}"));
    command.timeout = Some(Duration::from_secs(2));
    let pause = async {
        marker.appears(1).await;
        fixture.pause().await.unwrap();
    };
    let (result, ()) = tokio::join!(fixture.exec(&command), pause);
    assert!(result.unwrap().timed_out);
    marker.wait_for_none();
    assert!(fixture.is_paused());
    fixture.resume().await.unwrap();
    assert_eq!(fixture.answer("echo fine").await, "fine");
}

async fn a_command_is_killed_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let (marker, other) = (Marker::new(), Marker::new());
    let mut running = fixture
        .spawn(&sh(&format!("setsid sh -c 'sleep 1000; : {marker}' & sleep 1000; : {marker}")))
        .await
        .unwrap();
    let _bystander = fixture.spawn(&sh(&format!("sleep 1000; : {other}"))).await.unwrap();
    marker.appears(2).await;
    other.appears(1).await;
    fixture.pause().await.unwrap();
    wait_until("the others to stand still", || stand_still(&other));
    running.inputs.kill().await;
    let ended = end(&mut running).await;
    assert_eq!(ended.signal.as_deref(), Some("SIGKILL"));
    marker.wait_for_none();
    assert!(stand_still(&other), "the others stand still as before");
}

async fn a_signal_kills_a_command_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let mut running = fixture.spawn(&sh("echo ready; sleep 1000")).await.unwrap();
    read_until(&mut running, "ready\n").await;
    fixture.pause().await.unwrap();
    running.inputs.send(Input::Signal(9)).await.unwrap();
    assert_eq!(end(&mut running).await.signal.as_deref(), Some("SIGKILL"));
}

async fn it_can_be_disposed_of_while_it_is_paused(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let marker = Marker::new();
    let mut running = fixture.spawn(&sh(&format!("sleep 1000 & sleep 1000; : {marker}"))).await.unwrap();
    marker.appears(1).await;
    fixture.pause().await.unwrap();
    fixture.dispose().await;
    marker.wait_for_none();
    assert!(next(&mut running).await.is_err());
    assert!(!fixture.is_paused());
    assert_eq!(fixture.pause().await.unwrap_err().code, ErrorCode::SandboxNotAlive);
    assert_eq!(fixture.resume().await.unwrap_err().code, ErrorCode::SandboxNotAlive);
}

async fn pausing_twice_is_pausing_once(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let marker = Marker::new();
    let _running = fixture.spawn(&sh(&format!("sleep 1000; : {marker}"))).await.unwrap();
    marker.appears(1).await;
    fixture.resume().await.unwrap();
    fixture.pause().await.unwrap();
    fixture.pause().await.unwrap();
    assert!(stand_still(&marker));
    fixture.resume().await.unwrap();
    fixture.resume().await.unwrap();
    wait_until("it to go on", || seen(&marker).0 == "S");
}

async fn a_job_that_was_stopped_before_stays_stopped(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let (stopped, going) = (Marker::new(), Marker::new());
    let _first = fixture.spawn(&sh(&format!("kill -STOP $$; : {stopped}"))).await.unwrap();
    let _second = fixture.spawn(&sh(&format!("sleep 1000; : {going}"))).await.unwrap();
    wait_until("it to stop itself", || seen(&stopped).0 == "T");
    going.appears(1).await;
    fixture.pause().await.unwrap();
    fixture.resume().await.unwrap();
    wait_until("the other to go on", || seen(&going).0 == "S");
    assert_eq!(seen(&stopped).0, "T");
}

async fn a_shell_does_not_take_a_pause_for_a_stopped_job(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let mut command = command(["bash", "--norc", "-i"]);
    command.terminal = Some(WindowSize { rows: 24, cols: 80 });
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    let line = b"PS1=; bind 'set enable-bracketed-paste off' 2>/dev/null; echo be''gun; for i in 1 2 3; do sleep 0.4; done; echo fini''shed\n";
    running.inputs.send(Input::Bytes(line.to_vec())).await.unwrap();
    let mut printed = String::new();
    let mut pauses = 0;
    while !printed.contains("finished") {
        if printed.contains("begun") && pauses < 20 {
            fixture.pause().await.unwrap();
            fixture.resume().await.unwrap();
            pauses += 1;
        }
        let next = tokio::time::timeout(Duration::from_millis(20), next(&mut running));
        match next.await {
            Ok(Ok(Output::Stdout(bytes))) => printed.push_str(&text(&bytes)),
            Ok(other) => panic!("{other:?} after {printed}"),
            Err(_) => {}
        }
    }
    assert!(pauses > 0 && !printed.contains("Stopped"), "{printed}");
}

async fn commands_that_start_and_pauses_do_not_get_in_each_others_way(backend: BackendName) {
    let Some(fixture) = backended(backend).await else { return };
    let starting = async {
        let (mut done, mut refused) = (0, 0);
        while done < 40 {
            match fixture.exec(&sh("true")).await {
                Ok(result) if result.exit_code == Some(0) => done += 1,
                Err(error) if error.code == ErrorCode::SandboxPaused => {
                    refused += 1;
                    tokio::task::yield_now().await;
                }
                other => panic!("{other:?}"),
            }
            assert!(refused < 1_000_000);
        }
    };
    let pausing = async {
        loop {
            fixture.pause().await.unwrap();
            fixture.resume().await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! { () = starting => {}, () = pausing => {} }
}

async fn without_isolation_it_is_refused_by_name(backend: BackendName) {
    if is_isolated(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    for refused in [fixture.pause().await, fixture.resume().await] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.code), (ErrorKind::Unavailable, ErrorCode::NotSupported));
    }
    assert!(!fixture.is_paused());
    assert_eq!(fixture.answer("echo goes on").await, "goes on");
}

async fn backended(backend: BackendName) -> Option<SandboxFixture> {
    if is_isolated(backend) { Some(SandboxFixture::new(backend).await) } else { None }
}

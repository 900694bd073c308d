//! What goes in and what comes out: whole, in order, as much as is wanted and no faster than it is taken.

use belljar_engine::{Input, Output, Running};
use belljar_spec::{BackendName, ByteSize, LimitHit, Stdin};
use belljar_tests_conformance::*;
use std::fs;
use std::time::Duration;

for_every_backend! {
    living everywhere:
        bytes_go_in_and_come_out_unchanged,
        much_goes_in_and_comes_out_at_the_same_time,
        stdout_and_stderr_are_apart,
        output_just_before_the_end_is_not_lost,
        a_slow_reader_slows_the_command,
        a_command_that_floods_is_ended_in_time;
    living each_kernel:
        without_input_there_is_an_end_of_file,
        unread_input_is_no_error,
        input_that_is_streamed_arrives_as_it_is_sent,
        an_end_of_input_reaches_the_command,
        output_comes_before_the_end,
        all_that_a_large_pipe_holds_at_the_end_is_not_lost,
        a_writer_in_the_background_keeps_no_command,
        a_writer_in_the_background_hides_nothing,
        output_up_to_the_cap_is_kept,
        a_cap_is_for_each_stream,
        a_truncated_command_runs_to_its_end,
        a_slow_reader_slows_no_other_command,
        a_command_that_does_not_read_slows_the_sender,
        more_goes_in_than_is_kept_before_anything_is_read,
        a_signal_overtakes_unread_input,
        input_that_a_signal_overtook_arrives_whole,
        a_command_stuck_on_its_input_can_be_killed,
        a_command_that_floods_can_be_aborted;
}

async fn without_input_there_is_an_end_of_file(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let result = fixture.run(&command(["cat"])).await;
    assert_eq!((result.exit_code, result.stdout), (Some(0), Vec::new()));
}

async fn bytes_go_in_and_come_out_unchanged(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut cat = command(["cat"]);
    let bytes: Vec<u8> = (0..=255).chain([0, 10, 13, 0]).collect();
    cat.stdin = Stdin::Bytes(bytes.clone());
    assert_eq!(fixture.run(&cat).await.stdout, bytes);
}

async fn much_goes_in_and_comes_out_at_the_same_time(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let bytes: Vec<u8> = (0..6_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut cat = command(["cat"]);
    cat.stdin = Stdin::Bytes(bytes.clone());
    cat.max_output = Some(ByteSize::mebibytes(64));
    let result = fixture.run(&cat).await;
    assert!(result.stdout == bytes, "{} of {} bytes came back", result.stdout.len(), bytes.len());
    assert!(!result.output_truncated);
}

async fn unread_input_is_no_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for script in ["exit 6", "head -c 1 >/dev/null; exit 6", "exec 0<&-; sleep 0.1; exit 6"] {
        let mut command = sh(script);
        command.stdin = Stdin::Bytes(vec![b'x'; 5_000_000]);
        assert_eq!(fixture.run(&command).await.exit_code, Some(6), "{script}");
    }
}

async fn input_that_is_streamed_arrives_as_it_is_sent(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("while read -r line; do echo \"got $line\"; done; echo end");
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    for word in ["one", "two", "three"] {
        running.inputs.send(Input::Bytes(format!("{word}\n").into())).await.unwrap();
        assert_eq!(read_until(&mut running, "\n").await, format!("got {word}\n"));
    }
    running.inputs.send(Input::End).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0), "end\n");
}

async fn an_end_of_input_reaches_the_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = command(["wc", "-c"]);
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    // Everything before the end is still taken.
    running.inputs.send(Input::Bytes(vec![0; 300_000])).await.unwrap();
    running.inputs.send(Input::End).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0).trim(), "300000");
}

async fn stdout_and_stderr_are_apart(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let result = fixture.sh("echo a; echo b >&2; echo c; echo d >&2").await;
    assert_eq!((text(&result.stdout).as_str(), text(&result.stderr).as_str()), ("a\nc\n", "b\nd\n"));
}

async fn output_comes_before_the_end(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("echo first; echo wrong >&2; read line; echo last");
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    let (mut first, mut wrong) = (false, false);
    while !(first && wrong) {
        match running.events.next().await.unwrap() {
            Output::Stdout(bytes) => first |= bytes == b"first\n",
            Output::Stderr(bytes) => wrong |= bytes == b"wrong\n",
            Output::Started(_) => {}
            Output::Stopped => panic!("it has no terminal"),
            Output::Ended(ended) => panic!("{ended:?}"),
        }
    }
    running.inputs.send(Input::Bytes(b"go on\n".to_vec())).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0), "last\n");
}

async fn output_just_before_the_end_is_not_lost(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // More than a pipe holds, so that the last of it is written at the very end.
    for count in [1, 65_536, 65_537, 200_000] {
        for _ in 0..10 {
            let result =
                fixture.sh(&format!("head -c {count} /dev/zero; head -c {count} /dev/zero >&2")).await;
            assert_eq!((result.stdout.len(), result.stderr.len()), (count, count));
        }
    }
}

async fn all_that_a_large_pipe_holds_at_the_end_is_not_lost(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // F_SETPIPE_SZ, fcntl(2): as much as anybody may have, all of it written at once, and then the end.
    let script = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20); os.write(1, b'x' * 1000000)";
    for _ in 0..5 {
        let result = fixture.run(&command(["/usr/bin/python3", "-c", script])).await;
        assert_eq!((result.exit_code, result.stdout.len()), (Some(0), 1_000_000), "{}", text(&result.stderr));
    }
}

async fn a_writer_in_the_background_keeps_no_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for script in ["cat /dev/zero & sleep 0.2; exit 3", "cat /dev/zero >&2 & sleep 0.2; exit 3"] {
        let mut running = fixture.spawn(&sh(script)).await.unwrap();
        let mut received = 0;
        let ended = loop {
            match running.events.next().await.unwrap() {
                Output::Stdout(bytes) | Output::Stderr(bytes) => received += bytes.len(),
                Output::Started(_) => {}
                Output::Stopped => panic!("it has no terminal"),
                Output::Ended(ended) => break ended,
            }
            assert!(received < 64 << 20, "{script}: {received} bytes, and it still goes on");
            // Slower than the writer, whose pipe is full whenever it is looked at.
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert_eq!(ended.exit_code, Some(3), "{script}");
    }
}

async fn a_writer_in_the_background_hides_nothing(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for count in [1, 65_536, 200_000] {
        let mut command = sh(&format!("cat /dev/zero >&2 & head -c {count} /dev/zero; exit 4"));
        command.timeout = Some(Duration::from_secs(10));
        let result = fixture.run(&command).await;
        assert_eq!((result.exit_code, result.stdout.len()), (Some(4), count));
    }
}

async fn output_up_to_the_cap_is_kept(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for (size, truncated) in [(99_999, false), (100_000, false), (100_001, true), (500_000, true)] {
        let mut command = sh(&format!("yes 123456789 | head -c {size}"));
        command.max_output = Some(ByteSize::bytes(100_000));
        let result = fixture.run(&command).await;
        assert_eq!(result.stdout.len(), size.min(100_000));
        assert!(result.stdout.starts_with(b"123456789\n123456789\n"));
        assert_eq!(result.output_truncated, truncated, "{size}");
        assert_eq!(result.limit, truncated.then_some(LimitHit::OutputTruncated), "{size}");
    }
}

async fn a_cap_is_for_each_stream(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("printf 12345678; printf abcdefgh >&2");
    command.max_output = Some(ByteSize::bytes(8));
    let result = fixture.run(&command).await;
    assert_eq!((text(&result.stdout).as_str(), text(&result.stderr).as_str()), ("12345678", "abcdefgh"));
    assert!(!result.output_truncated);
    command.max_output = Some(ByteSize::bytes(7));
    let result = fixture.run(&command).await;
    assert_eq!((text(&result.stdout).as_str(), text(&result.stderr).as_str()), ("1234567", "abcdefg"));
    assert!(result.output_truncated);
}

async fn a_truncated_command_runs_to_its_end(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("head -c 5000000 /dev/zero; echo done > finished; exit 9");
    command.max_output = Some(ByteSize::bytes(1));
    let result = fixture.run(&command).await;
    assert_eq!((result.exit_code, result.stdout.len()), (Some(9), 1));
    assert_eq!(fs::read_to_string(fixture.host("finished")).unwrap(), "done\n");
}

async fn a_slow_reader_slows_the_command(backend: BackendName) {
    if !waits_for_readers(backend) {
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let script = "while :; do head -c 65536 /dev/zero; echo >> written; done";
    let running = fixture.spawn(&sh(script)).await.unwrap();
    let chunks = || fs::metadata(fixture.host("written")).map_or(0, |found| found.len());
    wait_until("it to begin", || chunks() > 0);
    let written = settles(chunks);
    assert!(written < 256, "{written} × 64 KiB were taken though no process reads");
    drop(running);
}

async fn a_slow_reader_slows_no_other_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut stuck = Vec::new();
    for _ in 0..5 {
        stuck.push(fixture.spawn(&command(["cat", "/dev/zero"])).await.unwrap());
    }
    assert_eq!(fixture.answer("echo alive").await, "alive");
    fixture.write_file("file", b"alive").await.unwrap();
    assert_eq!(fixture.read_file("file").await.unwrap(), b"alive");
}

async fn a_command_that_does_not_read_slows_the_sender(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("read go < /dev/null; while ! [ -e go ]; do sleep 0.02; done; wc -c");
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    let mut sent = 0usize;
    let chunk = vec![0; 65_536];
    // Until a piece does not leave for a while: what is on its way stays whole.
    let waiting = loop {
        let Ok(outcome) = tokio::time::timeout(
            Duration::from_millis(600),
            running.inputs.send(Input::Bytes(chunk.clone())),
        )
        .await
        else {
            break true;
        };
        outcome.unwrap();
        sent += chunk.len();
        if sent > 64 << 20 {
            break false;
        }
    };
    assert!(waiting, "{sent} bytes were taken though no process reads");
}

async fn more_goes_in_than_is_kept_before_anything_is_read(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("echo begins; wc -c");
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    running.inputs.send(Input::Bytes(vec![0; 5_000_000])).await.unwrap();
    running.inputs.send(Input::End).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0), "begins\n5000000\n");
}

/// Sends until nothing more is taken; says how much was.
async fn fill(running: &mut Running) -> usize {
    let mut sent = 0;
    while let Ok(room) = tokio::time::timeout(Duration::from_millis(600), running.inputs.room()).await {
        let room = room.unwrap();
        running.inputs.send(Input::Bytes(vec![b'x'; room])).await.unwrap();
        sent += room;
        assert!(sent < 64 << 20, "{sent} bytes were taken though no process reads");
    }
    sent
}

async fn a_signal_overtakes_unread_input(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script = "trap 'echo heard; exit 7' USR1; echo ready; while :; do sleep 0.05; done";
    let mut command = sh(script);
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    read_until(&mut running, "ready").await;
    fill(&mut running).await;
    running.inputs.send(Input::Signal(10)).await.unwrap();
    let (stdout, _, ended) = drain(&mut running).await;
    assert_eq!((text(&stdout).as_str(), ended.exit_code), ("heard\n", Some(7)));
}

async fn input_that_a_signal_overtook_arrives_whole(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script = "trap go=1 USR1; echo ready; while [ -z \"$go\" ]; do sleep 0.05; done; wc -c";
    let mut command = sh(script);
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    read_until(&mut running, "ready\n").await;
    let sent = fill(&mut running).await;
    running.inputs.send(Input::Signal(10)).await.unwrap();
    running.inputs.send(Input::Bytes(vec![b'x'; 1_000_000])).await.unwrap();
    running.inputs.send(Input::End).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0).trim(), (sent + 1_000_000).to_string());
}

async fn a_command_stuck_on_its_input_can_be_killed(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = sh("sh -c 'while :; do sleep 0.1; done' $M; :");
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    command.stdin = Stdin::Bytes(vec![0; 10_000_000]);
    let result = fixture.exec_until(&command, marker.appears(1)).await.unwrap();
    assert!(result.aborted);
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn a_command_that_floods_is_ended_in_time(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = command(["cat", "/dev/zero"]);
    command.timeout = Some(Duration::from_millis(500));
    command.max_output = Some(ByteSize::bytes(10));
    let result = fixture.run(&command).await;
    assert!(result.timed_out && result.output_truncated);
    assert_eq!(result.limit, Some(LimitHit::Timeout));
}

async fn a_command_that_floods_can_be_aborted(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh("cat /dev/zero & cat /dev/zero >&2");
    command.max_output = Some(ByteSize::bytes(10));
    let abort = tokio::time::sleep(Duration::from_millis(300));
    let result = fixture.exec_until(&command, abort).await.unwrap();
    assert!(result.aborted && !result.timed_out);
}

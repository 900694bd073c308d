//! Commands in a terminal.

use belljar_engine::{Input, Running};
use belljar_spec::{BackendName, ByteSize, Command, Stdin, WindowSize};
use belljar_tests_conformance::*;
use std::time::Duration;

for_every_backend! {
    living everywhere:
        the_size_is_right_at_the_first_byte,
        all_three_streams_are_the_terminal,
        it_is_the_controlling_terminal,
        ctrl_c_interrupts,
        a_hung_up_terminal_ends_its_command;
    living each_kernel:
        a_resize_reaches_the_command,
        a_resize_overtakes_unread_keys,
        ctrl_d_ends_the_input,
        what_is_typed_is_echoed,
        everything_written_arrives,
        the_last_words_are_not_lost,
        a_writer_in_the_background_keeps_no_terminal,
        jobs_can_be_controlled,
        ctrl_z_stops_a_job,
        a_command_that_stops_itself_continues,
        the_end_of_a_command_hangs_its_terminal_up,
        a_timeout_ends_a_terminals_tree,
        terminals_do_not_mix,
        a_resize_without_a_terminal_is_nothing;
}

fn in_terminal(mut command: Command) -> Command {
    command.terminal = Some(WindowSize { rows: 33, cols: 101 });
    command.stdin = Stdin::Stream;
    command
}

async fn the_size_is_right_at_the_first_byte(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for (rows, cols) in [(33, 101), (1, 1), (24, 80), (500, 1000)] {
        let mut command = command(["stty", "size"]);
        command.terminal = Some(WindowSize { rows, cols });
        assert_eq!(text(&fixture.run(&command).await.stdout), format!("{rows} {cols}\r\n"));
    }
}

async fn a_resize_reaches_the_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut running = fixture.spawn(&in_terminal(sh(script))).await.unwrap();
    read_until(&mut running, "ready\r\n").await;
    for (rows, cols) in [(50, 132), (10, 20)] {
        running.inputs.send(Input::Resize(WindowSize { rows, cols })).await.unwrap();
        read_until(&mut running, &format!("{rows} {cols}\r\n")).await;
    }
}

async fn a_resize_overtakes_unread_keys(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // Raw: a line that is too long is not cut, but waits.
    let script = "stty raw -echo; trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut running = fixture.spawn(&in_terminal(sh(script))).await.unwrap();
    read_until(&mut running, "ready").await;
    while let Ok(room) = tokio::time::timeout(Duration::from_millis(600), running.inputs.room()).await {
        running.inputs.send(Input::Bytes(vec![b'x'; room.unwrap()])).await.unwrap();
    }
    running.inputs.send(Input::Resize(WindowSize { rows: 50, cols: 132 })).await.unwrap();
    read_until(&mut running, "50 132").await;
}

async fn all_three_streams_are_the_terminal(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let result = fixture.run(&in_terminal(sh("[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && tty; echo err >&2"))).await;
    let printed = text(&result.stdout);
    assert!(printed.starts_with("/dev/pts/"), "{printed}");
    assert!(printed.ends_with("\r\nerr\r\n") && result.stderr.is_empty(), "{printed}");
    assert_eq!(
        fixture.sh("[ -t 0 ] || [ -t 1 ] || [ -t 2 ]").await.exit_code,
        Some(1),
        "only when asked for"
    );
}

async fn it_is_the_controlling_terminal(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let result = fixture.run(&in_terminal(sh("echo said > /dev/tty"))).await;
    let expected = if has_terminal_keys(backend) { "said" } else { "cannot create /dev/tty" };
    assert!(text(&result.stdout).contains(expected), "{}", text(&result.stdout));
    assert_ne!(fixture.sh(": > /dev/tty").await.exit_code, Some(0), "without a terminal there is none");
}

async fn ctrl_c_interrupts(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    let mut running = fixture.spawn(&in_terminal(sh(script))).await.unwrap();
    read_until(&mut running, "ready").await;
    interrupt(backend, &mut running).await;
    let (stdout, _, ended) = drain(&mut running).await;
    assert!(text(&stdout).contains("interrupted"));
    assert_eq!(ended.exit_code, Some(3));
    // Who does not listen is ended by it.
    let mut running = fixture.spawn(&in_terminal(sh("echo ready; exec sleep 60"))).await.unwrap();
    read_until(&mut running, "ready").await;
    interrupt(backend, &mut running).await;
    assert_eq!(end(&mut running).await.signal.as_deref(), Some("SIGINT"));
}

/// Types Ctrl-C; where that is a byte like any other, it is seen to be one, and the signal is sent.
async fn interrupt(backend: BackendName, running: &mut Running) {
    running.inputs.send(Input::Bytes(vec![3])).await.unwrap();
    if !has_terminal_keys(backend) {
        read_until(running, "\x03").await;
        running.inputs.send(Input::Signal(2)).await.unwrap();
    }
}

async fn ctrl_d_ends_the_input(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut running = fixture.spawn(&in_terminal(sh("stty -echo; echo ready; cat; echo end"))).await.unwrap();
    read_until(&mut running, "ready\r\n").await;
    running.inputs.send(Input::Bytes(b"line\n\x04".to_vec())).await.unwrap();
    if !has_terminal_keys(backend) {
        read_until(&mut running, "line\r\n").await;
        running.inputs.send(Input::Signal(15)).await.unwrap();
        return assert_eq!(end(&mut running).await.signal.as_deref(), Some("SIGTERM"), "it had not ended");
    }
    assert_eq!(text(&drain(&mut running).await.0), "line\r\nend\r\n");
}

async fn what_is_typed_is_echoed(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut running =
        fixture.spawn(&in_terminal(sh("echo ready; read line; echo \"<$line>\""))).await.unwrap();
    read_until(&mut running, "ready\r\n").await;
    running.inputs.send(Input::Bytes(b"hallo\r".to_vec())).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0), "hallo\r\n<hallo>\r\n");
}

async fn everything_written_arrives(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = in_terminal(sh("yes 123456789012345 | head -n 60000"));
    command.max_output = Some(ByteSize::mebibytes(4));
    let result = fixture.run(&command).await;
    assert!(result.stdout == b"123456789012345\r\n".repeat(60_000), "{} bytes", result.stdout.len());
}

async fn the_last_words_are_not_lost(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let words = "last words ".repeat(300);
    let command = in_terminal(command(["printf", "%s", words.as_str()]));
    for round in 0..100 {
        assert_eq!(text(&fixture.run(&command).await.stdout), words, "round {round}");
    }
}

async fn a_writer_in_the_background_keeps_no_terminal(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = in_terminal(sh("trap '' HUP; setsid yes & exit 3"));
    command.timeout = Some(Duration::from_secs(10));
    command.max_output = Some(ByteSize::bytes(100));
    let result = fixture.run(&command).await;
    assert_eq!((result.exit_code, result.timed_out), (Some(3), false));
}

async fn jobs_can_be_controlled(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script =
        "set -m; sleep 60 & jobs; kill %1; wait %1; echo \"ended $?\"; sh -c 'echo front'; echo done";
    let printed = text(&fixture.run(&in_terminal(sh(script))).await.stdout);
    assert!(printed.contains("Running") && printed.contains("ended 143"), "{printed}");
    assert!(printed.ends_with("front\r\ndone\r\n"), "{printed}");
    assert!(!printed.contains("job control") && !printed.contains("tty"), "{printed}");
}

async fn ctrl_z_stops_a_job(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut running = fixture.spawn(&in_terminal(command(["sh", "-i"]))).await.unwrap();
    let say = async |running: &mut Running, words: &[u8]| {
        running.inputs.send(Input::Bytes(words.to_vec())).await.unwrap();
    };
    say(&mut running, b"PS1='on''ward '; echo rea''dy; cat\n").await;
    read_until(&mut running, "ready\r\n").await;
    // `cat` answers, so it is in front.
    say(&mut running, b"typed\n").await;
    read_until(&mut running, "typed\r\ntyped\r\n").await;
    if !has_terminal_keys(backend) {
        say(&mut running, b"\x1a\n").await;
        return drop(read_until(&mut running, "\x1a\r\n").await);
    }
    say(&mut running, b"\x1a").await;
    read_until(&mut running, "Stopped").await;
    say(&mut running, b"fg\n").await;
    read_until(&mut running, "cat").await;
    say(&mut running, b"again\n").await;
    read_until(&mut running, "again\r\nagain\r\n").await;
    say(&mut running, b"\x03").await;
    read_until(&mut running, "onward ").await;
    say(&mut running, b"exit 5\n").await;
    assert_eq!(end(&mut running).await.exit_code, Some(5));
}

/// As programs do at ctrl-Z that have a screen of their own: without a parent in their session they would wait for ever.
async fn a_command_that_stops_itself_continues(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command =
        in_terminal(sh("echo before; kill -TSTP $$; echo after; sleep 60 & kill -STOP $!; exit 4"));
    command.timeout = Some(Duration::from_secs(20));
    let result = fixture.run(&command).await;
    assert_eq!((text(&result.stdout).as_str(), result.exit_code), ("before\r\nafter\r\n", Some(4)));
}

async fn the_end_of_a_command_hangs_its_terminal_up(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    // Its shell has no job control, so it is in the foreground group.
    let mut command = in_terminal(sh("sh -c 'while :; do sleep 0.1; done' $M & sleep 0.3; exit 0"));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    assert_eq!(fixture.run(&command).await.exit_code, Some(0));
    if has_terminal_keys(backend) {
        marker.wait_for_none();
    }
}

async fn a_timeout_ends_a_terminals_tree(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let script =
        "trap '' HUP; (setsid sh -c 'while :; do sleep 0.1; done' $M &); while :; do sleep 0.1; done";
    let mut command = in_terminal(sh(script));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    command.timeout = Some(Duration::from_millis(1500));
    let (result, ()) = tokio::join!(fixture.run(&command), marker.appears(1));
    assert!(result.timed_out);
    assert_eq!(marker.processes(), Vec::<u32>::new());
}

async fn a_hung_up_terminal_ends_its_command(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let marker = Marker::new();
    let mut command = in_terminal(sh("trap '' HUP INT; sh -c 'while :; do sleep 0.1; done' $M; :"));
    command.env = vec![("M".parse().unwrap(), marker.to_string().into())];
    let running = fixture.spawn(&command).await.unwrap();
    marker.wait_for(1);
    drop(running);
    marker.wait_for_none();
}

async fn terminals_do_not_mix(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let (one, two) =
        (in_terminal(sh("tty; read x; echo \"$x\"")), in_terminal(sh("tty; read x; echo \"$x\"")));
    let mut one = fixture.spawn(&one).await.unwrap();
    let mut two = fixture.spawn(&two).await.unwrap();
    let first = read_until(&mut one, "\r\n").await;
    let second = read_until(&mut two, "\r\n").await;
    assert_ne!(first, second);
    one.inputs.send(Input::Bytes(b"to one\n".to_vec())).await.unwrap();
    two.inputs.send(Input::Bytes(b"to two\n".to_vec())).await.unwrap();
    assert_eq!(text(&drain(&mut one).await.0), "to one\r\nto one\r\n");
    assert_eq!(text(&drain(&mut two).await.0), "to two\r\nto two\r\n");
}

async fn a_resize_without_a_terminal_is_nothing(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut command = command(["cat"]);
    command.stdin = Stdin::Stream;
    let mut running = fixture.spawn(&command).await.unwrap();
    running.inputs.send(Input::Resize(WindowSize { rows: 5, cols: 5 })).await.unwrap();
    running.inputs.send(Input::Bytes(b"still here".to_vec())).await.unwrap();
    running.inputs.send(Input::End).await.unwrap();
    assert_eq!(text(&drain(&mut running).await.0), "still here");
}

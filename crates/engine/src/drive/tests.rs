//! Every ending of a command, against a guest of the test's own; time is tokio's and is paused unless all tasks wait.

use super::*;
use crate::exec::FixedInput;
use crate::held::GuestProcess;
use crate::stream;
use belljar_backend::Counters;
use belljar_spec::{ErrorCode, Stdin};
use belljar_wire::frame::{Tag, encode};
use belljar_wire::message::{self, Disk, Ending, ExecControl, ExecEvent, Fault};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// What the guest of a case does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// Reports the end at once.
    Reports,
    /// Reports the end when it is told to kill the command.
    Kills,
    /// Reports the end when the command gets a signal.
    EndsOnSignal,
    /// Never reports anything.
    Silent,
    /// Closes the connection at once, or when it is told to kill the command.
    HangsUp,
    HangsUpWhenStopped,
    /// Never stops writing, until it is told to kill the command.
    Floods,
}

struct Case {
    name: &'static str,
    guest: Guest,
    event: ExecEvent,
    counters: Counters,
    /// What it writes before that.
    output: usize,
    timeout: Option<Duration>,
    abort: bool,
    grace: Option<Grace>,
    /// The reader of its output has gone.
    reader_gone: bool,
    expected: Result<Ended, ErrorCode>,
    exit_code: u8,
    /// The guest is killed.
    killed: bool,
}

#[tokio::test(start_paused = true)]
async fn every_ending_is_reported_by_what_happened_first() {
    for case in cases() {
        let (outcome, killed) = driven(&case).await;
        let exit_code = match &outcome {
            Ok(ended) => ended.exit_code(),
            Err(error) => error.kind().exit_code(),
        };
        assert_eq!(outcome.map_err(|error| error.code), case.expected, "{}", case.name);
        assert_eq!((exit_code, killed), (case.exit_code, case.killed), "{}", case.name);
    }
}

fn cases() -> Vec<Case> {
    let exited = |code| Ended { exit_code: Some(code), ..Ended::default() };
    let event = |ending| ExecEvent::Ended { ending, disk: Disk::Free };
    let kill = event(Ending::Signaled(9));
    let oom = Counters { oom_kills: 1, ..Counters::default() };
    let limited = |limit, ended| Ended { limit: Some(limit), ..ended };
    let timed_out = || limited(LimitHit::Timeout, Ended { timed_out: true, ..Ended::killed() });
    let aborted = || Ended { aborted: true, ..Ended::killed() };
    let missing = ExecEvent::NotStarted(Fault { doing: "run no".into(), errno: 2 });
    let plain = |name, event, expected: Ended| Case {
        name,
        guest: Guest::Reports,
        event,
        counters: Counters::default(),
        output: 0,
        timeout: Some(Duration::from_secs(60)),
        abort: false,
        grace: None,
        reader_gone: false,
        exit_code: expected.exit_code(),
        expected: Ok(expected),
        killed: false,
    };
    let late = |name, guest| Case { guest, ..plain(name, kill.clone(), timed_out()) };
    let stopped = |name, guest| Case { guest, abort: true, ..plain(name, kill.clone(), aborted()) };
    let lost = |name, guest, code| Case {
        guest,
        expected: Err(code),
        exit_code: 125,
        ..plain(name, ExecEvent::SupervisorLost, Ended::default())
    };
    let grace = Some(Grace { signal: 2, time: Duration::from_secs(2) });
    let interrupted = event(Ending::Exited(130));
    let end_of_agent = limited(LimitHit::Timeout, Ended { timed_out: true, ..exited(130) });
    vec![
        plain("exit", event(Ending::Exited(3)), exited(3)),
        plain("signal", event(Ending::Signaled(15)), Ended::signaled(15)),
        Case { timeout: None, ..plain("no time limit", event(Ending::Exited(0)), exited(0)) },
        plain(
            "not started",
            missing,
            Ended { not_started: Some("`no` was not found inside the sandbox".into()), ..exited(127) },
        ),
        late("timeout", Guest::Kills),
        Case {
            expected: Ok(Ended { output_truncated: true, ..timed_out() }),
            ..late("timeout of a command that never stops writing", Guest::Floods)
        },
        Case { killed: true, ..late("timeout in an unresponsive guest", Guest::Silent) },
        Case {
            counters: oom,
            killed: true,
            expected: Ok(limited(LimitHit::OomKilled, timed_out())),
            ..late("timeout in a guest that stopped at its memory limit", Guest::Silent)
        },
        Case { event: ExecEvent::SupervisorLost, ..late("timeout, supervisor killed", Guest::Kills) },
        late("timeout, guest lost meanwhile", Guest::HangsUpWhenStopped),
        stopped("abort", Guest::Kills),
        Case { killed: true, ..stopped("abort in an unresponsive guest", Guest::Silent) },
        Case { event: ExecEvent::SupervisorLost, ..stopped("abort, supervisor killed", Guest::Kills) },
        stopped("abort, guest lost meanwhile", Guest::HangsUpWhenStopped),
        Case {
            grace,
            event: interrupted.clone(),
            expected: Ok(end_of_agent),
            ..late("timeout, ended by the signal", Guest::EndsOnSignal)
        },
        Case { grace, ..late("timeout, signal ignored", Guest::Kills) },
        Case { grace, killed: true, ..late("timeout, signal, unresponsive guest", Guest::Silent) },
        Case {
            grace,
            event: interrupted,
            expected: Ok(Ended { aborted: true, ..exited(130) }),
            exit_code: 130,
            ..stopped("abort, ended by the signal", Guest::EndsOnSignal)
        },
        lost("supervisor killed", Guest::Reports, ErrorCode::SupervisorKilled),
        lost("sandbox gone", Guest::HangsUp, ErrorCode::GuestGone),
        Case {
            counters: oom,
            ..plain("out of memory", kill.clone(), limited(LimitHit::OomKilled, Ended::killed()))
        },
        Case {
            guest: Guest::HangsUp,
            counters: oom,
            ..plain(
                "sandbox gone, out of memory",
                kill.clone(),
                limited(LimitHit::OomKilled, Ended::killed()),
            )
        },
        Case {
            counters: Counters { forks_refused: 1, ..Counters::default() },
            ..plain(
                "too many processes",
                event(Ending::Exited(2)),
                limited(LimitHit::PidsExhausted, exited(2)),
            )
        },
        plain(
            "disk full",
            ExecEvent::Ended { ending: Ending::Exited(1), disk: Disk::Full },
            limited(LimitHit::DiskFull, exited(1)),
        ),
        Case {
            output: CAP + 1,
            ..plain(
                "output limit",
                event(Ending::Exited(0)),
                limited(LimitHit::OutputTruncated, Ended { output_truncated: true, ..exited(0) }),
            )
        },
        Case { output: CAP, ..plain("output below its limit", event(Ending::Exited(0)), exited(0)) },
        Case { output: 1, reader_gone: true, ..lost("caller gone", Guest::Silent, ErrorCode::StreamFailed) },
    ]
}

/// Drives a command in the guest of a case; also says whether the guest was killed.
async fn driven(case: &Case) -> (Result<Ended, SandboxError>, bool) {
    let (running, process, guest) = running(case.counters);
    let mut sink = TestSink { cap: Cap::new(CAP as u64), is_gone: case.reader_gone, ..TestSink::default() };
    let drive = Drive { timeout: case.timeout, grace: case.grace };
    let abort = async {
        match case.abort {
            true => {}
            false => pending().await,
        }
    };
    let mut input = FixedInput::new(&Stdin::Empty);
    let outcome = tokio::select! {
        outcome = running.drive(drive, abort, &mut input, &mut sink) => outcome,
        () = play(case, guest) => unreachable!("a guest never ends by itself"),
    };
    (outcome, process.is_killed.load(Ordering::Relaxed))
}

/// The guest's side.
async fn play(case: &Case, mut host: UnixStream) {
    let written = vec![b'x'; case.output];
    for piece in written.chunks(1000) {
        send(&mut host, Tag::Stdout, piece).await;
    }
    match case.guest {
        Guest::Silent => return pending().await,
        Guest::Reports | Guest::HangsUp => {}
        Guest::Kills | Guest::HangsUpWhenStopped => until_closed(&mut host).await,
        Guest::EndsOnSignal => until_signal(&mut host).await,
        Guest::Floods => loop {
            tokio::select! {
                () = until_closed(&mut host) => break,
                () = tokio::task::yield_now() => {}
            }
            send(&mut host, Tag::Stdout, &[b'x'; 1000]).await;
            tokio::time::advance(Duration::from_millis(100)).await;
        },
    }
    if !matches!(case.guest, Guest::HangsUp | Guest::HangsUpWhenStopped) {
        send(&mut host, Tag::Message, &message::encode(&case.event)).await;
    }
    drop(host);
    pending().await
}

/// A signal does not wait for a command that does not read its input.
#[tokio::test(start_paused = true)]
async fn unread_input_holds_neither_signals_nor_output_up() {
    let (running, _, mut guest) = running(Counters::default());
    let mut source = Typing { bytes: Some(vec![0; 1 << 20]), signal: Some(15) };
    let mut sink = TestSink { cap: Cap::new(u64::MAX), ..TestSink::default() };
    let other_side = async {
        // Reads what belljar sends, and says nothing of having taken any standard input.
        until_signal(&mut guest).await;
        send(&mut guest, Tag::Stdout, b"caught").await;
        let event = ExecEvent::Ended { ending: Ending::Signaled(15), disk: Disk::Free };
        send(&mut guest, Tag::Message, &message::encode(&event)).await;
        pending::<()>().await
    };
    let ended = tokio::select! {
        ended = running.drive(Drive::default(), pending(), &mut source, &mut sink) => ended.unwrap(),
        () = other_side => unreachable!("it never ends"),
    };
    assert_eq!((ended, sink.written.as_slice()), (Ended::signaled(15), &b"caught"[..]));
}

/// The guest is not blamed for a reader that takes its time; and one that never reads keeps no caller waiting.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_not_an_unresponsive_guest() {
    for (delay, written) in [(2 * KILL_TIMEOUT, &b"slowly"[..]), (1000 * KILL_TIMEOUT, b"")] {
        let (running, process, mut guest) = running(Counters::default());
        let mut sink = TestSink { cap: Cap::new(u64::MAX), delay, ..TestSink::default() };
        let other_side = async {
            send(&mut guest, Tag::Stdout, b"slowly").await;
            until_closed(&mut guest).await;
            let event = ExecEvent::Ended { ending: Ending::Signaled(9), disk: Disk::Free };
            send(&mut guest, Tag::Message, &message::encode(&event)).await;
            pending::<()>().await
        };
        let drive = Drive { timeout: Some(Duration::from_secs(1)), grace: None };
        let mut input = FixedInput::new(&Stdin::Stream);
        let ended = tokio::select! {
            ended = running.drive(drive, pending(), &mut input, &mut sink) => ended.unwrap(),
            () = other_side => unreachable!("it never ends"),
        };
        assert!(ended.timed_out && sink.written == written, "{ended:?}");
        assert!(!process.is_killed.load(Ordering::Relaxed));
    }
}

/// A command in a guest whose kernel counts this while the command runs.
fn running(counters: Counters) -> (Running, Arc<TestProcess>, UnixStream) {
    let (host, guest) = std::os::unix::net::UnixStream::pair().unwrap();
    guest.set_nonblocking(true).unwrap();
    let (to, from) = stream::open(host).unwrap();
    let process = Arc::new(TestProcess { counters, is_killed: AtomicBool::new(false) });
    let running = Running::new(process.clone(), to, from, Counters::default());
    (running, process, UnixStream::from_std(guest).unwrap())
}

struct TestProcess {
    counters: Counters,
    is_killed: AtomicBool,
}

impl GuestProcess for TestProcess {
    fn counters(&self) -> Counters {
        self.counters
    }

    fn counters_at_end(&self) -> Box<dyn FnOnce() -> Counters + Send> {
        let counters = self.counters();
        Box::new(move || counters)
    }

    fn kill_unresponsive(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
    }
}

struct TestSink {
    cap: Cap,
    written: Vec<u8>,
    is_gone: bool,
    delay: Duration,
}

impl Default for TestSink {
    fn default() -> TestSink {
        TestSink { cap: Cap::new(0), written: Vec::new(), is_gone: false, delay: Duration::ZERO }
    }
}

impl Sink for TestSink {
    async fn write(&mut self, _: OutputStream, bytes: &[u8]) -> Result<(), SandboxError> {
        if self.is_gone {
            return Err(ErrorCode::StreamFailed.error("the reader has gone"));
        }
        sleep(self.delay).await;
        self.written.extend_from_slice(self.cap.take(bytes));
        Ok(())
    }

    fn is_truncated(&self) -> bool {
        self.cap.is_exceeded()
    }
}

/// Types much, and then sends a signal.
struct Typing {
    bytes: Option<Vec<u8>>,
    signal: Option<i32>,
}

impl Source for Typing {
    async fn next(&mut self, filter: InputFilter) -> Input {
        if filter == InputFilter::All
            && let Some(bytes) = self.bytes.take()
        {
            return Input::Bytes(bytes);
        }
        if self.bytes.is_none()
            && let Some(signal) = self.signal
        {
            // After as much was sent as the guest takes.
            sleep(Duration::from_secs(1)).await;
            self.signal = None;
            return Input::Signal(signal);
        }
        pending().await
    }
}

async fn send(host: &mut UnixStream, tag: Tag, payload: &[u8]) {
    let mut frame = Vec::new();
    encode(tag, payload, &mut frame);
    // The driver may have gone.
    let _ = host.write_all(&frame).await;
}

async fn until_closed(host: &mut UnixStream) {
    let mut buffer = [0; 4096];
    while host.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

async fn until_signal(host: &mut UnixStream) {
    let mut reader = belljar_wire::frame::FrameReader::default();
    let mut buffer = [0; 4096];
    loop {
        while let Some(frame) = reader.next_frame().unwrap() {
            let is_message = frame.tag == Tag::Message;
            if is_message && matches!(message::decode(&frame.payload), Some(ExecControl::Signal(_))) {
                return;
            }
        }
        let length = host.read(&mut buffer).await.unwrap();
        assert!(length > 0, "it was killed before it got a signal");
        reader.push(&buffer[..length]);
    }
}

const CAP: usize = 3000;

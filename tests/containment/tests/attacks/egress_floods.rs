//! However much one sandbox asks, dials and begins, the host's memory and its record stay small, and others are served.
//!
//! Each test has a process of its own: what is measured is all that serves its sandboxes.

use belljar_spec::egress::{EgressPolicy, Mode, Reason};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Dns, HttpServer, Response, Server};
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn names() -> Dns {
    Dns::start(|query| if query.name == "good.test" { vec![at("127.66.9.1")] } else { Vec::new() })
}

fn web() -> HttpServer {
    HttpServer::start(at("127.66.9.1"), |_| Response::ok("here"))
}

/// Asks and fetches in the bystander's sandbox until the flood is over; gives how often, and the longest time it took.
fn served_beside(bystander: &Cage, port: u16, flood: impl FnOnce() + Send) -> (usize, Duration) {
    let over = AtomicBool::new(false);
    let (mut times, mut longest) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            flood();
            over.store(true, Ordering::SeqCst);
        });
        // At least once after it has begun.
        std::thread::sleep(Duration::from_millis(500));
        loop {
            let done = over.load(Ordering::SeqCst);
            let begun = Instant::now();
            let answer = bystander.attack(
                r#"
request = b'GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n'
answer = send('good.test', sys.argv[1], request, timeout=20)
print('served' if b'here' in answer else answer)
"#,
                &[&port.to_string()],
            );
            assert_eq!(answer, ["served"], "a bystander is not served");
            times += 1;
            longest = longest.max(begun.elapsed());
            if done {
                break;
            }
        }
    });
    (times, longest)
}

/// What a flood may cost: memory at its worst, and the record.
fn assert_cheap(cage: &Cage, growth: u64, (times, longest): (usize, Duration), most: u64) {
    assert!(growth < most << 10, "{growth} KiB more at the worst, where {most} MiB are fine");
    let record = fs::metadata(cage.record()).unwrap().len();
    assert!(record < 16 << 20, "a record of {record} bytes");
    assert!(longest < Duration::from_secs(8), "a bystander waited {longest:?}, {times} served");
}

#[test]
fn questions_without_number_cost_nothing_that_lasts() {
    alone("egress_floods::questions_without_number_cost_nothing_that_lasts", &[], || {
        let (dns, server) = (names(), web());
        for backend in kernel_backends() {
            let policy = policy(&dns, &[&format!("=good.test:{}/http", server.port())]);
            let (cage_, bystander) = (cage(*backend, &policy), cage(*backend, &policy));
            let mut served = (0, Duration::ZERO);
            let growth = growth(|| {
                served = served_beside(&bystander, server.port(), || {
                    cage_.attack(
                        r#"
def flood(number):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(('127.0.0.1', 53))
    s.setblocking(False)
    head = struct.pack('!HHHHHH', 1, 0x100, 1, 0, 0, 0)
    for n in range(250000 // int(sys.argv[1])):
        name = b'%08d%02d' % (n, number)
        try:
            s.send(head + b'\x0a' + name + b'\x3c' + b'x' * 60 + b'\x04test\0\0\x10\0\1')
            s.recv(512)
        except OSError:
            pass
    os._exit(0)
pids = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        flood(number)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
"#,
                        &[&call_costs(*backend).to_string()],
                    );
                });
            });
            assert_cheap(&cage_, growth, served, 24);
            assert!(cage_.sandbox.refused().len() <= 2000, "{backend}");
            assert!(dns.queries().iter().all(|query| query.name == "good.test"), "{backend}");
        }
    });
}

#[test]
fn names_without_number_have_an_end() {
    alone("egress_floods::names_without_number_have_an_end", &[], || {
        let (dns, server) = (names(), web());
        for backend in kernel_backends() {
            // Named, because not every backend opens more than the usual ports where no rule names one.
            let named = format!("=good.test:{}/http", server.port());
            let open = EgressPolicy { mode: Mode::Open, ..policy(&dns, &[&named]) };
            let (cage_, bystander) = (cage(*backend, &open), cage(*backend, &open));
            let mut served = (0, Duration::ZERO);
            let growth = growth(|| {
                served = served_beside(&bystander, server.port(), || {
                    let reported = cage_.attack(
                        r#"
s = dial('127.0.0.1', 53)
answers = s.makefile('rb')
told = failed = 0
PAD = b'\x3d' + b'x' * 61 + b'\x3d' + b'y' * 61 + b'\x32' + b'z' * 50
for start in range(0, 70000, 100):
    s.sendall(b''.join(vec(2, struct.pack('!HHHHHH', 1, 0x100, 1, 0, 0, 0) + b'\x0c' + b'%012d' % n + PAD + b'\x04test\0\0\1\0\1')
        for n in range(start, start + 100)))
    for _ in range(100):
        answer = answers.read(int.from_bytes(answers.read(2), 'big'))
        told += answer[7]
        failed += answer[3] & 15 == 2
print(told, failed)
"#,
                        &[],
                    );
                    assert_eq!(reported, ["65536 4464"], "{backend}");
                });
            });
            assert_cheap(&cage_, growth, served, 64);
            assert!(!cage_.refused_for(Reason::TooManyNames).is_empty(), "{backend}");
            assert!(dns.queries().iter().all(|query| query.name == "good.test"), "{backend}");
        }
    });
}

/// Opens very many connections from several processes, does something with each, and keeps them. Fewer where calls cost more, and
/// still more than are allowed.
const CROWD: &str = r#"
import resource
def crowd(processes, each, act):
    each = max(75, each // int(sys.argv[2]))
    pids = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            kept, failures = [], {}
            for _ in range(each):
                try:
                    s = dial('good.test', sys.argv[1])
                    s.settimeout(1)
                    act(s)
                    kept.append(s)
                except OSError as error:
                    failures[str(error)] = failures.get(str(error), 0) + 1
            print(len(kept), failures, flush=True)
            time.sleep(3)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
"#;

fn crowd(name: &str, protocol: &'static str, act: &str, most: u64) {
    alone(name, &[], || {
        let (dns, server) = (names(), web());
        let port = server.port();
        for backend in kernel_backends() {
            let mut few = policy(&dns, &[&format!("=good.test:{port}/{protocol}")]);
            // So that with every backend the gateway refuses, and not an earlier limit of the backend.
            few.limits.connections = 256;
            let cage_ = cage(*backend, &few);
            let bystander = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/http")]));
            let mut served = (0, Duration::ZERO);
            let mut crowds = Vec::new();
            let growth = growth(|| {
                served = served_beside(&bystander, port, || {
                    crowds = cage_.attack(
                        &format!("{CROWD}\n{act}"),
                        &[&port.to_string(), &call_costs(*backend).to_string()],
                    );
                });
            });
            assert_cheap(&cage_, growth, served, most);
            let many = cage_.refused_for(Reason::TooManyConnections).len()
                + cage_.refused_for(Reason::SilentClient).len();
            assert!(many > 0, "{backend}: was that all? {crowds:?}");
            // Gone, they leave their places to others.
            cage_.attack("s = dial('good.test', sys.argv[1])", &[&port.to_string()]);
        }
    });
}

#[test]
fn five_thousand_silent_connections_are_no_more_than_allowed() {
    crowd(
        "egress_floods::five_thousand_silent_connections_are_no_more_than_allowed",
        "tls",
        "crowd(10, 500, lambda s: None)",
        32,
    );
}

#[test]
fn hellos_that_never_end_are_bounded() {
    // As much as a hello may have, but for its end, in records of one byte.
    let act = r#"
whole = b'\1\0\x40\0' + bytes(12000)
SLOW = b''.join(record(whole[n:n + 1]) for n in range(10800))
def act(s):
    s.sendall(SLOW)
crowd(4, 100, act)
"#;
    crowd("egress_floods::hellos_that_never_end_are_bounded", "tls", act, 64);
}

#[test]
fn heads_of_requests_that_never_end_are_bounded() {
    let act = r#"
HEAD = b'GET / HTTP/1.1\r\nHost: good.test\r\nX: ' + b'x' * 62000
crowd(6, 400, lambda s: s.sendall(HEAD))
"#;
    crowd("egress_floods::heads_of_requests_that_never_end_are_bounded", "http", act, 200);
}

#[test]
fn questions_that_only_announce_their_length_take_no_room() {
    let act = r#"
def announce(s):
    d = dial('127.0.0.1', 53)
    d.sendall(b'\xff\xff')
    time.sleep(0.002)
    kept.append(d)
kept = []
crowd(6, 250, announce)
"#;
    crowd("egress_floods::questions_that_only_announce_their_length_take_no_room", "tls", act, 32);
}

/// What lies in the host's buffers for sockets to or from this port, by the kernel's own list.
fn queued(port: u16) -> u64 {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let of_the_gateway = sockets.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(2)?.ends_with(&port).then(|| words[4].to_string())
    });
    let bytes = |queues: String| {
        queues.split(':').map(|number| u64::from_str_radix(number, 16).unwrap()).sum::<u64>()
    };
    of_the_gateway.map(bytes).sum()
}

/// Kernel memory counts too: what waits for a reader inside is the host's, and there is only so much for all sockets.
#[test]
fn readers_and_servers_that_stop_do_not_fill_the_hosts_buffers() {
    let dns = names();
    for backend in backends() {
        for direction in ["in", "out"] {
            let server = Server::start(at("127.66.9.1"), move |mut stream| match direction {
                // When all are connected: who dials beside a flood waits for its turn.
                "in" if stream.read_exact(&mut [0]).is_ok() => {
                    while stream.write_all(&[b'z'; 65536]).is_ok() {}
                }
                _ => std::thread::sleep(Duration::from_secs(60)),
            });
            let port = server.port();
            let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/tcp")]));
            let script = format!(
                r#"{PRELUDE}{NET}
kept = []
for _ in range(150):
    s = dial('good.test', sys.argv[1])
    s.setblocking(False)
    kept.append(s)
for s in kept:
    s.send(b'x')
while True:
    for s in kept if sys.argv[2] == 'out' else []:
        try:
            s.send(bytes(1 << 20))
        except OSError:
            pass
    open('/workspace/up', 'w')
    time.sleep(0.02)
"#
            );
            let port_text = port.to_string();
            let argv = ["/usr/bin/python3", "-c", &script, &port_text, direction];
            let held = HeldCommandFor::start(&cage, &argv);
            assert!(eventually(|| cage.outside("up").exists()), "{backend}");
            std::thread::sleep(Duration::from_secs(3));
            let queued = queued(port) >> 20;
            drop(held);
            assert!(queued > 0, "{backend}: {direction}: nothing was tried");
            assert!(queued < 350, "{backend}: {direction}: {queued} MiB wait in the host's buffers");
        }
    }
}

//! What a sandbox did is written down outside of it: each connection with its name, rule and bytes, and each refusal.

use belljar_audit::{LogState, verify};
use belljar_spec::BackendName;
use belljar_spec::egress::Mode;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Echo, HttpServer, Response};
use std::fs;
use std::os::unix::fs::PermissionsExt;

for_every_isolated_backend! {
    everywhere:
        a_connection_is_recorded_with_its_bytes,
        a_connection_that_outlives_its_sandbox_has_an_end;
    each_launcher:
        refusals_are_recorded_with_what_would_allow_them,
        a_record_begins_and_ends_with_its_sandbox;
    once:
        connections_of_http_are_recorded_with_their_bytes,
        a_request_that_outlives_its_sandbox_has_an_end,
        a_record_that_was_changed_is_found,
        many_of_the_same_refusal_are_few_lines,
        what_a_program_says_cannot_make_a_line;
}

async fn a_connection_is_recorded_with_its_bytes(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let world = World::new([("api.test", "127.0.0.1")]);
    let port = echo.port();
    let fixture = world.fixture(backend, world.policy([format!("api.test:{port}/tcp")])).await;
    // Short and long ones take different ways.
    let sizes = [0, 1, 1000, 5_000_000];
    for size in sizes {
        let script = format!(
            "
s = dial('api.test', {port})
threading.Thread(target=lambda: (s.sendall(b'x' * {size}), s.shutdown(socket.SHUT_WR))).start()
print(len(everything(s)))"
        );
        assert_eq!(fixture.python(&script).await, size.to_string());
    }
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    let bytes: Vec<(u64, u64)> = connections.iter().map(|known| (known.sent, known.received)).collect();
    assert_eq!(bytes, sizes.map(|size| (size, size)));
    for known in connections {
        assert_eq!(
            (known.name.as_str(), known.port, known.protocol.as_str()),
            ("api.test", port.into(), "tcp")
        );
        assert_eq!(known.rule, format!("`api.test:{port}/tcp` (program)"));
        assert_eq!(known.ending, "finished");
    }
}

async fn connections_of_http_are_recorded_with_their_bytes(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok(vec![b'x'; 100_000]));
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}", web.port())])).await;
    let script = format!(
        "
import http.client
client = http.client.HTTPConnection('api.test', {})
for _ in range(3):
    client.request('POST', '/', b'x' * 50000)
    print(len(client.getresponse().read()))
client.close()",
        web.port()
    );
    assert_eq!(fixture.python(&script).await, "100000\n100000\n100000");
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 1);
    let known = &connections[0];
    assert_eq!((known.protocol.as_str(), known.ending.as_str()), ("http", "finished"));
    // Their heads too.
    assert!((150_000..153_000).contains(&known.sent), "{known:?}");
    assert!((300_000..303_000).contains(&known.received), "{known:?}");
}

async fn refusals_are_recorded_with_what_would_allow_them(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy(["api.test".into()])).await;
    let script = "
for host, port in (('other.test', 443), ('api.test', 8443), ('192.0.2.1', 443)):
    try: everything(dial(host, port))
    except OSError: pass";
    fixture.python(script).await;
    fixture.dispose().await;
    let events = world.events(&fixture);
    let of = |kind: &str| events.iter().filter(|event| event["kind"] == *kind).cloned().collect::<Vec<_>>();
    let names = of("name_refused");
    assert!(names.iter().all(|event| event["name"] == "other.test" && event["reason"] == "name_not_allowed"));
    let refused = of("connection_refused");
    if !has_netfilter(backend) {
        assert_eq!((refused.len(), names.len()), (0, 1), "{events:?}");
        return;
    }
    assert_eq!(refused.len(), 2, "{events:?}");
    assert_eq!((&refused[0]["destination"], &refused[0]["port"]), (&"api.test".into(), &8443.into()));
    assert_eq!(
        (&refused[0]["reason"], &refused[0]["remedy"]),
        (&"port_not_allowed".into(), &"--allow api.test:8443".into())
    );
    assert_eq!(
        (&refused[1]["destination"], &refused[1]["reason"]),
        (&"192.0.2.1".into(), &"direct_address".into())
    );
}

async fn a_record_begins_and_ends_with_its_sandbox(backend: BackendName) {
    let world = World::new([]);
    let mut policy = world.policy(["api.test".into()]);
    policy.mode = Mode::Open;
    let fixture = world.fixture(backend, policy).await;
    let report = verify(world.records(), None, None, |_| {}).unwrap();
    assert_eq!(report.logs[0].state, LogState::Running);
    let id = fixture.id();
    fixture.dispose().await;
    let report = verify(world.records(), None, None, |_| {}).unwrap();
    assert!(report.is_fine());
    assert_eq!((report.logs.len(), report.logs[0].sandbox, report.logs[0].state), (1, id, LogState::Ended));
    let events = world.events(&fixture);
    let first = &events[0];
    assert_eq!((&first["kind"], &first["backend"]), (&"sandbox_started".into(), &backend.as_str().into()));
    assert_eq!((&first["mode"], &first["rules"][0]), (&"open".into(), &"`api.test` (program)".into()));
    let loosened = first["loosened"].to_string();
    assert!(loosened.contains("127.0.0.0/8") && loosened.contains("every public name"), "{loosened}");
    assert_eq!(events.last().unwrap()["kind"], "sandbox_ended");
    // No other user may read them.
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&report.logs[0].file), 0o600);
}

async fn a_connection_that_outlives_its_sandbox_has_an_end(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    let script = format!(
        "
held = [dial('api.test', {}) for _ in range(5)]
for s in held:
    s.sendall(b'hello')
    s.recv(5, socket.MSG_WAITALL)
print('open', flush=True)
time.sleep(60)",
        echo.port()
    );
    let command = python(&script);
    let mut running = fixture.spawn(&command).await.unwrap();
    read_until(&mut running, "open").await;
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 5);
    assert!(connections.iter().all(|known| (known.sent, known.received) == (5, 5)), "{connections:?}");
}

async fn a_request_that_outlives_its_sandbox_has_an_end(backend: BackendName) {
    let web = HttpServer::start(LOOPBACK, |_| Response::ok("hello"));
    let world = World::new([("api.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/http", web.port())])).await;
    let script = format!(
        "
import http.client
client = http.client.HTTPConnection('api.test', {})
client.request('GET', '/')
print(client.getresponse().read().decode(), flush=True)
time.sleep(60)",
        web.port()
    );
    let command = python(&script);
    let mut running = fixture.spawn(&command).await.unwrap();
    read_until(&mut running, "hello").await;
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    assert_eq!(connections.len(), 1);
    assert!(connections[0].sent > 0 && connections[0].received > 5, "{connections:?}");
}

async fn a_record_that_was_changed_is_found(backend: BackendName) {
    let world = World::new([]);
    let fixture = world.fixture(backend, world.policy([])).await;
    fixture.python("ask('one.test'); ask('two.test')").await;
    fixture.dispose().await;
    let log = belljar_audit::find(world.records(), None).unwrap();
    let written = fs::read_to_string(&log.path).unwrap();
    assert!(written.contains("one.test"));
    fs::write(&log.path, written.replace("one.test", "six.test")).unwrap();
    assert!(!verify(world.records(), None, None, |_| {}).unwrap().is_fine());
    let without: Vec<&str> = written.lines().filter(|line| !line.contains("two.test")).collect();
    fs::write(&log.path, without.join("\n") + "\n").unwrap();
    assert!(!verify(world.records(), None, None, |_| {}).unwrap().is_fine());
}

async fn many_of_the_same_refusal_are_few_lines(backend: BackendName) {
    let world = World::new([]);
    let fixture = world.fixture(backend, world.policy([])).await;
    fixture.python("[ask('other.test') for _ in range(1500)]").await;
    assert_eq!(fixture.refused()[0].times, 1500);
    fixture.dispose().await;
    let events = world.events(&fixture);
    let times: Vec<u64> = events.iter().filter_map(|event| event["times"].as_u64()).collect();
    assert_eq!(times, [1, 10, 100, 1000]);
    assert!(events.iter().any(|event| event["kind"] == "records_suppressed"));
}

async fn what_a_program_says_cannot_make_a_line(backend: BackendName) {
    let world = World::new([]);
    let fixture = world.fixture(backend, world.policy([])).await;
    let script = r#"
labels = lambda name: bytes([len(name)]) + name + b'\0'
for name in (b'a"},\n{"seq":9}', b'\x1b[31mred', b'\xff\xfe\0x', b'\\u0000', b'a\r\nb'):
    asked = struct.pack('>HHHHHH', 1, 0x100, 1, 0, 0, 0) + labels(name) + struct.pack('>HH', 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(25)
        s.sendto(asked, ('127.0.0.1', 53))
        print(s.recv(1000)[3] & 15)"#;
    assert_eq!(fixture.python(script).await, "3\n3\n3\n3\n3");
    fixture.dispose().await;
    assert_eq!(world.events(&fixture).len(), 9);
    let log = belljar_audit::find(world.records(), None).unwrap();
    let written = fs::read(&log.path).unwrap();
    assert!(written.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\n'), "{}", text(&written));
}

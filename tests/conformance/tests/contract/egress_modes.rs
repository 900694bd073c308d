//! The modes, what a sandbox is told of them, and what it keeps for itself: its own servers.

use belljar_spec::BackendName;
use belljar_spec::egress::{EgressPolicy, Mode, Reason};
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Authority, Dns, Echo, HttpServer, Response, have};

for_every_isolated_backend! {
    everywhere:
        without_a_word_nothing_is_reached_and_it_is_said,
        mode_none_has_no_network_at_all,
        open_mode_reaches_a_name_that_is_not_listed,
        names_are_asked_where_resolv_conf_says,
        own_servers_work_on_every_own_address,
        own_datagrams_work_on_loopback,
        own_servers_are_reached_by_no_other_sandbox,
        a_server_on_the_hosts_loopback_is_not_there,
        other_datagrams_fail_at_once;
    each_launcher:
        the_note_says_what_is_allowed;
    each_kernel:
        open_mode_refuses_an_address_and_what_is_denied,
        open_mode_lets_through_what_it_does_not_know;
    once:
        many_sandboxes_share_a_gateway_and_no_names;
}

async fn without_a_word_nothing_is_reached_and_it_is_said(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let printed = fixture.python("print(ask('example.com'), ask('localhost'))").await;
    assert_eq!(printed, "(3, []) (0, ['127.0.0.1'])");
    let refused = fixture.refused();
    assert_eq!(fixture.refusals(), [("example.com".into(), None, Reason::NameNotAllowed)]);
    assert_eq!(refused[0].refusal.remedy().as_deref(), Some("--allow example.com"));
}

async fn mode_none_has_no_network_at_all(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let policy = EgressPolicy { mode: Mode::None, ..world.policy(["api.test".into()]) };
    let fixture = world.fixture(backend, policy).await;
    let printed = fixture
        .python(
            "
def attempt(what):
    try: return what()
    except OSError as error: return 'no'
print(attempt(lambda: socket.getaddrinfo('api.test', 443)))
print(attempt(lambda: socket.create_connection(('192.0.2.1', 443), 25)))
print(attempt(lambda: ask('api.test', server='8.8.8.8', tcp=True)))
print(socket.create_server(('127.0.0.1', 0)).getsockname()[0])",
        )
        .await;
    assert!(printed.starts_with("no\nno\nno\n127."), "{printed}");
    assert_eq!(printed.ends_with("127.0.0.1"), has_own_network(backend), "{printed}");
    let note = fixture.answer(&format!("cat {}/network.txt", own_files(backend))).await;
    assert!(note.contains("no network"));
    if has_own_etc(backend) {
        assert!(!fixture.answer("cat /etc/resolv.conf").await.contains("nameserver"));
    }
    assert_eq!(world.dns.queries(), []);
}

async fn open_mode_reaches_a_name_that_is_not_listed(backend: BackendName) {
    let world = World::new([("anything.test", "127.0.0.1")]);
    let web =
        HttpServer::start_tls(LOOPBACK, &world.authority.leaf(["anything.test"]), |_| Response::ok("tls"));
    let plain = HttpServer::start(LOOPBACK, |_| Response::ok("plain"));
    let echo = Echo::start(LOOPBACK);
    let ports = [web.port(), plain.port(), echo.port()];
    let fixture = world.fixture(backend, world.open_policy(backend, ports)).await;
    let printed = fixture
        .python(&format!(
            "
import urllib.request
context = ssl.create_default_context(cafile='ca.pem')
print(urllib.request.urlopen('https://anything.test:{}/', context=context).read().decode())
print(urllib.request.urlopen('http://anything.test:{}/').read().decode())
s = dial('anything.test', {})
s.sendall(b'whatever')
print(s.recv(8, socket.MSG_WAITALL).decode())",
            web.port(),
            plain.port(),
            echo.port()
        ))
        .await;
    assert_eq!(printed, "tls\nplain\nwhatever");
    fixture.dispose().await;
    let connections = world.connections(&fixture);
    let protocols: Vec<&str> = connections.iter().map(|known| known.protocol.as_str()).collect();
    assert_eq!(protocols, ["tls", "http", "tcp"]);
    assert!(connections.iter().all(|known| known.rule.contains("open")), "{connections:?}");
}

async fn open_mode_refuses_an_address_and_what_is_denied(backend: BackendName) {
    let world = World::new([("bad.test", "127.0.0.1"), ("inner.test", "10.0.0.1")]);
    let echo = Echo::start(LOOPBACK);
    let policy = world.open_policy(backend, [echo.port()]);
    let rule = belljar_spec::egress::Rule::deny("bad.test", belljar_spec::egress::RuleSource::Program);
    let fixture = world.fixture(backend, policy.deny(rule.unwrap())).await;
    let script = format!(
        "
for host in ('192.0.2.1', '2001:db8::1', 'bad.test', 'inner.test'):
    try:
        s = dial(host, {})
        s.sendall(b'x')
        assert everything(s) == b''
    except OSError: pass",
        echo.port()
    );
    fixture.python(&script).await;
    let port = Some(echo.port());
    let mut expected = vec![
        ("192.0.2.1".to_string(), port, Reason::DirectAddress),
        ("2001:db8::1".to_string(), port, Reason::DirectAddress),
        ("bad.test".to_string(), None, Reason::NameDenied),
        ("inner.test".to_string(), port, Reason::PrivateAddress),
    ];
    expected.retain(|(_, _, reason)| is_recorded(backend, *reason));
    assert_eq!(fixture.refusals(), expected);
    assert_eq!(echo.accepted(), 0);
}

async fn open_mode_lets_through_what_it_does_not_know(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let echo = Echo::start(LOOPBACK);
    let fixture = world.fixture(backend, world.open_policy(backend, [echo.port()])).await;
    // Half of a word that could become HTTP, and then nothing for a while.
    let script = format!(
        "
for first in (b'GE', b'SS', b'\\x00', b'\\xff\\xfe', b'HELO x\\r\\n', b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'):
    s = dial('api.test', {})
    s.sendall(first)
    time.sleep(0.1)
    s.sendall(b' and more\\r\\n')
    s.shutdown(socket.SHUT_WR)
    print(everything(s) == first + b' and more\\r\\n')",
        echo.port()
    );
    assert_eq!(fixture.python(&script).await, "True\nTrue\nTrue\nTrue\nTrue\nTrue");
}

async fn the_note_says_what_is_allowed(backend: BackendName) {
    let world = World::new([]);
    let rules = ["api.test".into(), "=db.test:5432/postgres".into(), "x.test:8000-8100/tcp".into()];
    let fixture = world.fixture(backend, world.policy(rules)).await;
    let file = format!("{}/network.txt", own_files(backend));
    let note = fixture.answer(&format!("cat {file}")).await;
    for line in [
        "api.test and every name under it: ",
        "db.test: 5432/postgres",
        "x.test and every name under it: 8000-8100/tcp",
        "belljar run --allow HOST",
    ] {
        assert!(note.contains(line), "{line}: {note}");
    }
    assert_eq!(fixture.sh(&format!("echo x >> {file}")).await.exit_code.map(|code| code != 0), Some(true));
    let nothing = world.fixture(backend, world.policy([])).await;
    assert!(nothing.answer(&format!("cat {file}")).await.contains("Nothing is allowed."));
    let open = world.fixture(backend, EgressPolicy { mode: Mode::Open, ..world.policy([]) }).await;
    assert!(open.answer(&format!("cat {file}")).await.contains("Every public name is allowed."));
}

async fn names_are_asked_where_resolv_conf_says(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    if !has_own_etc(backend) {
        // Whichever servers are named there, the gateway answers.
        let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        assert_eq!(fixture.answer("cat /etc/resolv.conf || true").await, host.trim_end_matches('\n'));
        return;
    }
    assert_eq!(fixture.answer("grep -v '^#' /etc/resolv.conf").await, "nameserver 127.0.0.1");
}

async fn own_servers_work_on_every_own_address(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let printed = fixture
        .python(
            "
for bound, dialled in (
    ('127.0.0.1', '127.0.0.1'), ('0.0.0.0', '127.0.0.1'), ('::1', '::1'), ('::', '::1'), ('::', '127.0.0.1'),
    ('127.1.2.3', '127.1.2.3'), ('0.0.0.0', '0.0.0.0'), ('127.0.0.1', 'localhost'), ('127.0.0.1', '::ffff:127.0.0.1'),
):
    six = ':' in bound
    server = socket.create_server((bound, 0), family=socket.AF_INET6 if six else socket.AF_INET, dualstack_ipv6=bound == '::')
    client = socket.create_connection((dialled, server.getsockname()[1]), 25)
    inside, _ = server.accept()
    client.sendall(b'hello')
    print(bound, dialled, inside.recv(5).decode())",
        )
        .await;
    assert_eq!(printed.lines().count(), 9);
    assert!(printed.lines().all(|line| line.ends_with(" hello")), "{printed}");
    assert_eq!(fixture.refusals(), []);
}

async fn own_datagrams_work_on_loopback(backend: BackendName) {
    if !has_own_network(backend) {
        let fixture = SandboxFixture::new(backend).await;
        let printed = fixture
            .python("
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.1', 0)); server.settimeout(1)
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', 9)); print(server.recv(9))
except OSError: print('refused')")
            .await;
        assert_eq!(printed, "refused");
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let printed = fixture
        .python(
            "
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '127.4.5.6'), (socket.AF_INET6, '::1')):
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((address, 0))
    server.settimeout(25)
    client = socket.socket(family, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    client.settimeout(25)
    client.send(b'hello')
    data, back = server.recvfrom(100)
    server.sendto(data + b' back', back)
    print(client.recv(100).decode())",
        )
        .await;
    assert_eq!(printed, "hello back\nhello back\nhello back");
}

async fn own_servers_are_reached_by_no_other_sandbox(backend: BackendName) {
    let (one, two) = (SandboxFixture::new(backend).await, SandboxFixture::new(backend).await);
    let command = python(
        "
server = socket.create_server(('0.0.0.0', 18080))
print('listens', flush=True)
time.sleep(60)",
    );
    let mut running = one.spawn(&command).await.unwrap();
    read_until(&mut running, "listens").await;
    assert!(std::net::TcpStream::connect(("127.0.0.1", 18080)).is_err(), "the host sees it");
    let printed = two.python("print(socket.socket().connect_ex(('127.0.0.1', 18080)) != 0)").await;
    assert_eq!(printed, "True");
    assert_eq!(one.python("print(socket.socket().connect_ex(('127.0.0.1', 18080)))").await, "0");
}

async fn a_server_on_the_hosts_loopback_is_not_there(backend: BackendName) {
    let echo = Echo::start(LOOPBACK);
    let world = World::new([("api.test", "127.0.0.1")]);
    // Even where its address may be dialled for a name.
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    let script = format!(
        "
for host in ('127.0.0.1', 'localhost', '0.0.0.0', '127.0.0.2'):
    try:
        s = socket.create_connection((host, {}), 25)
        print('connected', end=' ')
        s.sendall(b'hello')
        print(s.recv(5))
    except TimeoutError: print('waited')
    except OSError: print('refused')",
        echo.port()
    );
    let printed = fixture.python(&script).await;
    let mut lines: Vec<&str> = printed.lines().collect();
    if !has_netfilter(backend) {
        // A port that a rule names is taken, inside, where names lead to it and not to one listener for all. Whether the refusal
        // comes before the client knows that it is connected is a matter of luck.
        lines.iter_mut().for_each(|line| *line = line.trim_start_matches("connected "));
    }
    assert_eq!(lines, ["refused"; 4], "{printed}");
    assert_eq!(echo.accepted(), 0);
}

async fn other_datagrams_fail_at_once(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let printed = fixture
        .python(
            "
for family, address in ((socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')):
    for port in (443, 123, 5353):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.settimeout(25)
        try:
            s.connect((address, port))
            s.send(b'hello')
            print(s.recv(100))
        except TimeoutError: print('waited')
        except OSError as error: print('refused')",
        )
        .await;
    assert_eq!(printed.replace("refused\n", ""), "refused", "{printed}");
}

async fn many_sandboxes_share_a_gateway_and_no_names(backend: BackendName) {
    if !have(["curl"]) {
        return;
    }
    let names = ["one.test", "two.test", "three.test"];
    let world = World::with(Dns::start(|_| vec![LOOPBACK.into()]));
    let authority: &Authority = &world.authority;
    let web = HttpServer::start_tls(LOOPBACK, &authority.leaf(names), |request| {
        Response::ok(request.header("host").unwrap_or_default())
    });
    let engine = belljar_engine::Engine::new().with_records(world.records());
    let mut places = Vec::new();
    for name in names {
        let policy = world.policy([format!("={name}:{}", web.port())]);
        let fixture =
            SandboxFixture::made_by(&engine, backend, |spec| spec.egress = Some(policy)).await.unwrap();
        std::fs::write(fixture.host("ca.pem"), authority.pem()).unwrap();
        places.push((name, fixture));
    }
    for (own, fixture) in &places {
        for name in names {
            let result =
                fixture.sh(&format!("curl -sS --cacert ca.pem https://{name}:{}/", web.port())).await;
            let expected = if name == *own { format!("{name}:{}", web.port()) } else { String::new() };
            assert_eq!(text(&result.stdout), expected, "{name} in the sandbox of {own}");
        }
    }
}

//! Names, as programs ask for them: whichever resolver they ask, and however.

use belljar_spec::BackendName;
use belljar_spec::egress::Reason;
use belljar_tests_conformance::*;
use belljar_tests_hosts::{Echo, have};

for_every_isolated_backend! {
    everywhere:
        names_are_answered_over_udp_and_tcp,
        a_resolver_that_a_program_has_built_in_is_answered_too,
        localhost_is_the_sandbox_itself,
        a_name_that_is_not_allowed_does_not_exist;
    each_launcher:
        a_name_keeps_its_address,
        an_address_has_its_name_back;
    each_kernel:
        dig_understands_the_answers,
        several_questions_come_over_one_connection,
        a_program_that_asks_for_https_records_continues;
    once:
        records_other_than_addresses_are_refused,
        no_resolver_is_asked_before_a_connection,
        a_name_without_an_address_ends_the_connection,
        a_name_with_addresses_of_both_families_works,
        an_address_that_is_dead_costs_a_moment,
        a_server_of_ipv6_is_reached_from_ipv4,
        a_long_answer_is_asked_for_again_over_tcp;
}

async fn names_are_answered_over_udp_and_tcp(backend: BackendName) {
    let fixture = fixture(backend).await;
    let script = "
for tcp in (False, True):
    for kind in (1, 28):
        code, found = ask('api.test', kind, tcp=tcp)
        print(code, len(found), all(address.startswith('BEGINNING' if kind == 1 else 'fd62:') for address in found))
";
    let answer = fixture.python(&script.replace("BEGINNING", names_begin_with(backend))).await;
    let ipv6 = if has_ipv6(backend) { "0 1 True" } else { "0 0 True" };
    assert_eq!(answer, format!("0 1 True\n{ipv6}\n0 1 True\n{ipv6}"));
}

async fn a_resolver_that_a_program_has_built_in_is_answered_too(backend: BackendName) {
    let fixture = fixture(backend).await;
    let script = "
expected = ask('api.test')
for server in ('8.8.8.8', '1.1.1.1', '192.168.1.1', '2001:4860:4860::8888', '::1'):
    for tcp in (False, True):
        try: print(server, ask('api.test', server=server, tcp=tcp) == expected, ask('other.test', server=server, tcp=tcp))
        except TimeoutError: print(server, 'waited')
        except OSError: print(server, 'refused')
";
    let answer = fixture.python(script).await;
    assert_eq!(answer.lines().count(), 10);
    // What does not arrive fails at once.
    let expected = if has_netfilter(backend) { " True (3, [])" } else { " refused" };
    assert!(answer.lines().all(|line| line.ends_with(expected)), "{answer}");
}

async fn dig_understands_the_answers(backend: BackendName) {
    if !have(["dig"]) {
        return;
    }
    let fixture = fixture(backend).await;
    let first = fixture.answer("dig +short api.test").await;
    assert!(first.starts_with(names_begin_with(backend)), "{first}");
    let server = if has_netfilter(backend) { "@8.8.8.8" } else { "@127.0.0.1" };
    let over_tcp = format!("{server} +tcp");
    for options in ["+tcp", server, &over_tcp, "+noedns", "+bufsize=512", "+dnssec", "+cookie"] {
        assert_eq!(fixture.answer(&format!("dig +short {options} api.test")).await, first, "{options}");
    }
    let ipv6 = fixture.answer("dig +short AAAA api.test").await;
    assert_eq!(
        (ipv6.starts_with("fd62:"), ipv6.is_empty()),
        (has_ipv6(backend), !has_ipv6(backend)),
        "{ipv6}"
    );
    assert_eq!(fixture.answer(&format!("dig +short -x {first}")).await, "api.test.");
    assert!(fixture.answer("dig other.test").await.contains("status: NXDOMAIN"));
}

async fn several_questions_come_over_one_connection(backend: BackendName) {
    let fixture = fixture(backend).await;
    let answer = fixture
        .python(
            "
one, two = question('api.test', 1), question('db.test', 1)
with socket.create_connection(('127.0.0.1', 53)) as s, s.makefile('rb') as f:
    # in pieces, and the second before the first is answered
    both = b''.join(struct.pack('>H', len(asked)) + asked for asked in (one, two))
    for byte in both:
        s.send(bytes([byte]))
    for asked in (one, two):
        code, found = understood(f.read(struct.unpack('>H', f.read(2))[0]), asked)
        print(code, len(found))
",
        )
        .await;
    assert_eq!(answer, "0 1\n0 1");
}

async fn a_name_keeps_its_address(backend: BackendName) {
    let fixture = fixture(backend).await;
    let answer = fixture
        .python(
            "
first = ask('api.test'), ask('api.test', 28)
other = ask('db.test')
for _ in range(20):
    assert (ask('api.test'), ask('API.tEsT', 28)) == first
print(other != first[0], socket.gethostbyname('api.test') == first[0][1][0])
",
        )
        .await;
    assert_eq!(answer, "True True");
}

async fn an_address_has_its_name_back(backend: BackendName) {
    let fixture = fixture(backend).await;
    let families = families(backend).join(", socket.");
    let answer = fixture
        .python(
            &"
for family in (socket.FAMILIES,):
    address = socket.getaddrinfo('api.test', 1, family)[0][4]
    print(socket.getnameinfo(address, socket.NI_NAMEREQD)[0])
try:
    print(socket.gethostbyaddr('192.0.2.1'))
except OSError as error:
    print('nobody')
"
            .replace("FAMILIES", &families),
        )
        .await;
    assert_eq!(
        answer.lines().filter(|line| *line == "api.test").count(),
        self::families(backend).len(),
        "{answer}"
    );
    assert!(answer.ends_with("nobody"), "{answer}");
    assert_eq!(fixture.refusals(), [], "asking for an address is no attempt to reach it");
}

async fn localhost_is_the_sandbox_itself(backend: BackendName) {
    let fixture = fixture(backend).await;
    let answer = fixture
        .python(
            "
print(ask('localhost'), ask('localhost', 28), ask('x.localhost'), ask('localhost', 16))
print([socket.getaddrinfo('localhost', 1, family)[0][4][0] for family in (socket.AF_INET, socket.AF_INET6)])
",
        )
        .await;
    assert_eq!(answer, "(0, ['127.0.0.1']) (0, ['::1']) (0, ['127.0.0.1']) (0, [])\n['127.0.0.1', '::1']");
    assert_eq!(fixture.refusals(), []);
}

async fn a_name_that_is_not_allowed_does_not_exist(backend: BackendName) {
    let world = World::new([("other.test", "127.0.0.1")]);
    let fixture = world.fixture(backend, world.policy(["api.test".into()])).await;
    let answer = fixture
        .python(
            "
for name in ('other.test', 'api.test.evil.test', 'xapi.test', 'test', 'com', 'api.test:443', 'a' * 63 + '.test', '_dns.resolver.arpa'):
    print([ask(name, kind) for kind in (1, 28, 65, 16)])
",
        )
        .await;
    assert!(answer.lines().all(|line| line == "[(3, []), (3, []), (3, []), (3, [])]"), "{answer}");
    assert!(fixture.refusals().contains(&("other.test".into(), None, Reason::NameNotAllowed)));
    assert_eq!(world.dns.queries(), [], "no question leaves because a sandbox asked");
}

async fn records_other_than_addresses_are_refused(backend: BackendName) {
    let fixture = fixture(backend).await;
    let answer =
        fixture.python("print([ask('api.test', kind)[0] for kind in (16, 15, 2, 6, 255, 33)])").await;
    // apt asks for the last one, and continues where there is none.
    assert_eq!(answer, "[5, 5, 5, 5, 5, 0]");
    assert_eq!(fixture.refusals(), [("api.test".into(), None, Reason::RecordTypeRefused)]);
}

async fn a_program_that_asks_for_https_records_continues(backend: BackendName) {
    let fixture = fixture(backend).await;
    // No error, and nothing: no other address, and no key to hide a name with.
    assert_eq!(fixture.python("print(ask('api.test', 65), ask('api.test', 64))").await, "(0, []) (0, [])");
    assert_eq!(fixture.refusals(), []);
}

async fn no_resolver_is_asked_before_a_connection(backend: BackendName) {
    let world = World::new([("api.test", "127.0.0.1")]);
    let echo = Echo::start(LOOPBACK);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    fixture.python("[ask(str(number) + '.api.test') for number in range(50)]").await;
    assert_eq!(world.dns.queries(), []);
    // The kernel answers before we do: only who gets an echo has been let out.
    let echoed = format!("s = dial('api.test', {}); s.sendall(b'x'); assert s.recv(1) == b'x'", echo.port());
    fixture.python(&echoed).await;
    let names: Vec<String> = world.dns.queries().into_iter().map(|query| query.name).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name == "api.test"), "{names:?}");
}

async fn a_name_without_an_address_ends_the_connection(backend: BackendName) {
    let world = World::new([("other.test", "127.0.0.1")]);
    let fixture =
        world.fixture(backend, world.policy(["api.test:9/tcp".into(), "other.test:9/tcp".into()])).await;
    let result = fixture.run(&python("everything(dial('api.test', 9))")).await;
    assert_ne!(result.exit_code, Some(0));
    assert_eq!(fixture.refusals(), [("api.test".into(), Some(9), Reason::NotResolved)]);
    // No process listens there.
    let result = fixture.run(&python("everything(dial('other.test', 9))")).await;
    assert_ne!(result.exit_code, Some(0));
    assert!(fixture.refusals().contains(&("other.test".into(), Some(9), Reason::DialFailed)));
}

async fn a_name_with_addresses_of_both_families_works(backend: BackendName) {
    reaches(backend, ["127.0.0.1", "::1"]).await;
    reaches(backend, ["::1", "127.0.0.1"]).await;
}

async fn an_address_that_is_dead_costs_a_moment(backend: BackendName) {
    reaches(backend, ["127.9.9.9", "127.0.0.1"]).await;
    reaches(backend, ["127.0.0.1", "127.9.9.9"]).await;
}

async fn reaches(backend: BackendName, addresses: [&str; 2]) {
    let world = World::new(addresses.map(|address| ("api.test", address)));
    let echo = Echo::start(LOOPBACK);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    for family in families(backend) {
        let answer = fixture.python(&say_hello(echo.port(), family)).await;
        assert_eq!(answer, "hello", "{addresses:?}, {family}");
    }
}

async fn a_server_of_ipv6_is_reached_from_ipv4(backend: BackendName) {
    let world = World::new([("api.test", "::1")]);
    let echo = Echo::start(std::net::Ipv6Addr::LOCALHOST);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    assert_eq!(fixture.python(&say_hello(echo.port(), "AF_INET")).await, "hello");
}

async fn a_long_answer_is_asked_for_again_over_tcp(backend: BackendName) {
    let addresses = (1..=200).map(|last| std::net::IpAddr::from([127, 0, 1, last]));
    let addresses: Vec<_> = [LOOPBACK.into()].into_iter().chain(addresses).collect();
    let world = World::with(belljar_tests_hosts::Dns::start(move |_| addresses.clone()));
    let echo = Echo::start(LOOPBACK);
    let fixture = world.fixture(backend, world.policy([format!("api.test:{}/tcp", echo.port())])).await;
    assert_eq!(fixture.python(&say_hello(echo.port(), "AF_INET")).await, "hello");
    assert!(world.dns.queries().iter().any(|query| query.transport == belljar_tests_hosts::Transport::Tcp));
}

/// Those that a name has addresses of.
fn families(backend: BackendName) -> Vec<&'static str> {
    if has_ipv6(backend) { vec!["AF_INET", "AF_INET6"] } else { vec!["AF_INET"] }
}

fn say_hello(port: u16, family: &str) -> String {
    format!(
        "
s = dial('api.test', {port}, socket.{family})
s.sendall(b'hello')
s.shutdown(socket.SHUT_WR)
print(everything(s).decode())"
    )
}

/// With two names that are allowed.
async fn fixture(backend: BackendName) -> SandboxFixture {
    let world = World::new([]);
    world.fixture(backend, world.policy(["api.test".into(), "db.test".into()])).await
}

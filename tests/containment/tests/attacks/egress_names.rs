//! Names are answered without asking anybody, and where a name leads is judged by the very addresses that are dialled.

use belljar_spec::egress::{EgressPolicy, Mode, Reason, Rule, RuleSource};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Says one byte to `good.test` or another name, and waits for what comes of it.
const KNOCK: &str = r#"
def knock(name, port):
    send(name, port, b'inside', timeout=0.3)
"#;

#[test]
fn a_question_leaves_the_host_for_no_name_that_is_not_dialled() {
    let dns = Dns::of([("good.test", at("127.66.5.1")), ("sub.good.test", at("127.66.5.1"))]);
    for backend in backends() {
        for mode in [Mode::Strict, Mode::Open] {
            let policy = EgressPolicy { mode, ..policy(&dns, &["good.test"]) };
            cage(*backend, &policy).attack(
                r#"
import itertools
names = ['c2VjcmV0.evil.test', 'good.test.evil.test', 'evilgood.test', 'a' * 63 + '.good.test', 'sub.good.test', 'good.test',
    '.'.join(['a' * 63, 'b' * 63, 'c' * 63, 'd' * 50]), 'localhost', 'x.localhost', '_dmarc.good.test', 'evil.test']
for name, kind in itertools.product(names, (1, 28, 16, 10, 15, 5, 2, 6, 33, 35, 65, 64, 255, 252, 251, 99, 257, 12, 48, 46)):
    for server in ('127.0.0.1', '::1', '8.8.8.8', '198.18.0.1', '2001:4860:4860::8888'):
        ask(question(name, kind), server, timeout=0.001)
# Over TCP, to whomever.
for server in ('127.0.0.1', '::1', '1.1.1.1', '198.18.1.0'):
    def by_tcp():
        s = dial(server, 53)
        for name in names:
            message = question(name, 16)
            s.sendall(vec(2, message))
        return reply(s, 0.2)
    attack(server, lambda: by_tcp() and None)
# Labels that are no names, messages that are no questions.
for parts in ([b'a.b', b'test'], [b'a\nb', b'good', b'test'], [b'\x1b[31m'], [b'\xff' * 63] * 3, [b'x' * 63] * 3 + [b'y' * 61], [b' '], [b'']):
    ask(question(parts, 16), timeout=0.01)
for raw in (b'', b'x', bytes(12), question('good.test')[:-1], question('good.test') + b'tail', b'\0\1\1\0\0\2' + question('a.test')[6:] * 2,
        b'\0\1\x84\0' + question('good.test')[4:], b'\0\1\x28\0' + question('good.test')[4:], question('good.test', kindclass=3),
        b'\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1', question('good.test')[:10] + b'\0\1' + question('good.test')[12:] + b'\0\0\x29\x10\0\0\0\0\0\0\x0c\0\x0f\0\x08secret!!'):
    ask(raw, timeout=0.01)
socket.getaddrinfo('good.test', 443)
"#,
                &[],
            );
            assert_eq!(dns.queries(), [], "{backend}: {mode}");
        }
    }
}

#[test]
fn answers_are_told_of_nothing_but_fake_addresses() {
    let dns = Dns::of([("good.test", at("127.66.5.1"))]);
    for backend in backends() {
        let reported = cage(*backend, &policy(&dns, &["=good.test"])).attack(
            r#"
for kind in (16, 15, 10, 5, 2, 6, 33, 255, 252):
    answer = ask(question('good.test', kind))
    # Code REFUSED, and not one record. There is none of SRV (33), which apt asks for.
    code = 0 if kind == 33 else 5
    if not answer or answer[3] & 15 != code or answer[6:12] != bytes(6):
        print(kind, answer)
for name, kind in (('evil.test', 1), ('sub.good.test', 1), ('evil.test', 16), ('metadata.google.internal', 1)):
    answer = ask(question(name, kind))
    if not answer or answer[3] & 15 != 3 or answer[6:12] != bytes(6):
        print(name, answer)
if not socket.gethostbyname('good.test').startswith(sys.argv[1]):
    print(socket.gethostbyname('good.test'))
"#,
            &[names_begin_with(*backend)],
        );
        assert_eq!(reported, Vec::<String>::new(), "{backend}");
    }
}

/// Addresses that mean this machine, or metadata, or a private network, in every way that an answer can say it.
const BAD: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.18.1.0",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.66.5.9",
    "::ffff:169.254.169.254",
    "::127.66.5.9",
    "64:ff9b::7f42:509",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:7f42:509::1",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::5efe:7f42:509",
    "fe80::1",
    "fec0::1",
    "ff02::1",
];

#[test]
fn a_name_that_leads_to_a_reserved_address_leads_nowhere() {
    // Where one of them would arrive: every address of this machine, at one port.
    let capture = Capture::start(at("0.0.0.0"));
    let port = capture.port().to_string();
    let dns = Dns::start(|query| {
        let number =
            query.name.strip_prefix('n').and_then(|rest| rest.strip_suffix(".test")?.parse::<usize>().ok());
        number.map_or_else(Vec::new, |number| vec![at(BAD[number])])
    });
    for backend in backends() {
        for mode in [Mode::Strict, Mode::Open] {
            let rules: Vec<String> =
                (0..BAD.len()).map(|number| format!("=n{number}.test:{port}/tcp")).collect();
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            // The operator's own range says 127.66.5.9, as it is written.
            let mut policy = EgressPolicy { mode, ..policy(&dns, &rules) };
            policy.private = vec!["127.66.5.9/32".parse().unwrap()];
            let cage = cage(*backend, &policy);
            let script =
                format!("{KNOCK}\nfor n in range(int(sys.argv[2])): knock('n%d.test' % n, sys.argv[1])");
            cage.attack(&script, &[&port, &BAD.len().to_string()]);
            assert_eq!(cage.opened(), 0, "{backend}: {mode}");
            capture.assert_nothing_arrived();
            let refused = cage.refused_for(Reason::PrivateAddress);
            assert_eq!(refused.len(), BAD.len(), "{backend}: {mode}: {refused:?}");
        }
    }
}

#[test]
fn names_of_metadata_are_refused_whichever_resolver_answers() {
    let names = ["metadata.google.internal", "metadata", "instance-data", "instance-data.ec2.internal"];
    let dns = Dns::start(|_| vec![at("169.254.169.254")]);
    for backend in gateway_backends() {
        let cage = cage(*backend, &EgressPolicy { mode: Mode::Open, ..policy(&dns, &[]) });
        let script =
            format!("{KNOCK}\nfor name in sys.argv[1:]:\n    for port in (80, 443, 8080): knock(name, port)");
        cage.attack(&script, &names);
        assert_eq!(cage.opened(), 0, "{backend}");
        assert!(cage.refused_for(Reason::PrivateAddress).contains(&names[0].to_string()), "{backend}");
        // Written as addresses they are no names, in whatever spelling.
        let numbers =
            ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.254.169.0376"];
        cage.attack(
            "for name in sys.argv[1:]:\n    if ask(question(name))[3] & 15 != 3: print(name)",
            &numbers,
        );
        assert_eq!(cage.opened(), 0, "{backend}");
    }
}

#[test]
fn a_resolver_that_changes_its_mind_gains_nothing() {
    let (good, bad) = (Capture::start(at("127.66.5.2")), at("127.99.5.2"));
    let port = good.port().to_string();
    let behind = Capture::at((bad, good.port()).into());
    // Good at first, then bad, and in turns from then on.
    let requested = AtomicUsize::new(0);
    let dns = Dns::start(move |query| {
        let turn = requested.fetch_add(1, Ordering::SeqCst);
        match query.kind {
            1 if turn.is_multiple_of(3) => vec![at("127.66.5.2")],
            1 => vec![bad],
            _ => Vec::new(),
        }
    });
    for backend in gateway_backends() {
        let mut policy = policy(&dns, &[&format!("=good.test:{port}/tcp")]);
        policy.private = vec!["127.66.5.2/32".parse().unwrap()];
        let cage = cage(*backend, &policy);
        cage.attack(&format!("{KNOCK}\nfor _ in range(30): knock('good.test', sys.argv[1])"), &[&port]);
        behind.assert_nothing_arrived();
        assert!(cage.opened() > 0, "{backend}: what was good got through");
    }
    assert!(eventually(|| !good.connections().is_empty()));
}

#[test]
fn one_bad_address_among_many_closes_the_name() {
    let good = Capture::start(at("127.66.5.3"));
    let port = good.port().to_string();
    let behind =
        [Capture::at((at("127.99.5.3"), good.port()).into()), Capture::at((at("::1"), good.port()).into())];
    let dns = Dns::start(|query| {
        let mut many: Vec<IpAddr> = vec![at("127.66.5.3"); 199];
        match query.name.as_str() {
            "first.test" => many.insert(0, at("127.99.5.3")),
            "last.test" => many.push(at("127.99.5.3")),
            "middle.test" => many.insert(100, at("169.254.169.254")),
            "other-family.test" => return vec![at("127.66.5.3"), at("::1")],
            "mapped.test" => return vec![at("127.66.5.3"), at("::ffff:127.99.5.3")],
            "fine.test" => {}
            _ => return Vec::new(),
        }
        many
    });
    let names = ["first.test", "last.test", "middle.test", "other-family.test", "mapped.test"];
    for backend in gateway_backends() {
        let rules: Vec<String> =
            names.iter().chain(&["fine.test"]).map(|name| format!("={name}:{port}/tcp")).collect();
        let mut policy = policy(&dns, &rules.iter().map(String::as_str).collect::<Vec<_>>());
        policy.private = vec!["127.66.5.3/32".parse().unwrap()];
        let cage = cage(*backend, &policy);
        let mut args = vec![port.as_str()];
        args.extend(names);
        cage.attack(&format!("{KNOCK}\nfor name in sys.argv[2:]: knock(name, sys.argv[1])"), &args);
        for capture in behind.iter().chain([&good]) {
            capture.assert_nothing_arrived();
        }
        assert_eq!(cage.refused_for(Reason::PrivateAddress), names, "{backend}");
    }
    let cage = cage(backends()[0], &policy(&dns, &[&format!("=fine.test:{port}/tcp")]));
    cage.attack(&format!("{KNOCK}\nknock('fine.test', sys.argv[1])"), &[&port]);
    assert!(eventually(|| !good.connections().is_empty()), "two hundred good ones are fine");
}

#[test]
fn an_alias_leads_nowhere_that_its_name_may_not() {
    let behind = Capture::start(at("127.99.5.4"));
    let port = behind.port().to_string();
    // good.test is an alias of inner.test, which is at a private address; all in one answer, as resolvers do.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolver = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let requested = &buffer[..length];
            let end = 12 + requested[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let is_a = requested[end - 4..end - 2] == [0, 1];
            let mut reply = [
                &requested[..2],
                &[0x84, 0x80, 0, 1, 0, 1 + u8::from(is_a), 0, 0, 0, 0],
                &requested[12..end],
            ]
            .concat();
            reply.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\0\0\x0c\x05inner\x04test\0");
            if is_a {
                reply.extend(b"\x05inner\x04test\0\0\x01\0\x01\0\0\0\0\0\x04");
                reply.extend(Ipv4Addr::new(127, 99, 5, 4).octets());
            }
            let _ = socket.send_to(&reply, client);
        }
    });
    for backend in gateway_backends() {
        let unused = Dns::of([]);
        let mut policy = policy(&unused, &[&format!("=good.test:{port}/tcp")]);
        policy.resolvers = vec![resolver];
        policy.private = vec!["127.66.0.0/16".parse().unwrap()];
        let cage = cage(*backend, &policy);
        cage.attack(&format!("{KNOCK}\nknock('good.test', sys.argv[1])"), &[&port]);
        behind.assert_nothing_arrived();
        assert_eq!(
            cage.refused_for(Reason::PrivateAddress),
            ["good.test"],
            "{backend}: {:?}",
            cage.sandbox.refused()
        );
    }
}

#[test]
fn what_is_denied_is_denied_whatever_allows_it() {
    let capture = Capture::start(at("127.66.5.5"));
    let port = capture.port().to_string();
    let dns = Dns::start(|_| vec![at("127.66.5.5")]);
    for backend in gateway_backends() {
        for mode in [Mode::Strict, Mode::Open] {
            let allow = ["good.test", "=x.good.test", "x.good.test"].map(|host| format!("{host}:{port}/tcp"));
            let mut policy = EgressPolicy { mode, ..policy(&dns, &allow.each_ref().map(String::as_str)) };
            policy.deny = vec![Rule::deny("x.good.test", RuleSource::Program).unwrap()];
            let cage = cage(*backend, &policy);
            let script = format!(
                "{KNOCK}\nfor name in ('x.good.test', 'X.GOOD.test', 'y.x.good.test', 'x.good.test.'): knock(name, sys.argv[1])"
            );
            cage.attack(&script, &[&port]);
            capture.assert_nothing_arrived();
        }
    }
}

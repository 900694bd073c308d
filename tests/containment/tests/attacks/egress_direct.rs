//! Only names are dialled: an address, in whatever spelling, over whatever protocol, leads nowhere.

use belljar_spec::egress::{EgressPolicy, Reason};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns};
use std::net::{IpAddr, Ipv4Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Addresses of this machine that a capture can be at, each family once where it is there.
fn own_addresses() -> Vec<IpAddr> {
    let listed = std::process::Command::new("hostname").arg("-I").output().unwrap();
    let listed = text(&listed.stdout);
    let lan = listed.split_whitespace().filter_map(|word| word.parse::<IpAddr>().ok());
    lan.chain([at("127.0.0.1"), at("127.77.3.9"), at("::1")])
        .filter(|address| std::net::TcpListener::bind((*address, 0)).is_ok())
        .collect()
}

/// Everything that this test's hosts allow; only the name is missing.
fn generous(dns: &Dns) -> Vec<EgressPolicy> {
    let strict = policy(dns, &["=good.test:1-65535/tcp"]);
    let mut open = EgressPolicy { allow: Vec::new(), ..strict.clone() };
    open.mode = belljar_spec::egress::Mode::Open;
    for policy in [&strict, &open] {
        assert!(!policy.private.is_empty());
    }
    vec![strict, open]
}

#[test]
fn no_address_of_this_machine_is_reached_over_tcp() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    let captures: Vec<Capture> = own_addresses().into_iter().map(Capture::start).collect();
    for backend in backends() {
        for policy in generous(&dns) {
            let cage = cage(*backend, &policy);
            for capture in &captures {
                let (address, port) = (capture.address().ip(), capture.port());
                let mut args = vec![port.to_string()];
                args.extend(spellings(address));
                cage.attack(
                    r#"
for host in sys.argv[2:]:
    attack(host, lambda: send(host, sys.argv[1], b'GET / HTTP/1.1\r\nHost: x\r\n\r\n', timeout=0.2))
"#,
                    &args.iter().map(String::as_str).collect::<Vec<_>>(),
                );
            }
            for capture in &captures {
                capture.assert_nothing_arrived();
            }
            assert_eq!(cage.opened(), 0, "{backend}");
        }
    }
    // The captures would have seen it.
    for capture in &captures {
        std::net::TcpStream::connect(capture.address()).unwrap();
        assert!(eventually(|| capture.connections().len() == 1));
    }
}

/// Ways to write an address that some part of a machine understands.
fn spellings(address: IpAddr) -> Vec<String> {
    let IpAddr::V4(v4) = address else { return vec![address.to_string()] };
    let [a, b, c, d] = v4.octets();
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    vec![
        v4.to_string(),
        v4.to_bits().to_string(),
        format!("{:#x}", v4.to_bits()),
        format!("0{:o}", v4.to_bits()),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)),
        format!("{a}.{}", v4.to_bits() & 0xff_ffff),
        format!("::ffff:{v4}"),
        format!("::{v4}"),
        format!("64:ff9b::{v4}"),
        format!("2002:{high:x}:{low:x}::1"),
    ]
}

#[test]
fn metadata_is_reached_by_no_spelling_of_its_address() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    for backend in backends() {
        for mut policy in generous(&dns) {
            // Not even for an operator who opened everything that is wider than the metadata itself.
            policy.private = ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap()).to_vec();
            let cage = cage(*backend, &policy);
            let mut all = spellings(at("169.254.169.254"));
            all.extend(["fd00:ec2::254", "fe80::a9fe:a9fe%lo", "100.100.100.200"].map(String::from));
            let args: Vec<&str> = all.iter().map(String::as_str).collect();
            cage.attack(
                r#"
for host in sys.argv[1:]:
    for port in (80, 443):
        attack(host, lambda: send(host, port, b'GET /latest/meta-data/ HTTP/1.1\r\nHost: x\r\n\r\n', timeout=0.2))
"#,
                &args,
            );
            assert_eq!(cage.opened(), 0, "{backend}");
            let refused = cage.refused_for(Reason::DirectAddress);
            if !is_recorded(*backend, Reason::DirectAddress) {
                continue; // Its own kernel has refused it.
            }
            for expected in ["169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"] {
                assert!(refused.iter().any(|it| it == expected), "{backend}: {expected} not in {refused:?}");
            }
        }
    }
}

#[test]
fn no_datagram_leaves_at_any_port() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    let captures: Vec<Capture> = own_addresses().into_iter().map(Capture::start).collect();
    for backend in backends() {
        for policy in generous(&dns) {
            let cage = cage(*backend, &policy);
            for capture in &captures {
                let (host, port) = (capture.address().ip().to_string(), capture.port().to_string());
                cage.attack(
                    r#"
host, port = sys.argv[1:]
good = socket.gethostbyname('good.test')
QUIC = b'\xc0\x00\x00\x00\x01\x08' + b'x' * 1200
for target in (host, good):
    for number in (int(port), 443, 53, 123):
        def shoot(connected):
            s = socket.socket(socket.AF_INET6 if ':' in target else socket.AF_INET, socket.SOCK_DGRAM)
            if connected:
                s.connect((target, number))
                s.send(QUIC)
            else:
                s.sendto(QUIC, (target, number))
        attack('plain', lambda: shoot(False))
        attack('connected', lambda: shoot(True))
        attack('lite', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(QUIC, (target, number)))
        attack('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect((target, number)))
        attack('dccp', lambda: socket.socket(socket.AF_INET, 6, 33).connect((target, number)))
"#,
                    &[&host, &port],
                );
            }
            for capture in &captures {
                capture.assert_nothing_arrived();
            }
        }
    }
    assert_eq!(dns.queries(), [], "what is sent to port 53 is not passed on");
}

#[test]
fn refused_datagrams_do_not_keep_anybody_waiting() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    for backend in backends() {
        let slow = cage(*backend, &policy(&dns, &["=good.test"])).attack(
            r#"
good = socket.gethostbyname('good.test')
for host, port in ((good, 443), ('192.0.2.77', 443), ('8.8.8.8', 123), ('2001:db8::1', 443)):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(3)
    try:
        s.connect((host, port))
        s.send(b'x'); s.recv(10)
    except OSError as error:
        # A kernel of its own knows that there is no way, before anything is sent.
        if error.errno not in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
            print(host, port, error)
"#,
            &[],
        );
        assert_eq!(slow, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn pings_and_packets_written_by_hand_go_nowhere() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    for backend in backends() {
        let mut worked = cage(*backend, &policy(&dns, &["=good.test"])).attack(
            r#"
def ping(family, host, protocol, kind):
    s = socket.socket(family, socket.SOCK_DGRAM, protocol)
    s.settimeout(0.3)
    s.sendto(struct.pack('!BBHHH', kind, 0, 0, 1, 1) + b'secret', (host, 0))
    return s.recv(100)
for host in ('8.8.8.8', '192.0.2.2', socket.gethostbyname('good.test')):
    attack('ping ' + host, lambda: ping(socket.AF_INET, host, socket.IPPROTO_ICMP, 8))
attack('ping6', lambda: ping(socket.AF_INET6, '2001:db8::1', 58, 128))
for family, protocol in ((2, 255), (2, 1), (2, 6), (2, 17), (10, 58), (10, 255)):
    attack('raw %d %d' % (family, protocol), lambda: socket.socket(family, socket.SOCK_RAW, protocol))
for kind in (2, 3, 10):
    attack('packet %d' % kind, lambda: socket.socket(17, kind, 0x0300))
"#,
            &[],
        );
        if answers_its_own_pings(*backend) {
            worked.retain(|line| !line.starts_with(&format!("ping {}", names_begin_with(*backend))));
        }
        assert_eq!(worked, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn the_listener_itself_leads_nowhere() {
    let dns = Dns::of([("good.test", at("127.66.1.1"))]);
    let capture = Capture::start(at("127.66.1.1"));
    let port = capture.port().to_string();
    for backend in backends() {
        let cage = cage(*backend, &policy(&dns, &[&format!("=good.test:{port}/tcp"), "=good.test:1/tcp"]));
        cage.attack(
            r#"
for host in ('127.0.0.1', '127.9.9.9', '198.18.0.1', '198.18.0.2', '198.18.0.255', '::1', '::ffff:127.0.0.1',
        'fd62:656c:6c6a:6172::1', 'fd62:656c:6c6a:6172::', '0.0.0.0', '::', '255.255.255.255', '8.8.8.8'):
    for number in (1, int(sys.argv[1])):
        attack(host, lambda: send(host, number, b'CONNECT good.test:%d HTTP/1.1\r\nHost: good.test\r\n\r\nx' % int(sys.argv[1]), timeout=0.3))
"#,
            &[&port],
        );
        assert_eq!(cage.opened(), 0, "{backend}");
        capture.assert_nothing_arrived();
    }
}

#[test]
fn a_fake_address_is_good_only_for_who_was_told_it() {
    let dns = Dns::of([("good.test", at("127.66.1.2"))]);
    let capture = Capture::start(at("127.66.1.2"));
    let port = capture.port().to_string();
    let rule = format!("=good.test:{port}/tcp");
    for backend in backends() {
        let (first, second) =
            (cage(*backend, &policy(&dns, &[&rule])), cage(*backend, &policy(&dns, &[&rule])));
        let reported = first.attack(
            "for it in sorted({it[4][0] for it in socket.getaddrinfo('good.test', 1, type=1)}): print(it)",
            &[],
        );
        assert!(reported.iter().any(|it| it.parse::<Ipv4Addr>().is_ok()), "{backend}: {reported:?}");
        let mut args = vec![port.as_str()];
        args.extend(reported.iter().map(String::as_str));
        // Given out to the first sandbox; in the second no program has asked for the name.
        let guess = r#"
for host in sys.argv[2:] + ['198.18.1.0', '198.18.1.1', '198.18.255.255', '198.19.255.255', '198.19.0.255',
        'fd62:656c:6c6a:6172::100', 'fd62:656c:6c6a:6172::101', 'fd62:656c:6c6a:6172::1:0:100']:
    attack(host, lambda: send(host, sys.argv[1], b'guessed', timeout=0.3))
"#;
        second.attack(guess, &args);
        assert_eq!(second.opened(), 0, "{backend}");
        capture.assert_nothing_arrived();
        // Neither by another sandbox's resolver.
        let pointers = second
            .attack("if b'good' in ask(question('0.1.18.198.in-addr.arpa', 12))[40:]: print('told')", &[]);
        assert_eq!(pointers, Vec::<String>::new(), "{backend}");
    }
    let cage = cage(backends()[0], &policy(&dns, &[&rule]));
    cage.attack("send('good.test', sys.argv[1], b'asked', timeout=0.3)", &[&port]);
    assert!(eventually(|| capture.connections().concat() == b"asked"), "who asked gets there");
}

#[test]
fn abstract_sockets_of_the_host_stay_out_of_reach() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    let name = canary("abstract");
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    for backend in backends() {
        for policy in generous(&dns) {
            let script = "attack('x', lambda: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1]))";
            cage(*backend, &policy).attack(script, &[&name]);
            assert!(listener.accept().is_err(), "{backend}");
        }
    }
}

/// Entries that the kernel keeps for the connections of a process's network, as it tells outside: first of the columns of a processor.
fn tracked(pid: u32) -> u64 {
    let listed = process_file(pid, "net/stat/nf_conntrack").unwrap_or_default();
    let entries = listed.lines().nth(1).and_then(|line| line.split_whitespace().next());
    entries.map_or(0, |entries| u64::from_str_radix(entries, 16).unwrap())
}

/// Each would stay for half a minute, in memory that is not counted as the sandbox's and a table that all of the host shares.
#[test]
fn datagrams_to_everywhere_leave_nothing_in_the_kernel() {
    let dns = Dns::of([("good.test", at("127.0.0.1"))]);
    for backend in backends() {
        let cage = cage(*backend, &policy(&dns, &["=good.test:80/http"]));
        let held = HeldCommand::start(&cage, &canary("tracked"));
        let reported = cage.attack(
            r#"
for family, pattern in (socket.AF_INET, '198.51.%d.%d'), (socket.AF_INET6, '2001:db8::%x:%x'):
    for port in 53, 4000:
        try:
            s = socket.socket(family, socket.SOCK_DGRAM)
        except OSError:
            continue
        for n in range(4000 // int(sys.argv[1])):
            try:
                s.sendto(b'x', (pattern % (n >> 8, n & 255), port))
            except OSError:
                pass
# Who is refused still hears of it.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
try:
    s.connect(('198.51.100.1', 4000))
    s.send(b'x')
    s.recv(1)
except OSError as e:
    print(e.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM))
"#,
            &[&call_costs(*backend).to_string()],
        );
        assert_eq!(reported, ["True"], "{backend}");
        let pid = *held.pids().first().expect("it is held");
        assert!(tracked(pid) < 100, "{backend}: {} entries", tracked(pid));
    }
}

//! No network: nothing that a sandbox sends arrives anywhere outside it.

use belljar_tests_containment::*;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

/// Every address that this machine has, and the ones that mean it.
fn own_addresses() -> Vec<String> {
    let listed = std::process::Command::new("hostname").arg("-I").output().unwrap();
    let mut all: Vec<String> = text(&listed.stdout).split_whitespace().map(str::to_string).collect();
    all.extend(
        ["127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "localhost"].map(String::from),
    );
    all
}

fn listen_everywhere() -> Vec<TcpListener> {
    let all = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
    let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
    for listener in [&all, &loopback] {
        listener.set_nonblocking(true).unwrap();
    }
    vec![all, loopback]
}

#[test]
fn no_tcp_service_of_the_host_is_reached_by_any_of_its_addresses() {
    let listeners = listen_everywhere();
    let addresses = own_addresses();
    for backend in backends() {
        let jail = jail(*backend);
        for listener in &listeners {
            let port = listener.local_addr().unwrap().port().to_string();
            let mut args = vec![port.as_str()];
            args.extend(addresses.iter().map(String::as_str));
            let connected = jail.successes(
                r#"
for host in sys.argv[2:]:
    attack(host, lambda: socket.create_connection((host, int(sys.argv[1])), 0.3))
"#,
                &args,
            );
            let arrived = listener.accept();
            assert!(
                matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock),
                "{backend}: {arrived:?} {connected:?}"
            );
        }
    }
    // The listeners would have seen it.
    let port = listeners[1].local_addr().unwrap().port();
    let _held = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(eventually(|| listeners[1].accept().is_ok()));
}

#[test]
fn no_datagram_arrives_at_the_host() {
    let receiver = UdpSocket::bind("0.0.0.0:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let port = receiver.local_addr().unwrap().port().to_string();
    let addresses = own_addresses();
    for backend in backends() {
        let mut args = vec![port.as_str(), "255.255.255.255", "224.0.0.1"];
        args.extend(addresses.iter().map(String::as_str).filter(|text| text.parse::<IpAddr>().is_ok()));
        jail(*backend).successes(
            r#"
for host in sys.argv[2:]:
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    attack(host, lambda: s.sendto(b'out', (host, int(sys.argv[1]))))
"#,
            &args,
        );
        let arrived = receiver.recv_from(&mut [0; 16]);
        assert!(
            matches!(&arrived, Err(error) if error.kind() == ErrorKind::WouldBlock),
            "{backend}: {arrived:?}"
        );
    }
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", format!("127.0.0.1:{port}")).unwrap();
    assert!(eventually(|| receiver.recv_from(&mut [0; 16]).is_ok()), "the receiver would have seen it");
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let name = canary("abstract");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let datagrams =
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-d")).unwrap()).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    for backend in backends() {
        jail(*backend).successes(
            r#"
name = '\0' + sys.argv[1]
attack('stream', lambda: socket.socket(socket.AF_UNIX).connect(name))
attack('datagram', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', name + '-d'))
"#,
            &[&name],
        );
        assert!(listener.accept().is_err(), "{backend}: a stream arrived");
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "{backend}: a datagram arrived");
    }
}

#[test]
fn a_sandbox_has_a_network_namespace_of_its_own_with_nothing_in_it() {
    for backend in backends() {
        let jail = jail(*backend);
        let marker = canary("netns");
        let held = HeldCommand::start(&jail, &marker);
        for pid in held.pids() {
            // Of a process that the host has no number for, the kernel around it.
            let pid = kernel_around(pid).unwrap_or(pid);
            let theirs = std::fs::read_link(format!("/proc/{pid}/ns/net"));
            if let Ok(theirs) = theirs {
                assert_ne!(theirs, std::fs::read_link("/proc/self/ns/net").unwrap(), "{backend}");
            }
            // As the kernel tells it outside: one device, no route.
            let devices = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
            let names: Vec<_> = devices.lines().skip(2).filter_map(|line| line.split(':').next()).collect();
            assert!(names.iter().all(|name| name.trim() == "lo"), "{backend}: {names:?}");
            let routes = std::fs::read_to_string(format!("/proc/{pid}/net/route")).unwrap();
            assert_eq!(routes.lines().count(), 1, "{backend}: {routes}");
        }
    }
}

#[test]
fn sockets_that_know_no_namespace_or_see_every_packet_are_refused() {
    for backend in backends() {
        let made = jail(*backend).successes(
            r#"
families = dict(VSOCK=40, PACKET=17, ALG=38, BLUETOOTH=31, CAN=29, NFC=39, QIPCRTR=42, XDP=44, RDS=21, TIPC=30,
    RXRPC=33, KCM=41, SMC=43, X25=9, AX25=3, LLC=26, PPPOX=24, KEY=15, IUCV=32, PHONET=35, IEEE802154=36)
for name, family in families.items():
    for kind in (1, 2, 3, 5):
        attack('AF_%s %d' % (name, kind), lambda: socket.socket(family, kind, 0))
for family in (2, 10):
    for protocol in (0, 1, 6, 17, 58, 132, 255, 262):
        for kind in (3, 5, 6, 10):
            attack('%d raw kind %d protocol %d' % (family, kind, protocol), lambda: socket.socket(family, kind, protocol))
for protocol in range(1, 24):
    attack('netlink %d' % protocol, lambda: socket.socket(16, 3, protocol))
# Bits above the 32 that the kernel looks at.
attack('AF_VSOCK behind a bit', lambda: syscall(41, (1 << 32) | 40, 1, 0))
attack('AF_PACKET behind a bit', lambda: syscall(41, (1 << 32) | 17, 3, 0))
"#,
            &[],
        );
        assert_eq!(made, Vec::<String>::new(), "{backend}");
    }
}

#[test]
fn a_ping_goes_nowhere() {
    // Not what means the machine that it is said on: a sandbox may answer itself.
    let is_elsewhere =
        |text: &str| text.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback() && !ip.is_unspecified());
    let addresses = own_addresses();
    let hosts: Vec<&str> = addresses
        .iter()
        .map(String::as_str)
        .filter(|text| is_elsewhere(text) && !text.starts_with("::ffff:"))
        .collect();
    assert!(!hosts.is_empty(), "this machine has no address but loopback's: there is nothing to ping");
    for backend in backends() {
        let answered = jail(*backend).successes(PING, &hosts);
        assert_eq!(answered, Vec::<String>::new(), "{backend}");
    }
    // Outside they are answered, where one may ask.
    let script = format!("{PRELUDE}{PING}");
    let outside = std::process::Command::new("python3").args(["-c", &script]).args(&hosts).output().unwrap();
    assert!(outside.status.success(), "{}", text(&outside.stderr));
    let printed = text(&outside.stdout);
    let answered: Vec<&str> = printed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(answered == hosts || !is_root(), "{printed}");
}

const PING: &str = r#"
def ping(host):
    family, protocol, asks, answers = (socket.AF_INET6, 58, 128, 129) if ':' in host else (socket.AF_INET, 1, 8, 0)
    try:
        s = socket.socket(family, socket.SOCK_DGRAM, protocol)
    except PermissionError:
        # Some systems allow this to a process that may have all of it.
        s = socket.socket(family, socket.SOCK_RAW, protocol)
    s.settimeout(0.5)
    s.sendto(struct.pack('!BBHHH', asks, 0, 0xf7fd if asks == 8 else 0, 1, 1), (host, 0))
    while True:
        reply = s.recv(100)
        # A raw socket hears the question, too, and with IPv4 the head before it.
        at = (reply[0] & 15) * 4 if reply[0] >> 4 == 4 else 0
        if reply[at] == answers:
            return reply
for host in sys.argv[1:]:
    attack(host, lambda: ping(host))
"#;

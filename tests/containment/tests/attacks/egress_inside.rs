//! No process inside changes the network that leads out: not its addresses, not its rules, not its listeners.

use belljar_spec::egress::EgressPolicy;
use belljar_spec::{BackendName, Nesting};
use belljar_tests_containment::egress::*;
use belljar_tests_containment::*;
use belljar_tests_hosts::{Capture, Dns};

fn world() -> (Dns, Capture, EgressPolicy) {
    let dns = Dns::of([("good.test", at("127.66.6.1")), ("evil.test", at("127.66.6.1"))]);
    let capture = Capture::start(at("127.66.6.1"));
    let policy = policy(&dns, &[&format!("=good.test:{}/tls", capture.port())]);
    (dns, capture, policy)
}

/// Messages of netlink, and every way to send them that there is.
const NETLINK: &str = r#"
def attribute(kind, value):
    return (struct.pack('HH', len(value) + 4, kind) + value).ljust((len(value) + 7) & ~3, b'\0')
def message(kind, flags, body):
    return struct.pack('IHHII', len(body) + 16, kind, flags | 5, 7, 0) + body
def told(protocol, data):
    s = socket.socket(16, 3, protocol)
    s.bind((0, 0))
    s.settimeout(2)
    s.send(data)
    answer = s.recv(8192)
    kind, = struct.unpack('H', answer[4:6])
    code, = struct.unpack('i', answer[16:20])
    if kind == 2 and code:
        raise OSError(-code, os.strerror(-code))
    return answer
LO = struct.pack('I', 1)
CHANGES = {
    'new address': (0, message(20, 0x600, bytes([2, 32, 0, 0, 1, 0, 0, 0]) + attribute(2, bytes([10, 0, 0, 1])))),
    'no address': (0, message(21, 0, bytes([2, 32, 0, 0, 1, 0, 0, 0]) + attribute(2, bytes([198, 18, 0, 1])))),
    'new route': (0, message(24, 0x600, bytes([2, 8, 0, 0, 254, 3, 0, 1]) + bytes(4) + attribute(1, bytes([11, 0, 0, 0])) + attribute(4, LO))),
    'no route': (0, message(25, 0, bytes([2, 0, 0, 0, 255, 3, 254, 2]) + bytes(4) + attribute(4, LO))),
    'link down': (0, message(16, 0, struct.pack('BBHiII', 0, 0, 0, 1, 0, 1))),
    'new link': (0, message(16, 0x600, struct.pack('BBHiII', 0, 0, 0, 0, 0, 0) + attribute(18, attribute(1, b'dummy\0')))),
    'link to our parent': (0, message(16, 0x600, struct.pack('BBHiII', 0, 0, 0, 0, 0, 0) + attribute(19, struct.pack('I', 1)) + attribute(18, attribute(1, b'veth\0')))),
    'new rule': (0, message(32, 0x600, bytes([2, 0, 0, 0, 254, 0, 0, 1]) + bytes(4))),
    'no table': (12, message(16, 0, bytes([0, 0, 0, 10])) + message((10 << 8) | 2, 0, bytes([1, 0, 0, 0]) + attribute(1, b'belljar\0')) + message(17, 0, bytes([0, 0, 0, 10]))),
    'new table': (12, message(16, 0, bytes([0, 0, 0, 10])) + message(10 << 8, 0x400, bytes([1, 0, 0, 0]) + attribute(1, b'mine\0')) + message(17, 0, bytes([0, 0, 0, 10]))),
    'no connections': (12, message((1 << 8) | 2, 0, bytes([2, 0, 0, 0]))),
}
def change_all(prefix):
    for name, (protocol, data) in CHANGES.items():
        attack(prefix + name, lambda: told(protocol, data))
"#;

/// Whether a kernel takes this option of a socket and does nothing with it.
fn means_nothing(backend: BackendName, option: &str) -> bool {
    options_without_meaning(backend).iter().any(|name| option.strip_suffix(" None") == Some(name))
}

#[test]
fn the_network_cannot_be_changed_from_inside() {
    let (dns, capture, policy) = world();
    let port = capture.port().to_string();
    for backend in backends() {
        let cage = cage(*backend, &policy);
        let changed = cage.attack(
            &format!(
                r#"{NETLINK}
change_all('')
def ioctl(request):
    s = socket.socket()
    buffer = ctypes.create_string_buffer(b'lo'.ljust(16, b'\0') + struct.pack('Hh', 0, 0).ljust(24, b'\0'))
    if libc.ioctl(s.fileno(), request, buffer) != 0:
        raise OSError(ctypes.get_errno(), 'ioctl')
for name, request in (('down', 0x8914), ('address', 0x8916), ('mtu', 0x8922), ('route', 0x890B), ('no route', 0x890C), ('rename', 0x8923), ('bridge', 0x89a0), ('tun', 0x400454ca)):
    attack(name, lambda: ioctl(request))
for name in ('/proc/sys/net/ipv4/ip_unprivileged_port_start', '/proc/sys/net/ipv4/ip_forward', '/proc/sys/net/ipv4/conf/all/route_localnet',
        '/proc/sys/net/ipv4/ip_nonlocal_bind', '/proc/sys/net/ipv4/ping_group_range', '/proc/sys/net/ipv4/ip_local_port_range', '/proc/sys/net/netfilter/nf_conntrack_max'):
    attack(name, lambda: open(name, 'w').write('0'))
# Options that would let a packet be something else.
def option(level, number, value, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(level, number, value)
    # Where it is accepted, it is tried.
    s.settimeout(0.3)
    for address in ('127.66.6.1', '198.18.0.1', '127.128.0.1'):
        try:
            s.connect((address, int(sys.argv[1])))
            s.send(record(hello(sni(b'evil.test'))))
        except OSError:
            pass
attack('SO_MARK', lambda: option(1, 36, 7))
attack('SO_MARK of datagrams', lambda: option(1, 36, 7, socket.SOCK_DGRAM))
attack('IP_TRANSPARENT', lambda: option(0, 19, 1))
attack('SO_BINDTODEVICE of another', lambda: option(1, 25, b'eth0\0'))
attack('SO_PRIORITY', lambda: option(1, 12, 7))
attack('IPT_SO_SET_REPLACE', lambda: option(0, 64, bytes(100), 3))
attack('SO_ATTACH_BPF', lambda: option(1, 50, 3))
attack('TCP_REPAIR', lambda: option(6, 19, 1))
attack('ULP', lambda: option(6, 31, b'smc\0'))
# Namespaces.
for path in ('/proc/1/ns/net', '/proc/self/ns/net', '/proc/1/ns/user'):
    attack('setns ' + path, lambda: syscall(308, os.open(path, os.O_RDONLY), 0))
for flags in (0x40000000, 0x10000000, 0x50000000, 0x40000000 | 0x00020000):
    attack('unshare %x' % flags, lambda: syscall(272, flags))
    attack('clone %x' % flags, lambda: syscall(56, flags | 17, 0, 0, 0, 0) and None)
attack('init net', lambda: os.open('/proc/1/root/proc/1/ns/net', os.O_RDONLY) and syscall(308, os.open('/proc/1/ns/net', 0), 0x40000000))
"#
            ),
            &[&port],
        );
        let changed: Vec<_> = changed.iter().filter(|line| !means_nothing(*backend, line)).collect();
        assert!(changed.is_empty(), "{backend}: {changed:?}");
        // And what leads out leads there as before.
        cage.attack(
            "send('good.test', sys.argv[1], record(hello(sni(b'evil.test'))), timeout=0.3)",
            &[&port],
        );
        capture.assert_nothing_arrived();
        assert_eq!(dns.queries(), [], "{backend}");
    }
}

/// Addresses and ports that take a privilege to bind, whichever process listens there.
const LOW_PORTS: &str = r#"
addresses = [(V4, a) for a in ('0.0.0.0', '127.0.0.1', '127.0.0.2', '198.18.0.1', '198.18.1.0', '8.8.8.8')]
addresses += [(V6, a) for a in ('::', '::1', 'fd62:656c:6c6a:6172::1', '2001:db8::1')]
PLACES = [(f, kind, a, port, o) for f, a in addresses for port in (1, 53, 80, 443) for kind in (TCP, UDP) for o in ((), (2,), (15,), (2, 15))]
"#;
/// Where low ports take no privilege, the places that count are those where the guest listens for what is to go out. No name has
/// an address of IPv6 there, and datagrams are for names.
const EGRESS_ATTEMPTS: &str = r#"
V4S = ('0.0.0.0', '127.0.0.1', '127.0.0.2', '127.128.0.1', '127.255.255.254')
PLACES = [(V4, TCP, a, port, o) for a in V4S for port in (53, int(sys.argv[1])) for o in ((), (2,), (15,), (2, 15))]
PLACES += [(V6, TCP, a, port, o) for a in ('::', '::ffff:127.0.0.1', '::ffff:127.128.0.1') for port in (53, int(sys.argv[1])) for o in ((), (2,), (2, 15))]
PLACES += [(V4, UDP, a, 53, o) for a in ('0.0.0.0', '127.0.0.1') for o in ((), (2,), (15,), (2, 15))]
PLACES += [(V6, UDP, a, 53, o) for a in ('::', '::ffff:127.0.0.1') for o in ((), (2,), (2, 15))]
"#;

#[test]
fn no_process_inside_takes_the_place_of_a_listener() {
    let (dns, capture, policy) = world();
    for backend in backends() {
        let places = if guards_low_ports(*backend) { LOW_PORTS } else { EGRESS_ATTEMPTS };
        let port = capture.port().to_string();
        let taken = cage(*backend, &policy).attack(
            &format!(
                r#"
V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
def take(family, kind, address, port, options):
    s = socket.socket(family, kind)
    for option in options:
        s.setsockopt(1, option, 1)
    if family == V6:
        s.setsockopt(41, 26, options == (15,))
    s.bind((address, port))
    if kind == TCP:
        s.listen(5)
    return s
{places}
for family, kind, address, port, options in PLACES:
    attack('%s %s %d %d %s' % (family, address, port, kind, options), lambda: take(family, kind, address, port, options))
"#
            ),
            &[&port],
        );
        assert_eq!(taken, Vec::<String>::new(), "{backend}");
        assert_eq!(dns.queries(), [], "{backend}");
        capture.assert_nothing_arrived();
    }
}

/// Root of a user namespace that it made itself has no power in the one above.
#[test]
fn a_user_namespace_inside_gives_no_power_over_egress() {
    let (dns, capture, policy) = world();
    let port = capture.port().to_string();
    for backend in nesting_backends() {
        let cage = cage_with(*backend, &policy, |spec, _| spec.nesting = Nesting::Allowed);
        let changed = cage.attack(
            &format!(
                r#"{NETLINK}
outer = os.open('/proc/self/ns/net', os.O_RDONLY)
def nested(flags, act):
    uid, gid = os.getuid(), os.getgid()
    pid = os.fork()
    if pid == 0:
        try:
            syscall(272, flags)
            open('/proc/self/setgroups', 'w').write('deny')
            open('/proc/self/uid_map', 'w').write('0 %d 1' % uid)
            open('/proc/self/gid_map', 'w').write('0 %d 1' % gid)
            open('/workspace/nested', 'w')
            act()
        except OSError as error:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
# Root here, and still in the network above.
def above():
    change_all('above: ')
    attack('above: raw', lambda: socket.socket(2, 3, 255))
    attack('above: packet', lambda: socket.socket(17, 3, 0x0300))
    attack('above: bind 1', lambda: socket.socket().bind(('127.0.0.1', 1)))
    attack('above: bind 443', lambda: socket.socket().bind(('0.0.0.0', 443)))
    attack('above: mark', lambda: socket.socket().setsockopt(1, 36, 7))
    attack('above: transparent', lambda: socket.socket().setsockopt(0, 19, 1))
    for name in ('ipv4/ip_unprivileged_port_start', 'ipv4/ip_forward'):
        attack('above: ' + name, lambda: open('/proc/sys/net/' + name, 'w').write('0'))
nested(0x10000000, above)
# Root of a network of its own: from there nothing leads back, and nothing leads out.
def below():
    attack('back', lambda: syscall(308, outer, 0x40000000))
    attack('to 1', lambda: syscall(308, os.open('/proc/1/ns/net', 0), 0x40000000))
    def veth():
        pair = message(16, 0x600, struct.pack('BBHiII', 0, 0, 0, 0, 0, 0) + attribute(18, attribute(1, b'veth\0') + attribute(2, attribute(1,
            struct.pack('BBHiII', 0, 0, 0, 0, 0, 0) + attribute(28, struct.pack('I', outer))))))
        return told(0, pair)
    attack('a pair into the outer one', veth)
    told(0, message(16, 0, struct.pack('BBHiII', 0, 0, 0, 1, 1, 1)))
    # In a network of its own the messages do what they say.
    worked = 0
    for name in ('new address', 'new route', 'new rule', 'no route', 'link down'):
        try:
            told(*CHANGES[name])
            worked += 1
        except OSError:
            pass
    open('/workspace/worked', 'w').write(str(worked))
    told(0, message(16, 0, struct.pack('BBHiII', 0, 0, 0, 1, 1, 1)))
    attack('out', lambda: dial('127.66.6.1', sys.argv[1], 0.3) and None)
    send('198.18.1.0', sys.argv[1], record(hello(sni(b'good.test'))), timeout=0.2)
nested(0x50000000, below)
"#
            ),
            &[&port],
        );
        assert_eq!(changed, Vec::<String>::new(), "{backend}");
        assert!(cage.outside("nested").exists(), "{backend}: there were no namespaces to try it from");
        let worked = std::fs::read_to_string(cage.outside("worked")).unwrap_or_default();
        assert!(
            worked.parse::<u32>().is_ok_and(|worked| worked >= 3),
            "{backend}: {worked} messages work at all"
        );
        capture.assert_nothing_arrived();
        assert_eq!(dns.queries(), [], "{backend}");
    }
}

#[test]
fn nothing_inside_shows_the_hosts_network() {
    let (_dns, _capture, policy) = world();
    // No rule names it: what is shown of it is the host's.
    let elsewhere = Capture::start(at("127.66.6.2"));
    let port = format!(":{:04X} ", elsewhere.port());
    for backend in backends() {
        let shown = cage(*backend, &policy).attack(
            r#"
import glob
for path in glob.glob('/proc/net/*') + glob.glob('/proc/1/net/*') + glob.glob('/proc/self/net/*') + glob.glob('/sys/class/net/*'):
    try:
        content = open(path).read()
    except OSError:
        continue
    if sys.argv[1] in content or 'eth0' in content:
        print(path)
print(*[name for _, name in socket.if_nameindex()])
"#,
            &[&port],
        );
        assert_eq!(shown, ["lo"], "{backend}");
    }
}

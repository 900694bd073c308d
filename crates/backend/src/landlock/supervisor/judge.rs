//! What a program inside means by a system call, and what becomes of it: plain functions over numbers and bytes that the program chose.
//!
//! Nothing here reads a file or makes a call; the other files of this directory carry out what is decided here. All of it is hostile
//! input, and there is a fuzz target (`fuzz/fuzz_targets/supervised.rs`).

use belljar_sys::notify::{Name, Waiting};
use belljar_sys::rustix::io::Errno;
use belljar_wire::purpose::FIRST_NAME;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// A place in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer(pub u64);

impl Pointer {
    /// Whether it leads nowhere.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// So many bytes further on.
    pub fn plus(self, bytes: u64) -> Pointer {
        Pointer(self.0.wrapping_add(bytes))
    }
}

/// A system call of a program inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Socket(Result<NewSocket, Errno>, Flags),
    Connect {
        socket: i32,
        address: Pointer,
        length: u32,
    },
    Bind {
        socket: i32,
        address: Pointer,
        length: u32,
    },
    Listen {
        socket: i32,
        backlog: i32,
    },
    /// Sends to an address, which is in memory.
    Send {
        socket: i32,
        to: SentTo,
    },
    Receive {
        socket: i32,
        into: ReceivedInto,
        flags: u32,
    },
    /// Of a socket that stands for UDP.
    SocketName {
        socket: i32,
        of: NameOf,
        address: Pointer,
        length: Pointer,
    },
    Change {
        of: Target,
        to: Change,
    },
    Signal {
        to: SignalTo,
    },
    /// None that the filter asks about.
    Unknown,
}

/// What a descriptor is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    pub close_on_exec: bool,
    pub non_blocking: bool,
}

/// A socket that a program may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewSocket {
    Tcp {
        ipv6: bool,
    },
    /// An end of a pair in its place.
    Udp {
        ipv6: bool,
    },
    Unix {
        packets: bool,
    },
}

/// Where sendto(2) and its sisters have the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentTo {
    Address {
        address: Pointer,
        length: u32,
    },
    /// A `struct msghdr`, or the first of several.
    Header(Pointer),
}

/// Where recvfrom(2) and its sisters want data and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedInto {
    Buffer {
        buffer: Pointer,
        size: u64,
        address: Pointer,
        length: Pointer,
    },
    Header(Pointer),
    /// The first of several; its length belongs behind it.
    Headers(Pointer),
}

/// Which end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOf {
    Own,
    Peer,
}

/// A file, as a program names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Descriptor(i32),
    Path { directory: i32, path: Pointer, follow: bool, may_be_empty: bool },
}

/// What is to be changed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Mode(u32),
    /// `u32::MAX` leaves it as it is.
    Owner {
        user: u32,
        group: u32,
    },
    Times(Pointer, TimesFormat),
    SetAttribute {
        name: Pointer,
        value: Pointer,
        size: u64,
        flags: u32,
    },
    RemoveAttribute {
        name: Pointer,
    },
}

/// How two times stand in memory. A null pointer means now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimesFormat {
    /// `struct utimbuf`
    Seconds,
    /// Two of `struct timeval`.
    Microseconds,
    /// Two of `struct timespec`.
    Nanoseconds,
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTo {
    /// As kill(2) takes it.
    Number(i32),
    /// A thread.
    Thread { process: Option<i32>, thread: i32 },
    /// Through a handle; what it is for cannot change into another process, but the descriptor can.
    Handle { descriptor: i32, signal: i32 },
    /// The owner of a descriptor; 0 for none.
    Owner(i32),
    /// The owner of a descriptor, which is in memory.
    OwnerInMemory,
}

impl Call {
    /// The call as the filter told it. The kernel looks at the lower half of arguments that are integers.
    pub fn of(waiting: &Waiting) -> Call {
        let Some(name) = Name::of(waiting.number) else { return Call::Unknown };
        let arguments = waiting.arguments;
        let int = |index: usize| arguments[index] as u32 as i32;
        let unsigned = |index: usize| arguments[index] as u32;
        let pointer = |index: usize| Pointer(arguments[index]);
        let path = |directory: i32, path: usize, flags: u32| Target::Path {
            directory,
            path: pointer(path),
            follow: flags & AT_SYMLINK_NOFOLLOW == 0,
            may_be_empty: flags & AT_EMPTY_PATH != 0,
        };
        match name {
            Name::Socket => {
                let kind = int(1);
                let flags = Flags {
                    close_on_exec: kind & SOCK_CLOEXEC != 0,
                    non_blocking: kind & SOCK_NONBLOCK != 0,
                };
                Call::Socket(new_socket(int(0), kind, int(2)), flags)
            }
            Name::Connect => Call::Connect { socket: int(0), address: pointer(1), length: unsigned(2) },
            Name::Bind => Call::Bind { socket: int(0), address: pointer(1), length: unsigned(2) },
            Name::Listen => Call::Listen { socket: int(0), backlog: int(1) },
            Name::Sendto => {
                let to = SentTo::Address { address: pointer(4), length: unsigned(5) };
                Call::Send { socket: int(0), to }
            }
            Name::Sendmsg | Name::Sendmmsg => Call::Send { socket: int(0), to: SentTo::Header(pointer(1)) },
            Name::Recvfrom => {
                let (address, length) = (pointer(4), pointer(5));
                let into = ReceivedInto::Buffer { buffer: pointer(1), size: arguments[2], address, length };
                Call::Receive { socket: int(0), into, flags: unsigned(3) }
            }
            Name::Recvmsg => {
                let into = ReceivedInto::Header(pointer(1));
                Call::Receive { socket: int(0), into, flags: unsigned(2) }
            }
            Name::Recvmmsg => {
                let into = ReceivedInto::Headers(pointer(1));
                Call::Receive { socket: int(0), into, flags: unsigned(3) }
            }
            Name::Getsockname | Name::Getpeername => {
                let of = if name == Name::Getsockname { NameOf::Own } else { NameOf::Peer };
                Call::SocketName { socket: int(0), of, address: pointer(1), length: pointer(2) }
            }
            Name::Chmod => Call::Change { of: path(AT_FDCWD, 0, 0), to: Change::Mode(unsigned(1)) },
            Name::Fchmod => Call::Change { of: Target::Descriptor(int(0)), to: Change::Mode(unsigned(1)) },
            Name::Fchmodat => Call::Change { of: path(int(0), 1, 0), to: Change::Mode(unsigned(2)) },
            Name::Fchmodat2 => {
                Call::Change { of: path(int(0), 1, unsigned(3)), to: Change::Mode(unsigned(2)) }
            }
            Name::Chown | Name::Lchown => {
                let flags = if name == Name::Lchown { AT_SYMLINK_NOFOLLOW } else { 0 };
                let to = Change::Owner { user: unsigned(1), group: unsigned(2) };
                Call::Change { of: path(AT_FDCWD, 0, flags), to }
            }
            Name::Fchown => {
                let to = Change::Owner { user: unsigned(1), group: unsigned(2) };
                Call::Change { of: Target::Descriptor(int(0)), to }
            }
            Name::Fchownat => {
                let to = Change::Owner { user: unsigned(2), group: unsigned(3) };
                Call::Change { of: path(int(0), 1, unsigned(4)), to }
            }
            Name::Utime => {
                let to = Change::Times(pointer(1), TimesFormat::Seconds);
                Call::Change { of: path(AT_FDCWD, 0, 0), to }
            }
            Name::Utimes => {
                let to = Change::Times(pointer(1), TimesFormat::Microseconds);
                Call::Change { of: path(AT_FDCWD, 0, 0), to }
            }
            Name::Futimesat | Name::Utimensat => {
                let format = match name {
                    Name::Futimesat => TimesFormat::Microseconds,
                    _ => TimesFormat::Nanoseconds,
                };
                let flags = if name == Name::Utimensat { unsigned(3) } else { 0 };
                // Without a path the descriptor itself is meant: utimensat(2).
                let of = match arguments[1] {
                    0 => Target::Descriptor(int(0)),
                    _ => path(int(0), 1, flags),
                };
                Call::Change { of, to: Change::Times(pointer(2), format) }
            }
            Name::Setxattr | Name::Lsetxattr | Name::Fsetxattr => {
                let flags = if name == Name::Lsetxattr { AT_SYMLINK_NOFOLLOW } else { 0 };
                let of = match name {
                    Name::Fsetxattr => Target::Descriptor(int(0)),
                    _ => path(AT_FDCWD, 0, flags),
                };
                let (name, value, size) = (pointer(1), pointer(2), arguments[3]);
                Call::Change { of, to: Change::SetAttribute { name, value, size, flags: unsigned(4) } }
            }
            Name::Removexattr | Name::Lremovexattr | Name::Fremovexattr => {
                let flags = if name == Name::Lremovexattr { AT_SYMLINK_NOFOLLOW } else { 0 };
                let of = match name {
                    Name::Fremovexattr => Target::Descriptor(int(0)),
                    _ => path(AT_FDCWD, 0, flags),
                };
                Call::Change { of, to: Change::RemoveAttribute { name: pointer(1) } }
            }
            Name::Kill | Name::RtSigqueueinfo => Call::Signal { to: SignalTo::Number(int(0)) },
            Name::Tkill => Call::Signal { to: SignalTo::Thread { process: None, thread: int(0) } },
            Name::Tgkill | Name::RtTgsigqueueinfo => {
                Call::Signal { to: SignalTo::Thread { process: Some(int(0)), thread: int(1) } }
            }
            Name::PidfdSendSignal => {
                Call::Signal { to: SignalTo::Handle { descriptor: int(0), signal: int(1) } }
            }
            Name::Fcntl if int(1) == F_SETOWN => Call::Signal { to: SignalTo::Owner(int(2)) },
            Name::Fcntl | Name::Ioctl => Call::Signal { to: SignalTo::OwnerInMemory },
        }
    }
}

/// Which socket a program gets for these arguments. The filter has looked at them too; what a wrong jump in it lets through is refused
/// here.
fn new_socket(family: i32, kind: i32, protocol: i32) -> Result<NewSocket, Errno> {
    let kind = kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK);
    let ipv6 = family == AF_INET6;
    match (family, kind, protocol) {
        (AF_INET | AF_INET6, SOCK_STREAM, 0 | IPPROTO_TCP) => Ok(NewSocket::Tcp { ipv6 }),
        (AF_INET | AF_INET6, SOCK_DGRAM, 0 | IPPROTO_UDP) => Ok(NewSocket::Udp { ipv6 }),
        (AF_UNIX, SOCK_STREAM, 0 | AF_UNIX) => Ok(NewSocket::Unix { packets: false }),
        (AF_UNIX, SOCK_SEQPACKET, 0 | AF_UNIX) => Ok(NewSocket::Unix { packets: true }),
        (AF_INET | AF_INET6 | AF_UNIX, ..) => Err(Errno::PROTONOSUPPORT),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// A socket address of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Inet(SocketAddr),
    /// A path of the filesystem.
    Path(Vec<u8>),
    /// A name that is no path.
    Abstract,
    /// None: a unix socket without a name.
    Unnamed,
    /// `AF_UNSPEC`: no peer any more.
    Nothing,
}

impl Address {
    /// From the bytes that a program passes, as many as it says.
    pub fn parse(bytes: &[u8]) -> Result<Address, Errno> {
        let (family, rest) = bytes.split_first_chunk::<2>().ok_or(Errno::INVAL)?;
        match i32::from(u16::from_ne_bytes(*family)) {
            AF_UNSPEC => Ok(Address::Nothing),
            AF_INET => {
                let (port, rest) = rest.split_first_chunk::<2>().ok_or(Errno::INVAL)?;
                let (address, _) = rest.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
                if bytes.len() < SOCKADDR_IN {
                    return Err(Errno::INVAL);
                }
                let address = SocketAddrV4::new(Ipv4Addr::from(*address), u16::from_be_bytes(*port));
                Ok(Address::Inet(address.into()))
            }
            AF_INET6 => {
                let (port, rest) = rest.split_first_chunk::<2>().ok_or(Errno::INVAL)?;
                let (_flow, rest) = rest.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
                let (address, _) = rest.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
                let address = Ipv6Addr::from(*address);
                let port = u16::from_be_bytes(*port);
                let ip = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
                Ok(Address::Inet(SocketAddr::new(ip, port)))
            }
            AF_UNIX => match rest {
                [] => Ok(Address::Unnamed),
                [0, ..] => Ok(Address::Abstract),
                path if path.len() <= MAX_PATH => {
                    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                    Ok(Address::Path(path[..end].to_vec()))
                }
                _ => Err(Errno::INVAL),
            },
            _ => Err(Errno::AFNOSUPPORT),
        }
    }
}

/// An address of the internet as a program gets it, in its socket's family.
pub fn sockaddr(address: SocketAddr, ipv6: bool) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match (address.ip(), ipv6) {
        (IpAddr::V4(ip), false) => {
            let family = (AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &ip.octets(), &[0; 8]].concat()
        }
        (ip, _) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let family = (AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// The network of a sandbox, as far as addresses are decided by it.
#[derive(Debug, Clone)]
pub struct Network {
    /// The sandbox's own address of 127.0.0.0/8.
    pub own: Ipv4Addr,
    /// Ports of the loopback at which the host serves something to the sandbox.
    pub routes: Vec<u16>,
    /// Whether names can be asked, and connections go to the gateway.
    pub has_names: bool,
}

/// Where a TCP connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialled {
    /// To the gateway, which learns what was dialled.
    Gateway(SocketAddrV4),
    /// To what the host serves at this port.
    Route(u16),
    /// To a port at which the sandbox itself listens, if it does.
    Own(u16),
    Refused(Errno),
}

impl Network {
    /// Whether an address means the sandbox itself.
    fn is_local(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => ip == self.own || ip.is_unspecified() || (ip.is_loopback() && ip < FIRST_NAME),
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified(),
        }
    }

    /// Where a connection to this address goes.
    pub fn dial(&self, address: SocketAddr) -> Dialled {
        let (ip, port) = (address.ip(), address.port());
        match ip {
            _ if port == 0 => Dialled::Refused(Errno::CONNREFUSED),
            _ if self.is_local(ip) && self.routes.contains(&port) => Dialled::Route(port),
            _ if self.is_local(ip) && port == DNS && self.has_names => {
                Dialled::Gateway(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
            }
            _ if self.is_local(ip) => Dialled::Own(port),
            IpAddr::V4(ip) if self.has_names => Dialled::Gateway(SocketAddrV4::new(ip, port)),
            // Whichever server of names a program has built in.
            IpAddr::V6(_) if self.has_names && port == DNS => {
                Dialled::Gateway(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Dialled::Refused(Errno::NETUNREACH),
        }
    }

    /// The port that a server gets, at the sandbox's own address; 0 for any.
    pub fn bind(&self, address: SocketAddr) -> Result<u16, Errno> {
        match address.port() {
            _ if !self.is_local(address.ip()) => Err(Errno::ADDRNOTAVAIL),
            port if port != 0 && self.routes.contains(&port) => Err(Errno::ADDRINUSE),
            port => Ok(port),
        }
    }

    /// Whether a datagram to this address is answered: it has to be a question for a name. Without an address nothing is known against
    /// it.
    pub fn asks(&self, address: Option<SocketAddr>) -> Result<(), Errno> {
        match address {
            _ if !self.has_names => Err(Errno::NETUNREACH),
            Some(address) if address.port() != DNS => Err(Errno::NETUNREACH),
            Some(_) | None => Ok(()),
        }
    }
}

/// Where the kernel looks up a path of a program, told in words that mean the same to another process. `None`: it may be looked up as
/// it is.
pub fn own_descriptor(path: &[u8]) -> Option<i32> {
    let number = [&b"/proc/self/fd/"[..], b"/proc/thread-self/fd/", b"/dev/fd/"]
        .into_iter()
        .find_map(|prefix| path.strip_prefix(prefix))?;
    std::str::from_utf8(number).ok()?.parse().ok().filter(|number: &i32| *number >= 0)
}

/// Whether a change of a file's owner leaves it with what it has, or gives it to a group that it may have.
pub fn may_own(now: (u32, u32), wanted: (u32, u32), own_group: u32) -> bool {
    let user = wanted.0 == u32::MAX || wanted.0 == now.0;
    let group = wanted.1 == u32::MAX || wanted.1 == now.1 || wanted.1 == own_group;
    user && group
}

const DNS: u16 = 53;
// The same on both architectures: linux/socket.h, asm-generic/fcntl.h, linux/in.h, linux/fcntl.h.
const AF_UNSPEC: i32 = 0;
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_STREAM: i32 = 1;
const SOCK_DGRAM: i32 = 2;
const SOCK_SEQPACKET: i32 = 5;
const SOCK_CLOEXEC: i32 = 0o2_000_000;
const SOCK_NONBLOCK: i32 = 0o4_000;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
pub const AT_FDCWD: i32 = -100;
const F_SETOWN: i32 = 8;
const SOCKADDR_IN: usize = 16;
/// Of `struct sockaddr_un`, without the family.
const MAX_PATH: usize = 108;
/// The largest address that the kernel takes (`struct sockaddr_storage`).
pub const MAX_ADDRESS: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network { own: Ipv4Addr::new(127, 9, 8, 7), routes: vec![9418], has_names: true }
    }

    #[test]
    fn only_harmless_sockets_are_made() {
        for (family, kind, protocol, expected) in [
            (2, 1, 0, Ok(NewSocket::Tcp { ipv6: false })),
            (10, 1 | SOCK_CLOEXEC | SOCK_NONBLOCK, 6, Ok(NewSocket::Tcp { ipv6: true })),
            (2, 2, 17, Ok(NewSocket::Udp { ipv6: false })),
            (1, 5, 0, Ok(NewSocket::Unix { packets: true })),
            (1, 2, 0, Err(Errno::PROTONOSUPPORT)),
            (2, 1, 262, Err(Errno::PROTONOSUPPORT)),
            (2, 1, 132, Err(Errno::PROTONOSUPPORT)),
            (2, 2, 1, Err(Errno::PROTONOSUPPORT)),
            (2, 3, 6, Err(Errno::PROTONOSUPPORT)),
            (2, 10, 0, Err(Errno::PROTONOSUPPORT)),
        ] {
            assert_eq!(new_socket(family, kind, protocol), expected, "{family} {kind} {protocol}");
        }
        for family in (3..100).filter(|family| *family != 10) {
            for kind in 0..16 {
                assert_eq!(new_socket(family, kind, 0), Err(Errno::AFNOSUPPORT), "{family} {kind}");
            }
        }
    }

    #[test]
    fn an_address_leads_to_the_gateway_to_a_route_or_to_the_sandbox_itself() {
        let name = "127.128.1.0:443".parse().expect("an address");
        for (dialled, expected) in [
            ("127.128.1.0:443", Dialled::Gateway(name)),
            ("93.184.216.34:80", Dialled::Gateway("93.184.216.34:80".parse().expect("one"))),
            ("169.254.169.254:80", Dialled::Gateway("169.254.169.254:80".parse().expect("one"))),
            ("127.0.0.1:9418", Dialled::Route(9418)),
            ("[::1]:9418", Dialled::Route(9418)),
            ("127.0.0.53:53", Dialled::Gateway("127.0.0.1:53".parse().expect("one"))),
            ("127.0.0.1:22", Dialled::Own(22)),
            ("0.0.0.0:22", Dialled::Own(22)),
            ("[::]:22", Dialled::Own(22)),
            ("127.9.8.7:9418", Dialled::Route(9418)),
            ("[2001:db8::1]:443", Dialled::Refused(Errno::NETUNREACH)),
            ("[2001:db8::1]:53", Dialled::Gateway("127.0.0.1:53".parse().expect("one"))),
            ("127.0.0.1:0", Dialled::Refused(Errno::CONNREFUSED)),
        ] {
            assert_eq!(network().dial(dialled.parse().expect(dialled)), expected, "{dialled}");
        }
        let without = Network { has_names: false, ..network() };
        let refused = Dialled::Refused(Errno::NETUNREACH);
        assert_eq!(without.dial("93.184.216.34:80".parse().expect("one")), refused);
    }

    #[test]
    fn servers_are_bound_to_the_sandbox_alone() {
        for (address, expected) in [
            ("0.0.0.0:80", Ok(80)),
            ("[::]:0", Ok(0)),
            ("127.0.0.1:3000", Ok(3000)),
            ("127.0.0.1:9418", Err(Errno::ADDRINUSE)),
            ("10.0.0.1:80", Err(Errno::ADDRNOTAVAIL)),
            ("127.128.1.0:80", Err(Errno::ADDRNOTAVAIL)),
        ] {
            assert_eq!(network().bind(address.parse().expect(address)), expected, "{address}");
        }
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let v4 = sockaddr("1.2.3.4:5".parse().expect("one"), false);
        assert_eq!(Address::parse(&v4), Ok(Address::Inet("1.2.3.4:5".parse().expect("one"))));
        let mapped = sockaddr("1.2.3.4:5".parse().expect("one"), true);
        assert_eq!(Address::parse(&mapped), Ok(Address::Inet("1.2.3.4:5".parse().expect("one"))));
        assert_eq!(Address::parse(&v4[..15]), Err(Errno::INVAL));
        assert_eq!(Address::parse(b"\x01\x00/tmp/a\0b"), Ok(Address::Path(b"/tmp/a".to_vec())));
        assert_eq!(Address::parse(b"\x01\x00\0name"), Ok(Address::Abstract));
        assert_eq!(Address::parse(b"\x01\x00"), Ok(Address::Unnamed));
        assert_eq!(Address::parse(b"\x28\x00abcdefghijkl"), Err(Errno::AFNOSUPPORT));
        assert_eq!(Address::parse(b"\x01"), Err(Errno::INVAL));
    }

    #[test]
    fn paths_of_the_callers_own_descriptors_are_known() {
        for (path, expected) in [
            (&b"/proc/self/fd/7"[..], Some(7)),
            (b"/dev/fd/0", Some(0)),
            (b"/proc/thread-self/fd/12", Some(12)),
            (b"/proc/self/fd/7/x", None),
            (b"/proc/self/fd/-1", None),
            (b"/proc/1/fd/7", None),
        ] {
            assert_eq!(own_descriptor(path), expected, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn a_file_is_given_to_no_other_user() {
        assert!(may_own((1000, 1000), (u32::MAX, u32::MAX), 1000));
        assert!(may_own((1000, 100), (1000, 1000), 1000));
        assert!(!may_own((1000, 1000), (0, u32::MAX), 1000));
        assert!(!may_own((1000, 1000), (1000, 27), 1000));
    }
}

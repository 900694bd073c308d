//! Whose browser connects. Every user of the machine can connect to a loopback address, and can read the link among the arguments of the
//! program that opens it: so only connections of our own user are answered, and of root, who could do anything anyway.
//!
//! The kernel says whose a socket of this machine is (proc_net_tcp(5)). A connection of which it does not say so is refused.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

/// Whether the socket at the other end of a connection is ours. `local` is our end.
pub(crate) fn is_ours(peer: SocketAddr, local: SocketAddr) -> bool {
    let Ok(us) = fs::metadata("/proc/self").map(|found| found.uid()) else { return false };
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    tables
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .any(|table| owner(&table, peer, local).is_some_and(|owner| owner == us || owner == ROOT))
}

/// The user of an established connection's socket, by its own address and the other end's.
fn owner(table: &str, own: SocketAddr, other: SocketAddr) -> Option<u32> {
    let lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = lines
        .filter(|columns| columns.len() > INODE)
        .find(|columns| is_written(columns[OWN], own) && is_written(columns[OTHER], other))?;
    // A socket that no process has any more has no user, and is shown as root's.
    (line[STATE] == ESTABLISHED && line[INODE] != "0").then(|| line[USER].parse().ok())?
}

/// Whether a column means an address: words of 32 bits in the machine's order, in hexadecimal digits, and the port.
fn is_written(column: &str, address: SocketAddr) -> bool {
    let hex = |octets: &[u8]| -> String {
        let words = octets.as_chunks::<4>().0.iter();
        words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
    };
    let mapped = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let plain = mapped.to_ipv4_mapped().map(|ip| hex(&ip.octets()));
    let port = format!("{:04X}", address.port());
    column
        .split_once(':')
        .is_some_and(|(ip, at)| at == port && (ip == hex(&mapped.octets()) || plain.as_deref() == Some(ip)))
}

const ROOT: u32 = 0;
/// TCP_ESTABLISHED of the kernel.
const ESTABLISHED: &str = "01";
const OWN: usize = 1;
const OTHER: usize = 2;
const STATE: usize = 3;
const USER: usize = 7;
const INODE: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_of_our_own_user_is_known_by_both_addresses() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert!(is_ours(peer, server.local_addr().unwrap()), "{address}");
            drop(client);
            assert!(!is_ours(peer, server.local_addr().unwrap()), "it is closed: {address}");
        }
    }

    #[test]
    fn another_user_and_a_socket_without_a_user_are_told_apart() {
        let (peer, local) = ("127.0.0.1:40000".parse().unwrap(), "127.67.81.218:33211".parse().unwrap());
        let line = |state: &str, user: &str, inode: &str| {
            let own = format!("{:08X}:9C40", u32::from_ne_bytes([127, 0, 0, 1]));
            let other = format!("{:08X}:81BB", u32::from_ne_bytes([127, 67, 81, 218]));
            format!(
                "  sl  local_address rem_address   st\n   1: {own} {other} {state} 0:0 00:0 0 {user} 0 {inode} 1 x\n"
            )
        };
        for (table, expected) in [
            (line("01", "1000", "4711"), Some(1000)),
            (line("01", "0", "4711"), Some(0)),
            (line("01", "0", "0"), None),
            (line("06", "0", "0"), None),
            (line("08", "1000", "4711"), None),
            (String::new(), None),
        ] {
            assert_eq!(owner(&table, peer, local), expected, "{table}");
        }
        assert_eq!(owner(&line("01", "1000", "1"), local, peer), None, "the other end's is another");
    }
}

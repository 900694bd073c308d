//! Which TCP ports programs of the sandbox listen at, by the kernel's list of its network.

use crate::connect::Ports;
use crate::stream::fault;
use belljar_sys::rustix::io::Errno;
use belljar_wire::message::{Fault, Reply};
use std::fs::File;
use std::io::Read;

/// The ports that are open and not the host's.
pub(crate) fn ports(ports: &Ports) -> Result<Reply, Fault> {
    // In a network that is not the sandbox's own, the list is another's.
    if !ports.are_own() {
        return Err(fault("list ports", Errno::ACCESS));
    }
    let mut open = Vec::new();
    for table in TABLES {
        // A kernel without IPv6 has one of them.
        let Ok(file) = File::open(table) else { continue };
        let mut text = String::new();
        // A program inside decides how long it is.
        if file.take(MAX_TABLE_BYTES).read_to_string(&mut text).is_ok() {
            open.extend(text.lines().filter_map(listening));
        }
    }
    open.sort_unstable();
    open.dedup();
    open.retain(|port| ports.check(*port).is_ok());
    open.truncate(MAX_PORTS);
    Ok(Reply::Ports(open))
}

/// The port of a line of proc_pid_net(5) `tcp`, if it is one of a socket that listens: `0: 0100007F:0BB8 00000000:0000 0A …`.
fn listening(line: &str) -> Option<u16> {
    let mut words = line.split_ascii_whitespace();
    let local = words.nth(1)?;
    (words.nth(1)? == LISTEN).then_some(())?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// TCP_LISTEN (include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// Some twenty thousand sockets.
const MAX_TABLE_BYTES: u64 = 4 << 20;
const MAX_PORTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_sockets_that_listen_say_their_port() {
        for (line, expected) in [
            ("  sl  local_address rem_address   st tx_queue rx_queue", None),
            ("   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000", Some(3000)),
            ("   1: 0100007F:0BB8 0100007F:A2C4 01 00000000:00000000 00:00000000", None),
            (
                "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0",
                Some(8080),
            ),
            ("   0: 0100007F", None),
            ("", None),
        ] {
            assert_eq!(listening(line), expected, "{line}");
        }
    }
}

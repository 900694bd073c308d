//! The little of DNS that a benchmark speaks (RFC 1035, 4.1).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// A question for the addresses of a name.
pub(crate) fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    // A query, recursion desired; one question.
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    message
}

/// The answer to a question, whatever the name: 127.0.0.1, and no address of another kind, which it says in a way that
/// may be kept as long (RFC 2308, 5).
pub(crate) fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let name = question.get(HEADER..)?.iter().position(|byte| *byte == 0)?;
    let end = HEADER + name + 5;
    let kind = u16::from_be_bytes([*question.get(end - 4)?, *question.get(end - 3)?]);
    let mut message = question.get(..end)?.to_vec();
    let known = kind == A;
    // A response, recursion available; one record, and nothing of what else was in the question.
    message[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, known.into(), 0, (!known).into(), 0, 0]);
    let (kind, data) = if known { (A, vec![127, 0, 0, 1]) } else { (SOA, authority()) };
    message.extend([0xc0, HEADER as u8]);
    message.extend(kind.to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    message.extend(TTL.to_be_bytes());
    message.extend((data.len() as u16).to_be_bytes());
    message.extend(data);
    Some(message)
}

/// Two names, which no resolver reads, and five numbers; the last is the time to live of the missing answer (RFC 1035, 3.3.13).
fn authority() -> Vec<u8> {
    [0, 0].into_iter().chain([1, 60, 60, 60, TTL].into_iter().flat_map(u32::to_be_bytes)).collect()
}

/// The number of an answer that has addresses.
pub(crate) fn answered(message: &[u8]) -> Option<u16> {
    let &[high, low, flags, more_flags, _, _, answers_high, answers_low, ..] = message else { return None };
    let good = flags & 0x80 != 0 && more_flags & 0x0f == 0 && (answers_high, answers_low) != (0, 0);
    good.then_some(u16::from_be_bytes([high, low]))
}

/// The last address in an answer to a question for one.
fn address(message: &[u8]) -> Option<Ipv4Addr> {
    answered(message)?;
    message.last_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

/// Asks as a C library does: both kinds from a new socket, and waits for both answers.
pub(crate) fn resolve(server: SocketAddr, name: &str) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
    socket.connect(server)?;
    socket.send(&question(A, name, A))?;
    socket.send(&question(AAAA, name, AAAA))?;
    let mut found = None;
    let mut buffer = [0; 512];
    for _ in [A, AAAA] {
        let length = socket.recv(&mut buffer)?;
        let message = &buffer[..length];
        if message.starts_with(&A.to_be_bytes()) {
            found = address(message);
        }
    }
    found.ok_or_else(|| io::Error::other(format!("`{name}` has no address here")))
}

pub(crate) const A: u16 = 1;
const AAAA: u16 = 28;
const SOA: u16 = 6;
const INTERNET: u16 = 1;
const HEADER: usize = 12;
/// Seconds; what many names have.
const TTL: u32 = 60;
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_number_of_its_question() {
        let reply = answer(&question(0x1234, "far.test", A)).unwrap();
        assert_eq!(answered(&reply), Some(0x1234));
        assert_eq!(address(&reply), Some(Ipv4Addr::LOCALHOST));
        let other = answer(&question(7, "far.test", AAAA)).unwrap();
        assert_eq!(answered(&other), None);
    }
}

//! Netlink messages as bytes (netlink(7), linux/netlink.h): a header, a fixed part, and attributes that may nest.

use belljar_sys::rustix::fd::OwnedFd;
use belljar_sys::rustix::io::Errno;
use belljar_sys::rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Messages that are sent together.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    messages: u32,
}

impl Batch {
    /// Adds a message. Only those that ask for it are acknowledged; errors always come back.
    pub(super) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Nest<'_>),
    ) {
        let start = self.bytes.len();
        self.messages += 1;
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | REQUEST).to_ne_bytes());
        self.bytes.extend(self.messages.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(fixed);
        attributes(&mut Nest { bytes: &mut self.bytes });
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sends them to a part of the kernel (`None` is routing, number 0), and waits until the last one, which must ask
    /// for it, is acknowledged.
    pub(super) fn send(self, to: Option<Protocol>) -> Result<(), Errno> {
        let socket: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, to)?;
        send(&socket, &self.bytes, SendFlags::empty())?;
        let mut buffer = [0; 8192];
        loop {
            // The kernel alone answers here: the socket is not bound, and asks for nothing that is broadcast.
            let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some((kind, sequence, body, after)) = split(rest) {
                if kind == ERROR {
                    let code = body
                        .first_chunk()
                        .map_or(-Errno::IO.raw_os_error(), |code| i32::from_ne_bytes(*code));
                    if code != 0 {
                        return Err(Errno::from_raw_os_error(-code));
                    }
                    if sequence == self.messages {
                        return Ok(());
                    }
                }
                rest = after;
            }
        }
    }
}

/// The first message of some bytes: its kind, its number, its body, and what follows.
fn split(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let header: &[u8; 16] = bytes.first_chunk()?;
    let length = u32::from_ne_bytes(*header.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let sequence = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let body = bytes.get(16..length)?;
    let next = length.next_multiple_of(4).min(bytes.len());
    Some((kind, sequence, body, &bytes[next..]))
}

/// A place for attributes.
pub(super) struct Nest<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Nest<'_> {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.pad();
        self
    }

    /// A string with the zero byte that the kernel expects.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// nf_tables keeps its numbers in network order.
    pub(super) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(super) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Nest<'_>)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        inner(&mut Nest { bytes: self.bytes });
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

// linux/netlink.h
const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const ERROR: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_and_padded_attributes() {
        let mut batch = Batch::default();
        batch.message(0x10, ACK, &[9, 9, 9, 9], |attributes| {
            attributes.text(1, "ab").nest(2, |inner| {
                inner.number(3, 0x0102_0304);
            });
        });
        let (kind, sequence, body, rest) = split(&batch.bytes).expect("a whole message");
        assert_eq!((kind, sequence, rest), (0x10, 1, &[][..]));
        let expected = [9, 9, 9, 9, 7, 0, 1, 0, b'a', b'b', 0, 0, 12, 0, 2, 0x80, 8, 0, 3, 0, 1, 2, 3, 4];
        assert_eq!(body, expected);
    }

    #[test]
    fn a_message_that_lies_about_its_length_is_none() {
        assert!(split(&[255; 16]).is_none());
        assert!(split(&[4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
    }
}

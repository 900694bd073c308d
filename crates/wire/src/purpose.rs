//! What a stream of a [`crate::mux`] is for: the header that it is opened with.

use crate::message;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Who opens a stream, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The host: the setup, the first time; then one request each.
    Request,
    /// The guest: a program dialled this address.
    Caught { address: [u8; 4], port: u16 },
    /// The guest: a program connected to the route at this port of the loopback.
    Route { port: u16 },
    /// The guest: names are asked, each question and each answer with its length before it (RFC 7766), in order.
    Names,
}

impl Purpose {
    /// A connection to this address.
    pub fn caught(dialled: SocketAddrV4) -> Purpose {
        Purpose::Caught { address: dialled.ip().octets(), port: dialled.port() }
    }

    /// The address that was dialled, if it is about one.
    pub fn dialled(self) -> Option<SocketAddrV4> {
        match self {
            Purpose::Caught { address, port } => Some(SocketAddrV4::new(Ipv4Addr::from(address), port)),
            Purpose::Request | Purpose::Route { .. } | Purpose::Names => None,
        }
    }

    /// As a stream's header.
    pub fn encode(self) -> Vec<u8> {
        message::encode(&self)
    }

    /// From a stream's header; `None` for anything else.
    pub fn decode(header: &[u8]) -> Option<Purpose> {
        message::decode(header)
    }
}

/// In a network without powers, names have addresses from here on; what programs inside serve to each other has lower ones.
pub const FIRST_NAME: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_purposes() {
        assert_eq!(Purpose::Request.encode(), [0]);
        let dialled = SocketAddrV4::new(Ipv4Addr::new(127, 128, 1, 0), 443);
        assert_eq!(Purpose::caught(dialled).encode(), [1, 127, 128, 1, 0, 0xbb, 3]);
        assert_eq!(Purpose::caught(dialled).dialled(), Some(dialled));
        assert_eq!(Purpose::Route { port: 8080 }.encode(), [2, 0x90, 0x3f]);
        assert_eq!(Purpose::Names.encode(), [3]);
        assert_eq!(Purpose::decode(&[0, 0]), None);
    }
}

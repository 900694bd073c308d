//! What may wait at a connection of HTTP/2. The sender may fill all of it, and the reader need not read: so the more
//! connections a sandbox has, the less there is at each.

use crate::connection_limits::Crowd;

/// The room of one side of one connection.
pub(super) struct Room {
    /// Requests at once.
    pub(super) streams: u32,
    /// What may come before it is passed on: of one stream, and of all of the connection.
    pub(super) stream: u32,
    pub(super) connection: u32,
    /// What may wait to be sent, of one stream; a frame more may lie beside it.
    pub(super) unsent: usize,
}

impl Room {
    pub(super) fn among(crowd: Crowd) -> Room {
        match crowd {
            // As many streams as servers usually allow, and windows for servers that are far away.
            Crowd::Few => Room { streams: 128, stream: MIB, connection: 4 * MIB, unsent: 64 << 10 },
            Crowd::Many => Room { streams: 16, stream: MIB / 4, connection: MIB / 2, unsent: 16 << 10 },
            // No window is smaller than this at its beginning (RFC 9113, 6.9.2).
            Crowd::VeryMany => Room { streams: 4, stream: 65_535, connection: 65_535, unsent: 16 << 10 },
        }
    }
}

const MIB: u32 = 1 << 20;

//! Says back what it hears.

use crate::Server;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::ops::Deref;

/// A TCP server that sends back every byte, and its end after the client's.
pub struct Echo(Server);

impl Echo {
    /// At a free port of this address.
    pub fn start(at: impl Into<IpAddr>) -> Echo {
        Echo(Server::start(at, |mut stream| {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        }))
    }
}

impl Deref for Echo {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

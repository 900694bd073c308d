//! The server, in a process of its own, so that its cost counts for no other. Lives until its standard input ends, and so no
//! longer than the conductor.

use super::{any_port, make_room, plain, tls_server};
use crate::{Outcome, query};
use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::thread;

/// Serves the certificate in this directory, and says at which ports: without cryptography, with it, and for names.
pub(crate) fn run(directory: &Path) -> Outcome<()> {
    make_room()?;
    let plain = TcpListener::bind(any_port())?;
    let secure = TcpListener::bind(any_port())?;
    let names = UdpSocket::bind(any_port())?;
    let ports = [plain.local_addr()?.port(), secure.local_addr()?.port(), names.local_addr()?.port()]
        .map(|port| port.to_string());
    let config = tls_server::config(directory)?;
    thread::spawn(move || plain::serve(&plain));
    thread::spawn(move || answer(&names));
    tls_server::serve(secure, &config)?;
    println!("{}", ports.join(" "));
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers every process that resolves names for a sandbox.
fn answer(socket: &UdpSocket) {
    let mut buffer = [0; 1024];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        if let Some(reply) = query::answer(&buffer[..length]) {
            // The client may be gone.
            let _ = socket.send_to(&reply, client);
        }
    }
}

//! `keeper.json`: how a shim is reached, and which sandbox it holds. Written when it is ready, readable by its user alone.

use belljar_fleet::{Alive, SandboxDir};
use belljar_state::{Survives, write_atomic};
use belljar_sys::rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The name of its abstract socket.
    pub address: String,
    /// What a request has to show, as `x-belljar-keeper`.
    pub token: String,
    pub pid: u32,
    /// Of belljar.
    pub version: String,
    pub alive: Alive,
}

impl Contact {
    /// What the shim of this place wrote; nothing where it wrote nothing yet, or is no shim any more.
    pub fn read(place: &SandboxDir) -> io::Result<Option<Contact>> {
        match std::fs::read(place.contact()) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A connection to it.
    pub fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&self.address)?)
    }

    pub(super) fn write(&self, place: &SandboxDir) -> io::Result<()> {
        write_atomic(&place.contact(), &serde_json::to_vec(self)?, Survives::Kill)
    }
}

/// A socket whose name no other process can have taken or guess: the name, and the listener.
pub(super) fn listen() -> io::Result<(String, UnixListener)> {
    let address = format!("belljar-keeper-{}", random_hex()?);
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&address)?)?;
    Ok((address, listener))
}

/// 32 hexadecimal digits.
pub(super) fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

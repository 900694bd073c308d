//! What a client dials.

use crate::query;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An address.
    At(SocketAddr),
    /// A name, whose address is asked for once.
    Once(String, u16),
    /// A name, whose address is asked for before every connection.
    Each(String, u16),
    /// An address behind a proxy that is asked by CONNECT.
    Through { proxy: SocketAddr, address: SocketAddr },
}

/// A target that is ready to be dialled, again and again.
pub(crate) struct Dialler {
    target: Target,
    known: SocketAddr,
}

impl Dialler {
    pub(crate) fn new(target: Target) -> io::Result<Dialler> {
        let known = match &target {
            Target::At(address) | Target::Through { proxy: address, .. } => *address,
            Target::Once(name, port) | Target::Each(name, port) => look_up(name, *port)?,
        };
        Ok(Dialler { target, known })
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        match &self.target {
            Target::At(_) | Target::Once(..) => TcpStream::connect(self.known),
            Target::Each(name, port) => TcpStream::connect(look_up(name, *port)?),
            Target::Through { address, .. } => through(TcpStream::connect(self.known)?, *address),
        }
    }
}

fn look_up(name: &str, port: u16) -> io::Result<SocketAddr> {
    Ok(SocketAddr::new(query::resolve(RESOLVER.into(), name)?.into(), port))
}

/// Waits for the proxy's word. A client with 32 connections waits for each in turn; the one proxy that is asked so
/// has one thread, and loses nothing by it.
fn through(mut proxy: TcpStream, address: SocketAddr) -> io::Result<TcpStream> {
    proxy.write_all(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut reply = Vec::new();
    let mut byte = [0];
    while !reply.ends_with(b"\r\n\r\n") {
        proxy.read_exact(&mut byte)?;
        reply.push(byte[0]);
    }
    if reply.starts_with(b"HTTP/1.1 200") {
        return Ok(proxy);
    }
    Err(io::Error::other("the proxy refused"))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::At(address) => write!(f, "at={address}"),
            Target::Once(name, port) => write!(f, "once={name}:{port}"),
            Target::Each(name, port) => write!(f, "each={name}:{port}"),
            Target::Through { proxy, address } => write!(f, "through={proxy},{address}"),
        }
    }
}

impl FromStr for Target {
    type Err = Box<dyn std::error::Error>;

    fn from_str(text: &str) -> Result<Target, Self::Err> {
        let (kind, rest) = text.split_once('=').ok_or("a target is `kind=what`")?;
        let named = || -> Result<(String, u16), Self::Err> {
            let (name, port) = rest.rsplit_once(':').ok_or("a name is followed by `:` and a port")?;
            Ok((name.into(), port.parse()?))
        };
        match kind {
            "at" => Ok(Target::At(rest.parse()?)),
            "once" => named().map(|(name, port)| Target::Once(name, port)),
            "each" => named().map(|(name, port)| Target::Each(name, port)),
            "through" => {
                let (proxy, address) =
                    rest.split_once(',').ok_or("a proxy is followed by `,` and an address")?;
                Ok(Target::Through { proxy: proxy.parse()?, address: address.parse()? })
            }
            _ => Err(format!("there is no target of the kind `{kind}`").into()),
        }
    }
}

/// Where names are asked inside of a sandbox.
const RESOLVER: ([u8; 4], u16) = ([127, 0, 0, 1], 53);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_was_written() {
        for text in
            ["at=127.0.0.1:80", "once=far.test:443", "each=far.test:443", "through=127.0.0.1:1,127.0.0.1:2"]
        {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }
}

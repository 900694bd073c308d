//! Connections through the proxy of a company network: CONNECT of HTTP, or SOCKS 5. What may be dialled was decided before, and what the
//! proxy says is foreign bytes: read up to a bound, and shown to no program inside but as a status.
//!
//! Called by [`crate::dial`] for connections of sandboxes, and by [`crate::outbound`] for requests of the host's own.

use crate::resolve::Resolver;
use belljar_spec::egress::{HostName, ProxyAddress, ProxyHost, ProxyKind, UpstreamProxy};
use belljar_vault::{Secret, SecretError, SecretStore};
use data_encoding::BASE64;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A proxy, with the credentials that it wants.
pub struct Proxy {
    terms: UpstreamProxy,
    login: Option<Login>,
    resolver: OnceLock<Resolver>,
}

/// A user and a password.
struct Login(Secret);

/// Where a proxy is asked to connect to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Address(SocketAddr),
    Name(&'a str, u16),
}

impl Proxy {
    /// Reads its credentials once.
    pub fn new(terms: UpstreamProxy, store: &dyn SecretStore) -> Result<Proxy, SecretError> {
        let login = match &terms.secret {
            None => None,
            Some(reference) => {
                let value = store.read_text(reference)?;
                let is_login = |(user, password): (&str, &str)| {
                    let fits = |text: &str| (1..=MAX_LOGIN_BYTES).contains(&text.len());
                    fits(user) && fits(password) && !value.reveal().iter().any(u8::is_ascii_control)
                };
                if !value.reveal_text().split_once(':').is_some_and(is_login) {
                    return Err(SecretError {
                        message: format!(
                            "the value of `{reference}` is not `USER:PASSWORD` for the proxy {}",
                            terms.at
                        ),
                        hint: "set it again".into(),
                    });
                }
                Some(Login(value))
            }
        };
        Ok(Proxy { terms, login, resolver: OnceLock::new() })
    }

    /// Its settings.
    pub(crate) fn terms(&self) -> &UpstreamProxy {
        &self.terms
    }

    /// Connects, and asks for a connection to `target`; with the address at which the proxy answered.
    pub(crate) async fn connect(&self, target: Target<'_>) -> io::Result<(TcpStream, SocketAddr)> {
        let ProxyAddress { kind, host, port } = &self.terms.at;
        let addresses = match host {
            ProxyHost::Address(address) => vec![SocketAddr::new(*address, *port)],
            ProxyHost::Name(name) => self.resolve(name, *port).await?,
        };
        let mut stream = TcpStream::connect(&*addresses).await.map_err(|error| {
            io::Error::new(error.kind(), format!("the proxy {} cannot be reached: {error}", self.terms.at))
        })?;
        stream.set_nodelay(true)?;
        let at = stream.peer_addr()?;
        match kind {
            ProxyKind::Http => self.ask_http(&mut stream, target).await?,
            ProxyKind::Socks5 => self.ask_socks(&mut stream, target).await?,
        }
        Ok((stream, at))
    }

    /// Configured by a person: no policy is asked.
    async fn resolve(&self, name: &HostName, port: u16) -> io::Result<Vec<SocketAddr>> {
        let resolver = self.resolver.get_or_init(Resolver::of_the_host);
        let found = resolver.addresses(name).await.map_err(|why| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the proxy {} has no address: {why}", self.terms.at),
            )
        })?;
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    async fn ask_http(&self, stream: &mut TcpStream, target: Target<'_>) -> io::Result<()> {
        let authority = match target {
            Target::Address(address) => address.to_string(),
            Target::Name(name, port) => format!("{name}:{port}"),
        };
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
        if let Some(Login(value)) = &self.login {
            request.extend_from_slice(b"Proxy-Authorization: Basic ");
            request.extend_from_slice(BASE64.encode(value.reveal()).as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await?;
        let head = read_head(stream).await?;
        match status(&head) {
            Some(200..=299) => Ok(()),
            Some(407) => {
                Err(self
                    .refused("its answer is 407: it wants other credentials (`secret` under [egress.proxy])"))
            }
            Some(status) => Err(self.refused(&format!("its answer is {status}"))),
            None => Err(self.refused("it does not speak HTTP")),
        }
    }

    /// RFC 1928, and RFC 1929 for credentials.
    async fn ask_socks(&self, stream: &mut TcpStream, target: Target<'_>) -> io::Result<()> {
        let method = if self.login.is_some() { BY_PASSWORD } else { WITHOUT_LOGIN };
        stream.write_all(&[SOCKS, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [SOCKS, method] {
            return Err(self.refused("it does not take these credentials (`secret` under [egress.proxy])"));
        }
        if let Some(Login(value)) = &self.login {
            let (user, password) = value.reveal_text().split_once(':').unwrap_or_default();
            let mut login = vec![1];
            for text in [user, password] {
                login.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                login.extend_from_slice(text.as_bytes());
            }
            stream.write_all(&login).await?;
            stream.read_exact(&mut chosen).await?;
            if chosen[1] != 0 {
                return Err(self.refused("it refuses the credentials (`secret` under [egress.proxy])"));
            }
        }
        let mut request = vec![SOCKS, CONNECT, 0];
        let port = match target {
            Target::Address(address) => {
                match address.ip() {
                    IpAddr::V4(address) => {
                        request.extend_from_slice(&[&[IPV4][..], &address.octets()].concat())
                    }
                    IpAddr::V6(address) => {
                        request.extend_from_slice(&[&[IPV6][..], &address.octets()].concat())
                    }
                }
                address.port()
            }
            Target::Name(name, port) => {
                let length =
                    u8::try_from(name.len()).map_err(|_| self.refused("the name is too long for SOCKS"))?;
                request.extend_from_slice(&[DOMAIN, length]);
                request.extend_from_slice(name.as_bytes());
                port
            }
        };
        request.extend_from_slice(&port.to_be_bytes());
        stream.write_all(&request).await?;
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await?;
        if reply[0] != SOCKS || reply[1] != 0 {
            return Err(self.refused(&format!("its answer is {}", reply[1])));
        }
        // The address that it bound, which is of no use.
        let rest = match reply[3] {
            IPV4 => 4,
            IPV6 => 16,
            DOMAIN => usize::from(stream.read_u8().await?),
            _ => return Err(self.refused("it does not speak SOCKS 5")),
        };
        let mut bound = vec![0; rest + 2];
        stream.read_exact(&mut bound).await.map(drop)
    }

    fn refused(&self, why: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!("the proxy {} refused: {why}", self.terms.at),
        )
    }
}

/// A head up to its empty line, and not a byte more: what follows is the server's.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut seen = [0; 1024];
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = head.len();
        head.extend_from_slice(&seen[..length]);
        // The end may lie across two pieces.
        let from = before.saturating_sub(END.len() - 1);
        let end =
            head[from..].windows(END.len()).position(|window| window == END).map(|at| from + at + END.len());
        let taken = end.map_or(length, |end| end - before);
        stream.read_exact(&mut seen[..taken]).await?;
        if let Some(end) = end {
            head.truncate(end);
            return Ok(head);
        }
        if head.len() > MAX_HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the proxy's answer has no end"));
        }
    }
}

/// The status of `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next().filter(|status| status.len() == 3)?.parse().ok()
}

const END: &[u8] = b"\r\n\r\n";
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// RFC 1929 §2 has a byte for each length.
const MAX_LOGIN_BYTES: usize = 255;
const SOCKS: u8 = 5;
const CONNECT: u8 = 1;
const WITHOUT_LOGIN: u8 = 0;
const BY_PASSWORD: u8 = 2;
const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

#[cfg(test)]
mod tests;

//! A connection to the daemon: a unix socket or TCP.

use crate::ApiError;
use crate::client::body::RequestBody;
use crate::client::error::ClientError;
use belljar_spec::{CommandLine, ErrorCode, hint};
use belljar_sys::rustix::process::geteuid;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::PathBuf;
use tokio::net::{TcpStream, UnixStream};

/// Where the daemon is.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Unix(PathBuf),
    /// `127.0.0.1:7070`.
    Tcp(String),
    /// The abstract name of a shim's socket: the same API, of one sandbox.
    Shim(String),
}

/// One connection that takes one request at a time.
pub(crate) type Line = SendRequest<RequestBody>;

impl Target {
    /// What stands in `Host`.
    pub(crate) fn host(&self) -> &str {
        match self {
            // Any loopback name does; there is no name to a unix socket.
            Target::Unix(_) | Target::Shim(_) => "localhost",
            Target::Tcp(address) => address,
        }
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        match self {
            Target::Unix(path) => path.display().to_string(),
            Target::Tcp(address) | Target::Shim(address) => address.clone(),
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> io::Result<Line> {
        match self {
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                must_be_ours(&stream)?;
                speak(TokioIo::new(stream)).await
            }
            Target::Shim(name) => {
                // The leading zero is what makes a name abstract (unix(7)).
                let stream = UnixStream::connect(format!("\0{name}")).await?;
                must_be_ours(&stream)?;
                speak(TokioIo::new(stream)).await
            }
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                speak(TokioIo::new(stream)).await
            }
        }
    }

    /// The error of a target that does not answer.
    pub(crate) fn unanswered(&self, source: io::Error) -> ClientError {
        let hint = match self {
            Target::Unix(_) => hint!("{} starts one", CommandLine::Serve),
            Target::Tcp(_) => hint!("{} starts one there", CommandLine::ServeListen.of("ADDRESS")),
            Target::Shim(_) => {
                let ended = ErrorCode::SandboxNotAlive.error("the sandbox has ended");
                return ClientError::Api(Box::new(ApiError::from(&ended)), CONFLICT);
            }
        };
        ClientError::NoDaemon { address: self.name(), source, hint }
    }
}

/// A path in a directory that any user can write may be any user's socket. What is asked has secrets in it.
fn must_be_ours(stream: &UnixStream) -> io::Result<()> {
    let listener = stream.peer_cred()?.uid();
    if listener == geteuid().as_raw() || listener == 0 {
        return Ok(());
    }
    let message = format!("the socket belongs to another user ({listener}), not to you");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

async fn speak<S>(stream: TokioIo<S>) -> io::Result<Line>
where
    TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (line, connection) = handshake(stream).await.map_err(io::Error::other)?;
    // Its end shows at the line.
    tokio::spawn(connection.with_upgrades());
    Ok(line)
}

/// The status that a daemon gives a request for a sandbox that is not alive.
const CONFLICT: u16 = 409;

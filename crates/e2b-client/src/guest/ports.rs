//! Connections to what listens inside. The service itself leads HTTP alone to a port; these are any bytes: a process inside dials, and
//! its standard streams are the connection.

use super::fault::errno;
use super::{HOME, Remote};
use crate::process::{Event, Events, Start};
use crate::rpc::CallError;
use belljar_wire::message::Ending;
use belljar_wire::pump::tcp_pair;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

/// Dials; blocks until there is a connection or a refusal.
pub(super) fn dial(remote: &Arc<Remote>, handle: &Handle, port: u16) -> io::Result<TcpStream> {
    let (ours, theirs) = tcp_pair()?;
    let (tell, answer) = mpsc::sync_channel(1);
    let remote = Arc::clone(remote);
    handle.spawn(async move {
        let theirs = TcpStream::from(theirs);
        match begin(&remote, port).await {
            Ok((pid, events)) => {
                // A caller that no longer waits has dropped its end.
                let _ = tell.send(Ok(()));
                let _ = relay(&remote, pid, events, theirs).await;
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        }
    });
    answer.recv_timeout(DIAL_TIMEOUT).map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(TcpStream::from(ours))
}

async fn begin(remote: &Remote, port: u16) -> io::Result<(u32, Events)> {
    let failed = |error: CallError| io::Error::from(errno(&error));
    let argv = ["python3", "-c", DIALLER, &port.to_string()].map(String::from).into();
    let env = [("LC_ALL".into(), "C".into())].into();
    let start = Start { argv, env, cwd: HOME.into(), terminal: None, stdin: true };
    let mut events = remote.envd.start(&start).await.map_err(failed)?;
    let mut pid = 0;
    while let Some(event) = events.next().await.map_err(failed)? {
        match event {
            Event::Started(started) => pid = started,
            Event::Stdout(bytes) if bytes == CONNECTED => return Ok((pid, events)),
            Event::Ended(Ending::Exited(REFUSED)) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Event::Stdout(_) | Event::Ended(_) => break,
            Event::Stderr(_) => {}
        }
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

async fn relay(remote: &Remote, pid: u32, mut events: Events, theirs: TcpStream) -> io::Result<()> {
    theirs.set_nonblocking(true)?;
    let (mut from, mut to) = tokio::net::TcpStream::from_std(theirs)?.into_split();
    let up = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if remote.envd.input(pid, &buffer[..length], false).await.is_err() {
                break;
            }
        }
        let _ = remote.envd.close_input(pid).await;
    };
    let down = async {
        // What breaks here is the connection, as far as its caller knows.
        while let Ok(Some(event)) = events.next().await {
            match event {
                Event::Stdout(bytes) if to.write_all(&bytes).await.is_err() => {
                    let _ = remote.envd.kill(pid).await;
                    break;
                }
                Event::Ended(_) => break,
                Event::Started(_) | Event::Stdout(_) | Event::Stderr(_) => {}
            }
        }
    };
    tokio::select! {
        () = down => {}
        () = async { up.await; std::future::pending().await } => {}
    }
    Ok(())
}

/// Its first byte says that there is a connection.
const CONNECTED: &[u8] = b"+";
/// The exit code of a dialler that nothing listens for.
const REFUSED: i32 = 111;
const DIALLER: &str = r#"
import os, socket, sys, threading
found = None
for address in ("127.0.0.1", "::1"):
    try:
        found = socket.create_connection((address, int(sys.argv[1])), 10)
        break
    except OSError:
        pass
if found is None:
    os._exit(111)
found.settimeout(None)
found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
os.write(1, b"+")
def up():
    try:
        while piece := os.read(0, 65536):
            found.sendall(piece)
        found.shutdown(socket.SHUT_WR)
    except OSError:
        pass
threading.Thread(target=up, daemon=True).start()
try:
    while piece := found.recv(65536):
        while piece:
            piece = piece[os.write(1, piece):]
except OSError:
    pass
os._exit(0)
"#;
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// A message of it is a third longer.
const BUFFER_BYTES: usize = 32 << 10;

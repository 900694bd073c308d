//! Ports of the host that lead to ports inside a sandbox, for as long as the process that holds it serves them. Whatever TCP protocol is
//! spoken passes unread. Who may have them opened is judged before; called by the shim and by commands in the foreground.

use crate::Sandbox;
use belljar_spec::{ErrorCode, ForwardedAt, ForwardedPort, SandboxError};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Ports that are open, and lead nowhere until they are served.
#[derive(Debug, Default)]
pub struct Forwarding(Vec<(ForwardedAt, TcpListener)>);

/// What becomes of a port that another program of the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfTaken {
    /// It is an error.
    Refuse,
    /// Any free one takes its place.
    ChooseAnother,
}

/// Opens a port of the host.
pub fn listen(port: &ForwardedPort) -> Result<TcpListener, SandboxError> {
    let opened = TcpListener::bind(port.listens_at());
    // For an event loop.
    let opened = opened.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    opened.map_err(|error| {
        let message = format!("{} of this machine cannot be opened: {error}", port.listens_at());
        let refused = ErrorCode::RequestConflict.error(message);
        match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => refused
                .hint(format!("choose another port, as in `8080:{0}`; `0:{0}` is any free one", port.inside)),
            _ => refused,
        }
    })
}

impl Forwarding {
    /// Opens these ports.
    pub fn of(ports: &[ForwardedPort]) -> Result<Forwarding, SandboxError> {
        let mut forwarding = Forwarding::default();
        for port in ports {
            forwarding.open(*port, IfTaken::Refuse)?;
        }
        Ok(forwarding)
    }

    /// Opens one more port, and says where.
    pub fn open(&mut self, port: ForwardedPort, if_taken: IfTaken) -> Result<ForwardedAt, SandboxError> {
        let listener = match (listen(&port), if_taken) {
            (Err(_), IfTaken::ChooseAnother) => listen(&ForwardedPort { here: 0, ..port })?,
            (outcome, _) => outcome?,
        };
        let address = listener.local_addr().map_err(|error| ErrorCode::Internal.error(error.to_string()))?;
        let at = ForwardedAt { address: address.ip(), port: address.port(), inside: port.inside };
        self.0.push((at, listener));
        Ok(at)
    }

    /// Where they are.
    pub fn ports(&self) -> Vec<ForwardedAt> {
        self.0.iter().map(|(at, _)| *at).collect()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leads every connection to the sandbox that `sandbox` gives at that moment. The ports are closed, and their connections end, when
    /// this is dropped.
    pub async fn serve(self, sandbox: impl Fn() -> Arc<Sandbox> + Clone + Send + 'static) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut ports = JoinSet::new();
        for (at, listener) in self.0 {
            // It fails where there is no event loop, and we are in one.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
            ports.spawn(serve_port(listener, at.inside, sandbox.clone(), Arc::clone(&room)));
        }
        while ports.join_next().await.is_some() {}
    }
}

async fn serve_port(
    listener: tokio::net::TcpListener,
    inside: u16,
    sandbox: impl Fn() -> Arc<Sandbox> + Send + 'static,
    room: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    loop {
        // The next client waits in the kernel's queue.
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let sandbox = sandbox();
                    connections.spawn(async move {
                        let _seat = seat;
                        lead(client, &sandbox, inside).await;
                    });
                }
                // No descriptor is free: a connection that ends gives one back.
                Err(_) => sleep(ACCEPT_RETRY_INTERVAL).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn lead(mut client: TcpStream, sandbox: &Sandbox, inside: u16) {
    if sandbox.is_paused() {
        return;
    }
    match sandbox.connect(inside).await {
        Ok(mut server) => {
            let _ = client.set_nodelay(true);
            // When one side is broken, both connections end.
            let _ = copy_bidirectional_with_sizes(&mut client, &mut server, COPY_BYTES, COPY_BYTES).await;
        }
        // The client sees that its connection is closed.
        Err(error) => tracing::debug!(port = inside, "a forwarded connection leads nowhere: {error}"),
    }
}

/// Of all forwarded ports of a sandbox together: each takes two descriptors.
const MAX_CONNECTIONS: usize = 512;
/// Fewer system calls than with tokio's 8 KiB; as much as a socket gives at once.
const COPY_BYTES: usize = 64 * 1024;
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

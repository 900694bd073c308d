//! Connections to a shim: HTTP/1.1 over its socket, from processes of its own user alone.

use super::{LiveSandbox, routes};
use axum::Router;
use belljar_sys::rustix::process::geteuid;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Serves what is kept until it is dropped. Connections end when the sandbox has ended and what was asked before is answered.
pub(super) async fn serve(listener: StdListener, live: Arc<LiveSandbox>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let routes = routes(Arc::clone(&live));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_ours(&stream) => {
                tokio::spawn(attend(stream, routes.clone(), Arc::clone(&live)));
            }
            // An abstract socket has no mode: any process on the machine may connect.
            Ok(_) => {}
            // Too many open files, for the moment.
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

async fn attend(stream: UnixStream, routes: Router, live: Arc<LiveSandbox>) {
    let _conversation = live.converse();
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
            .with_upgrades()
    );
    tokio::select! {
        // A client that hung up does not want to know.
        _ = connection.as_mut() => return,
        () = live.over() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

fn is_ours(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw() || peer.uid() == 0)
}

const BREATH: Duration = Duration::from_millis(50);

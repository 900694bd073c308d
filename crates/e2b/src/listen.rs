//! Connections of clients: TLS where a client begins with it, else plain HTTP; and what each request is for.

use crate::connections::{Breakable, Connection};
use crate::envd;
use crate::fault::Fault;
use crate::http::{Body, Incoming, refused};
use crate::place::{ENVD_PORT, Place, place};
use crate::server::E2b;
use crate::{api, ports};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// How clients may connect.
#[derive(Clone)]
pub(crate) struct Ways {
    pub(crate) tls: Option<TlsAcceptor>,
    /// Whether plain HTTP is served.
    pub(crate) plain: bool,
}

/// Takes connections until the daemon ends.
pub(crate) async fn listen(listener: TcpListener, ways: Ways, e2b: Arc<E2b>) {
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // More than this wait in the kernel's queue.
        let Ok(place) = Arc::clone(&open).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for the moment.
            tokio::time::sleep(BREATH).await;
            continue;
        };
        tokio::spawn(attend(stream, place, ways.clone(), Arc::clone(&e2b)));
    }
}

async fn attend(stream: TcpStream, place: OwnedSemaphorePermit, ways: Ways, e2b: Arc<E2b>) {
    let _ = stream.set_nodelay(true);
    let Ok(Some(is_tls)) = tokio::time::timeout(TO_BEGIN, begins_with_tls(&stream)).await else { return };
    let connection = Arc::new(Connection::default());
    let breakable = Breakable::new(stream, Arc::clone(&connection), place);
    match (is_tls, ways.tls) {
        (true, Some(acceptor)) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(TO_BEGIN, acceptor.accept(breakable)).await {
                serve(stream, connection, e2b).await;
            }
        }
        (false, _) if ways.plain => serve(breakable, connection, e2b).await,
        _ => {}
    }
}

/// A handshake begins with a record of type 22 (RFC 8446, 5.1), no HTTP request does. `None`: nothing comes.
async fn begins_with_tls(stream: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) => Some(first[0] == 22),
        _ => None,
    }
}

async fn serve<I>(io: I, connection: Arc<Connection>, e2b: Arc<E2b>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let known = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let (e2b, connection) = (Arc::clone(&e2b), Arc::clone(&known));
        async move { Ok::<_, Infallible>(answer(e2b, connection, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TO_ASK)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    tokio::select! {
        _ = served => {}
        // Dropped as it is: the client sees a reset.
        () = connection.broken() => {}
    }
}

async fn answer(
    e2b: Arc<E2b>,
    connection: Arc<Connection>,
    request: Request<hyper::body::Incoming>,
) -> Response<Body> {
    let request = request.map(Incoming::new);
    let body = request.body().clone();
    let response = routed(e2b, connection, request).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        body.drain().await;
    }
    response
}

async fn routed(e2b: Arc<E2b>, connection: Arc<Connection>, request: Request<Incoming>) -> Response<Body> {
    let domain = e2b.domain.as_ref().map(|domain| domain.name.as_str());
    match place(domain, request.headers(), request.uri()) {
        Ok(Place::Control) => api::answer(&e2b, request).await,
        Ok(Place::Signed) => envd::files_by_signature(&e2b, request).await,
        Ok(Place::Sandbox { id, port }) => to_sandbox(&e2b, &connection, &id, port, request).await,
        Err(fault) => refused(&fault),
    }
}

async fn to_sandbox(
    e2b: &Arc<E2b>,
    connection: &Arc<Connection>,
    id: &str,
    port: u16,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(entry) = e2b.book.get(id) else { return ports::told_as_gone(id) };
    let facts = entry.facts();
    if facts.is_paused() {
        // A request that opens nothing wakes nothing.
        let is_open = match port {
            ENVD_PORT => envd::is_open(e2b, &facts, &request),
            _ => ports::is_open(e2b, &facts, &request),
        };
        if !is_open || !facts.auto_resume || facts.standing == crate::facts::Standing::Stopped {
            return ports::told_as_gone(id);
        }
        if let Err(fault) = e2b.wake(&entry).await {
            tracing::warn!("the sandbox {id} does not wake: {}", fault.message);
            return ports::told_as_gone(id);
        }
    }
    let busy = e2b.under_way.begin(id, connection);
    // What ended meanwhile broke no connection that it did not know of.
    if e2b.book.get(id).is_none_or(|entry| entry.facts().is_paused()) {
        return ports::told_as_gone(id);
    }
    let response = match port {
        ENVD_PORT => match e2b.is_internal(request.uri().path()) {
            true => refused(&Fault::new(StatusCode::FORBIDDEN, "this path is not served")),
            false => envd::answer(e2b, &entry, request).await,
        },
        port => ports::pass(e2b, &entry.facts(), port, request).await,
    };
    crate::http::kept_with(response, busy)
}

/// Each takes up to four descriptors, and all of them at most half of the daemon's 20000.
const MAX_CONNECTIONS: usize = 2048;
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A client that takes longer than this for a head does not want an answer.
const TO_ASK: Duration = Duration::from_secs(30);
/// Connections that wait for their first request are kept for a while: clients make them ahead.
const TO_BEGIN: Duration = Duration::from_secs(30);
const BREATH: Duration = Duration::from_millis(50);

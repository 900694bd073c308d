//! A web server that speaks what real ones do: HTTP/1.1 and HTTP/2 over TLS, with bodies that come in pieces.

use crate::Leaf;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

/// A body of any kind.
pub type WebBody = UnsyncBoxBody<Bytes, io::Error>;

/// Serves until it is dropped; keeps the line of every request.
pub struct WebServer {
    address: SocketAddr,
    seen: Arc<Seen>,
    _until: oneshot::Sender<()>,
}

#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    lines: Mutex<Vec<String>>,
}

/// How TLS is agreed on.
#[derive(Clone, Copy)]
pub struct Agreement<'a> {
    /// What is spoken inside, in this order; nothing means that TLS does not say.
    pub alpn: &'a [&'a str],
    /// Certificates of clients are wanted, from this authority.
    pub client_certificates: Option<&'a crate::Authority>,
}

/// HTTP/2, else HTTP/1.1.
pub const MODERN: Agreement<'static> = Agreement { alpn: &["h2", "http/1.1"], client_certificates: None };

impl WebServer {
    /// At a free port of this address.
    pub fn start<H, F>(at: impl Into<IpAddr>, leaf: &Leaf, agreement: Agreement<'_>, handler: H) -> WebServer
    where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<WebBody>> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(config(leaf, agreement)));
        let listener = std::net::TcpListener::bind((at.into(), 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be asked not to wait");
        let address = listener.local_addr().expect("it is bound");
        let (seen, handler) = (Arc::new(Seen::default()), Arc::new(handler));
        let known = Arc::clone(&seen);
        let (until, stopped) = oneshot::channel::<()>();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is bound");
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, acceptor, known, handler) => {}
                }
            });
        });
        WebServer { address, seen, _until: until }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections it got.
    pub fn accepted(&self) -> usize {
        self.seen.accepted.load(Ordering::SeqCst)
    }

    /// `HTTP/2.0 GET /x` of every request, in the order in which they came.
    pub fn lines(&self) -> Vec<String> {
        self.seen.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept<H, F>(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Seen>, handler: Arc<H>)
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<WebBody>> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        seen.accepted.fetch_add(1, Ordering::SeqCst);
        let _ = stream.set_nodelay(true);
        let (acceptor, seen, handler) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&handler));
        Handle::current().spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |request: Request<Incoming>| {
                let line = format!("{:?} {} {}", request.version(), request.method(), request.uri().path());
                seen.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                let handler = Arc::clone(&handler);
                async move { Ok::<_, Infallible>(handler(request).await) }
            });
            let stream = TokioIo::new(stream);
            if is_http2 {
                let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
            } else {
                let _ = http1::Builder::new()
                    .half_close(true)
                    .serve_connection(stream, service)
                    .with_upgrades()
                    .await;
            }
        });
    }
}

fn config(leaf: &Leaf, agreement: Agreement<'_>) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions");
    let builder = match agreement.client_certificates {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.certificate()).expect("an authority can be trusted");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("there is an authority"))
        }
    };
    let mut config = builder
        .with_single_cert(leaf.chain.clone(), leaf.key.clone_key())
        .expect("certificate and key belong together");
    config.alpn_protocols = agreement.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// All of it at once.
pub fn whole(text: impl Into<Bytes>) -> WebBody {
    http_body_util::Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A piece of a body, or that it breaks off.
pub type Piece = io::Result<Frame<Bytes>>;

/// A body that the test writes piece by piece, and its trailers at the end.
pub fn pieces() -> (mpsc::Sender<Piece>, WebBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Pieces(receiver).boxed_unsync())
}

/// A piece of a body.
pub fn piece(bytes: impl Into<Bytes>) -> Piece {
    Ok(Frame::data(bytes.into()))
}

/// The end of a body, with these trailers.
pub fn trailers<const N: usize>(fields: [(&'static str, &str); N]) -> Piece {
    let mut trailers = HeaderMap::new();
    for (name, value) in fields {
        trailers.insert(name, value.parse().expect("a value that a header can have"));
    }
    Ok(Frame::trailers(trailers))
}

struct Pieces(mpsc::Receiver<Piece>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.0.poll_recv(context)
    }
}

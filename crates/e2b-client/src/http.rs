//! Connections to a service, and requests over them: HTTP/1.1, plain or with TLS. Connections of whole answers are used again; one that
//! streams has its own, and is closed with what reads it.

use crate::address::Base;
use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The connections.
#[derive(Default)]
pub(crate) struct Http {
    tls: OnceLock<TlsConnector>,
    idle: Mutex<VecDeque<(Base, SendRequest<Body>)>>,
}

/// A request whose body is known.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection.
    Unreachable(String),
    /// The connection ended before the answer did.
    Broken(String),
    /// No answer in time.
    Late,
    /// An answer that is none.
    Invalid(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Failure::Broken(why) => write!(f, "closed the connection: {why}"),
            Failure::Late => write!(f, "did not answer within {ANSWER_TIMEOUT:?}"),
            Failure::Invalid(why) => write!(f, "gave an answer that is not one: {why}"),
        }
    }
}

impl Http {
    /// A request, and its whole answer.
    pub(crate) async fn whole(&self, base: &Base, call: &Call) -> Result<(StatusCode, Bytes), Failure> {
        let answered = async {
            let (response, sender) = self.send(base, call).await?;
            let status = response.status();
            let collected = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = collected.map_err(|error| Failure::Broken(error.to_string()))?.to_bytes();
            self.give_back(base, sender);
            Ok((status, body))
        };
        timeout(ANSWER_TIMEOUT, answered).await.unwrap_or(Err(Failure::Late))
    }

    /// A request whose answer streams. Its connection is closed when the body is dropped.
    pub(crate) async fn streamed(
        &self,
        base: &Base,
        call: &Call,
    ) -> Result<(Response<Incoming>, impl Send + use<>), Failure> {
        timeout(ANSWER_TIMEOUT, self.send(base, call)).await.unwrap_or(Err(Failure::Late))
    }

    /// A request whose body streams, and its whole answer. It takes as long as its body does.
    pub(crate) async fn upload(
        &self,
        base: &Base,
        call: &Call,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(StatusCode, Bytes), Failure> {
        use futures_util::TryStreamExt;
        let body = BodyExt::boxed_unsync(StreamBody::new(body.map_ok(Frame::data)));
        let mut sender = timeout(CONNECT_TIMEOUT, self.connect(base)).await.unwrap_or(Err(Failure::Late))?;
        let response = sender.send_request(request(base, call, body)?).await.map_err(broken)?;
        let status = response.status();
        let collected = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok((status, collected.map_err(|error| Failure::Broken(error.to_string()))?.to_bytes()))
    }

    async fn send(
        &self,
        base: &Base,
        call: &Call,
    ) -> Result<(Response<Incoming>, SendRequest<Body>), Failure> {
        while let Some(mut sender) = self.take(base) {
            // It may have been closed meanwhile; a request that was not sent is sent over another one.
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request(base, call, full(call))?).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => {
                    if error.take_message().is_none() {
                        return Err(broken(error.into_error()));
                    }
                }
            }
        }
        let mut sender = self.connect(base).await?;
        let response = sender.send_request(request(base, call, full(call))?).await.map_err(broken)?;
        Ok((response, sender))
    }

    fn take(&self, base: &Base) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().rposition(|(known, _)| known == base)?;
        idle.remove(at).map(|(_, sender)| sender)
    }

    fn give_back(&self, base: &Base, sender: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back((base.clone(), sender));
        while idle.len() > MAX_IDLE {
            idle.pop_front();
        }
    }

    async fn connect(&self, base: &Base) -> Result<SendRequest<Body>, Failure> {
        let unreachable = |error: io::Error| Failure::Unreachable(error.to_string());
        let connecting = TcpStream::connect((base.host.as_str(), base.port));
        let stream = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Failure::Late)?;
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        if !base.is_tls {
            return shaken(stream).await;
        }
        let name = ServerName::try_from(base.host.clone())
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        let connector = match self.tls.get() {
            Some(connector) => connector,
            None => {
                let made = connector().map_err(|error| Failure::Unreachable(error.to_string()))?;
                self.tls.get_or_init(|| made)
            }
        };
        shaken(connector.connect(name, stream).await.map_err(unreachable)?).await
    }
}

/// HTTP over a connection, which is driven beside the caller until both are gone.
async fn shaken(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Body>, Failure> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(async move {
        // Why it ended is told to what waits for an answer.
        let _ = connection.await;
    });
    Ok(sender)
}

/// With the authorities that the system trusts, and those of `SSL_CERT_FILE`.
fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn request(base: &Base, call: &Call, body: Body) -> Result<Request<Body>, Failure> {
    let invalid = |error: String| Failure::Invalid(format!("no request can be made: {error}"));
    let mut request = Request::new(body);
    *request.method_mut() = call.method.clone();
    let target = format!("{}{}", base.path, call.target);
    *request.uri_mut() = target.parse().map_err(|_| invalid(format!("`{target}`")))?;
    *request.headers_mut() = call.headers.clone();
    let host = HeaderValue::from_str(&base.authority).map_err(|error| invalid(error.to_string()))?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

fn full(call: &Call) -> Body {
    BodyExt::boxed_unsync(Full::new(call.body.clone()).map_err(|never| match never {}))
}

fn broken(error: hyper::Error) -> Failure {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Failure::Broken(format!("{error}{source}"))
}

/// A service elsewhere answers within seconds, or is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Making a sandbox may take a cold start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// A folder with many entries has the longest answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const MAX_IDLE: usize = 8;

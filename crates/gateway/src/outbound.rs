//! Requests that the host makes for itself, to a place that its own configuration names: the model behind the LLM route,
//! GitHub's API. No sandbox chooses where they go, so no egress policy is asked; certificates are verified all the same.

use crate::decide::reserved;
use crate::dns::is_localhost;
use crate::resolve::Resolver;
use crate::trust::{self, TrustError};
use crate::upstream_proxy::{Proxy, Target};
use belljar_spec::egress::{HostName, is_this_machine};
use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

/// A body of any kind.
pub(crate) type Body = BoxBody<Bytes, hyper::Error>;

/// One server, and connections to it that wait for the next request.
pub(crate) struct Outbound {
    host: String,
    port: u16,
    /// As it stands in `Host`.
    authority: HeaderValue,
    tls: Option<TlsConnector>,
    resolver: OnceLock<Resolver>,
    /// What leads there, where the machine cannot dial itself.
    proxy: Option<Arc<Proxy>>,
    idle: Idle,
}

/// Connections that wait for the next request.
type Idle = Arc<Mutex<Vec<SendRequest<Body>>>>;

/// What went wrong on the way to a configured server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error("`{0}` is not the URL of a server: write one that begins with https:// or http://")]
    Url(String),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot connect to {to}: {error}")]
    Connect { to: String, error: io::Error },
    #[error("{to} did not answer: {error}")]
    Answer { to: String, error: hyper::Error },
}

impl Outbound {
    /// A server by any URL on it; `trust` is PEM of authorities beside the system's.
    pub(crate) fn new(url: &Url, trust: &[u8]) -> Result<Outbound, OutboundError> {
        let wrong = || OutboundError::Url(url.to_string());
        let tls = match url.scheme() {
            "https" => Some(TlsConnector::from(Arc::new(trust::client(trust)?))),
            "http" => None,
            _ => return Err(wrong()),
        };
        let host = url.host_str().ok_or_else(wrong)?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        Ok(Outbound {
            host: host.trim_matches(['[', ']']).to_string(),
            port: url.port_or_known_default().ok_or_else(wrong)?,
            authority: HeaderValue::from_str(&authority).map_err(|_| wrong())?,
            tls,
            resolver: OnceLock::new(),
            proxy: None,
            idle: Idle::default(),
        })
    }

    /// The same through a proxy, unless the server is of this machine or its private networks, or the proxy's settings except it.
    pub(crate) fn through(mut self, proxy: Option<Arc<Proxy>>) -> Outbound {
        let is_led = |proxy: &Arc<Proxy>| match (self.host.parse::<IpAddr>(), self.host.parse::<HostName>()) {
            (Ok(address), _) => reserved::special_purpose(address).is_none(),
            (_, Ok(name)) => !is_localhost(&name) && !is_this_machine(&name) && proxy.terms().leads_to(&name),
            (Err(_), Err(_)) => false,
        };
        self.proxy = proxy.filter(is_led);
        self
    }

    /// Sends a request, whose target is a path, and gives its answer when the head is there. A connection that has
    /// waited may be dead by now; if nothing of the request was sent, a new one is made.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Result<Answer, OutboundError> {
        request.headers_mut().insert(HOST, self.authority.clone());
        let failed = |error| OutboundError::Answer { to: self.host.clone(), error };
        while let Some(mut connection) = self.waiting().await {
            match connection.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(response, connection)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(failed(error.into_error())),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await.map_err(failed)?;
        Ok(self.answer(response, connection))
    }

    fn answer(&self, response: Response<Incoming>, connection: SendRequest<Body>) -> Answer {
        Answer { response, connection: ReusableConnection { idle: Arc::clone(&self.idle), connection } }
    }

    async fn waiting(&self) -> Option<SendRequest<Body>> {
        loop {
            let mut connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// Asked by ourselves, like every name: see docs/decisions/0007.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let wrong =
            |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::NotFound, error.to_string());
        let name = self.host.parse::<HostName>().map_err(|error| wrong(&error))?;
        let resolver = self.resolver.get_or_init(Resolver::of_the_host);
        let found = resolver.addresses(&name).await.map_err(|error| wrong(&error.to_string()))?;
        Ok(found.into_iter().map(|address| SocketAddr::new(address, self.port)).collect())
    }

    async fn connect(&self) -> Result<SendRequest<Body>, OutboundError> {
        let failed = |error: io::Error| OutboundError::Connect { to: self.host.clone(), error };
        let slow = |_| failed(io::Error::from(io::ErrorKind::TimedOut));
        let dial = async {
            match &self.proxy {
                // By name: the host's own configuration says where this goes.
                Some(proxy) => Ok(proxy.connect(Target::Name(&self.host, self.port)).await?.0),
                None => TcpStream::connect(&*self.addresses().await?).await,
            }
        };
        let stream = timeout(CONNECT, dial).await.map_err(slow)?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let answer = |error| OutboundError::Answer { to: self.host.clone(), error };
        match &self.tls {
            None => {
                let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(answer)?;
                tokio::spawn(connection);
                Ok(sender)
            }
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
                let stream =
                    timeout(CONNECT, connector.connect(name, stream)).await.map_err(slow)?.map_err(failed)?;
                let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(answer)?;
                tokio::spawn(connection);
                Ok(sender)
            }
        }
    }
}

/// An answer whose body is still to come. Once that is read to its end, the connection can be kept.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) connection: ReusableConnection,
}

/// A connection that may serve the next request.
pub(crate) struct ReusableConnection {
    idle: Idle,
    connection: SendRequest<Body>,
}

impl ReusableConnection {
    /// The body was read to its end.
    pub(crate) fn keep(self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(self.connection);
        }
    }
}

/// Longer than any network needs.
const CONNECT: Duration = Duration::from_secs(15);
/// As many as an agent has calls at once.
const IDLE: usize = 8;

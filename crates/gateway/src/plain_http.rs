//! HTTP in the clear: every request on a connection must want the host that the connection is for.
//!
//! A connection may carry many requests, so each one is read, judged and written anew by a library that leaves no
//! doubt where one ends and the next begins. What is refused gets a page that says why.

use crate::connection::open;
use crate::decide;
use crate::record::OpenRecord;
use crate::serving::Serving;
use crate::stream::{Counted, Side};
use belljar_audit::Ending;
use belljar_spec::egress::{HostName, Protocol, Reason, Refusal};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Serves a connection whose first bytes are a request.
pub(crate) async fn serve(inside: TcpStream, ahead: Vec<u8>, name: HostName, port: u16, serving: Arc<Serving>) {
    let route = Arc::new(Route { name, port, serving, upstream: Mutex::new(None) });
    let service = service_fn(move |request| {
        let route = Arc::clone(&route);
        async move { Ok::<_, Infallible>(route.answer(request).await) }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(BUFFER);
    // An error here is a client that went away or does not speak HTTP; both are over.
    let _ = builder.serve_connection(TokioIo::new(Side::inside(inside, ahead)), service).with_upgrades().await;
}

/// Where the requests of one connection go.
struct Route {
    name: HostName,
    port: u16,
    serving: Arc<Serving>,
    upstream: Mutex<Option<SendRequest<Incoming>>>,
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

impl Route {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Err(refusal) = self.judge(&request) {
            return self.refuse(&refusal);
        }
        match self.pass_on(request).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// One Host, and the right one; also in the request line, if it has one.
    fn judge(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        if request.method() == Method::CONNECT {
            let detail = "CONNECT is for proxies";
            return Err(self.refusal(Reason::ProtocolNotAllowed).detail(detail));
        }
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host,
            (Some(_), Some(_)) => return Err(self.refusal(Reason::HostDiffers).detail("two Host headers")),
            (None, _) => return Err(self.refusal(Reason::HostMissing)),
        };
        self.same_host(host.as_bytes())?;
        match request.uri().authority() {
            Some(authority) => self.same_host(authority.as_str().as_bytes()),
            None => Ok(()),
        }
    }

    fn same_host(&self, authority: &[u8]) -> Result<(), Refusal> {
        let text = String::from_utf8_lossy(authority);
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (&*text, Some(USUAL_PORT)),
        };
        // Without a port a client means the usual one; many leave it away at others too.
        let same_port = port == Some(self.port) || !text.contains(':');
        if same_port && host.parse::<HostName>().as_ref() == Ok(&self.name) {
            return Ok(());
        }
        Err(self.refusal(Reason::HostDiffers).detail(&text))
    }

    async fn pass_on(&self, mut request: Request<Incoming>) -> Result<Answer, Refusal> {
        let upgrade_inside = hyper::upgrade::on(&mut request);
        // The request line of a proxy's client, made the server's.
        if let Some(path) = request.uri().path_and_query().cloned()
            && request.uri().authority().is_some()
        {
            *request.uri_mut() = path.into();
        }
        let mut upstream = self.upstream.lock().await;
        let mut kept = upstream.take();
        let usable = match &mut kept {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        let mut sender = match kept {
            Some(sender) if usable => sender,
            Some(_) | None => self.connect().await?,
        };
        let mut response = sender
            .send_request(request)
            .await
            .map_err(|error| self.refusal(Reason::DialFailed).detail(&error.to_string()))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrade_outside = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(inside), Ok(outside)) = (upgrade_inside.await, upgrade_outside.await) {
                    let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
                    let _ = copy_bidirectional(&mut inside, &mut outside).await;
                }
            });
        } else {
            *upstream = Some(sender);
        }
        Ok(response.map(|body| body.boxed()))
    }

    /// A connection to the server, judged anew: the name may lead elsewhere by now.
    async fn connect(&self) -> Result<SendRequest<Incoming>, Refusal> {
        let refused = |reason: Reason| self.refusal(reason);
        let allowed = decide::opening(&self.serving.policy, &self.name, self.port).map_err(refused)?;
        let permit = self.serving.permit(allowed, Protocol::Http).await?;
        let (outside, record) = open(&permit, &self.serving).await?;
        let counted = Counted { serving: Arc::clone(&self.serving), counts: Arc::clone(&record.counts) };
        let (sender, connection) = handshake(TokioIo::new(Side::outside(outside, counted)))
            .await
            .map_err(|error| self.refusal(Reason::DialFailed).detail(&error.to_string()))?;
        tokio::spawn(until_closed(connection.with_upgrades(), record));
        Ok(sender)
    }

    fn refuse(&self, refusal: &Refusal) -> Answer {
        self.serving.recorder.connection_refused(refusal);
        let body = Full::new(Bytes::from(explanation(refusal))).map_err(|never| match never {}).boxed();
        let mut response = Response::new(body);
        *response.status_mut() = status(refusal);
        *response.version_mut() = Version::HTTP_11;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response.headers_mut().insert("connection", HeaderValue::from_static("close"));
        response
    }

    fn refusal(&self, reason: Reason) -> Refusal {
        Refusal::new(&self.name, Some(self.port), reason).protocol(Protocol::Http)
    }
}

async fn until_closed(connection: impl Future<Output = Result<(), hyper::Error>>, mut record: OpenRecord) {
    record.ending = match connection.await {
        Ok(()) => Ending::Finished,
        Err(_) => Ending::ResetOutside,
    };
}

/// The answer to a request that is refused before anything of it was read.
pub(crate) fn page(refusal: &Refusal) -> String {
    let body = explanation(refusal);
    let status = status(refusal);
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal.reason {
        Reason::NotResolved | Reason::DialFailed => StatusCode::BAD_GATEWAY,
        Reason::TooManyConnections | Reason::ByteLimit => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::FORBIDDEN,
    }
}

fn explanation(refusal: &Refusal) -> String {
    let remedy = refusal.remedy().map(|remedy| format!("\nto allow it: {remedy}")).unwrap_or_default();
    format!("belljar refused {refusal}{remedy}\n")
}

const USUAL_PORT: u16 = 80;
const HEADER: Duration = Duration::from_secs(30);
/// A request's head; more is an attack on memory.
const BUFFER: usize = 64 * 1024;

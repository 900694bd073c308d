//! HTTP in the clear: every request on a connection must want the host that the connection is for.
//!
//! A connection may carry many requests, so each one is read, judged and written anew by a library that leaves no
//! doubt where one ends and the next begins. What is refused gets a page that says why. A connection may become a
//! web socket; no other upgrade is passed on, since HTTP/2 or TLS would name a host where nobody looks.

use crate::connection::open;
use crate::decide;
use crate::record::OpenRecord;
use crate::relay::{Counts, silence};
use crate::serving::{Alive, Serving};
use crate::stream::{Counted, Side};
use belljar_audit::Ending;
use belljar_spec::egress::{HostName, Protocol, Reason, Refusal};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder as Client, SendRequest};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as Lock, PoisonError, Weak};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Serves a connection whose first bytes are a request.
pub(crate) async fn serve(
    inside: TcpStream,
    ahead: Vec<u8>,
    name: HostName,
    port: u16,
    serving: Arc<Serving>,
    alive: Alive,
) {
    let route = Arc::new(Route { name, port, serving, upstream: Mutex::default(), alive });
    let beside = Arc::clone(&route);
    let service = service_fn(move |request| {
        let route = Arc::clone(&route);
        async move { Ok::<_, Infallible>(route.answer(request).await) }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(BUFFER);
    // A client that has said all still waits for its answer.
    builder.half_close(true);
    // An error here is a client that went away or does not speak HTTP; both are over.
    let _ =
        builder.serve_connection(TokioIo::new(Side::inside(inside, ahead)), service).with_upgrades().await;
    // A connection that became another protocol goes on beside it.
    let mut upstream = std::mem::take(&mut *beside.upstream.lock().await);
    upstream.sender = None;
    while upstream.tasks.join_next().await.is_some() {}
}

/// Where the requests of one connection go.
struct Route {
    name: HostName,
    port: u16,
    serving: Arc<Serving>,
    upstream: Mutex<Upstream>,
    alive: Alive,
}

/// The connection to the server, and what runs beside the requests.
#[derive(Default)]
struct Upstream {
    sender: Option<Sender>,
    tasks: JoinSet<()>,
}

/// Requests go in here.
struct Sender {
    requests: SendRequest<Incoming>,
    counts: Arc<Counts>,
    /// Kept by who drives the connection, and by who goes on with it as something else.
    record: Weak<Lock<OpenRecord>>,
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
        if !has_one_length(request.headers()) {
            let detail = "servers would not agree where the request ends";
            return Err(self.refusal(Reason::MalformedStart).detail(detail));
        }
        match request.uri().authority() {
            Some(authority) => self.same_host(authority.as_str().as_bytes()),
            None => Ok(()),
        }
    }

    /// Letter by letter, but for their case: the server reads what was written, and not what we made of it.
    fn same_host(&self, authority: &[u8]) -> Result<(), Refusal> {
        let text = String::from_utf8_lossy(authority);
        // Without a port a client means the usual one; many leave it away at others too.
        let host = text.strip_suffix(&format!(":{}", self.port)).unwrap_or(&text);
        let host = host.strip_suffix('.').unwrap_or(host);
        if host.eq_ignore_ascii_case(self.name.as_str()) {
            return Ok(());
        }
        Err(self.refusal(Reason::HostDiffers).detail(&text))
    }

    async fn pass_on(&self, mut request: Request<Incoming>) -> Result<Answer, Refusal> {
        let web_socket = is_web_socket(request.headers());
        if !web_socket {
            // The server goes on in HTTP/1, as servers do that know of no upgrade (RFC 9110, 7.8).
            for header in [CONNECTION, UPGRADE, HTTP2_SETTINGS] {
                request.headers_mut().remove(header);
            }
        }
        let upgrade_inside = hyper::upgrade::on(&mut request);
        // The request line of a proxy's client, made the server's.
        if let Some(path) = request.uri().path_and_query().cloned()
            && request.uri().authority().is_some()
        {
            *request.uri_mut() = path.into();
        }
        let mut upstream = self.upstream.lock().await;
        let mut kept = upstream.sender.take();
        let usable = match &mut kept {
            Some(sender) => sender.requests.ready().await.is_ok(),
            None => false,
        };
        let mut sender = match kept {
            Some(sender) if usable => sender,
            Some(_) | None => self.connect(&mut upstream.tasks).await?,
        };
        // Taken before: with the answer the connection is no longer that of requests, and its record would end.
        let record = sender.record.upgrade().filter(|_| web_socket);
        let mut response = sender
            .requests
            .send_request(request)
            .await
            .map_err(|error| self.failed(&error, &sender.counts))?;
        match (response.status() == StatusCode::SWITCHING_PROTOCOLS, record) {
            (false, _) => upstream.sender = Some(sender),
            (true, None) => {
                let detail = "the server changes to a protocol that nobody asked for";
                return Err(self.refusal(Reason::DialFailed).detail(detail));
            }
            (true, Some(record)) => {
                let upgrade_outside = hyper::upgrade::on(&mut response);
                let open = self.keep(record);
                upstream.tasks.spawn(async move {
                    if let (Ok(inside), Ok(outside)) = (upgrade_inside.await, upgrade_outside.await) {
                        open.go_on(TokioIo::new(inside), TokioIo::new(outside)).await;
                    }
                });
            }
        }
        Ok(response.map(|body| body.boxed()))
    }

    /// A connection to the server, judged anew: the name may lead elsewhere by now.
    async fn connect(&self, tasks: &mut JoinSet<()>) -> Result<Sender, Refusal> {
        let refused = |reason: Reason| self.refusal(reason);
        let allowed = decide::opening(&self.serving.policy, &self.name, self.port).map_err(refused)?;
        let permit = self.serving.permit(allowed, Protocol::Http).await?;
        let (outside, record) = open(&permit, &self.serving).await?;
        let counts = Arc::clone(&record.counts);
        let counted = Counted { serving: Arc::clone(&self.serving), counts: Arc::clone(&counts) };
        let mut client = Client::new();
        client.max_buf_size(BUFFER);
        let outside = TokioIo::new(Side::outside(outside, counted));
        let (requests, connection) =
            client.handshake(outside).await.map_err(|error| self.failed(&error, &counts))?;
        let record = Arc::new(Lock::new(record));
        let sender = Sender { requests, counts, record: Arc::downgrade(&record) };
        let open = self.keep(record);
        tasks.spawn(async move { open.until_closed(connection.with_upgrades()).await });
        Ok(sender)
    }

    fn keep(&self, record: Arc<Lock<OpenRecord>>) -> Open {
        let serving = Arc::clone(&self.serving);
        Open { record, serving, limit: self.refusal(Reason::ByteLimit), _alive: self.alive.clone() }
    }

    fn failed(&self, error: &hyper::Error, counts: &Counts) -> Refusal {
        match counts.ran_out.load(Ordering::Relaxed) {
            true => self.refusal(Reason::ByteLimit),
            false => self.refusal(Reason::DialFailed).detail(&error.to_string()),
        }
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

/// A connection to the server, by who watches over it.
struct Open {
    // Dropped in this order: the record is written before nobody is left to write.
    record: Arc<Lock<OpenRecord>>,
    serving: Arc<Serving>,
    /// What is said when the sandbox has no bytes left.
    limit: Refusal,
    _alive: Alive,
}

impl Open {
    async fn until_closed(self, connection: impl Future<Output = Result<(), hyper::Error>>) {
        let counts = Arc::clone(&lock(&self.record).counts);
        let ending = tokio::select! {
            outcome = connection => match outcome {
                _ if counts.ran_out.load(Ordering::Relaxed) => Ending::ByteLimit,
                Ok(()) => Ending::Finished,
                Err(_) => Ending::ResetOutside,
            },
            () = silence(&counts) => Ending::IdleTimeout,
        };
        self.end(ending);
    }

    /// Bytes both ways, until the end or a long silence.
    async fn go_on(self, mut inside: TokioIo<Upgraded>, mut outside: TokioIo<Upgraded>) {
        let counts = Arc::clone(&lock(&self.record).counts);
        let ending = tokio::select! {
            ended = copy_bidirectional(&mut inside, &mut outside) => match ended {
                Ok(_) => Ending::Finished,
                Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Ending::ByteLimit,
                Err(_) => Ending::ResetOutside,
            },
            () = silence(&counts) => Ending::IdleTimeout,
        };
        self.end(ending);
    }

    fn end(&self, ending: Ending) {
        if ending == Ending::ByteLimit {
            self.serving.recorder.connection_refused(&self.limit);
        }
        lock(&self.record).ending = ending;
    }
}

/// A record is whole at any time, whatever happened to who held it.
fn lock(record: &Lock<OpenRecord>) -> std::sync::MutexGuard<'_, OpenRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says once, and in one way, how long it is. The library reads more than that, and writes it on as it came.
pub(crate) fn has_one_length(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => lengths <= 1,
        (Some(encoding), None) => lengths == 0 && encoding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Asks for a web socket, and for nothing else.
fn is_web_socket(headers: &HeaderMap) -> bool {
    let mut wanted = headers.get_all(UPGRADE).iter();
    match (wanted.next(), wanted.next()) {
        (Some(only), None) => only.as_bytes().eq_ignore_ascii_case(b"websocket"),
        _ => false,
    }
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

/// What a client adds that would go on in HTTP/2 (RFC 7540, 3.2.1).
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const HEADER: Duration = Duration::from_secs(30);
/// A request's head; more is an attack on memory.
const BUFFER: usize = 64 * 1024;

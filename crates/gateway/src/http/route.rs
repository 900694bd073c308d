//! One connection's way: where its requests go, and what becomes of each.

use super::answer;
use super::body::{Body, BodyError, Passing, Redacted, Verdict, Watched, drain};
use super::framed::Framing;
use super::judge::{complete, judge};
use super::legible::illegible;
use super::override_headers::override_in;
use super::push::PushRequest;
use super::range::RangeRequest;
use super::upstream::{Sender, Start, Upstream};
use super::web_socket::Upgrade;
use crate::credentials::{Origin, Redact, Screened, Watch};
use crate::decide;
use crate::record::OpenRecord;
use crate::serving::{Alive, Serving};
use belljar_spec::egress::{Reason, Refusal, RuleLabel};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::Scheme;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Lock};
use tokio::sync::Mutex;

/// Where the requests of one connection go.
pub(crate) struct Route {
    pub(super) to: Origin,
    pub(super) serving: Arc<Serving>,
    pub(super) alive: Alive,
    pub(super) upstream: Mutex<Upstream>,
    /// Why nothing goes anywhere.
    refused: Option<Refusal>,
    /// Whether a request was refused.
    pub(super) has_refused: AtomicBool,
}

/// An answer, or that there is none: then the client sees what we saw, a connection or a stream that ended.
pub(super) type Answered = Result<Response<Body>, BodyError>;

/// Why a request has no answer of its server.
pub(super) enum Stop {
    Refused(Box<Refusal>),
    /// The server broke off, or the client.
    Broken(BodyError),
}

/// A request that went out, and what came back.
pub(super) struct Sent {
    pub(super) sender: Sender,
    record: Option<Arc<Lock<OpenRecord>>>,
    pub(super) outcome: Result<Response<Incoming>, hyper::Error>,
}

/// What becomes of an answer that is searched for secrets.
pub(super) struct Search {
    redact: Redact,
    /// The part of it that was asked for.
    range: Option<RangeRequest>,
    /// Whether it may be a stream of messages.
    is_grpc: bool,
}

/// What is sent behind a head, and what may come of looking at it.
pub(super) struct Outgoing {
    pub(super) body: Body,
    pub(super) verdict: Option<Verdict>,
}

impl Route {
    /// To this place, from where the connection is by now.
    pub(crate) fn new(to: Origin, serving: Arc<Serving>, alive: Alive, start: Start) -> Arc<Route> {
        let mut upstream = Upstream::default();
        let refused = match start {
            Start::InTheClear => None,
            Start::Reached(Ok(reached)) => {
                upstream.alpn = reached.alpn;
                upstream.first = Some(reached);
                None
            }
            Start::Reached(Err(refusal)) => Some(refusal),
        };
        let has_refused = AtomicBool::new(false);
        Arc::new(Route { to, serving, alive, upstream: Mutex::new(upstream), refused, has_refused })
    }

    pub(super) async fn answer(&self, mut request: Request<Incoming>) -> Answered {
        let upgrade = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        let version = head.version;
        let expects = head.headers.contains_key(EXPECT);
        let push = self.serving.pushes.as_ref().map(|pushes| (pushes, PushRequest::of(&head)));
        let range = RangeRequest::by(&head.method, &head.headers);
        let is_grpc = version == Version::HTTP_2 && says_grpc(&head.headers);
        let screened = match self.admit(&mut head).await {
            Ok(screened) => screened,
            Err(refusal) => {
                // A client that waits for `100 Continue` sends no body before.
                if version < Version::HTTP_2 && !expects {
                    drain(body).await;
                }
                return Ok(self.refuse(&refusal, version));
            }
        };
        let outgoing = self.outgoing(body, version, screened.request);
        let search = screened.response.map(|redact| Search { redact, range, is_grpc });
        let outcome = match push {
            Some((pushes, Some(push_request))) => {
                self.push(pushes, push_request, head, outgoing, search, upgrade).await
            }
            Some((_, None)) | None => self.pass_on(head, outgoing, search, upgrade).await,
        };
        match outcome {
            Ok(response) => Ok(response),
            Err(Stop::Refused(refusal)) => Ok(self.refuse(&refusal, version)),
            Err(Stop::Broken(error)) => Err(error),
        }
    }

    /// Judges a request, and makes it the one that is sent.
    pub(super) async fn admit(&self, head: &mut Parts) -> Result<Screened, Refusal> {
        if let Some(refusal) = &self.refused {
            return Err(refusal.clone());
        }
        complete(head, &self.to);
        judge(head, &self.to)?;
        if let Upgrade::Other(protocol) = Upgrade::of(head) {
            let detail = format!("Upgrade: {protocol}");
            return Err(self.to.refusal(Reason::ProtocolNotAllowed).detail(&detail));
        }
        let Origin { name, port, .. } = &self.to;
        if self.serving.limits_requests(name, *port)
            && let Some(detail) = override_in(&head.headers, head.uri.query())
        {
            return Err(self.to.refusal(Reason::RequestMalformed).detail(&detail));
        }
        let (method, path) = (head.method.as_str(), head.uri.path());
        decide::request(&self.serving.policy, name, *port, self.to.speaks(), method, path)
            .map_err(|reason| self.to.refusal(reason).request(method, path, self.rule()))?;
        let screened = self.serving.credentials.screen(&self.to, head).await?;
        self.aim(head);
        Ok(screened)
    }

    /// The first rule about requests here, for a request that all of them refused.
    fn rule(&self) -> Option<RuleLabel> {
        let Origin { name, port, .. } = &self.to;
        let mut rules = self.serving.policy.allow.iter();
        let rule = rules.find(|rule| rule.requests.is_some() && rule.matches(name, Some(*port)));
        rule.map(|rule| rule.label.clone())
    }

    /// Makes the target one for a server: a proxy's client writes all of the URL. Its path stays as it was written.
    fn aim(&self, head: &mut Parts) {
        if head.version >= Version::HTTP_2 {
            // One place to say it; the two are the same by now.
            let host = head.headers.remove(HOST);
            let mut parts = std::mem::take(&mut head.uri).into_parts();
            let host_header = || host.as_ref().and_then(|host| host.as_bytes().try_into().ok());
            parts.authority = parts.authority.or_else(host_header);
            parts.scheme = Some(Scheme::HTTPS);
            head.uri = Uri::from_parts(parts).unwrap_or_default();
        } else if let Some(path) = head.uri.path_and_query().cloned()
            && head.uri.authority().is_some()
        {
            head.uri = path.into();
        }
    }

    /// The body of a request, watched if it has to be.
    fn outgoing(&self, body: Incoming, version: Version, watch: Option<Watch>) -> Outgoing {
        let body = Passing::new(body, version);
        match watch {
            None => Outgoing { body: body.boxed_unsync(), verdict: None },
            Some(watch) => {
                let (body, verdict) = Watched::new(body, watch, &self.serving.credentials, &self.to);
                Outgoing { body: body.boxed_unsync(), verdict: Some(verdict) }
            }
        }
    }

    pub(super) async fn pass_on(
        &self,
        mut head: Parts,
        Outgoing { body, verdict }: Outgoing,
        search: Option<Search>,
        upgrade: OnUpgrade,
    ) -> Result<Response<Body>, Stop> {
        let web_socket = match Upgrade::of(&head) {
            Upgrade::WebSocket(request) => Some(request),
            Upgrade::None | Upgrade::Other(_) => None,
        };
        if head.version < Version::HTTP_2 {
            // The server continues in HTTP/1, as servers do that know of no upgrade (RFC 9110, 7.8).
            for header in [CONNECTION, UPGRADE, HTTP2_SETTINGS] {
                head.headers.remove(header);
            }
        }
        if web_socket.is_some() {
            // Written anew: other words there tell the servers on the way which headers to drop.
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        }
        if web_socket.is_some() && search.is_some() {
            // What is compressed cannot be looked at.
            head.headers.remove(WEB_SOCKET_EXTENSIONS);
        }
        let refused = |refusal: Refusal| Stop::Refused(Box::new(refusal));
        let Sent { mut sender, record, outcome } =
            self.send(Request::from_parts(head, body)).await.map_err(refused)?;
        let mut response = match outcome {
            Ok(response) => response,
            Err(error) => {
                let found = verdict.and_then(|verdict| verdict.get().cloned());
                return Err(match found {
                    Some(refusal) => refused(refusal),
                    None if sender.is_used || !sender.is_for_one() => Stop::Broken(error.into()),
                    None => refused(sender.connection().failed(self, &error)),
                });
            }
        };
        let is_accepted = web_socket.is_some_and(|request| request.is_accepted_by(response.headers()));
        let record = record.filter(|_| is_accepted);
        match (response.status() == StatusCode::SWITCHING_PROTOCOLS, record) {
            (false, _) => {
                if sender.is_for_one() {
                    sender.keep(&mut *self.upstream.lock().await);
                }
                self.received(response, search).map_err(refused)
            }
            (true, None) => {
                let detail =
                    "the server changes to another protocol, and to no web socket that was asked for";
                Err(refused(self.to.refusal(Reason::DialFailed).detail(detail)))
            }
            (true, Some(record)) => {
                let outside = hyper::upgrade::on(&mut response);
                let open = self.keep(record);
                let redact = search.map(|search| search.redact);
                if let Some(redact) = &redact {
                    redact.headers(response.headers_mut());
                    response.extensions_mut().remove::<ReasonPhrase>();
                }
                sender.is_used = true;
                self.upstream.lock().await.tasks.spawn(async move {
                    if let (Ok(inside), Ok(outside)) = (upgrade.await, outside.await) {
                        open.resume(TokioIo::new(inside), TokioIo::new(outside), redact).await;
                    }
                });
                Ok(passed(response))
            }
        }
    }

    /// Sends a request on the connection that there is. One that was closed meanwhile gave it back, and a new one takes
    /// it; what was sent in part is never sent again.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Sent, Refusal> {
        let mut request = request;
        for _ in 0..ATTEMPTS {
            let mut upstream = self.upstream.lock().await;
            let mut shared = Sender::share(&mut upstream);
            let usable = match &mut shared {
                Some(sender) => sender.is_ready().await,
                None => false,
            };
            let mut sender = match shared {
                Some(sender) if usable => sender,
                Some(_) | None => {
                    upstream.sender = None;
                    let sender = self.connect(&mut upstream).await?;
                    match sender.is_for_one() {
                        true => sender,
                        false => {
                            sender.keep(&mut upstream);
                            Sender::share(&mut upstream).ok_or_else(|| self.to.refusal(Reason::DialFailed))?
                        }
                    }
                }
            };
            drop(upstream);
            // Taken before: with the answer the connection may no longer be that of requests, and its record would end.
            let record = sender.record();
            let outcome = match sender.send(request).await {
                Ok(response) => Ok(response),
                Err(mut unsent) => match unsent.take_message() {
                    Some(message) => {
                        request = message;
                        continue;
                    }
                    None => Err(unsent.into_error()),
                },
            };
            return Ok(Sent { sender, record, outcome });
        }
        Err(self.to.refusal(Reason::DialFailed).detail("the server closes every connection"))
    }

    /// An answer, without what the sandbox must not see.
    fn received(
        &self,
        response: Response<Incoming>,
        search: Option<Search>,
    ) -> Result<Response<Body>, Refusal> {
        let Some(Search { redact, range, is_grpc }) = search else { return Ok(passed(response)) };
        let (mut head, body) = response.into_parts();
        let is_illegible = !body.is_end_stream() && illegible(&head.headers).is_some();
        // Before the refusal, which repeats what a header says: to the sandbox and in the audit log.
        redact.headers(&mut head.headers);
        if is_illegible {
            let why = illegible(&head.headers).map(|why| why.to_string()).unwrap_or_default();
            return Err(self.to.refusal(Reason::EncodedResponse).detail(&why));
        }
        // No server of gRPC says a length; one that repeats a body often does.
        let has_length = head.headers.contains_key(CONTENT_LENGTH);
        let framing = match is_grpc && says_grpc(&head.headers) && !has_length {
            true => Framing::grpc(),
            false => Framing::Plain,
        };
        // Words of the server's own, which the library would write on. The status has words of its own.
        head.extensions.remove::<ReasonPhrase>();
        let mut body = Redacted::new(Passing::new(body, head.version), redact, framing).boxed_unsync();
        if let Some(range) = range {
            body = range.of(&mut head, body);
        }
        Ok(Response::from_parts(head, body))
    }

    fn refuse(&self, refusal: &Refusal, version: Version) -> Response<Body> {
        self.record_refusal(refusal);
        match (self.to.secure, version) {
            (false, _) => answer::last(answer::text(refusal)),
            (true, Version::HTTP_2) => answer::json(refusal),
            (true, _) => answer::last(answer::json(refusal)),
        }
    }

    pub(super) fn record_refusal(&self, refusal: &Refusal) {
        self.has_refused.store(true, Ordering::Relaxed);
        self.serving.recorder.connection_refused(refusal);
    }
}

/// Whether a body is a stream of gRPC's messages, by what its head says.
fn says_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes).to_ascii_lowercase();
    kind.strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

fn passed(response: Response<Incoming>) -> Response<Body> {
    let version = response.version();
    response.map(|body| Passing::new(body, version).boxed_unsync())
}

/// What a client adds that would continue in HTTP/2 (RFC 7540, 3.2.1).
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const WEB_SOCKET_EXTENSIONS: HeaderName = HeaderName::from_static("sec-websocket-extensions");
/// A connection that was closed just now, a new one, and one more for a server that is being restarted.
const ATTEMPTS: usize = 3;

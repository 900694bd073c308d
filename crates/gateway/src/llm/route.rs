//! The server on loopback inside, and what it does with each request.

use super::answer::Answer;
use super::body::Question;
use super::call::{Call, End, Most};
use super::headers::{self, BillingHeaders};
use super::ledger::{Ledger, Takes};
use super::paths::{self, Api, ApiCall, Purpose};
use super::refusal::{Body, Refused, acceptable, elsewhere};
use super::stored_context::StoredContext;
use crate::credentials::{Known, Redact};
use crate::http::{has_one_length, illegible};
use crate::outbound::{Outbound, OutboundError};
use crate::record::Recorder;
use crate::serving::{Alive, Serving};
use crate::upstream_proxy::Proxy;
use belljar_audit::Event;
use belljar_spec::SandboxId;
use belljar_spec::egress::{Printable, Reason};
use belljar_spec::llm::{LlmOutcomes, LlmRoute, LlmTotals, Price, PriceOrigin, UpstreamKind};
use belljar_vault::SecretStore;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, UPGRADE};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use url::Url;

/// A sandbox's route to its model.
pub struct Route {
    terms: LlmRoute,
    outbound: Outbound,
    secrets: Arc<dyn SecretStore>,
    /// Every key that was shown to the upstream.
    known: Arc<Known>,
    recorder: Arc<Recorder>,
    billing: BillingHeaders,
    ledger: Arc<Ledger>,
    /// Calls at once.
    places: Arc<Semaphore>,
    /// Memory for questions, in KiB.
    room: Arc<Semaphore>,
}

/// A request that may leave, with the key in it.
struct Admitted {
    request: Request<crate::outbound::Body>,
    call: Call,
    /// What blots the key out of the answer.
    redact: Option<Redact>,
    place: OwnedSemaphorePermit,
}

/// Why there is no route.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error("{0}")]
    Upstream(String),
    #[error("the account to bill cannot be in a header: use visible letters without line breaks")]
    Account,
}

impl Route {
    /// A route on these terms, for a sandbox with this id.
    pub fn new(
        terms: LlmRoute,
        run: SandboxId,
        secrets: Arc<dyn SecretStore>,
        recorder: Arc<Recorder>,
        proxy: Option<Arc<Proxy>>,
    ) -> Result<Route, RouteError> {
        let wrong = |error: &dyn std::fmt::Display| RouteError::Upstream(error.to_string());
        let url = Url::parse(terms.upstream.as_str()).map_err(|error| wrong(&error))?;
        let ledger = Ledger::new(terms.budget);
        let at_once = if ledger.counts_answers() { AT_ONCE_COUNTED } else { AT_ONCE };
        Ok(Route {
            outbound: Outbound::new(&url, &terms.trust).map_err(|error| wrong(&error))?.through(proxy),
            billing: BillingHeaders::new(&terms.billing, run).ok_or(RouteError::Account)?,
            ledger: Arc::new(ledger),
            terms,
            secrets,
            known: Arc::default(),
            recorder,
            places: Arc::new(Semaphore::new(at_once)),
            room: Arc::new(Semaphore::new(ROOM)),
        })
    }

    /// What was used so far.
    pub fn totals(&self) -> LlmTotals {
        self.ledger.totals()
    }

    /// The models that answered, as the upstream calls them.
    pub fn models(&self) -> Vec<String> {
        self.ledger.models()
    }

    /// What became of calls so far.
    pub fn outcomes(&self) -> LlmOutcomes {
        self.ledger.outcomes()
    }

    /// Serves a connection to its end. A client that goes away cancels its call: there is no reader for the answer.
    pub(crate) async fn serve(self: Arc<Route>, inside: TcpStream, serving: Arc<Serving>, alive: Alive) {
        let Some(_seat) = serving.take_seat() else { return };
        let _ = inside.set_nodelay(true);
        let service = service_fn(move |request| {
            let (route, serving) = (Arc::clone(&self), Arc::clone(&serving));
            async move { Ok::<_, Infallible>(route.answer(request, serving).await) }
        });
        let mut builder = Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(BUFFER);
        let _ = builder.serve_connection(TokioIo::new(inside), service).await;
        drop(alive);
    }

    async fn answer(&self, request: Request<Incoming>, serving: Arc<Serving>) -> Response<Body> {
        let api_call = paths::understand(self.terms.kind, request.method(), request.uri());
        let api = api_call.as_ref().map_or_else(|| usual(self.terms.kind), |api_call| api_call.api);
        let path = Printable::from(request.uri().path());
        let mut model = None;
        let outcome = match api_call {
            Some(api_call) => {
                let is_call = api_call.purpose == Purpose::Call;
                match self.admit(request, api_call, &mut model, &serving).await {
                    Ok(admitted) => self.send(admitted, serving).await,
                    Err(refused) => {
                        if is_call {
                            self.ledger.turned_away(refused.reason);
                        }
                        Err(refused)
                    }
                }
            }
            None => Err(elsewhere(&request)),
        };
        outcome.unwrap_or_else(|refused| {
            self.ledger.refused();
            self.recorder.model_refused(model, path, refused.reason, &refused.detail);
            refused.response(api)
        })
    }

    /// Whether a request may leave, and how it does then.
    async fn admit(
        &self,
        request: Request<Incoming>,
        api_call: ApiCall,
        model: &mut Option<Printable>,
        serving: &Serving,
    ) -> Result<Admitted, Refused> {
        let (head, body) = request.into_parts();
        if !has_one_length(&head.headers) || head.headers.contains_key(UPGRADE) {
            let what = "it has two lengths, or wants another protocol";
            return Err(Refused::new(Reason::RequestMalformed, what));
        }
        if !headers::is_json(&head.headers) || !headers::is_plain(&head.headers) {
            let what = "the body has to be JSON in UTF-8, not compressed";
            return Err(Refused::new(Reason::RequestMalformed, what));
        }
        let announced =
            head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (question, room) = match api_call.purpose {
            Purpose::List => (None, None),
            Purpose::Call | Purpose::Count => {
                let (bytes, room) = self.read(body, announced).await?;
                let question = Question::understand(self.terms.kind, &api_call, &bytes)
                    .map_err(|what| Refused::new(Reason::RequestMalformed, what))?;
                *model = Some(question.model.as_str().into());
                (Some(question), Some(room))
            }
        };
        let mut headers = headers::outgoing(&head.headers, self.terms.kind, &self.billing);
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let price = match &question {
            Some(question) => self.judge(question, api_call.purpose, second)?,
            None => None,
        };
        let is_free = price.as_ref().is_some_and(|(price, _)| price.is_free(second));
        // Read at each call: a key that was changed counts from now on.
        let redact = self.show_key(&mut headers)?;
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Refused::new(Reason::TooManyConnections, ""))?;
        let refused = |(reason, what)| Refused::new(reason, what);
        let number = self.ledger.take(Takes::from(&api_call), is_free).map_err(refused)?;
        let streamed = question.as_ref().is_some_and(|question| question.streamed);
        let offers_tools = question.as_ref().is_some_and(|question| question.offers_tools);
        let (longest, answers) =
            question.as_ref().map_or((None, 1), |question| (question.longest, question.answers));
        let speaks = api_call.purpose == Purpose::Call && api_call.api != Api::Embeddings;
        let most = question.as_ref().filter(|_| self.ledger.limits_tokens()).map(|question| {
            let output = if speaks { longest } else { Some(0) };
            Most::of(question.bytes.len(), &StoredContext::by(&question.bytes), output, answers, &self.ledger)
        });
        let bytes = question.map_or_else(Vec::new, |question| question.bytes);
        let sent = bytes.len();
        let mut request = Request::new(body_of(InRoom { bytes, _room: room }));
        *request.method_mut() = head.method;
        *request.headers_mut() = headers;
        let target = paths::on_upstream(self.terms.kind, self.terms.upstream.path(), &api_call);
        *request.uri_mut() =
            target.parse().map_err(|_| Refused::new(Reason::RequestMalformed, "the path is none"))?;
        let mut call = Call {
            number,
            ledger: Arc::clone(&self.ledger),
            recorder: Arc::clone(&self.recorder),
            api_call,
            model: model.clone(),
            streamed,
            offers_tools,
            longest: longest.map(|longest| longest.saturating_mul(answers)),
            most,
            price,
            second,
            since: Instant::now(),
            sent,
            seen: None,
            over: false,
        };
        if serving.meter.spend(sent as u64).is_err() {
            call.forget();
            return Err(Refused::new(Reason::ByteLimit, ""));
        }
        let noted = self.recorder.write(&Event::ModelAsked {
            call: number,
            model: call.model.clone(),
            path: call.api_call.path.as_str().into(),
            streamed,
        });
        if noted.is_err() {
            call.forget();
            return Err(Refused::new(Reason::NotRecorded, ""));
        }
        Ok(Admitted { request, call, redact, place })
    }

    /// Lets it leave, and passes on what comes back.
    async fn send(&self, admitted: Admitted, serving: Arc<Serving>) -> Result<Response<Body>, Refused> {
        let Admitted { request, mut call, redact, place } = admitted;
        let answer = match timeout(THINKING, self.outbound.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let is_reached = !matches!(error, OutboundError::Connect { .. });
                call.end(if is_reached { End::BrokenOff } else { End::Unreachable });
                return Err(Refused::new(Reason::DialFailed, error.to_string()).for_the_record());
            }
            Err(_) => {
                call.end(End::TooSlow);
                return Err(Refused::new(Reason::TooSlow, "the model did not answer"));
            }
        };
        let (mut head, incoming) = answer.response.into_parts();
        // Before anything of it is passed on or written down.
        if let Some(redact) = &redact {
            redact.headers(&mut head.headers);
        }
        call.answered(head.status, &head.headers);
        acceptable(head.status, illegible(&head.headers)).inspect_err(|_| call.end(End::Finished))?;
        let headers = headers::incoming(&head.headers);
        let body = Answer::new(incoming, redact, call, answer.connection, serving, place);
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// All of a question, and its place in the room: clients cannot make the host keep more of them than there is room for.
    async fn read(
        &self,
        mut body: Incoming,
        announced: Option<usize>,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refused> {
        let too_large = || Refused::new(Reason::TooLarge, format!("no more than {} MiB", LARGEST >> 20));
        let mut bytes: Vec<u8> = Vec::new();
        let more = |kib: usize| Arc::clone(&self.room).try_acquire_many_owned(kib as u32);
        let mut room = more(0).map_err(|_| too_large())?;
        let all = async {
            if announced.is_some_and(|length| length > LARGEST) {
                return Err(too_large());
            }
            while let Some(frame) = body.frame().await {
                let gone = |_| Refused::new(Reason::RequestMalformed, "the body breaks off");
                // What comes behind a body in chunks is left out.
                let Ok(piece) = frame.map_err(gone)?.into_data() else { continue };
                if bytes.len() + piece.len() > LARGEST {
                    return Err(too_large());
                }
                let needed = (bytes.len() + piece.len()).div_ceil(1024) - room.num_permits();
                let busy = |_| Refused::new(Reason::TooLarge, "too many large requests at once");
                room.merge(more(needed).map_err(busy)?);
                bytes.extend_from_slice(&piece);
            }
            Ok(())
        };
        let late = |_| Refused::new(Reason::SilentClient, "the body did not come");
        let outcome = timeout(READING, all).await.map_err(late)?;
        if outcome.is_err() {
            // Most clients read no answer before they have said all.
            let _ = timeout(DISCARDING, discard(&mut body)).await;
        }
        outcome.map(|()| (bytes, room))
    }

    /// Whether a model may be called, and what it costs.
    fn judge(
        &self,
        question: &Question,
        purpose: Purpose,
        second: u64,
    ) -> Result<Option<(Price, PriceOrigin)>, Refused> {
        let Question { model, streamed, .. } = question;
        if !self.terms.allows(model) {
            return Err(Refused::new(
                Reason::ModelNotAllowed,
                format!("`{}`", Printable::from(model.as_str())),
            ));
        }
        let is_reported = self.terms.kind == UpstreamKind::LiteLlm && !streamed;
        if purpose == Purpose::Call && self.terms.lacks_price(model, second) && !is_reported {
            let what = format!("`{}` has no price", Printable::from(model.as_str()));
            return Err(Refused::new(Reason::PriceUnknown, what));
        }
        Ok(self.terms.price(model).map(|(price, origin)| (price.clone(), origin)))
    }

    fn show_key(&self, headers: &mut hyper::HeaderMap) -> Result<Option<Redact>, Refused> {
        let Some(reference) = &self.terms.key else { return Ok(None) };
        // Why it cannot be read is for the host to know.
        let unavailable = || Refused::new(Reason::SecretUnavailable, "the key for the model");
        let key = self.secrets.read(reference).map_err(|_| unavailable())?;
        headers::show_key(headers, self.terms.kind, &key).ok_or_else(unavailable)?;
        // Ordinary text would be full of one that is so short.
        if key.len() >= SHORTEST_KEY {
            self.known.remember(&key, b"*");
        }
        Ok(Some(Redact::new(&self.known)))
    }
}

/// Reads on for a while.
async fn discard(body: &mut Incoming) {
    let mut left = 4 * LARGEST;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(less) => left = less,
            None => return,
        }
    }
}

/// In whose shape errors are told where the path does not say.
fn usual(kind: UpstreamKind) -> Api {
    match kind {
        UpstreamKind::Anthropic => Api::Anthropic,
        UpstreamKind::Gemini => Api::Gemini,
        UpstreamKind::LiteLlm | UpstreamKind::OpenAi => Api::Chat,
    }
}

fn body_of(question: InRoom) -> crate::outbound::Body {
    Full::new(Bytes::from_owner(question)).map_err(|never| match never {}).boxed()
}

/// A question that waits for its turn or is on its way. Its room is free again when the last byte of it has left.
struct InRoom {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for InRoom {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a token of text has, more or less.
pub(super) const BYTES_OF_A_TOKEN: u64 = 4;
/// What large models say, more or less.
pub(super) const TOKENS_OF_A_SECOND: u64 = 100;
/// More than agents have at once; the others wait.
const AT_ONCE: usize = 64;
/// Where what answers come to is limited: it is known when they are over, so as many may go above. An agent has one call
/// at a time, or a few helpers.
const AT_ONCE_COUNTED: usize = 4;
/// Pictures and long contexts; providers take 32 MiB.
const LARGEST: usize = 64 << 20;
/// In KiB: of all questions of one sandbox together.
const ROOM: usize = 192 << 10;
const SHORTEST_KEY: usize = 8;
/// Of a head; more is refused by the library.
const BUFFER: usize = 64 << 10;
/// A client that begins says its head at once; one that waits between calls may dial again.
const HEADER: Duration = Duration::from_secs(90);
const READING: Duration = Duration::from_secs(120);
const DISCARDING: Duration = Duration::from_secs(10);
/// Until the head of an answer; without a stream that is all of the thinking.
const THINKING: Duration = Duration::from_secs(3600);

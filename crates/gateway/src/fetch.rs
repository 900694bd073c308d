//! Fetching for a sandbox, on the host: the same decision, the same record, and every redirect is a new connection.

use crate::connection::open;
use crate::credentials::Origin;
use crate::decide;
use crate::http::override_in;
use crate::pushes::{Named, named};
use crate::record::OpenRecord;
use crate::relay::Counts;
use crate::serving::Serving;
use crate::stream::{Counted, Side};
use crate::trust::{self, TrustError};
use belljar_audit::{Ending, Event};
use belljar_spec::egress::{Destination, HostName, Protocol, Reason, Refusal, RuleLabel};
use belljar_spec::{FetchRequest, FetchResponse};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

/// Why nothing came of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Policy says no; not an error of the network.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The request cannot be made as it is.
    #[error("{0}")]
    Invalid(String),
    /// It went wrong on the way.
    #[error("{0}")]
    Failed(String),
}

pub(crate) async fn fetch(serving: Arc<Serving>, request: FetchRequest) -> Result<FetchResponse, FetchError> {
    let limit = request.timeout;
    let method = request.method.clone();
    let outcome = match timeout(limit, follow(&serving, &request)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            Err(FetchError::Refused(Box::new(Refusal::new(destination(&request.url), None, Reason::TooSlow))))
        }
    };
    if let Err(FetchError::Refused(refusal)) = &outcome {
        serving.recorder.fetch_refused(refusal, &method);
    }
    outcome
}

async fn follow(serving: &Arc<Serving>, request: &FetchRequest) -> Result<FetchResponse, FetchError> {
    let mut step = Step::first(request)?;
    // One for all of its connections, which come one after the other: each ends when its answer is dropped.
    let _seat = serving.take_seat().ok_or_else(|| step.refused(Reason::TooManyConnections))?;
    for _ in 0..=request.max_redirects {
        let taken = step.take(serving, request).await?;
        let next = (request.max_redirects > 0).then(|| step.redirected(&taken.response)).flatten();
        match next {
            Some(next) => step = next?,
            None => return step.finish(serving, request, taken).await,
        }
    }
    Err(step.refused(Reason::TooManyRedirects))
}

/// One request of a fetch.
struct Step {
    url: Url,
    name: HostName,
    port: u16,
    protocol: Protocol,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

/// The beginning of an answer.
struct Taken {
    response: Response<Incoming>,
    rule: RuleLabel,
    counts: Arc<Counts>,
}

impl Step {
    fn first(request: &FetchRequest) -> Result<Step, FetchError> {
        let invalid =
            |what: &str, error: &dyn std::fmt::Display| FetchError::Invalid(format!("{what}: {error}"));
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|error| invalid("the method is none", &error))?;
        if method == Method::CONNECT {
            return Err(FetchError::Invalid("CONNECT is for proxies".into()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| invalid(name, &error))?;
            let value = HeaderValue::from_str(value).map_err(|error| invalid(name, &error))?;
            // They say where a request ends and which host it is for; that is ours to say.
            if OURS.contains(&header.as_str()) {
                return Err(FetchError::Invalid(format!("the header `{name}` cannot be set")));
            }
            headers.append(header, value);
        }
        let url = Url::parse(&request.url).map_err(|error| invalid("the URL is none", &error))?;
        Step::to(url, method, headers, Bytes::from(request.body.clone()))
    }

    /// A request to a URL, once it is clear that it names a host.
    fn to(url: Url, method: Method, headers: HeaderMap, body: Bytes) -> Result<Step, FetchError> {
        let protocol = match url.scheme() {
            "https" => Protocol::Tls,
            "http" => Protocol::Http,
            other => {
                return Err(FetchError::Invalid(format!("`{other}` cannot be fetched: use https or http")));
            }
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let refused = |destination: Destination, reason: Reason| {
            FetchError::Refused(Box::new(Refusal::new(destination, Some(port), reason).protocol(protocol)))
        };
        let name = match url.host() {
            Some(Host::Ipv4(address)) => {
                return Err(refused(Destination::Address(address.into()), Reason::DirectAddress));
            }
            Some(Host::Ipv6(address)) => {
                return Err(refused(Destination::Address(address.into()), Reason::DirectAddress));
            }
            Some(Host::Domain(text)) => match Destination::understand(text.as_bytes()) {
                Destination::Name(name) => name,
                address @ Destination::Address(_) => return Err(refused(address, Reason::DirectAddress)),
                text @ Destination::Text(_) => return Err(refused(text, Reason::NameMalformed)),
            },
            None => return Err(FetchError::Invalid("the URL has no host".into())),
        };
        Ok(Step { url, name, port, protocol, method, headers, body })
    }

    async fn take(&self, serving: &Arc<Serving>, request: &FetchRequest) -> Result<Taken, FetchError> {
        let allowed =
            decide::opening(&serving.policy, &self.name, self.port).map_err(|reason| self.refused(reason))?;
        // Where anything may be spoken, this may be too.
        let granted = [self.protocol, Protocol::Tcp]
            .into_iter()
            .find(|protocol| allowed.protocols().contains(*protocol))
            .ok_or_else(|| self.refused(Reason::ProtocolNotAllowed))?;
        let refused = |refusal: Refusal| FetchError::Refused(Box::new(refusal));
        if serving.limits_requests(&self.name, self.port)
            && let Some(detail) = override_in(&self.headers, self.url.query())
        {
            let refusal = Refusal::new(&self.name, Some(self.port), Reason::RequestMalformed);
            return Err(refused(refusal.protocol(self.protocol).detail(&detail)));
        }
        let (method, path) = (self.method.as_str(), self.url.path());
        decide::request(&serving.policy, &self.name, self.port, self.protocol, method, path).map_err(
            |reason| {
                let refusal = Refusal::new(&self.name, Some(self.port), reason).protocol(self.protocol);
                refused(refusal.request(method, path, None))
            },
        )?;
        self.without_placeholders(serving).map_err(refused)?;
        // The pack of a push is judged on its way from inside; one that is made here has no way to that judge.
        if serving.pushes.is_some() && self.names_a_push()? {
            let refusal = Refusal::new(&self.name, Some(self.port), Reason::PushRefused);
            return Err(refused(refusal.protocol(self.protocol).detail("a fetch does not push")));
        }
        let permit = serving.permit(allowed, granted).await.map_err(refused)?;
        let (outside, mut record) = open(&permit, serving).await.map_err(refused)?;
        record.ending = Ending::Finished;
        let counts = Arc::clone(&record.counts);
        let counted = Counted { serving: Arc::clone(serving), counts: Arc::clone(&counts) };
        let side = Side::outside(outside, counted);
        let rule = permit.rule().clone();
        let response = match self.protocol {
            Protocol::Tls => {
                let server = ServerName::try_from(self.name.as_str().to_string())
                    .map_err(|error| FetchError::Failed(error.to_string()))?;
                let connector = TlsConnector::from(tls(&request.trust)?);
                let stream = connector
                    .connect(server, side)
                    .await
                    .map_err(|error| self.failed(&counts, "no TLS with", &error))?;
                self.send(stream, record).await?
            }
            _ => self.send(side, record).await?,
        };
        Ok(Taken { response, rule, counts })
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut record: OpenRecord,
    ) -> Result<Response<Incoming>, FetchError> {
        let counts = Arc::clone(&record.counts);
        let failed = |error: hyper::Error| self.failed(&counts, "no answer from", &error);
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(async move {
            let _ = connection.await;
            if record.counts.ran_out.load(Ordering::Relaxed) {
                record.ending = Ending::ByteLimit;
            }
            drop(record);
        });
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path_of(&self.url).map_err(FetchError::Invalid)?;
        *request.headers_mut() = self.headers.clone();
        let host = match self.url.port() {
            Some(port) => format!("{}:{port}", self.name),
            None => self.name.to_string(),
        };
        request.headers_mut().insert(
            HOST,
            HeaderValue::from_str(&host)
                .map_err(|_| FetchError::Invalid("the name cannot stand in a header".into()))?,
        );
        sender.send_request(request).await.map_err(failed)
    }

    fn names_a_push(&self) -> Result<bool, FetchError> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path_of(&self.url).map_err(FetchError::Invalid)?;
        *request.headers_mut() = self.headers.clone();
        Ok(named(&request.into_parts().0) != Named::Nothing)
    }

    /// What the host fetches carries nothing of a secret, and nothing that stands for one.
    fn without_placeholders(&self, serving: &Serving) -> Result<(), Refusal> {
        let secure = self.protocol == Protocol::Tls;
        let to = Origin { name: self.name.clone(), port: self.port, secure };
        serving.credentials.guard(&to, self.url.as_str().as_bytes(), &self.headers, &self.body)
    }

    /// Where the response sends us, if it does. What was meant for one origin is not told another: of the caller's headers only
    /// those go along that say nothing of it, and a redirect that would take the body elsewhere is the answer.
    fn redirected(&self, response: &Response<Incoming>) -> Option<Result<Step, FetchError>> {
        let status = response.status();
        if !REDIRECTS.contains(&status) {
            return None;
        }
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        let url = match self.url.join(location) {
            Ok(url) => url,
            Err(error) => return Some(Err(FetchError::Failed(format!("redirected to no URL: {error}")))),
        };
        let keeps_all = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&status)
            || self.method == Method::HEAD;
        let mut headers = self.headers.clone();
        if url.origin() != self.url.origin() {
            if keeps_all && !self.body.is_empty() {
                return None;
            }
            let forwarded = headers.iter().filter(|(name, _)| FORWARDED_ELSEWHERE.contains(name));
            headers = forwarded.map(|(name, value)| (name.clone(), value.clone())).collect();
        }
        let (method, body) = if keeps_all {
            (self.method.clone(), self.body.clone())
        } else {
            headers.remove(CONTENT_TYPE);
            (Method::GET, Bytes::new())
        };
        Some(Step::to(url, method, headers, body))
    }

    async fn finish(
        &self,
        serving: &Serving,
        request: &FetchRequest,
        taken: Taken,
    ) -> Result<FetchResponse, FetchError> {
        let (head, mut incoming) = taken.response.into_parts();
        let announced =
            head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if self.method != Method::HEAD && announced.is_some_and(|length| length > request.max_bytes) {
            return Err(self.refused(Reason::TooLarge));
        }
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| self.failed(&taken.counts, "half an answer from", &error))?;
            if let Some(bytes) = frame.data_ref() {
                if body.len() as u64 + bytes.len() as u64 > request.max_bytes {
                    return Err(self.refused(Reason::TooLarge));
                }
                body.extend_from_slice(bytes);
            }
        }
        let _ = serving.recorder.write(&Event::Fetched {
            name: self.name.clone(),
            port: self.port,
            method: self.method.as_str().into(),
            status: head.status.as_u16(),
            received: body.len() as u64,
            rule: taken.rule.to_string(),
        });
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        Ok(FetchResponse {
            url: self.url.to_string(),
            status: head.status.as_u16(),
            headers: headers.collect(),
            body,
        })
    }

    fn failed(&self, counts: &Counts, what: &str, error: &dyn std::fmt::Display) -> FetchError {
        if counts.ran_out.load(Ordering::Relaxed) {
            return self.refused(Reason::ByteLimit);
        }
        FetchError::Failed(format!("{what} {}: {error}", self.name))
    }

    fn refused(&self, reason: Reason) -> FetchError {
        FetchError::Refused(Box::new(
            Refusal::new(&self.name, Some(self.port), reason).protocol(self.protocol),
        ))
    }
}

fn destination(url: &str) -> Destination {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_string));
    Destination::understand(host.as_deref().unwrap_or(url).as_bytes())
}

fn path_of(url: &Url) -> Result<hyper::Uri, String> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", url.path()).parse().map_err(|error| format!("the path is none: {error}"))
}

/// The system's trust, and what the caller adds to it.
fn tls(more: &[u8]) -> Result<Arc<ClientConfig>, FetchError> {
    trust::client(more).map(Arc::new).map_err(|error| match error {
        TrustError::NoCertificate(_) => FetchError::Invalid(error.to_string()),
        TrustError::Setup(_) => FetchError::Failed(error.to_string()),
    })
}

const OURS: [&str; 6] = ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te"];
/// Headers that hold no secret: a token may be in any other, whatever it is called.
const FORWARDED_ELSEWHERE: [HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, USER_AGENT];
const REDIRECTS: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

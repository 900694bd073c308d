//! What happens to a request because of credentials: a placeholder where it belongs becomes the value, and a
//! placeholder anywhere else ends the request.

use super::bound::Bound;
use super::forms::Forms;
use super::redact::Redact;
use super::watch::{Found, Watch};
use super::{Credentials, Origin, Screened, location};
use belljar_spec::Hint;
use belljar_spec::egress::{Protocol, Reason, Refusal, RequestTarget};
use belljar_spec::secret::{Bodies, CredentialBinding, CredentialLocation, Inject, SecretName};
use belljar_vault::SecretError;
use hyper::Method;
use hyper::header::{
    ACCEPT_CHARSET, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE, TE,
};
use hyper::http::request::Parts;
use percent_encoding::percent_decode;

impl Credentials {
    /// Judges and changes the head of a request on its way to `to`. In clear text nothing is put in, and a placeholder
    /// is refused.
    pub(crate) async fn screen(&self, to: &Origin, head: &mut Parts) -> Result<Screened, Refusal> {
        if self.bound.is_empty() {
            return Ok(Screened { request: None, response: None });
        }
        let mut used = Vec::new();
        let mut open = false;
        for (bound, binding) in self.bindings(to, head) {
            open |= bound.credential.bodies == Bodies::Open;
            if self.put_in(bound, binding, to, head).await? {
                used.push(&bound.credential.name);
            }
        }
        for bound in &self.bound {
            if let Some(part) = elsewhere(head, &bound.sought, &bound.placeholder) {
                return Err(self.incident(to, &bound.credential.name, part));
            }
        }
        for credential in used {
            self.used(credential, to, head);
        }
        let covered = to.secure && self.covers(&to.name, to.port);
        if covered {
            ask_for_the_whole(&mut head.headers);
        }
        let sought = || self.bound.iter().map(|bound| (bound.credential.name.clone(), bound.sought.clone()));
        Ok(Screened {
            request: (!open).then(|| Watch::new(sought().collect())),
            response: covered.then(|| Redact::new(&self.known)),
        })
    }

    /// The credentials that may go with this request, and where they may. What is put in changes no path and no method, so
    /// that this can be said of all of them before. A server that answers TRACE sends back what it got.
    fn bindings(&self, to: &Origin, head: &Parts) -> Vec<(&Bound, &CredentialBinding)> {
        let method = &head.method;
        if !to.secure || method == Method::TRACE || method == Method::CONNECT {
            return Vec::new();
        }
        let target = RequestTarget::of(head.uri.path());
        let fits = |binding: &&CredentialBinding| {
            binding.is_at(&to.name, to.port) && binding.requests.judge(method.as_str(), &target) == Ok(true)
        };
        self.bound
            .iter()
            .filter_map(|bound| Some((bound, bound.credential.bindings.iter().find(fits)?)))
            .collect()
    }

    /// Refuses a request that has a placeholder anywhere: one that no value is put into.
    pub(crate) fn guard(
        &self,
        to: &Origin,
        url: &[u8],
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), Refusal> {
        for bound in &self.bound {
            let name = &bound.credential.name;
            if is_written(url, &bound.sought) {
                return Err(self.incident(to, name, "the URL"));
            }
            if headers.values().any(|value| is_written(value.as_bytes(), &bound.sought)) {
                return Err(self.incident(to, name, "a header"));
            }
            if bound.sought.is_in(body) {
                return Err(self.incident(to, name, "the body"));
            }
        }
        Ok(())
    }

    /// The refusal of a body in which a placeholder was found, as an incident that is recorded.
    pub(crate) fn found(&self, to: &Origin, found: &Found) -> Refusal {
        self.incident(to, &found.credential, "the body")
    }

    /// Puts a value into a request to where it belongs, in place of the placeholder. A request that has none gets no value: a page or
    /// a redirect may have made a program send it. Only where the configuration says so, one that has nothing gets it too.
    async fn put_in(
        &self,
        bound: &Bound,
        binding: &CredentialBinding,
        to: &Origin,
        head: &mut Parts,
    ) -> Result<bool, Refusal> {
        let locations = &binding.locations;
        let holding: Vec<&CredentialLocation> =
            locations.iter().filter(|location| location::holds(location, head, &bound.placeholder)).collect();
        let adds = binding.inject == Inject::Always
            && !locations.iter().any(|location| location::is_there(location, head));
        if holding.is_empty() && !adds {
            return Ok(false);
        }
        let unavailable = |error: &SecretError| {
            let detail = format!("credential `{}`: {}", bound.credential.name, error.message);
            Refusal::new(&to.name, Some(to.port), Reason::SecretUnavailable)
                .protocol(to.protocol())
                .detail(&detail)
        };
        let value = self.value(bound).await.map_err(|error| unavailable(&error))?;
        let put = match (holding.is_empty(), locations.first()) {
            (true, Some(first)) => location::add(first, head, value.reveal()),
            (true, None) => return Ok(false),
            (false, _) => holding.into_iter().try_for_each(|location| {
                location::replace(location, head, &bound.placeholder, value.reveal())
            }),
        };
        put.map(|()| true).map_err(|location::Unfit| {
            let message = "its value cannot stand in a request".to_string();
            unavailable(&SecretError { message, hint: Hint::default() })
        })
    }

    fn incident(&self, to: &Origin, credential: &SecretName, part: &'static str) -> Refusal {
        self.placeholder_elsewhere(to, credential, part);
        let detail = format!("credential `{credential}`, in {part}");
        Refusal::new(&to.name, Some(to.port), Reason::PlaceholderElsewhere)
            .protocol(to.protocol())
            .detail(&detail)
    }
}

impl Origin {
    fn protocol(&self) -> Protocol {
        if self.secure { Protocol::Tls } else { Protocol::Http }
    }
}

/// What is compressed cannot be looked at, and half of an answer may hold half of a value.
fn ask_for_the_whole(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for other in [IF_RANGE, DELTA, ACCEPT_CHARSET, GRPC_ACCEPT_ENCODING, CONNECT_ACCEPT_ENCODING] {
        headers.remove(other);
    }
    for range in &RANGE_HEADERS {
        headers.remove(range);
    }
    // A transfer may be compressed as well (RFC 9110, 10.1.4); gRPC says `trailers`, and means nothing else.
    if headers.get(TE).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"trailers")) {
        headers.remove(TE);
    }
}

/// Where a placeholder is, though it does not belong there. By now those that do are gone.
fn elsewhere(head: &Parts, sought: &Forms, placeholder: &str) -> Option<&'static str> {
    let uri = &head.uri;
    let user = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    for (text, part) in
        [(user, "the authority"), (uri.path(), "the path"), (uri.query().unwrap_or_default(), "the query")]
    {
        if is_written(text.as_bytes(), sought) {
            return Some(part);
        }
    }
    let lower = placeholder.to_ascii_lowercase();
    for (name, value) in &head.headers {
        if name.as_str().contains(&lower) || is_written(value.as_bytes(), sought) {
            return Some("a header");
        }
    }
    is_written(head.method.as_str().as_bytes(), sought).then_some("the method")
}

/// As it is, or percent-encoded once or twice.
fn is_written(text: &[u8], sought: &Forms) -> bool {
    if sought.is_in(text) {
        return true;
    }
    let mut decoded = text.to_vec();
    for _ in 0..DECODINGS {
        if !decoded.contains(&b'%') {
            return false;
        }
        decoded = percent_decode(&decoded).collect();
        if sought.is_in(&decoded) {
            return true;
        }
    }
    false
}

/// By which servers let a client choose the bytes that it gets: the usual one, an older name that Apache httpd and Jetty take when the
/// usual one is absent, and that of Azure's storage.
pub(crate) static RANGE_HEADERS: [HeaderName; 3] =
    [RANGE, HeaderName::from_static("request-range"), HeaderName::from_static("x-ms-range")];
/// Asks for differences, compressed or not (RFC 3229).
const DELTA: HeaderName = HeaderName::from_static("a-im");
/// How each message of a stream may be compressed.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const CONNECT_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("connect-accept-encoding");
/// Servers behind servers decode again.
const DECODINGS: usize = 3;

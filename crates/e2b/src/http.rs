//! Requests and answers: bodies, JSON, and queries.

use crate::fault::Fault;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Answer = Result<Response<Body>, Fault>;

/// The body of a request. Shared with what drains it where it was refused unread.
#[derive(Clone)]
pub(crate) struct Incoming(Arc<Mutex<hyper::body::Incoming>>);

impl Incoming {
    pub(crate) fn new(body: hyper::body::Incoming) -> Incoming {
        Incoming(Arc::new(Mutex::new(body)))
    }

    fn held(&self) -> MutexGuard<'_, hyper::body::Incoming> {
        // The body knows itself where it is.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is left of a refused request, as far as that is bounded: a connection that is closed while a client still writes is
    /// reset, and the client sees that instead of the refusal.
    pub(crate) async fn drain(mut self) {
        let drained = async {
            let mut left = MAX_DRAINED_BYTES;
            while let Some(Ok(frame)) = self.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(length) else { return };
                left = rest;
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
    }
}

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.held()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.held().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.held().size_hint()
    }
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(value).expect("plain data can be written as JSON");
    with_type(status, "application/json", text)
}

pub(crate) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn nothing(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

pub(crate) fn refused(fault: &Fault) -> Response<Body> {
    let mut response = with_type(fault.status, "application/json", fault.body());
    if let Some(seconds) = fault.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A body of what a task sends, until it lets go of the sender. The task learns that the client has gone by `Sender::closed`. An error
/// breaks the answer off.
pub(crate) fn streamed(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Body {
    let frames = futures_util::stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece.map(Frame::data), pieces))
    });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

/// The same answer; `with` is kept until all of it was sent or the client has gone.
pub(crate) fn kept_with<T: Send + 'static>(response: Response<Body>, with: T) -> Response<Body> {
    response.map(|body| {
        let body = body.map_frame(move |frame| {
            let _ = &with;
            frame
        });
        body.boxed_unsync()
    })
}

/// All of a body that is no longer than `most`.
pub(crate) async fn collect(body: Incoming, most: usize) -> Result<Bytes, Fault> {
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes")))
        }
        Err(_) => Err(Fault::bad_request("the body did not come whole")),
    }
}

/// A body in JSON; an empty one is an empty object.
pub(crate) async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Fault> {
    let bytes = collect(request.into_body(), MAX_JSON_BYTES).await?;
    parsed(&bytes).map_err(Fault::bad_request)
}

pub(crate) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| format!("the body is not what it should be: {error}"))
}

/// The parts of a path, decoded. `None` for one that is not UTF-8.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/').skip(1).map(decoded).collect()
}

/// The values of a query, decoded.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?))
        };
        Query(pairs.filter_map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Fault> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Fault::bad_request(format!("`{name}` is not a number that fits")))
        };
        self.get(name).map(parse).transpose()
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(String::from)
}

/// A header as text.
pub(crate) fn header<'r, B>(request: &'r Request<B>, name: &str) -> Option<&'r str> {
    request.headers().get(name)?.to_str().ok()
}

pub(crate) fn set(response: &mut Response<Body>, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}

/// A client that sends more than this to be refused sees its connection closed.
const MAX_DRAINED_BYTES: usize = 8 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Longer than any request of a client but for files.
pub(crate) const MAX_JSON_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_within_a_query_is_decoded_twice() {
        let query = Query::of(Some("metadata=user%3Da%2526b%26app%3Dx+y&limit=5&bare&x=%ff"));
        let inner = Query::of(query.get("metadata"));
        assert_eq!(inner.pairs().collect::<Vec<_>>(), [("user", "a&b"), ("app", "x y")]);
        assert_eq!(query.number::<u32>("limit").unwrap(), Some(5));
        assert!(query.number::<u32>("bare").is_err());
        assert_eq!((query.get("x"), query.get("y")), (None, None));
        assert_eq!(segments("/a/b%2Fc/"), Some(vec!["a".into(), "b/c".into(), String::new()]));
        assert_eq!(segments("/%ff"), None);
    }
}

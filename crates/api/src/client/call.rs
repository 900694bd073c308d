//! One request and its answer.

use crate::client::body::{self, Download, RequestBody};
use crate::client::connect::Line;
use crate::client::error::ClientError;
use crate::client::start::no_listener;
use crate::client::{Access, Client};
use crate::{ApiError, ErrorBody, FOR_GRANT_HEADER, PREFIX, SHIM_TOKEN_HEADER};
use belljar_spec::ErrorCode;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::sleep;

/// A request that is being put together.
pub(crate) struct Call<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    headers: Vec<(HeaderName, String)>,
    body: RequestBody,
    has_query: bool,
}

impl Client {
    pub(crate) fn call(&self, method: Method, path: impl AsRef<str>) -> Call<'_> {
        let path = format!("{PREFIX}{}", path.as_ref());
        Call { client: self, method, path, headers: Vec::new(), body: body::nothing(), has_query: false }
    }

    /// A connection: one that waits, or a new one; of a daemon that is started if need be.
    async fn line(&self) -> Result<Line, ClientError> {
        if let Some(line) = self.pool.take().await {
            return Ok(line);
        }
        self.fresh_line().await
    }

    async fn fresh_line(&self) -> Result<Line, ClientError> {
        match (self.target.connect().await, &self.starter) {
            (Ok(line), _) => Ok(line),
            (Err(error), Some(starter)) if no_listener(&error) => starter.connect(&self.target).await,
            (Err(error), _) => Err(self.target.unanswered(error)),
        }
    }
}

impl Call<'_> {
    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        let before = if self.has_query { '&' } else { '?' };
        self.has_query = true;
        self.path = format!("{}{before}{name}={}", self.path, escaped(&value.to_string()));
        self
    }

    pub(crate) fn maybe_query(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }

    pub(crate) fn maybe_header(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn json(mut self, value: &impl Serialize) -> Self {
        let text = serde_json::to_vec(value).expect("plain data can be written as JSON");
        self.headers.push((CONTENT_TYPE, "application/json".into()));
        self.body = body::bytes(text);
        self
    }

    pub(crate) fn raw(mut self, body: RequestBody) -> Self {
        self.headers.push((CONTENT_TYPE, "application/octet-stream".into()));
        self.body = body;
        self
    }

    pub(crate) fn wants_events(mut self) -> Self {
        self.headers.push((ACCEPT, "text/event-stream".into()));
        self
    }

    /// The answer as data. A question that changes nothing is asked again where the daemon ended before it answered: another one is
    /// started then, as for a first question. More than once, because a daemon that was killed accepts connections, and keeps its lock,
    /// until the kernel has taken it down.
    pub(crate) async fn answer<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        let mut again = (self.method == Method::GET).then(|| self.again());
        let mut outcome = self.bytes().await;
        for pause in PAUSES_BEFORE_ASKING_AGAIN {
            let Some(call) = again.take().filter(|_| outcome.as_ref().is_err_and(ClientError::is_passing))
            else {
                break;
            };
            sleep(pause).await;
            again = Some(call.again());
            outcome = call.bytes().await;
        }
        serde_json::from_slice(&outcome?).map_err(|error| ClientError::Protocol(error.to_string()))
    }

    async fn bytes(self) -> Result<Vec<u8>, ClientError> {
        let (_, download) = self.send().await?;
        download.collect(MAX_ANSWER_BYTES).await
    }

    /// The same question, which has no body.
    fn again(&self) -> Self {
        Call {
            client: self.client,
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: body::nothing(),
            has_query: self.has_query,
        }
    }

    /// That it was done.
    pub(crate) async fn done(self) -> Result<(), ClientError> {
        let (_, download) = self.send().await?;
        download.collect(MAX_ANSWER_BYTES).await.map(drop)
    }

    /// The answer as it comes.
    pub(crate) async fn send(self) -> Result<(StatusCode, Download), ClientError> {
        let pool = self.client.pool.clone();
        let (response, line) = self.exchange().await?;
        let (head, body) = response.into_parts();
        let download = Download::new(body, line, pool);
        if head.status.is_success() {
            return Ok((head.status, download));
        }
        Err(refused(head.status, download).await)
    }

    /// The answer that the connection is for something else from now on.
    pub(crate) async fn upgrade(self, protocol: &'static str) -> Result<Response<Incoming>, ClientError> {
        let pool = self.client.pool.clone();
        let mut call = self;
        call.headers.push((CONNECTION, "upgrade".into()));
        call.headers.push((UPGRADE, protocol.into()));
        let (response, line) = call.exchange().await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let status = response.status();
        if status.is_success() {
            return Err(ClientError::Protocol(format!("it answered {status} instead of {protocol}")));
        }
        Err(refused(status, Download::new(response.into_body(), line, pool)).await)
    }

    async fn exchange(self) -> Result<(Response<Incoming>, Line), ClientError> {
        let client = self.client;
        let mut request = self.request()?;
        let mut line = client.line().await?;
        loop {
            match line.try_send_request(request).await {
                Ok(response) => return Ok((response, line)),
                Err(mut failed) => match failed.take_message() {
                    // It was closed while it waited, and nothing was sent.
                    Some(unsent) => {
                        request = unsent;
                        line = client.fresh_line().await?;
                    }
                    None => return Err(failed.into_error().into()),
                },
            }
        }
    }

    fn request(self) -> Result<Request<RequestBody>, ClientError> {
        let odd = |what: &str| ClientError::Protocol(format!("{what} cannot be sent"));
        let mut request = Request::builder()
            .method(self.method)
            .uri(&self.path)
            .header(HOST, self.client.target.host())
            .body(self.body)
            .map_err(|_| odd(&format!("`{}`", self.path)))?;
        for (name, value) in self.headers {
            let value = HeaderValue::from_str(&value).map_err(|_| odd(&format!("the header `{name}`")))?;
            request.headers_mut().insert(name, value);
        }
        let shown = match &self.client.access {
            Access::Nothing => None,
            Access::For(grant) => Some((HeaderName::from_static(FOR_GRANT_HEADER), grant.to_string())),
            Access::Grant(token) => Some((AUTHORIZATION, format!("Bearer {token}"))),
            Access::Shim(token) => Some((HeaderName::from_static(SHIM_TOKEN_HEADER), token.to_string())),
        };
        if let Some((name, token)) = shown {
            let mut value = HeaderValue::from_str(&token).map_err(|_| odd("this token"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }
}

/// A word in a path or a query.
pub(crate) fn escaped(word: &str) -> String {
    utf8_percent_encode(word, ESCAPED).to_string()
}

async fn refused(status: StatusCode, download: Download) -> ClientError {
    let bytes = match download.collect(MAX_ANSWER_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    let error = match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => body.error,
        // From a proxy between us and the daemon, or from a server that is no daemon.
        Err(_) => ApiError::from(&ErrorCode::Internal.error(format!("the daemon answered {status}"))),
    };
    ClientError::Api(Box::new(error), status.as_u16())
}

/// All but what RFC 3986 leaves unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A command's output is in an answer, twice where it is not valid UTF-8.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// The kernel takes a large process down in some tens of milliseconds, on a busy machine in some hundreds.
const PAUSES_BEFORE_ASKING_AGAIN: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(150), Duration::from_millis(600)];

//! Calls of the data plane: Connect with JSON over HTTP/1.1. A call has one message and one answer, or a stream of messages: each a flag
//! byte, a length and JSON.

use crate::address::Base;
use crate::error::{message, visible};
use crate::headers;
use crate::http::{Call, Failure};
use crate::service::{RemoteSandbox, Shared};
use base64::prelude::{BASE64_STANDARD, Engine};
use belljar_spec::SandboxError;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The data plane of a sandbox.
#[derive(Clone)]
pub(crate) struct Envd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: String,
    base: Base,
    headers: HeaderMap,
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The sandbox refused it.
    Rpc(RpcError),
    /// The service knows no such sandbox, or it is paused.
    NoSandbox,
    /// No answer.
    Failed(Failure),
}

/// A refusal: a code from the protocol's list, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl Envd {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        sandbox: &RemoteSandbox,
        user: &str,
    ) -> Result<Envd, SandboxError> {
        let RemoteSandbox { id, token, domain } = sandbox;
        let base = shared.addresses.sandbox(id, domain.as_deref(), ENVD_PORT)?;
        let invalid =
            |_| crate::error::strange(&shared.addresses, "make a sandbox", "its token cannot be sent");
        let mut headers = headers::of_sandbox(id, token.as_ref()).map_err(invalid)?;
        let user = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:")));
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&user).map_err(invalid)?);
        Ok(Envd { shared: Arc::clone(shared), id: id.clone(), base, headers })
    }

    /// A call with one answer.
    pub(crate) async fn unary(&self, method: &str, message: &Value) -> Result<Value, CallError> {
        let call = self.call(method, "application/json", message.to_string().into());
        let (status, body) = self.shared.http.whole(&self.base, &call).await.map_err(CallError::Failed)?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        let invalid = |error: serde_json::Error| CallError::Failed(Failure::Invalid(error.to_string()));
        if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body).map_err(invalid) }
    }

    /// A call that is answered by a stream.
    pub(crate) async fn stream(&self, method: &str, message: &Value) -> Result<Messages, CallError> {
        let mut call = self.call(method, "application/connect+json", framed(message).into());
        call.headers.insert(KEEPALIVE, HeaderValue::from(KEEPALIVE_S));
        let (response, connection) =
            self.shared.http.streamed(&self.base, &call).await.map_err(CallError::Failed)?;
        let status = response.status();
        let mut body = response.into_body();
        if status.is_success() {
            return Ok(Messages {
                body,
                _connection: Box::new(connection),
                reader: FrameReader::default(),
                is_over: false,
            });
        }
        let mut detail = Vec::new();
        while let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await {
            detail.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if detail.len() > MAX_ERROR_BYTES {
                break;
            }
        }
        Err(refusal(status, &detail))
    }

    /// A request for the content of a file. `query` is encoded.
    pub(crate) fn of_files(&self, method: Method, query: &str) -> (&Base, Call) {
        let call = Call {
            method,
            target: format!("/files?{query}"),
            headers: self.headers.clone(),
            body: Bytes::new(),
        };
        (&self.base, call)
    }

    fn call(&self, method: &str, content_type: &'static str, body: Bytes) -> Call {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static("1"));
        Call { method: Method::POST, target: format!("/{method}"), headers, body }
    }
}

/// What a status and a body say of a call that came to nothing.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> CallError {
    // Two shapes: of the sandbox, with a word as its code; and of what stands before it, with a number.
    if let Ok(error) = serde_json::from_slice::<RpcError>(body) {
        return CallError::Rpc(RpcError { message: visible(&error.message), ..error });
    }
    let detail = message(body).unwrap_or_else(|| status.to_string());
    if status == StatusCode::BAD_GATEWAY && detail.contains("was not found") {
        return CallError::NoSandbox;
    }
    let code = match status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::UNAUTHORIZED => "unauthenticated",
        StatusCode::FORBIDDEN => "permission_denied",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::INSUFFICIENT_STORAGE => "resource_exhausted",
        status if status.is_client_error() => "invalid_argument",
        _ => return CallError::Failed(Failure::Broken(detail)),
    };
    CallError::Rpc(RpcError { code: code.into(), message: detail })
}

/// The messages of an answer. Dropped, its connection is closed.
pub(crate) struct Messages {
    body: Incoming,
    _connection: Box<dyn Send>,
    reader: FrameReader,
    is_over: bool,
}

impl Messages {
    /// The next one; nothing behind the last. A stream that says nothing for long is broken: a living one has a pulse.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, CallError> {
        let broken = |why: &str| CallError::Failed(Failure::Broken(why.into()));
        loop {
            if self.is_over {
                return Ok(None);
            }
            if let Some(Frame { is_end, payload }) = self.reader.next_frame().map_err(CallError::Failed)? {
                let invalid =
                    |error: serde_json::Error| CallError::Failed(Failure::Invalid(error.to_string()));
                if !is_end {
                    return serde_json::from_slice(&payload).map(Some).map_err(invalid);
                }
                self.is_over = true;
                let mut end: Value = serde_json::from_slice(&payload).map_err(invalid)?;
                return match end["error"].take() {
                    Value::Null => Ok(None),
                    error => {
                        let error: RpcError = serde_json::from_value(error).map_err(invalid)?;
                        Err(CallError::Rpc(RpcError { message: visible(&error.message), ..error }))
                    }
                };
            }
            match timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(piece))) => {
                    if let Ok(bytes) = piece.into_data() {
                        self.reader.push(&bytes);
                    }
                }
                Ok(Some(Err(error))) => return Err(broken(&error.to_string())),
                Ok(None) => return Err(broken("a stream ended before its last message")),
                Err(_) => return Err(broken("a stream has no pulse")),
            }
        }
    }
}

/// One message of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    is_end: bool,
    payload: Vec<u8>,
}

/// Collects bytes until they are messages.
#[derive(Debug, Default)]
struct FrameReader {
    bytes: Vec<u8>,
}

impl FrameReader {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, Failure> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [flags, length @ ..] = *head;
        if flags & COMPRESSED != 0 {
            return Err(Failure::Invalid("a message is compressed, and no compression was offered".into()));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(Failure::Invalid(format!("a message of {length} bytes")));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { is_end: flags & END != 0, payload: payload.to_vec() };
        self.bytes.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

fn framed(message: &Value) -> Vec<u8> {
    let payload = message.to_string().into_bytes();
    let length = u32::try_from(payload.len()).expect("a command is shorter than 4 GiB");
    [&[0][..], &length.to_be_bytes(), &payload].concat()
}

/// An answer without fields.
pub(crate) fn about(pid: u32) -> Value {
    json!({ "process": { "pid": pid } })
}

/// Where commands and files of a sandbox are served.
pub(crate) const ENVD_PORT: u16 = 49983;
const COMPRESSED: u8 = 1;
const END: u8 = 2;
const HEAD_BYTES: usize = 5;
/// A piece of output is some ten kilobytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Idle proxies on the way cut what is silent.
const KEEPALIVE_S: u64 = 50;
/// More than two pulses.
const SILENCE: Duration = Duration::from_secs(2 * KEEPALIVE_S + 30);
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const KEEPALIVE: HeaderName = HeaderName::from_static("keepalive-ping-interval");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_wherever_the_bytes_were_cut() {
        let stream =
            [framed(&json!({ "a": 1 })), framed(&json!({})), vec![2, 0, 0, 0, 2, b'{', b'}']].concat();
        for size in 1..=stream.len() {
            let mut reader = FrameReader::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    found.push((frame.is_end, frame.payload));
                }
            }
            assert_eq!(
                found,
                [(false, b"{\"a\":1}".to_vec()), (false, b"{}".to_vec()), (true, b"{}".to_vec())]
            );
            assert!(reader.bytes.is_empty());
        }
    }

    #[test]
    fn what_is_no_message_is_refused_before_it_is_kept() {
        for head in [[0, 0xff, 0xff, 0xff, 0xff], [1, 0, 0, 0, 0]] {
            let mut reader = FrameReader::default();
            reader.push(&head);
            assert!(reader.next_frame().is_err(), "{head:?}");
        }
    }

    #[test]
    fn a_refusal_has_one_of_two_shapes() {
        let gone = br#"{"sandboxId":"x","message":"The sandbox was not found","code":502}"#;
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, gone), CallError::NoSandbox);
        let rpc = |code: &str, message: &str| {
            CallError::Rpc(RpcError { code: code.into(), message: message.into() })
        };
        let detail = br#"{"code":"not_found","message":"no \u001b[31msuch"}"#;
        assert_eq!(refusal(StatusCode::NOT_FOUND, detail), rpc("not_found", "no  [31msuch"));
        let plain = br#"{"code":404,"message":"path does not exist"}"#;
        assert_eq!(refusal(StatusCode::NOT_FOUND, plain), rpc("not_found", "path does not exist"));
        assert!(matches!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), CallError::Failed(_)));
    }
}

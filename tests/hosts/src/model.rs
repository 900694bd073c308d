//! A model that says always the same: in Anthropic's words, OpenAI's and Google's, whole or event by event. It keeps every
//! request, and can be held so that a test decides when the next event comes.

use crate::http::{Both, read, write};
use crate::{Leaf, Request, Response, Server, TlsServer};
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Answers instead of the model.
type Instead = Box<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

/// A server with a model.
pub struct Model {
    server: Kind,
    shared: Arc<Shared>,
}

enum Kind {
    Plain(Server),
    Tls(TlsServer),
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    instead: Mutex<Option<Instead>>,
    /// How many events may leave; `None`: all.
    gate: Mutex<Option<usize>>,
    opened: Condvar,
}

impl Model {
    /// At a free port of this address, in the clear.
    pub fn start(at: impl Into<IpAddr>) -> Model {
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let server = Server::start(at, move |mut stream| {
            let _ = stream.set_nodelay(true);
            known.serve(&mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        });
        Model { server: Kind::Plain(server), shared }
    }

    /// The same over TLS.
    pub fn start_tls(at: impl Into<IpAddr>, leaf: &Leaf) -> Model {
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let server = TlsServer::start(at, leaf, move |stream| known.serve(stream));
        Model { server: Kind::Tls(server), shared }
    }

    /// Where it is, without a scheme.
    pub fn authority(&self) -> String {
        let base: &Server = match &self.server {
            Kind::Plain(server) => server,
            Kind::Tls(server) => server,
        };
        base.address().to_string()
    }

    /// Where it is.
    pub fn url(&self) -> String {
        let scheme = match &self.server {
            Kind::Plain(_) => "http",
            Kind::Tls(_) => "https",
        };
        format!("{scheme}://{}", self.authority())
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// Says something else where this has an answer.
    pub fn instead(&self, answer: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static) {
        *lock(&self.shared.instead) = Some(Box::new(answer));
    }

    /// Lets no event of a stream leave until it is released.
    pub fn hold(&self) {
        *lock(&self.shared.gate) = Some(0);
    }

    /// Lets so many more leave.
    pub fn release(&self, events: usize) {
        if let Some(left) = &mut *lock(&self.shared.gate) {
            *left += events;
        }
        self.shared.opened.notify_all();
    }
}

impl Shared {
    fn serve(&self, stream: &mut (impl Read + Write)) {
        let mut stream = BufReader::new(Both(stream));
        while let Ok(Some(request)) = read(&mut stream) {
            lock(&self.requests).push(request.clone());
            let instead = lock(&self.instead).as_ref().and_then(|answer| answer(&request));
            let out = &mut stream.get_mut().0;
            let written = match (instead, streams(&request)) {
                (Some(response), _) => write(out, &request, &response),
                (None, true) => self.stream(out, &request),
                (None, false) => write(out, &request, &whole(&request)),
            };
            if written.is_err() {
                return;
            }
        }
    }

    fn stream(&self, out: &mut impl Write, request: &Request) -> io::Result<()> {
        out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
        out.flush()?;
        for event in events(request) {
            self.pass();
            out.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
            out.flush()?;
        }
        out.write_all(b"0\r\n\r\n")?;
        out.flush()
    }

    fn pass(&self) {
        let mut gate = lock(&self.gate);
        loop {
            match &mut *gate {
                None => return,
                Some(0) => gate = self.opened.wait(gate).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    *left -= 1;
                    return;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn streams(request: &Request) -> bool {
    let body = String::from_utf8_lossy(&request.body);
    body.contains("\"stream\":true") || request.target.contains(":streamGenerateContent")
}

/// 100 tokens in, 2000 written to a cache, 7 read from it, 30 out; where there is a word for each.
fn events(request: &Request) -> Vec<String> {
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let data = |data: &str| format!("data: {data}\n\n");
    match dialect(request) {
        "anthropic" => vec![
            event(
                "message_start",
                r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":100,"cache_creation_input_tokens":2000,"cache_read_input_tokens":7,"output_tokens":1}}}"#,
            ),
            event(
                "content_block_delta",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}"#,
            ),
            event(
                "content_block_delta",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"two"}}"#,
            ),
            event(
                "message_delta",
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":30}}"#,
            ),
            event("message_stop", r#"{"type":"message_stop"}"#),
        ],
        "responses" => vec![
            event(
                "response.created",
                r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}"#,
            ),
            event("response.output_text.delta", r#"{"type":"response.output_text.delta","delta":"one"}"#),
            event(
                "response.completed",
                &format!(r#"{{"type":"response.completed","response":{}}}"#, RESPONSE),
            ),
        ],
        "gemini" => vec![
            data(r#"{"candidates":[{"content":{"parts":[{"text":"one"}]}}],"responseId":"g_1"}"#),
            data(GEMINI),
        ],
        _ => {
            let mut events = vec![
                data(
                    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"one"}}]}"#,
                ),
                data(
                    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                ),
            ];
            if String::from_utf8_lossy(&request.body).contains(r#""include_usage":true"#) {
                events.push(data(&format!(r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{CHAT_USAGE}}}"#)));
            }
            events.push(data("[DONE]"));
            events
        }
    }
}

fn whole(request: &Request) -> Response {
    let body = match dialect(request) {
        _ if request.method == "GET" => r#"{"object":"list","data":[{"id":"m"}]}"#.to_string(),
        "anthropic" => r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"one"}],"usage":{"input_tokens":100,"cache_creation_input_tokens":2000,"cache_read_input_tokens":7,"output_tokens":30}}"#.into(),
        "responses" => RESPONSE.into(),
        "gemini" => GEMINI.into(),
        _ => format!(r#"{{"id":"chatcmpl-1","object":"chat.completion","choices":[{{"message":{{"content":"one"}}}}],"usage":{CHAT_USAGE}}}"#),
    };
    let headers = [("content-type", "application/json"), ("x-request-id", "req_whole")];
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_string())).into();
    Response { headers, ..Response::ok(body) }
}

fn dialect(request: &Request) -> &'static str {
    let path = request.target.split('?').next().unwrap_or_default();
    match path {
        _ if path.contains("/messages") => "anthropic",
        _ if path.ends_with("/responses") => "responses",
        _ if path.contains(":") => "gemini",
        _ => "chat",
    }
}

const CHAT_USAGE: &str = r#"{"prompt_tokens":2107,"prompt_tokens_details":{"cached_tokens":7,"cache_write_tokens":2000},"completion_tokens":30,"total_tokens":2137}"#;
const RESPONSE: &str = r#"{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":2107,"input_tokens_details":{"cached_tokens":7,"cache_write_tokens":2000},"output_tokens":30}}"#;
const GEMINI: &str = r#"{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":2107,"cachedContentTokenCount":7,"candidatesTokenCount":25,"thoughtsTokenCount":5},"responseId":"g_1"}"#;

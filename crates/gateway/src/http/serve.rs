//! The side of the sandbox: requests as they come, over HTTP/1.1 or HTTP/2.

use super::HEAD;
use super::crew::Crew;
use super::room::Room;
use super::route::{Answered, Route};
use crate::credentials::Origin;
use belljar_audit::Ending;
use belljar_spec::egress::Reason;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{Instrument, Span, debug, debug_span};

impl Route {
    /// One request after the other.
    pub(crate) async fn serve_http1(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        let route = Arc::clone(&self);
        let within = Span::current();
        let service = service_fn(move |request| answer(Arc::clone(&route), request, within.clone()));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(HEAD);
        // In the clear, a client that has closed its direction may still wait for its answer. By TLS no client half-closes:
        // one that closes is gone, and a server that takes long to answer would keep the connection open for no client.
        builder.half_close(!self.to.secure);
        let served = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        self.finish(served).await;
    }

    /// Many requests beside each other. What a client may have open, and may break off, is limited.
    pub(crate) async fn serve_http2(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        let crew = Crew::default();
        let _shift = crew.shift();
        let _other_side = self.upstream.lock().await.crew.shift();
        let route = Arc::clone(&self);
        let within = Span::current();
        let service = service_fn(move |request| answer(Arc::clone(&route), request, within.clone()));
        let room = Room::among(self.serving.crowd());
        let mut builder = http2::Builder::new(crew);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(room.streams)
            .initial_stream_window_size(room.stream)
            .initial_connection_window_size(room.connection)
            .max_header_list_size(HEAD as u32)
            .max_send_buf_size(room.unsent)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(ERRORS);
        let served = builder.serve_connection(TokioIo::new(stream), service).await;
        drop(_shift);
        self.finish(served).await;
    }

    /// No more requests come. A connection that became another protocol stays.
    async fn finish(&self, served: hyper::Result<()>) {
        // Any other error is a client that went away.
        if let Some(why) = served.err().as_ref().and_then(malformed) {
            self.record_refusal(&self.to.refusal(Reason::ProtocolNotAllowed).detail(why));
        }
        let mut upstream = std::mem::take(&mut *self.upstream.lock().await);
        upstream.sender = None;
        // Still here, it was used by no request.
        if let Some(mut unused) = upstream.first.take() {
            let has_refused = self.has_refused.load(Ordering::Relaxed);
            unused.record.ending = if has_refused { Ending::Refused } else { Ending::Finished };
        }
        while upstream.tasks.join_next().await.is_some() {}
    }
}

/// Answers a request, in a span of its own: of its head only the method is told.
async fn answer(route: Arc<Route>, request: Request<Incoming>, within: Span) -> Answered {
    let Origin { name, port, .. } = &route.to;
    let method = request.method().as_str();
    let span =
        debug_span!(parent: &within, "http", egress.host = %name, egress.port = port, http.method = method);
    let answered = route.answer(request).instrument(span.clone()).await;
    if let Ok(response) = &answered {
        span.in_scope(|| debug!(http.status = response.status().as_u16(), "answered"));
    }
    answered
}

/// Why the library took no request of what the client sent.
fn malformed(error: &hyper::Error) -> Option<&'static str> {
    if error.is_parse_too_large() {
        return Some("the head of a request is too long");
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let is_of_ours = source.filter(|source| source.is_library()).and_then(h2::Error::reason);
    let is_broken = [h2::Reason::PROTOCOL_ERROR, h2::Reason::FRAME_SIZE_ERROR, h2::Reason::COMPRESSION_ERROR];
    (error.is_parse() || is_of_ours.is_some_and(|reason| is_broken.contains(&reason)))
        .then_some("what the client sent is not valid HTTP")
}

const HEADER: Duration = Duration::from_secs(30);
/// Streams that were opened and reset before they were handled (CVE-2023-44487), and errors that a client made us reset
/// (CVE-2025-8671): the library's own numbers, named so that they do not change with the library.
const RESETS: usize = 20;
const ERRORS: usize = 1024;

//! The side of the server: a connection that requests go out on, and another one when that is closed.

use super::HEAD;
use super::body::Body;
use super::crew::Crew;
use super::open::Open;
use super::room::Room;
use super::route::Route;
use crate::connection::open;
use crate::decide;
use crate::record::OpenRecord;
use crate::relay::Counts;
use crate::stream::{Counted, Side};
use crate::tls_interception::{Alpn, Reached, reach};
use belljar_spec::egress::{Protocol, Reason, Refusal};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Lock, Weak};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

/// How the server is reached.
pub(crate) enum Start {
    /// In the clear, when the first request is there.
    InTheClear,
    /// By TLS, already; or not at all.
    Reached(Result<Box<Reached>, Refusal>),
}

/// The connection to the server, and what runs beside the requests.
#[derive(Default)]
pub(super) struct Upstream {
    pub(super) sender: Option<Sender>,
    pub(super) tasks: JoinSet<()>,
    /// Made before there was a request.
    pub(super) first: Option<Box<Reached>>,
    /// What the server chose, and has to choose again.
    pub(super) alpn: Option<Alpn>,
    /// Works for connections of HTTP/2.
    pub(super) crew: Crew,
}

/// Requests go in here.
pub(super) struct Sender {
    requests: Requests,
    connection: Arc<Connection>,
    /// Whether it is of an earlier request: then the server may have closed it by now, which is no error.
    pub(super) is_used: bool,
}

enum Requests {
    /// One at a time.
    One(http1::SendRequest<Body>),
    /// Any number beside each other.
    Many(http2::SendRequest<Body>),
}

/// What is known of the connection.
pub(super) struct Connection {
    counts: Arc<Counts>,
    certificate_request: Box<dyn Fn() -> bool + Send + Sync>,
    /// Kept by the task that drives the connection, and by the one that continues it as another protocol.
    record: Weak<Lock<OpenRecord>>,
    is_over: AtomicBool,
}

/// Why there is no answer: and the request, if nothing of it was sent.
pub(super) type Unsent = TrySendError<Request<Body>>;

impl Sender {
    /// Another handle, where many requests may go out at once; this one where only one may.
    pub(super) fn share(upstream: &mut Upstream) -> Option<Sender> {
        let sender = upstream.sender.as_mut()?;
        match &sender.requests {
            Requests::Many(requests) => {
                let requests = Requests::Many(requests.clone());
                Some(Sender { requests, connection: Arc::clone(&sender.connection), is_used: true })
            }
            Requests::One(_) => upstream.sender.take(),
        }
    }

    /// Waits until a request can go out; no if it never can.
    pub(super) async fn is_ready(&mut self) -> bool {
        match &mut self.requests {
            Requests::One(requests) => requests.ready().await.is_ok(),
            Requests::Many(requests) => {
                !self.connection.is_over.load(Ordering::Relaxed) && requests.ready().await.is_ok()
            }
        }
    }

    pub(super) async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Unsent> {
        match &mut self.requests {
            Requests::One(requests) => requests.try_send_request(request).await,
            Requests::Many(requests) => requests.try_send_request(request).await,
        }
    }

    /// Keeps it for the next request.
    pub(super) fn keep(mut self, upstream: &mut Upstream) {
        self.is_used = true;
        upstream.sender = Some(self);
    }

    pub(super) fn record(&self) -> Option<Arc<Lock<OpenRecord>>> {
        self.connection.record.upgrade()
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(super) fn is_for_one(&self) -> bool {
        matches!(self.requests, Requests::One(_))
    }
}

impl Connection {
    /// Makes a refusal of an error.
    pub(super) fn failed(&self, route: &Route, error: &hyper::Error) -> Refusal {
        if self.counts.ran_out.load(Ordering::Relaxed) {
            return route.to.refusal(Reason::ByteLimit);
        }
        let mut detail = error.to_string();
        if let Some(cause) = error.source() {
            detail = format!("{detail}: {cause}");
        }
        let reason = if (self.certificate_request)() {
            Reason::ClientCertificateRequested
        } else {
            Reason::DialFailed
        };
        route.to.refusal(reason).detail(&detail)
    }
}

impl Route {
    /// A connection to the server, judged anew: the name may lead elsewhere by now.
    pub(super) async fn connect(&self, upstream: &mut Upstream) -> Result<Sender, Refusal> {
        if !self.to.secure {
            let refused = |reason: Reason| self.to.refusal(reason);
            let allowed =
                decide::opening(&self.serving.policy, &self.to.name, self.to.port).map_err(refused)?;
            let permit = self.serving.permit(allowed, Protocol::Http).await?;
            let (outside, record) = open(&permit, &self.serving).await?;
            let counted = Counted { serving: Arc::clone(&self.serving), counts: Arc::clone(&record.counts) };
            let side = Side::outside(outside, counted);
            return self.begin(side, record, Box::new(|| false), upstream).await;
        }
        let reached = match upstream.first.take() {
            Some(first) => *first,
            None => {
                let offer = [upstream.alpn.unwrap_or(Alpn::Http1)];
                reach(&self.serving, &self.to, &offer).await?
            }
        };
        if reached.alpn != upstream.alpn {
            let detail = "the server speaks another HTTP than a moment ago";
            return Err(self.to.refusal(Reason::DialFailed).detail(detail));
        }
        let Reached { stream, record, certificate_request, .. } = reached;
        self.begin(stream, record, Box::new(move || certificate_request.was_received()), upstream).await
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        record: OpenRecord,
        certificate_request: Box<dyn Fn() -> bool + Send + Sync>,
        upstream: &mut Upstream,
    ) -> Result<Sender, Refusal> {
        // Those that are over would be kept: a server may close after every answer.
        while upstream.tasks.try_join_next().is_some() {}
        let counts = Arc::clone(&record.counts);
        let record = Arc::new(Lock::new(record));
        let connection = Arc::new(Connection {
            counts,
            certificate_request,
            record: Arc::downgrade(&record),
            is_over: AtomicBool::new(false),
        });
        let failed = |error: hyper::Error| connection.failed(self, &error);
        let (stream, open) = (TokioIo::new(stream), self.keep(record));
        let over = Arc::clone(&connection);
        let requests = match upstream.alpn {
            Some(Alpn::Http2) => {
                let room = Room::among(self.serving.crowd());
                let mut client = http2::Builder::new(upstream.crew.clone());
                client
                    .initial_stream_window_size(room.stream)
                    .initial_connection_window_size(room.connection)
                    .max_header_list_size(HEAD as u32)
                    .max_send_buf_size(room.unsent);
                let (requests, driven) = client.handshake(stream).await.map_err(failed)?;
                upstream.tasks.spawn(async move {
                    open.until_closed(driven).await;
                    over.is_over.store(true, Ordering::Relaxed);
                });
                Requests::Many(requests)
            }
            Some(Alpn::Http1) | None => {
                let mut client = http1::Builder::new();
                client.max_buf_size(HEAD);
                let (requests, driven) = client.handshake(stream).await.map_err(failed)?;
                upstream.tasks.spawn(async move { open.until_closed(driven.with_upgrades()).await });
                Requests::One(requests)
            }
        };
        Ok(Sender { requests, connection, is_used: false })
    }

    pub(super) fn keep(&self, record: Arc<Lock<OpenRecord>>) -> Open {
        let serving = Arc::clone(&self.serving);
        Open { record, serving, limit: self.to.refusal(Reason::ByteLimit), _alive: self.alive.clone() }
    }
}

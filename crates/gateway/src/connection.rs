//! The story of one connection, from accept to close.
//!
//! ```text
//! which name has this address? ─> may it be dialled at this port? ─> what do the first bytes say?
//!    ─> resolve, judge every address ─> record ─> dial ─> relay ─> record
//! ```
//!
//! A connection that is refused at any step ends at once: with an alert for TLS and a page for HTTP, which their clients
//! show, and with a reset for all other protocols.

use crate::decide::{Allowed, Permit};
use crate::dial::{Undialled, dial};
use crate::dialogue::Dialogue;
use crate::first_bytes::{Start, classify, without_empty_lines};
use crate::hello::{self, ClientHello, Hello};
use crate::live::{Admission, LivePolicy};
use crate::record::OpenRecord;
use crate::relay::{End, relay, reset};
use crate::serving::{Alive, Serving};
use crate::{asking, dns, http, plain_http, tls_interception};
use belljar_audit::Ending;
use belljar_spec::egress::{
    Destination, HostName, Mode, PortRange, Protocol, ProtocolSet, Reason, Refusal, is_asking,
};
use belljar_sys::rustix::net::{Shutdown, shutdown};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, debug, debug_span};

/// Serves a connection to its end.
pub(crate) async fn serve(inside: TcpStream, dialled: SocketAddr, live: Arc<LivePolicy>, alive: Alive) {
    let serving = live.now();
    let Some(_seat) = serving.take_seat() else {
        let destination =
            serving.names.at(dialled.ip()).map_or(Destination::Address(dialled.ip()), Into::into);
        let refusal = Refusal::new(destination, Some(dialled.port()), Reason::TooManyConnections);
        return refuse(inside, &serving, &refusal, Start::Other);
    };
    if dialled.port() == PortRange::DNS {
        return dns::serve::over_tcp(inside, &live).await;
    }
    serving.fit(&inside);
    let port = dialled.port();
    let Some(name) = serving.names.at(dialled.ip()) else {
        let refusal = Refusal::new(dialled.ip(), Some(port), Reason::DirectAddress);
        return refuse(inside, &serving, &refusal, Start::Other);
    };
    if is_asking(&name) && port == ASKING_PORT && serving.policy.mode != Mode::None {
        return asking::serve(inside, live).await;
    }
    let (admitted, start) = match live.admit(&name, port) {
        Admission::Allowed(admitted) => (Ok(admitted), Start::Other),
        Admission::Refused(serving, reason) => (Err((serving, reason)), Start::Other),
        Admission::Waits(waiting) => {
            let answer = waiting.answer().await;
            // The client has had time to begin: a refusal is said in its words.
            let start = if answer.is_err() { begun(&inside) } else { Start::Other };
            (answer, start)
        }
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err((serving, reason)) => {
            return refuse(inside, &serving, &Refusal::new(name, Some(port), reason), start);
        }
    };
    let arrival = Arrival { name, port, allowed: admitted.allowed.clone() };
    let serving = Arc::clone(&admitted.serving);
    tokio::select! {
        // First: what is not allowed any more moves no more bytes.
        biased;
        () = admitted.revoked() => {}
        () = arrival.go(inside, serving, alive) => {}
    }
}

/// What a client that waited has begun to speak.
fn begun(inside: &TcpStream) -> Start {
    let mut first = [0; PIECE];
    match inside.try_read(&mut first) {
        Ok(length) => classify(without_empty_lines(&first[..length])),
        Err(_) => Start::Other,
    }
}

/// A connection whose name and port are allowed.
pub(crate) struct Arrival {
    name: HostName,
    port: u16,
    allowed: Allowed,
}

impl Arrival {
    async fn go(self, inside: TcpStream, serving: Arc<Serving>, alive: Alive) {
        let mut ahead = Vec::new();
        let (start, protocol) = match self.protocol(&inside, &mut ahead).await {
            Ok(found) => found,
            Err((start, refusal)) => return refuse(inside, &serving, &refusal, start),
        };
        if protocol == Protocol::Http {
            // A library's state is large; every other connection would carry room for it.
            let Arrival { name, port, .. } = self;
            return Box::pin(plain_http::serve(inside, ahead, name, port, serving, alive)).await;
        }
        if start == Start::Tls && protocol == Protocol::Tls && serving.looks_into(&self.allowed) {
            let Arrival { name, port, .. } = self;
            let span = debug_span!("tls", egress.host = %name, egress.port = port);
            let served = tls_interception::serve(inside, ahead, name, port, serving, alive);
            return Box::pin(served.instrument(span)).await;
        }
        let permit = match serving.permit(self.allowed.clone(), protocol).await {
            Ok(permit) => permit,
            Err(refusal) => return refuse(inside, &serving, &refusal, start),
        };
        let (outside, mut record) = match open(&permit, &serving).await {
            Ok(opened) => opened,
            Err(refusal) => return refuse(inside, &serving, &refusal, start),
        };
        let counts = Arc::clone(&record.counts);
        let mut dialogue = Dialogue {
            arrival: &self,
            inside: &inside,
            outside: &outside,
            ahead: &mut ahead,
            counts: &counts,
            meter: &serving.meter,
        };
        let agreed = match start {
            Start::Tls => dialogue.tls(protocol).await,
            Start::Ssh => dialogue.ssh().await,
            Start::Postgres(first) => dialogue.postgres(first).await,
            Start::Undecided | Start::Http | Start::Other => Ok(()),
        };
        if let Err(stop) = agreed {
            record.ending =
                stop.as_ref().map_or(Ending::Refused, |refusal| ending(End::Refused(refusal.reason)));
            return match stop {
                Some(refusal) => refuse(inside, &serving, &refusal, start),
                None => reset(inside),
            };
        }
        let end = relay(&inside, &outside, ahead, &record.counts, &serving.meter).await;
        record.ending = ending(end);
        // No peer waits for what is left to do. A connection that has just come, perhaps of the same client, goes first.
        yield_now().await;
        if let End::Refused(reason) = end {
            let refusal = Refusal::new(&self.name, Some(self.port), reason).protocol(protocol);
            serving.recorder.connection_refused(&refusal);
        }
        if end != End::Finished {
            reset(inside);
            reset(outside);
        }
    }

    /// What the connection speaks, by its first bytes, which are kept in `ahead`; what it may speak decides how long the
    /// gateway waits for them.
    async fn protocol(
        &self,
        inside: &TcpStream,
        ahead: &mut Vec<u8>,
    ) -> Result<(Start, Protocol), (Start, Refusal)> {
        let protocols = self.allowed.protocols();
        if protocols == ProtocolSet::from(Protocol::Tcp) {
            return Ok((Start::Other, Protocol::Tcp));
        }
        let server_may_begin = protocols.contains(Protocol::Tcp) || protocols.contains(Protocol::Ssh);
        // One deadline for all of it, or a client could say a byte at a time.
        let deadline = Instant::now() + CLIENT_BEGINS;
        let server_begins = Instant::now() + SERVER_BEGINS;
        let start = loop {
            let begun = without_empty_lines(ahead);
            match classify(ahead) {
                Start::Undecided => {}
                Start::Other if begun.len() < ahead.len() && protocols.contains(Protocol::Http) => {
                    match classify(begun) {
                        Start::Undecided => {}
                        Start::Http => break Start::Http,
                        _ => break Start::Other,
                    }
                }
                start => break start,
            }
            let servers_turn = begun.is_empty() && server_may_begin;
            let until = if servers_turn { server_begins } else { deadline };
            match timeout_at(until, more(inside, ahead)).await {
                Ok(true) => {}
                Ok(false) => break Start::Other,
                Err(_) if !servers_turn => {
                    return Err((Start::Other, self.refusal(Reason::SilentClient)));
                }
                Err(_) if protocols.contains(Protocol::Tcp) => return Ok((Start::Other, Protocol::Tcp)),
                // It may wait for the server's version line; its own is looked at when it comes.
                Err(_) => return Ok((Start::Ssh, Protocol::Ssh)),
            }
        };
        let protocol = match start {
            Start::Tls => self.tls(inside, ahead, deadline).await.map_err(|refusal| (start, refusal))?,
            Start::Http => Protocol::Http,
            Start::Ssh => Protocol::Ssh,
            Start::Postgres(_) => Protocol::Postgres,
            Start::Other | Start::Undecided => Protocol::Tcp,
        };
        if protocols.contains(protocol) {
            return Ok((start, protocol));
        }
        if protocols.contains(Protocol::Tcp) {
            return Ok((Start::Other, Protocol::Tcp));
        }
        Err((start, self.refusal(Reason::ProtocolNotAllowed).protocol(protocol)))
    }

    /// TLS must name its server, in the clear, and that must be the name that was asked for. PostgreSQL's clients may begin
    /// with TLS too, and say so (sslnegotiation=direct): nothing else, or the server could choose that.
    async fn tls(
        &self,
        inside: &TcpStream,
        ahead: &mut Vec<u8>,
        deadline: Instant,
    ) -> Result<Protocol, Refusal> {
        let protocols = self.allowed.protocols();
        if !protocols.contains(Protocol::Tls) && !protocols.contains(Protocol::Postgres) {
            return Ok(Protocol::Tls);
        }
        let hello = self.hello(inside, ahead, deadline).await?;
        self.same_name(&hello)?;
        if hello.server_name.is_none() {
            return Err(self.refusal(Reason::ServerNameMissing).protocol(Protocol::Tls));
        }
        let postgres = !protocols.contains(Protocol::Tls) && hello.alpn.is_only(POSTGRESQL);
        Ok(if postgres { Protocol::Postgres } else { Protocol::Tls })
    }

    pub(crate) async fn hello(
        &self,
        inside: &TcpStream,
        ahead: &mut Vec<u8>,
        deadline: Instant,
    ) -> Result<ClientHello, Refusal> {
        loop {
            match hello::read(ahead) {
                Hello::Complete(hello) => return Ok(hello),
                Hello::Malformed(why) => {
                    return Err(self.refusal(Reason::MalformedStart).protocol(Protocol::Tls).detail(why));
                }
                Hello::Incomplete => {}
            }
            if !matches!(timeout_at(deadline, more(inside, ahead)).await, Ok(true)) {
                return Err(self.refusal(Reason::SilentClient).protocol(Protocol::Tls));
            }
        }
    }

    /// Refuses a hello that is for another server, or hides for which.
    pub(crate) fn same_name(&self, hello: &ClientHello) -> Result<(), Refusal> {
        if hello.encrypted {
            return Err(self.refusal(Reason::EncryptedHello).protocol(Protocol::Tls));
        }
        match &hello.server_name {
            Some(server_name) if server_name.parse::<HostName>().as_ref() != Ok(&self.name) => {
                Err(self.refusal(Reason::ServerNameDiffers).protocol(Protocol::Tls).detail(server_name))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn refusal(&self, reason: Reason) -> Refusal {
        Refusal::new(&self.name, Some(self.port), reason)
    }
}

/// Records what was permitted, and dials it.
pub(crate) async fn open(permit: &Permit, serving: &Serving) -> Result<(TcpStream, OpenRecord), Refusal> {
    let mut recorded = None;
    let span = debug_span!("dial", egress.host = %permit.name(), egress.port = permit.port());
    let dialled = dial(permit, &serving.policy, serving.proxy.as_deref(), |way| {
        recorded = Some((serving.recorder.opened(permit, way, &serving.revoked)?, way.address));
        Ok(())
    })
    .instrument(span.clone())
    .await;
    match &dialled {
        Ok((_, address)) => span.in_scope(|| debug!(egress.address = ?address, "connected")),
        Err(undialled) => span.in_scope(|| debug!(error = ?undialled, "not connected")),
    }
    match (dialled, recorded) {
        (Ok((outside, address)), Some((mut record, first))) => {
            serving.fit(&outside);
            record.answered = address.filter(|answered| Some(*answered) != first);
            Ok((outside, record))
        }
        // Nothing is dialled without a record.
        (Ok(_), None) => Err(Undialled::NotRecorded.refusal(permit)),
        (Err(undialled), record) => {
            if let Some((mut record, _)) = record {
                record.ending = Ending::DialFailed;
            }
            Err(undialled.refusal(permit))
        }
    }
}

/// Says no so that the client understands it at once, and records it.
fn refuse(inside: TcpStream, serving: &Serving, refusal: &Refusal, start: Start) {
    serving.recorder.connection_refused(refusal);
    match start {
        Start::Tls => alert(&inside),
        Start::Http => {
            let _ = inside.try_write(http::page(refusal).as_bytes());
            let _ = shutdown(&inside, Shutdown::Write);
        }
        Start::Undecided | Start::Ssh | Start::Postgres(_) | Start::Other => reset(inside),
    }
}

/// Says no to a client of TLS.
pub(crate) fn alert(inside: &TcpStream) {
    let _ = inside.try_write(&ACCESS_DENIED);
    let _ = shutdown(inside, Shutdown::Write);
}

/// Reads some more; `false` when there is no more, or too much.
pub(crate) async fn more(from: &TcpStream, bytes: &mut Vec<u8>) -> bool {
    if bytes.len() >= hello::MAX {
        return false;
    }
    loop {
        // Into place: a buffer of its own would live in every connection's state.
        bytes.reserve(PIECE);
        match from.try_read_buf(bytes) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if from.readable().await.is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

fn ending(end: End) -> Ending {
    match end {
        End::Finished => Ending::Finished,
        End::BrokenInside => Ending::ResetInside,
        End::BrokenOutside => Ending::ResetOutside,
        End::Refused(Reason::IdleTimeout) => Ending::IdleTimeout,
        End::Refused(Reason::ByteLimit) => Ending::ByteLimit,
        End::Refused(_) => Ending::Refused,
    }
}

/// Where programs ask, in the clear: it ends here.
const ASKING_PORT: u16 = 80;
/// More than most first messages have.
const PIECE: usize = 2048;
/// How long a client that has to begin may take. Long enough for a slow program, short enough not to pile up.
pub(crate) const CLIENT_BEGINS: Duration = Duration::from_secs(10);
/// Where the server may begin: after this it is the server's turn.
const SERVER_BEGINS: Duration = Duration::from_millis(300);
/// What PostgreSQL is called in a hello (IANA, TLS ALPN protocol ids).
pub(crate) const POSTGRESQL: &[u8] = b"postgresql";
/// A TLS alert, fatal, access_denied (RFC 8446, 6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

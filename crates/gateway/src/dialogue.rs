//! What is said after a server was dialled and before bytes just pass: where the server's own words decide what the
//! client may say next, and so what has to be looked at.
//!
//! Called by `connection`; everything that passes here is paid for and counted as in the relay.

use crate::connection::{Arrival, CLIENT_BEGINS, POSTGRESQL, more};
use crate::first_bytes::{PostgresStart, Start, classify};
use crate::hello::{self, ClientHello, Hello, MAX};
use crate::hello_retry::{self, Answer};
use crate::relay::{self, Counts, Stop, silence};
use crate::serving::Meter;
use belljar_spec::egress::{Protocol, Reason, Refusal};
use belljar_sys::rustix::net::{Shutdown, shutdown};
use std::pin::pin;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// A client, its server, and what the client has said that the server was not told yet.
pub(crate) struct Dialogue<'a> {
    pub(crate) arrival: &'a Arrival,
    pub(crate) inside: &'a TcpStream,
    pub(crate) outside: &'a TcpStream,
    pub(crate) ahead: &'a mut Vec<u8>,
    pub(crate) counts: &'a Counts,
    pub(crate) meter: &'a Meter,
}

/// Why there is no connection: refused, or one of the two went away.
pub(crate) type Stopped = Option<Refusal>;

impl Dialogue<'_> {
    /// Passes on the hello, which was judged, and nothing else until it is clear what the server makes of it. If it asks
    /// for another one, that must be for the same server.
    pub(crate) async fn tls(&mut self, protocol: Protocol) -> Result<(), Stopped> {
        let Hello::Complete(first) = hello::read(self.ahead) else { return Err(None) };
        let followed = self.ahead.split_off(hello::length(self.ahead));
        let hello = std::mem::replace(self.ahead, followed);
        self.tell_server(&hello, protocol).await?;
        drop(hello);
        let mut answered = Vec::new();
        let mut forwarded = 0;
        let mut client_speaks = true;
        let mut silence = pin!(silence(self.counts));
        let answer = loop {
            match hello_retry::answer(&answered) {
                Answer::Undecided => {}
                answer => break answer,
            }
            if answered.len() >= MAX {
                let detail = "the server does not answer the client hello";
                return Err(Some(self.refusal(Reason::MalformedStart, protocol).detail(detail)));
            }
            let takes_more = client_speaks && self.ahead.len() < MAX;
            tokio::select! {
                goes_on = more(self.outside, &mut answered) => if !goes_on {
                    break Answer::GoesOn;
                },
                goes_on = more(self.inside, self.ahead), if takes_more => client_speaks = goes_on,
                () = &mut silence => return Err(Some(self.refusal(Reason::IdleTimeout, protocol))),
            }
            // Told at once: what comes may be an alert after which a server waits for its client to close.
            self.tell_client(&answered[forwarded..], protocol).await?;
            forwarded = answered.len();
        };
        self.tell_client(&answered[forwarded..], protocol).await?;
        match answer {
            Answer::Again => self.second_hello(&first, protocol).await.map_err(Some),
            Answer::GoesOn | Answer::Undecided => Ok(()),
        }
    }

    async fn second_hello(&mut self, first: &ClientHello, protocol: Protocol) -> Result<(), Refusal> {
        let deadline = Instant::now() + CLIENT_BEGINS;
        loop {
            match hello_retry::second(self.ahead) {
                Hello::Complete(second) if second.encrypted => {
                    return Err(self.refusal(Reason::EncryptedHello, protocol));
                }
                Hello::Complete(second) if second.server_name != first.server_name => {
                    let server_name = second.server_name.as_deref().unwrap_or("none");
                    let detail = format!("{server_name}, when asked again");
                    return Err(self.refusal(Reason::ServerNameDiffers, protocol).detail(&detail));
                }
                // What it may speak was judged by the first one.
                Hello::Complete(second) if protocol == Protocol::Postgres && second.alpn != first.alpn => {
                    let detail = "another protocol, when asked again";
                    return Err(self.refusal(Reason::ProtocolNotAllowed, Protocol::Tls).detail(detail));
                }
                Hello::Complete(_) => return Ok(()),
                Hello::Malformed(why) => {
                    return Err(self.refusal(Reason::MalformedStart, protocol).detail(why));
                }
                Hello::Incomplete => {}
            }
            if !matches!(timeout_at(deadline, more(self.inside, self.ahead)).await, Ok(true)) {
                return Err(self.refusal(Reason::SilentClient, protocol));
            }
        }
    }

    /// The server may begin; the client's own version line is looked at when it comes.
    pub(crate) async fn ssh(&mut self) -> Result<(), Stopped> {
        let mut greeting = Vec::new();
        let mut server_speaks = true;
        let mut silence = pin!(silence(self.counts));
        loop {
            match classify(self.ahead) {
                Start::Ssh => return Ok(()),
                Start::Undecided => {}
                _ => return Err(Some(self.refusal(Reason::ProtocolNotAllowed, Protocol::Tcp))),
            }
            tokio::select! {
                goes_on = more(self.inside, self.ahead) => if !goes_on {
                    // The end is the relay's business.
                    return Ok(());
                },
                goes_on = more(self.outside, &mut greeting), if server_speaks => {
                    server_speaks = goes_on;
                    self.tell_client(&greeting, Protocol::Ssh).await?;
                    greeting.clear();
                    if !server_speaks {
                        // Told now, and not only once the client has spoken.
                        let _ = shutdown(self.inside, Shutdown::Write);
                    }
                }
                () = &mut silence => return Err(Some(self.refusal(Reason::IdleTimeout, Protocol::Ssh))),
            }
        }
    }

    /// A PostgreSQL client asks in the clear whether to continue in TLS, and the server answers with one byte. What follows
    /// is inspected like any other TLS, but for clients that are too old to name their server.
    pub(crate) async fn postgres(&mut self, first: PostgresStart) -> Result<(), Stopped> {
        let mut question = first;
        let deadline = Instant::now() + CLIENT_BEGINS;
        while matches!(question, PostgresStart::TlsRequest | PostgresStart::GssRequest) {
            let malformed =
                |dialogue: &Self| Some(dialogue.refusal(Reason::MalformedStart, Protocol::Postgres));
            // Nothing may follow the question before its answer (CVE-2021-23222).
            if self.ahead.len() != POSTGRES_QUESTION {
                return Err(malformed(self));
            }
            let request = std::mem::take(self.ahead);
            self.tell_server(&request, Protocol::Postgres).await?;
            let mut answer = Vec::new();
            if !matches!(timeout_at(deadline, more(self.outside, &mut answer)).await, Ok(true))
                || answer.len() != 1
            {
                return Err(None);
            }
            self.tell_client(&answer, Protocol::Postgres).await?;
            question = match (question, answer[0]) {
                (PostgresStart::TlsRequest, b'S') => {
                    let hello = self.arrival.hello(self.inside, self.ahead, deadline).await.map_err(Some)?;
                    self.arrival.same_name(&hello).map_err(Some)?;
                    if !hello.alpn.is_empty() && !hello.alpn.is_only(POSTGRESQL) {
                        return Err(Some(self.refusal(Reason::ProtocolNotAllowed, Protocol::Tls)));
                    }
                    return self.tls(Protocol::Postgres).await;
                }
                // Encrypted by GSSAPI: nothing more can be seen, and it is the server that was allowed.
                (PostgresStart::GssRequest, b'G') => return Ok(()),
                _ => loop {
                    match classify(self.ahead) {
                        Start::Postgres(next) => break next,
                        Start::Undecided => {}
                        _ => return Err(malformed(self)),
                    }
                    if !matches!(timeout_at(deadline, more(self.inside, self.ahead)).await, Ok(true)) {
                        return Err(None);
                    }
                },
            };
        }
        Ok(())
    }

    async fn tell_server(&self, bytes: &[u8], protocol: Protocol) -> Result<(), Stopped> {
        let written = relay::write(self.outside, bytes, &self.counts.sent, self.meter).await;
        written.map_err(|stop| self.stopped(stop, protocol))
    }

    async fn tell_client(&self, bytes: &[u8], protocol: Protocol) -> Result<(), Stopped> {
        let written = relay::write(self.inside, bytes, &self.counts.received, self.meter).await;
        written.map_err(|stop| self.stopped(stop, protocol))
    }

    fn stopped(&self, stop: Stop, protocol: Protocol) -> Stopped {
        match stop {
            Stop::Refused(reason) => Some(self.refusal(reason, protocol)),
            Stop::Reading | Stop::Writing => None,
        }
    }

    fn refusal(&self, reason: Reason, protocol: Protocol) -> Refusal {
        self.arrival.refusal(reason).protocol(protocol)
    }
}

/// PostgreSQL's SSLRequest and GSSENCRequest are a length and a number.
const POSTGRES_QUESTION: usize = 8;

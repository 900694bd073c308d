//! Answers a sandbox's questions for names, without asking a resolver: no query leaves the host because a sandbox asked.

use super::message::{self, Answer, Question, Transport, kind};
use crate::decide;
use crate::live::LivePolicy;
use crate::serving::Serving;
use belljar_spec::egress::{Destination, HostName, Mode, Printable, Reason, is_asking};
use belljar_sys::datagram::{self, Received};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};
use tracing::{debug, debug_span};

/// Answers datagrams for as long as the sandbox lives.
pub(crate) async fn over_udp(socket: UdpSocket, live: Arc<LivePolicy>) {
    let mut buffer = [0; DATAGRAM];
    loop {
        let next = || Ok(datagram::receive(&socket, &mut buffer)?);
        match socket.async_io(Interest::READABLE, next).await {
            Ok(Received { length, from: client, to: server }) => {
                if let Some(reply) = reply(&buffer[..length], Transport::Udp, &live.now()) {
                    // The client may be gone.
                    let _ = datagram::send(&socket, &reply, client, server);
                }
            }
            // An error of an earlier answer, told late.
            Err(_) => sleep(ACCEPT_RETRY_INTERVAL).await,
        }
    }
}

/// Answers questions on one connection, each with its length before it (RFC 7766).
pub(crate) async fn over_tcp(mut stream: TcpStream, live: &LivePolicy) {
    while let Ok(Ok(length)) = timeout(TCP_TIMEOUT, stream.read_u16()).await {
        // Room that a client may take just by saying so.
        if usize::from(length) > DATAGRAM {
            return;
        }
        let mut message = vec![0; length.into()];
        if !matches!(timeout(TCP_TIMEOUT, stream.read_exact(&mut message)).await, Ok(Ok(_))) {
            return;
        }
        let Some(reply) = reply(&message, Transport::Tcp, &live.now()) else { return };
        let Ok(length) = u16::try_from(reply.len()) else { return };
        let framed = [&length.to_be_bytes()[..], &reply].concat();
        if !matches!(timeout(TCP_TIMEOUT, stream.write_all(&framed)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Answers the datagrams that a guest passes on, each with its length before it. Every question has an answer, so that the guest
/// knows whose it is: an empty one, where it deserves none.
pub(crate) async fn relayed(mut stream: TcpStream, live: Arc<LivePolicy>) {
    while let Ok(length) = stream.read_u16().await {
        if usize::from(length) > DATAGRAM {
            return;
        }
        let mut message = vec![0; length.into()];
        if stream.read_exact(&mut message).await.is_err() {
            return;
        }
        let reply = reply(&message, Transport::Udp, &live.now()).unwrap_or_default();
        let Ok(length) = u16::try_from(reply.len()) else { return };
        let framed = [&length.to_be_bytes()[..], &reply].concat();
        if stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

/// The reply to a message; `None` for what deserves none.
fn reply(message: &[u8], transport: Transport, serving: &Serving) -> Option<Vec<u8>> {
    let question = match message::question(message) {
        Ok(question) => question,
        Err(unanswerable) => return unanswerable.reply,
    };
    let _within =
        debug_span!("dns", dns.name = question.name, dns.type = record_type(question.kind)).entered();
    debug!("asked");
    if question.class != message::IN {
        return Some(message::answer(&question, Answer::Refused, transport));
    }
    if question.kind == kind::PTR {
        let name = pointed_at(&question.name).and_then(|address| serving.names.at(address));
        let answer = name.as_ref().map_or(Answer::NoSuchName, |name| Answer::Pointer(name.as_str(), TTL));
        return Some(message::answer(&question, answer, transport));
    }
    let addresses = match understand(&question, serving) {
        Known::Answer(answer) => return Some(message::answer(&question, answer, transport)),
        Known::At(addresses) => addresses,
    };
    Some(message::answer(&question, Answer::Addresses(&addresses, TTL), transport))
}

enum Known {
    Answer(Answer<'static>),
    At(Vec<IpAddr>),
}

fn understand(question: &Question, serving: &Serving) -> Known {
    let record_type = record_type(question.kind);
    let refused = |destination: Destination, reason: Reason| {
        serving.recorder.name_refused(destination, &record_type, reason);
    };
    let name: HostName = match question.name.parse() {
        Ok(name) => name,
        Err(_) => {
            // The name is escaped already; once more would show other bytes than were asked for.
            let destination = match Destination::understand(question.name.as_bytes()) {
                Destination::Text(_) => Destination::Text(Printable::escaped(&question.name)),
                destination @ (Destination::Name(_) | Destination::Address(_)) => destination,
            };
            refused(destination, Reason::NameMalformed);
            return Known::Answer(Answer::NoSuchName);
        }
    };
    if is_localhost(&name) {
        // RFC 6761: never resolved by any server.
        return match question.kind {
            kind::A | kind::AAAA => Known::At(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            _ => Known::Answer(Answer::Empty),
        };
    }
    // Of a name that a person may be asked for, the connection asks: a question for its address tells nothing outside.
    // At the place where programs ask, they ask for other names.
    let is_ours = is_asking(&name) && serving.policy.mode != Mode::None;
    if let Err(reason) = decide::name(&serving.policy, &name)
        && !decide::needs_approval(&serving.policy, reason)
        && !is_ours
        && !(reason == Reason::NameNotAllowed && serving.policy.is_allowed_once(&name))
    {
        refused(name.into(), reason);
        return Known::Answer(Answer::NoSuchName);
    }
    match question.kind {
        kind::A | kind::AAAA => match serving.names.fake(&name) {
            Some(fake) => {
                let mut addresses = vec![IpAddr::V4(fake.ipv4())];
                addresses.extend(fake.ipv6().map(IpAddr::V6));
                Known::At(addresses)
            }
            None => {
                refused(name.into(), Reason::TooManyNames);
                Known::Answer(Answer::Failed)
            }
        },
        // Most clients ask for these before they connect; a refusal would make some of them give up. There is none, and so
        // no key to hide a TLS hello with.
        kind::HTTPS | kind::SVCB => Known::Answer(Answer::Empty),
        // apt and others ask whether a service has servers of its own, and continue with the name itself.
        kind::SRV => Known::Answer(Answer::Empty),
        _ => {
            refused(name.into(), Reason::RecordTypeRefused);
            Known::Answer(Answer::Refused)
        }
    }
}

/// Whether a name means the sandbox itself, whatever it leads to outside.
pub fn is_localhost(name: &HostName) -> bool {
    name.as_str() == "localhost" || name.as_str().ends_with(".localhost")
}

/// The address that a name under in-addr.arpa or ip6.arpa stands for (RFC 1035, 3.5; RFC 3596, 2.5).
fn pointed_at(name: &str) -> Option<IpAddr> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if let Some(digits) = name.strip_suffix(".in-addr.arpa") {
        let reversed: Vec<&str> = digits.split('.').rev().collect();
        return reversed.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let digits: String = name.strip_suffix(".ip6.arpa")?.split('.').rev().collect();
    (digits.len() == 32)
        .then(|| u128::from_str_radix(&digits, 16).ok())
        .flatten()
        .map(|bits| Ipv6Addr::from(bits).into())
}

fn record_type(kind: u16) -> String {
    match kind {
        kind::A => "A".into(),
        kind::AAAA => "AAAA".into(),
        kind::HTTPS => "HTTPS".into(),
        kind::SVCB => "SVCB".into(),
        kind::SRV => "SRV".into(),
        16 => "TXT".into(),
        other => format!("TYPE{other}"),
    }
}

/// The addresses never change, but a resolver that keeps them forever would show old ones to the next sandbox.
const TTL: u32 = 60;
/// More than any question has; a longer one is cut and so malformed.
const DATAGRAM: usize = 2048;
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(1);
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_addresses_are_read_backwards() {
        let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.7.1.6.a.6.c.6.c.6.5.6.2.6.d.f.ip6.arpa.";
        for (name, expected) in [
            ("1.0.18.198.in-addr.arpa.", Some("198.18.0.1")),
            ("1.0.18.198.IN-ADDR.ARPA", Some("198.18.0.1")),
            (v6, Some("fd62:656c:6c6a:6172::1")),
            ("0.18.198.in-addr.arpa", None),
            ("x.in-addr.arpa", None),
            ("+.0.18.198.in-addr.arpa", None),
            ("1.ip6.arpa", None),
            ("example.com", None),
        ] {
            assert_eq!(pointed_at(name), expected.map(|text| text.parse().expect("an address")), "{name}");
        }
    }
}

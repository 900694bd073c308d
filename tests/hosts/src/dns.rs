//! A DNS server that knows what its test tells it, over UDP and TCP.

use crate::Server;
use crate::server::both;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Answers until it is dropped, and keeps what it was asked.
pub struct Dns {
    tcp: Server,
    stopped: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<Query>>>,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// In lower case, without the last dot.
    pub name: String,
    /// 1 for A, 28 for AAAA and so on.
    pub kind: u16,
    pub transport: Transport,
}

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

impl Dns {
    /// On 127.0.0.1, at a free port. A name without addresses does not exist; of the others each question gets those
    /// of its kind. The closure is asked every time, so it may change its mind.
    pub fn start(answers: impl Fn(&Query) -> Vec<IpAddr> + Send + Sync + 'static) -> Dns {
        let log = Arc::new(Mutex::new(Vec::new()));
        let answer = {
            let log = Arc::clone(&log);
            Arc::new(move |message: &[u8], transport| {
                let query = question(message, transport)?;
                log.lock().unwrap_or_else(PoisonError::into_inner).push(query.clone());
                Some(reply(message, &query, &answers(&query)))
            })
        };
        let (udp, listener) = both(Ipv4Addr::LOCALHOST.into());
        let over = Arc::clone(&answer);
        let tcp = Server::on(listener, move |stream| over_tcp(stream, &*over));
        udp.set_read_timeout(Some(LOOK_UP)).expect("a socket takes a timeout");
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::SeqCst) {
                let Ok((length, client)) = udp.recv_from(&mut buffer) else { continue };
                if let Some(reply) = answer(&buffer[..length], Transport::Udp) {
                    let _ = udp.send_to(&fitting(reply, &buffer[..length]), client);
                }
            }
        });
        Dns { tcp, stopped, log }
    }

    /// With the same answers for ever. Subdomains are names of their own.
    pub fn of<const N: usize>(names: [(&str, IpAddr); N]) -> Dns {
        let mut known: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (name, address) in names {
            known.entry(name.to_string()).or_default().push(address);
        }
        Dns::start(move |query| known.get(&query.name).cloned().unwrap_or_default())
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.tcp.address()
    }

    /// Every question so far.
    pub fn queries(&self) -> Vec<Query> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

fn over_tcp(mut stream: TcpStream, answer: &impl Fn(&[u8], Transport) -> Option<Vec<u8>>) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        let Some(reply) = answer(&message, Transport::Tcp) else { return };
        let length = u16::try_from(reply.len()).expect("an answer of a test fits into a message");
        if stream.write_all(&[&length.to_be_bytes()[..], &reply].concat()).is_err() {
            return;
        }
    }
}

/// RFC 1035, 4.1: a head of twelve bytes, then labels, a type and a class.
fn question(message: &[u8], transport: Transport) -> Option<Query> {
    let mut labels = Vec::new();
    let mut at = HEAD;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    Some(Query { name: labels.join("."), kind, transport })
}

fn reply(message: &[u8], query: &Query, addresses: &[IpAddr]) -> Vec<u8> {
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match (address, query.kind) {
            (IpAddr::V4(address), A) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), AAAA) => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let code = if addresses.is_empty() { NO_SUCH_NAME } else { 0 };
    let mut reply = message[..2].to_vec();
    reply.extend([0x84 | (message[2] & 1), 0x80 | code, 0, 1]);
    reply.extend(u16::try_from(records.len()).expect("a test has few addresses").to_be_bytes());
    reply.extend([0; 4]);
    reply.extend_from_slice(&message[HEAD..question_end(message)]);
    for data in records {
        // A pointer to the question's name; the class is IN and the answer is not to be kept.
        reply.extend([0xc0, HEAD as u8]);
        reply.extend(query.kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 0, 0, data.len() as u8]);
        reply.extend(data);
    }
    reply
}

/// Over UDP a long answer is only announced, and the client asks again over TCP.
fn fitting(mut reply: Vec<u8>, requested: &[u8]) -> Vec<u8> {
    if reply.len() > DATAGRAM {
        reply.truncate(question_end(requested));
        reply[2] |= 2;
        reply[6..8].fill(0);
    }
    reply
}

/// Behind the question's class. The question was understood before.
fn question_end(message: &[u8]) -> usize {
    let name = message[HEAD..].iter().position(|byte| *byte == 0).expect("a name ends");
    HEAD + name + 5
}

const HEAD: usize = 12;
const A: u16 = 1;
const AAAA: u16 = 28;
const NO_SUCH_NAME: u8 = 3;
/// Without an agreement on more (RFC 1035, 4.2.1).
const DATAGRAM: usize = 512;
const LOOK_UP: Duration = Duration::from_millis(50);

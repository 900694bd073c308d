//! DNS messages: one question in, one answer out.
//!
//! Pure. By hand and not by the resolver's library: what is read here comes from the sandbox, and of the protocol only
//! a header, one name and one EDNS record can be in it. So nothing has to follow compression pointers, and the
//! question goes back byte for byte as it came, which clients that mix upper and lower case insist on.
//!
//! RFC 1035 §4, RFC 6891 (EDNS), RFC 9619 (one question a message).

use std::net::IpAddr;

use crate::bytes;
use crate::dns::name;

/// What a sandbox asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Chosen by the client; the answer carries it.
    pub id: u16,
    /// The name as asked, its case kept, without the last dot; the root is `.`. Bytes that are not visible ASCII are
    /// written `\ddd`, and a dot or backslash inside of a label has a backslash before it (RFC 4343 §2.1), so that
    /// two different names are never the same text.
    pub name: String,
    /// The type of record, as in [`kind`].
    pub kind: u16,
    /// The class: [`IN`], or one that programs do not need.
    pub class: u16,
    /// Whether the client wants us to ask others. It is told that we do.
    pub recursion_desired: bool,
    /// The longest answer that the client takes over UDP, if it speaks EDNS.
    pub edns: Option<u16>,
    /// Bits that go back as they came.
    checking_disabled: bool,
    dnssec_ok: bool,
    /// Name, type and class as they came.
    wire: Vec<u8>,
}

/// A message that is no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unanswerable {
    /// What is wrong with it.
    pub why: &'static str,
    /// What to send back. Nothing to what may be an answer, or two servers would talk to each other for ever.
    pub reply: Option<Vec<u8>>,
}

/// What a sandbox is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// These addresses, as far as they are of the type that was asked for, for so many seconds.
    Addresses(&'a [IpAddr], u32),
    /// The name of an address, if that was asked for, for so many seconds.
    Pointer(&'a str, u32),
    /// The name exists and has no such record.
    Empty,
    /// The name does not exist.
    NoSuchName,
    /// The question is not answered for reasons of policy.
    Refused,
    /// Something went wrong here.
    Failed,
    /// The kind of question is unknown here.
    NotImplemented,
}

/// How an answer travels: it decides how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Reads a question from one whole message (over TCP: without the length before it).
pub fn question(message: &[u8]) -> Result<Question, Unanswerable> {
    let mut rest = message;
    let header =
        Header::read(&mut rest).ok_or(Unanswerable { why: "the message is too short", reply: None })?;
    if header.flags & RESPONSE != 0 {
        return Err(Unanswerable { why: "the message is an answer", reply: None });
    }
    if header.flags & OPCODE != 0 {
        return Err(header.unanswerable(NOT_IMPLEMENTED, "the message is not a query"));
    }
    if header.flags & TRUNCATED != 0 {
        return Err(header.unanswerable(FORMAT_ERROR, "the question is cut short"));
    }
    if header.counts[..3] != [1, 0, 0] || header.counts[3] > 1 {
        return Err(header.unanswerable(FORMAT_ERROR, "the message holds more or less than one question"));
    }
    let torn = |why| header.unanswerable(FORMAT_ERROR, why);

    let before = rest;
    let name = name::read(&mut rest).map_err(torn)?;
    let kind = bytes::u16(&mut rest).ok_or_else(|| torn("the question is torn"))?;
    let class = bytes::u16(&mut rest).ok_or_else(|| torn("the question is torn"))?;
    let wire = before[..before.len() - rest.len()].to_vec();

    let edns = match header.counts[3] {
        0 => None,
        _ => Some(
            Edns::read(&mut rest).ok_or_else(|| torn("the record behind the question is not one of edns"))?,
        ),
    };
    if !rest.is_empty() {
        return Err(torn("there is something behind the question"));
    }
    let question = Question {
        id: header.id,
        name,
        kind,
        class,
        recursion_desired: header.flags & RECURSION_DESIRED != 0,
        edns: edns.map(|edns| edns.size),
        checking_disabled: header.flags & CHECKING_DISABLED != 0,
        dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok),
        wire,
    };
    if edns.is_some_and(|edns| edns.version != 0) {
        let reply = Reply::to(&question, BAD_VERSION, Transport::Udp).finish();
        return Err(Unanswerable { why: "the version of edns is unknown", reply: Some(reply) });
    }
    Ok(question)
}

/// Builds the answer to a question. What does not fit is left out and said to be, so that the client asks by TCP.
pub fn answer(question: &Question, answer: Answer<'_>, transport: Transport) -> Vec<u8> {
    let code = match answer {
        Answer::Addresses(..) | Answer::Pointer(..) | Answer::Empty => NO_ERROR,
        Answer::NoSuchName => NO_SUCH_NAME,
        Answer::Refused => REFUSED,
        Answer::Failed => SERVER_FAILURE,
        Answer::NotImplemented => NOT_IMPLEMENTED,
    };
    let mut reply = Reply::to(question, code, transport);
    match answer {
        Answer::Addresses(addresses, ttl) => {
            for address in addresses {
                match (question.kind, address) {
                    (kind::A, IpAddr::V4(v4)) => reply.push(ttl, &v4.octets()),
                    (kind::AAAA, IpAddr::V6(v6)) => reply.push(ttl, &v6.octets()),
                    _ => {}
                }
            }
        }
        Answer::Pointer(host, ttl) if question.kind == kind::PTR => match name::write(host) {
            Some(data) => reply.push(ttl, &data),
            None => reply.code = SERVER_FAILURE,
        },
        Answer::Pointer(..)
        | Answer::Empty
        | Answer::NoSuchName
        | Answer::Refused
        | Answer::Failed
        | Answer::NotImplemented => {}
    }
    reply.finish()
}

/// An answer being written.
struct Reply<'a> {
    question: &'a Question,
    bytes: Vec<u8>,
    room: usize,
    records: u16,
    /// Beyond the four bits of the header it goes into the record of EDNS.
    code: u16,
    truncated: bool,
}

impl<'a> Reply<'a> {
    fn to(question: &'a Question, code: u16, transport: Transport) -> Self {
        let limit = match transport {
            Transport::Udp => question.edns.unwrap_or(0).clamp(UDP_PLAIN, UDP_EDNS),
            Transport::Tcp => u16::MAX,
        };
        // Fits for any question: a name is at most 255 bytes.
        let room = usize::from(limit) - if question.edns.is_some() { EDNS_RECORD } else { 0 };
        let mut bytes = Vec::with_capacity(HEADER + question.wire.len() + TYPICAL_RECORDS);
        bytes.resize(HEADER, 0);
        bytes.extend_from_slice(&question.wire);
        Reply { question, bytes, room, records: 0, code, truncated: false }
    }

    /// Adds a record of the asked name, type and class, if there is room.
    fn push(&mut self, ttl: u32, data: &[u8]) {
        if self.truncated || self.bytes.len() + RECORD_HEADER + data.len() > self.room {
            self.truncated = true;
            return;
        }
        self.bytes.extend_from_slice(&QUESTION_NAME.to_be_bytes());
        self.bytes.extend_from_slice(&self.question.kind.to_be_bytes());
        self.bytes.extend_from_slice(&self.question.class.to_be_bytes());
        self.bytes.extend_from_slice(&ttl.to_be_bytes());
        self.bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(data);
        self.records += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        let question = self.question;
        if question.edns.is_some() {
            self.bytes.push(0); // the root
            self.bytes.extend_from_slice(&kind::OPT.to_be_bytes());
            self.bytes.extend_from_slice(&UDP_EDNS.to_be_bytes());
            self.bytes.extend_from_slice(&[(self.code >> 4) as u8, 0]);
            self.bytes.extend_from_slice(&if question.dnssec_ok { DNSSEC_OK } else { 0 }.to_be_bytes());
            self.bytes.extend_from_slice(&[0, 0]); // no options
        }
        // Recursion is available: without that bit Go takes an empty answer for a referral, and asks on.
        let flags = RESPONSE
            | RECURSION_AVAILABLE
            | if question.recursion_desired { RECURSION_DESIRED } else { 0 }
            | if question.checking_disabled { CHECKING_DISABLED } else { 0 }
            | if self.truncated { TRUNCATED } else { 0 }
            | self.code & CODE;
        let counts = [1, self.records, 0, question.edns.is_some().into()];
        Header { id: question.id, flags, counts }.write(&mut self.bytes);
        self.bytes
    }
}

/// The twelve bytes that every message begins with.
struct Header {
    id: u16,
    flags: u16,
    /// Questions, answers, authorities, additional records.
    counts: [u16; 4],
}

impl Header {
    fn read(rest: &mut &[u8]) -> Option<Header> {
        let mut next = || bytes::u16(rest);
        Some(Header { id: next()?, flags: next()?, counts: [next()?, next()?, next()?, next()?] })
    }

    fn write(&self, message: &mut [u8]) {
        let fields = [self.id, self.flags].into_iter().chain(self.counts);
        for (place, field) in message.chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
    }

    /// Says no without repeating what could not be understood.
    fn unanswerable(&self, code: u16, why: &'static str) -> Unanswerable {
        let flags = RESPONSE | RECURSION_AVAILABLE | self.flags & (OPCODE | RECURSION_DESIRED) | code;
        let mut reply = vec![0; HEADER];
        Header { id: self.id, flags, counts: [0; 4] }.write(&mut reply);
        Unanswerable { why, reply: Some(reply) }
    }
}

/// What the record of EDNS says.
#[derive(Clone, Copy)]
struct Edns {
    size: u16,
    version: u8,
    dnssec_ok: bool,
}

impl Edns {
    /// The one record that may follow a question. Its options are checked for their bounds and not heeded.
    fn read(rest: &mut &[u8]) -> Option<Edns> {
        let root_and_kind = (bytes::u8(rest)?, bytes::u16(rest)?);
        if root_and_kind != (0, kind::OPT) {
            return None;
        }
        let size = bytes::u16(rest)?;
        let _code = bytes::u8(rest)?;
        let version = bytes::u8(rest)?;
        let dnssec_ok = bytes::u16(rest)? & DNSSEC_OK != 0;
        let mut options = bytes::vector16(rest)?;
        while !options.is_empty() {
            let _option = bytes::u16(&mut options)?;
            bytes::vector16(&mut options)?;
        }
        Some(Edns { size, version, dnssec_ok })
    }
}

/// Types of records that are treated in a way of their own.
pub mod kind {
    pub const A: u16 = 1;
    pub const PTR: u16 = 12;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
}

/// The class of the internet.
pub const IN: u16 = 1;

const HEADER: usize = 12;
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;
const CHECKING_DISABLED: u16 = 0x0010;
const CODE: u16 = 0x000f;

const NO_ERROR: u16 = 0;
const FORMAT_ERROR: u16 = 1;
const SERVER_FAILURE: u16 = 2;
const NO_SUCH_NAME: u16 = 3;
const NOT_IMPLEMENTED: u16 = 4;
const REFUSED: u16 = 5;
const BAD_VERSION: u16 = 16;

/// A pointer to the question's name, right behind the header.
const QUESTION_NAME: u16 = 0xc000 | HEADER as u16;
/// Name (a pointer), type, class, time to live, length.
const RECORD_HEADER: usize = 12;
/// The same with the root for a name, and empty.
const EDNS_RECORD: usize = 11;
const DNSSEC_OK: u16 = 0x8000;
/// What an answer over UDP may have without EDNS, and what we take and give at most with it: the size that passes every
/// network unbroken, as resolvers have agreed.
const UDP_PLAIN: u16 = 512;
const UDP_EDNS: u16 = 1232;
/// Room that is set aside for records: two addresses and EDNS fit.
const TYPICAL_RECORDS: usize = 80;

//! Questions that a sandbox may ask, and those that it must not get through with. The resolver's library, which was
//! written by others, checks what is read and what is answered.

use std::net::IpAddr;

use belljar_gateway::dns::message::{Answer, IN, Question, Transport, answer, kind, question};
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use proptest::collection::vec;
use proptest::prelude::*;

/// A header with one question and nothing else in it.
const HEADER: &[u8] = b"\xab\xcd\x01\x00\0\x01\0\0\0\0\0\0";
const EXAMPLE_A: &[u8] = b"\x07exAmple\x03Com\0\0\x01\0\x01";
/// The root, its type, 1232 bytes, version 0, no flags, no options.
const EDNS: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

fn parsed(parts: &[&[u8]]) -> Question {
    question(&parts.concat()).expect("a valid question")
}

/// With a record behind the question.
fn with_additional(record: &[u8]) -> Vec<u8> {
    let mut message = [HEADER, EXAMPLE_A, record].concat();
    message[11] = 1;
    message
}

#[test]
fn a_question_is_read_as_asked() {
    let question = parsed(&[HEADER, EXAMPLE_A]);
    assert_eq!(question.id, 0xabcd);
    assert_eq!(question.name, "exAmple.Com");
    assert_eq!((question.kind, question.class), (kind::A, IN));
    assert!(question.recursion_desired);
    assert_eq!(question.edns, None);
    assert_eq!(parsed(&[&with_additional(EDNS)]).edns, Some(1232));
}

#[test]
fn golden_bytes_of_an_answer() {
    let addresses = ["198.18.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
    let question = parsed(&[&with_additional(EDNS)]);
    let expected: &[&[u8]] = &[
        b"\xab\xcd\x81\x80\0\x01\0\x01\0\0\0\x01",
        EXAMPLE_A,
        b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x12\0\x07",
        EDNS,
    ];
    assert_eq!(answer(&question, Answer::Addresses(&addresses, 60), Transport::Udp), expected.concat());
}

#[test]
fn names_that_look_alike_are_told_apart() {
    for (wire, name) in [
        (&b"\0"[..], "."),
        (b"\x03a.b\x03com\0", r"a\.b.com"),
        (b"\x01a\x01b\x03com\0", "a.b.com"),
        (b"\x02a\\\x03com\0", r"a\\.com"),
        (b"\x04a\0\n \x03com\0", r"a\000\010\032.com"),
        (b"\x02\xc3\xa4\x03com\0", r"\195\164.com"),
    ] {
        assert_eq!(parsed(&[HEADER, wire, b"\0\x01\0\x01"]).name, name);
    }
}

#[test]
fn answers_get_no_answer() {
    let mut message = [HEADER, EXAMPLE_A].concat();
    message[2] |= 0x80;
    assert_eq!(question(&message).unwrap_err().reply, None);
    assert_eq!(question(&HEADER[..11]).unwrap_err().reply, None);
    assert_eq!(question(b"").unwrap_err().reply, None);
}

#[test]
fn hostile_questions_are_refused_with_the_code_that_fits() {
    let label = |length: usize| [&[length as u8][..], &vec![b'a'; length]].concat();
    let of_name = |name: &[u8]| [HEADER, name, b"\0\x01\0\x01"].concat();
    let count = |place: usize, number: u8| {
        let mut message = [HEADER, EXAMPLE_A, EXAMPLE_A].concat();
        message[place] = number;
        message
    };
    let flags = |bits: u8| {
        let mut message = [HEADER, EXAMPLE_A].concat();
        message[2] |= bits;
        message
    };
    let cases: &[(&str, Vec<u8>, u8)] = &[
        ("a pointer to itself", of_name(b"\xc0\x0c"), 1),
        ("a pointer to the header", of_name(b"\x01a\xc0\x00"), 1),
        ("a label of 64", of_name(&[&label(63)[..], &label(64), b"\0"].concat()), 1),
        ("an old kind of label", of_name(b"\x41\x01\0"), 1),
        ("a name of 256", of_name(&[label(63), label(63), label(63), label(62), vec![0]].concat()), 1),
        ("a name without an end", [HEADER, b"\x03com"].concat(), 1),
        ("a label beyond the message", [HEADER, b"\x3fcom\0\0\x01\0\x01"].concat(), 1),
        ("a header alone", HEADER.to_vec(), 1),
        ("a name alone", [HEADER, b"\0"].concat(), 1),
        ("half a class", [HEADER, b"\0\0\x01\0"].concat(), 1),
        ("no question", count(5, 0), 1),
        ("two questions", count(5, 2), 1),
        ("a question with an answer", count(7, 1), 1),
        ("a question with an authority", count(9, 1), 1),
        ("two records of edns", count(11, 2), 1),
        ("a second question behind the count", [HEADER, EXAMPLE_A, EXAMPLE_A].concat(), 1),
        ("an additional record that is missing", with_additional(b""), 1),
        ("an additional record that is not edns", with_additional(b"\0\0\x10\0\x01\0\0\0\0\0\0"), 1),
        ("edns with a name", with_additional(&[b"\x01a", EDNS].concat()), 1),
        ("edns that lies of its length", with_additional(b"\0\0\x29\x04\xd0\0\0\0\0\0\x09"), 1),
        ("edns with a torn option", with_additional(b"\0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x0a\0\x08"), 1),
        ("something behind edns", with_additional(&[EDNS, b"\0"].concat()), 1),
        ("a cut question", flags(0x02), 1),
        ("an inverse query", flags(0x08), 4),
        ("an update", flags(0x28), 4),
    ];
    for (what, message, code) in cases {
        let reply = question(message).expect_err(what).reply.expect(what);
        assert_eq!(reply.len(), 12, "{what}");
        assert_eq!(reply[..2], message[..2], "{what}");
        assert_eq!(reply[2], message[2] & 0x79 | 0x80, "{what}");
        assert_eq!(reply[3], 0x80 | code, "{what}");
    }
}

#[test]
fn the_longest_name_is_a_name() {
    let label = |length: usize| [&[length as u8][..], &vec![b'a'; length]].concat();
    let name = [label(63), label(63), label(63), label(61), vec![0]].concat();
    assert_eq!(parsed(&[HEADER, &name, b"\0\x01\0\x01"]).name.len(), 253);
}

#[test]
fn an_unknown_version_of_edns_is_said_to_be_one() {
    let reply = question(&with_additional(b"\0\0\x29\x04\xd0\0\x01\0\0\0\0")).unwrap_err().reply.unwrap();
    // Sixteen has two names; the other one belongs to signatures.
    assert_eq!(u16::from(Message::from_vec(&reply).unwrap().metadata.response_code), 16);
}

#[test]
fn what_does_not_fit_is_said_to_be_missing() {
    let addresses = vec![IpAddr::from([198, 18, 0, 1]); 5000];
    let all = Answer::Addresses(&addresses, 1);
    let question = parsed(&[HEADER, EXAMPLE_A]);
    let with_edns = parsed(&[&with_additional(EDNS)]);
    for (question, transport, limit) in [
        (&question, Transport::Udp, 512),
        (&with_edns, Transport::Udp, 1232),
        (&with_edns, Transport::Tcp, 65535),
    ] {
        let bytes = answer(question, all, transport);
        let message = Message::from_vec(&bytes).unwrap();
        assert!(bytes.len() <= limit && bytes.len() + 16 > limit, "{}", bytes.len());
        assert!(message.metadata.truncation);
    }
    let forty = Answer::Addresses(&addresses[..40], 1);
    assert!(!Message::from_vec(&answer(&question, forty, Transport::Tcp)).unwrap().metadata.truncation);
}

#[test]
fn the_name_of_an_address_is_told() {
    let question = parsed(&[HEADER, b"\x017\x010\x0218\x03198\x07in-addr\x04arpa\0\0\x0c\0\x01"]);
    let message =
        Message::from_vec(&answer(&question, Answer::Pointer("example.com", 1), Transport::Udp)).unwrap();
    assert_eq!(message.answers[0].data.to_string(), "example.com.");
    for name in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(127)] {
        let bytes = answer(&question, Answer::Pointer(name, 1), Transport::Udp);
        assert_eq!(Message::from_vec(&bytes).unwrap().metadata.response_code, ResponseCode::ServFail);
    }
}

/// A question as the resolver's library writes it.
fn written() -> impl Strategy<Value = (Message, Vec<u8>)> {
    let edns = prop::option::of((512_u16..5000, any::<bool>()));
    ("([a-zA-Z0-9_]{1,63}\\.){1,3}", any::<u16>(), any::<bool>(), 0_usize..6, edns).prop_map(
        |(name, id, recursion, kind, edns)| {
            let mut message = Message::new(id, MessageType::Query, OpCode::Query);
            message.metadata.recursion_desired = recursion;
            use RecordType::{A, AAAA, HTTPS, MX, PTR, TXT};
            let kind = [A, AAAA, PTR, HTTPS, TXT, MX][kind];
            message.add_query(Query::query(Name::from_ascii(name).expect("three labels of letters"), kind));
            if let Some((size, dnssec_ok)) = edns {
                let mut edns = Edns::new();
                edns.set_max_payload(size).set_dnssec_ok(dnssec_ok);
                message.set_edns(edns);
            }
            let bytes = message.to_vec().expect("a message that fits");
            (message, bytes)
        },
    )
}

const ANSWERS: &[(Answer<'_>, ResponseCode)] = &[
    (Answer::Empty, ResponseCode::NoError),
    (Answer::NoSuchName, ResponseCode::NXDomain),
    (Answer::Refused, ResponseCode::Refused),
    (Answer::Failed, ResponseCode::ServFail),
    (Answer::NotImplemented, ResponseCode::NotImp),
];

proptest! {
    #[test]
    fn both_libraries_read_the_same_question((message, bytes) in written()) {
        let question = question(&bytes).unwrap();
        let query = &message.queries[0];
        prop_assert_eq!(question.id, message.metadata.id);
        prop_assert_eq!(format!("{}.", question.name), query.name().to_ascii());
        prop_assert_eq!(question.kind, u16::from(query.query_type()));
        prop_assert_eq!(question.recursion_desired, message.metadata.recursion_desired);
        prop_assert_eq!(question.edns, message.edns.as_ref().map(|edns| edns.max_payload()));
    }

    #[test]
    fn an_answer_says_what_it_should(
        (message, bytes) in written(), addresses in vec(any::<IpAddr>(), 0..10), ttl in 0..i32::MAX as u32,
    ) {
        let question = question(&bytes).unwrap();
        let read = |answered| Message::from_vec(&answer(&question, answered, Transport::Udp)).unwrap();
        for (answered, code) in ANSWERS {
            let reply = read(*answered);
            prop_assert_eq!(reply.metadata.message_type, MessageType::Response);
            prop_assert_eq!(reply.metadata.id, message.metadata.id);
            prop_assert_eq!(reply.metadata.response_code, *code);
            // Names are compared by their case too.
            prop_assert!(reply.queries[0].name().eq_case(message.queries[0].name()));
            prop_assert_eq!(reply.queries, message.queries.clone());
            prop_assert_eq!(reply.edns.is_some(), message.edns.is_some());
            prop_assert!(reply.answers.is_empty());
        }
        let reply = read(Answer::Addresses(&addresses, ttl));
        let addressed: Vec<IpAddr> = reply.answers.iter().filter_map(|record| record.data.ip_addr()).collect();
        let expected: Vec<IpAddr> = addresses.into_iter().filter(|address| match question.kind {
            kind::A => address.is_ipv4(),
            kind::AAAA => address.is_ipv6(),
            _ => false,
        }).collect();
        prop_assert_eq!(addressed, expected);
        prop_assert!(reply.answers.iter().all(|record| record.ttl == ttl));
    }

    #[test]
    fn a_changed_question_is_the_same_for_both_or_refused(
        (_, mut bytes) in written(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(question) = question(&bytes) {
            let reply = answer(&question, Answer::Empty, Transport::Udp);
            // Everything behind the header of the question is in the answer, byte for byte.
            let end = bytes.len() - if question.edns.is_some() { 11 } else { 0 };
            prop_assert_eq!(&reply[12..end], &bytes[12..end]);
            if let Ok(theirs) = Message::from_vec(&bytes) {
                prop_assert_eq!(u16::from(theirs.queries[0].query_type()), question.kind);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        for message in [bytes.clone(), [HEADER, &bytes].concat(), with_additional(&bytes)] {
            match question(&message) {
                Ok(question) => {
                    answer(&question, Answer::Addresses(&[IpAddr::from([198, 18, 0, 1])], 1), Transport::Udp);
                }
                Err(unanswerable) => {
                    // Never longer than what was sent, so the gateway cannot be used to flood a third party.
                    let length = unanswerable.reply.map_or(0, |reply| reply.len());
                    prop_assert!(length <= message.len().max(12));
                }
            }
        }
    }
}

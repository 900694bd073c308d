use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// Moves everything that one side has to send to the other.
fn carry(from: &mut Mux, to: &mut Mux) -> Vec<Event> {
    let bytes = std::mem::take(from.outgoing());
    to.receive(&bytes).expect("an honest side")
}

fn pair() -> (Mux, Mux) {
    (Mux::new(Side::Host), Mux::new(Side::Guest))
}

#[test]
fn golden_bytes_of_a_stream() {
    let (mut host, mut guest) = pair();
    let first = host.open(b"r").expect("room");
    host.send(first, b"hi");
    host.end(first);
    assert_eq!(
        *host.outgoing(),
        [0, 0, 0, 0, 0, 1, 0, b'r', 1, 0, 0, 0, 0, 2, 0, b'h', b'i', 3, 0, 0, 0, 0, 0, 0]
    );
    let theirs = guest.open(b"").expect("room");
    guest.cut(theirs);
    guest.stop(theirs);
    assert_eq!(*guest.outgoing(), [0, 1, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_stream_has_two_directions_and_is_gone_after_both() {
    let (mut host, mut guest) = pair();
    let stream = host.open(b"what for").expect("room");
    host.send(stream, b"there");
    host.end(stream);
    let expected = [
        Event::Opened { stream, header: b"what for".to_vec() },
        Event::Data { stream, bytes: b"there".to_vec() },
        Event::Ended { stream },
    ];
    assert_eq!(carry(&mut host, &mut guest), expected);
    assert_eq!(host.credit(stream), None);
    assert_eq!(guest.send(stream, b"back"), 4);
    guest.end(stream);
    assert_eq!(guest.credit(stream), None);
    let back = [Event::Data { stream, bytes: b"back".to_vec() }, Event::Ended { stream }];
    assert_eq!(carry(&mut guest, &mut host), back);
    assert_ne!(host.open(b"").expect("room"), stream, "a number never comes again");
}

#[test]
fn a_slow_reader_stops_its_own_stream_only() {
    let (mut host, mut guest) = pair();
    let (slow, quick) = (host.open(b"slow").expect("room"), host.open(b"quick").expect("room"));
    let flood = vec![7; WINDOW as usize * 2];
    assert_eq!(host.send(slow, &flood), WINDOW as usize);
    assert_eq!(host.send(slow, b"more"), 0);
    assert_eq!(host.send(quick, b"hello"), 5);
    carry(&mut host, &mut guest);
    guest.taken(slow, WINDOW as usize);
    carry(&mut guest, &mut host);
    assert_eq!(host.credit(slow), Some(WINDOW as usize));
}

#[test]
fn who_is_told_to_stop_breaks_off() {
    let (mut host, mut guest) = pair();
    let stream = host.open(b"").expect("room");
    carry(&mut host, &mut guest);
    guest.stop(stream);
    host.send(stream, b"under way already");
    assert_eq!(carry(&mut guest, &mut host), [Event::Stopped { stream }]);
    assert_eq!(host.credit(stream), None);
    assert_eq!(carry(&mut host, &mut guest), [], "what was in flight is discarded");
    guest.end(stream);
    assert_eq!(carry(&mut guest, &mut host), [Event::Ended { stream }]);
    assert!(host.streams_are_gone() && guest.streams_are_gone());
}

#[test]
fn one_stream_too_many_is_refused_and_the_others_continue() {
    let (mut host, mut guest) = pair();
    let streams: Vec<StreamId> = (0..MAX_STREAMS).map(|_| guest.open(b"").expect("room")).collect();
    assert_eq!(guest.open(b""), None);
    assert_eq!(carry(&mut guest, &mut host).len(), MAX_STREAMS);
    // A guest that does not keep to it.
    let number = (streams.len() as u32 * 2 + 1).to_le_bytes();
    let open = [&[0][..], &number, &[0, 0]].concat();
    assert_eq!(host.receive(&open), Ok(vec![]));
    let refusal = [&[4][..], &number, &[0, 0], &[5], &number, &[0, 0]].concat();
    assert_eq!(*host.outgoing(), refusal);
    let late = [&[1][..], &number, &[1, 0, b'x']].concat();
    assert_eq!(host.receive(&late), Ok(vec![]));
    assert_eq!(host.send(streams[0], b"still here"), 10);
}

#[test]
fn nonsense_ends_the_connection() {
    let opened = [0, 1, 0, 0, 0, 0, 0];
    let ended = [3, 1, 0, 0, 0, 0, 0];
    let data = [1, 1, 0, 0, 0, 1, 0, b'x'];
    let stream = StreamId(1);
    let cases: [(&str, Vec<u8>, Violation); 9] = [
        ("a kind", vec![9, 0, 0, 0, 0, 0, 0], Violation::Kind(9)),
        ("a long header", vec![0, 1, 0, 0, 0, 1, 1], Violation::Length(257)),
        ("much data", vec![1, 1, 0, 0, 0, 0xff, 0xff], Violation::Length(0xffff)),
        ("no data", vec![1, 1, 0, 0, 0, 0, 0], Violation::Length(0)),
        ("our own number", vec![0, 2, 0, 0, 0, 0, 0], Violation::Stream(StreamId(2))),
        ("a number twice", [opened, opened].concat(), Violation::Stream(stream)),
        ("a stream that never was", data.to_vec(), Violation::Stream(stream)),
        ("bytes behind the end", [&opened[..], &ended, &data].concat(), Violation::BehindEnd(stream)),
        (
            "credits from nowhere",
            [&opened[..], &[2, 1, 0, 0, 0, 4, 0, 1, 0, 0, 0]].concat(),
            Violation::Credit(stream),
        ),
    ];
    for (name, bytes, violation) in cases {
        assert_eq!(Mux::new(Side::Host).receive(&bytes), Err(violation), "{name}");
    }
    let mut host = Mux::new(Side::Host);
    host.receive(&opened).expect("a stream");
    let full = [&[1, 1, 0, 0, 0, 0, 128][..], &[0; DATA_AT_ONCE]].concat();
    for _ in 0..WINDOW as usize / DATA_AT_ONCE {
        host.receive(&full).expect("what was granted");
    }
    assert_eq!(host.receive(&data), Err(Violation::Overrun(stream)));
}

impl Mux {
    fn streams_are_gone(&mut self) -> bool {
        format!("{self:?}").contains("streams: {}")
    }
}

#[derive(Debug, Clone)]
enum Act {
    Open,
    Send(usize, Vec<u8>),
    Take(usize, usize),
    End(usize),
    Deliver(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop::collection::vec(any::<u8>(), 1..3000);
    prop_oneof![
        Just(Act::Open),
        (0..8usize, bytes).prop_map(|(at, bytes)| Act::Send(at, bytes)),
        (0..8usize, 1..200_000usize).prop_map(|(at, most)| Act::Take(at, most)),
        (0..8usize).prop_map(Act::End),
        (1..70_000usize).prop_map(Act::Deliver),
    ]
}

proptest! {
    /// Whatever the order of events and however the connection is cut into pieces: what arrives is what was sent, in order.
    #[test]
    fn bytes_arrive_whole_and_in_order(acts in prop::collection::vec(act(), 1..120)) {
        let (mut host, mut guest) = pair();
        let mut opened = Vec::new();
        let mut sent: HashMap<StreamId, Vec<u8>> = HashMap::new();
        let mut arrived: HashMap<StreamId, Vec<u8>> = HashMap::new();
        let mut waiting: HashMap<StreamId, usize> = HashMap::new();
        let mut wire: VecDeque<u8> = VecDeque::new();
        let mut deliver = |wire: &mut VecDeque<u8>, most: usize, guest: &mut Mux, waiting: &mut HashMap<StreamId, usize>| {
            let piece: Vec<u8> = wire.drain(..most.min(wire.len())).collect();
            for event in guest.receive(&piece).expect("honest") {
                if let Event::Data { stream, bytes } = event {
                    *waiting.entry(stream).or_default() += bytes.len();
                    arrived.entry(stream).or_default().extend(bytes);
                }
            }
        };
        for act in acts {
            match act {
                Act::Open => opened.extend(host.open(b"x")),
                Act::Send(at, bytes) => if let Some(stream) = opened.get(at) {
                    let length = host.send(*stream, &bytes);
                    sent.entry(*stream).or_default().extend(&bytes[..length]);
                },
                Act::Take(at, most) => if let Some(stream) = opened.get(at) {
                    let taken = most.min(waiting.get(stream).copied().unwrap_or(0));
                    waiting.entry(*stream).and_modify(|left| *left -= taken);
                    guest.taken(*stream, taken);
                    carry(&mut guest, &mut host);
                },
                Act::End(at) => if let Some(stream) = opened.get(at) { host.end(*stream) },
                Act::Deliver(most) => {
                    wire.extend(std::mem::take(host.outgoing()));
                    deliver(&mut wire, most, &mut guest, &mut waiting);
                }
            }
            prop_assert!(waiting.values().all(|waiting| *waiting <= WINDOW as usize));
        }
        wire.extend(std::mem::take(host.outgoing()));
        deliver(&mut wire, usize::MAX, &mut guest, &mut waiting);
        sent.retain(|_, bytes| !bytes.is_empty());
        prop_assert_eq!(arrived, sent);
    }

    #[test]
    fn arbitrary_bytes_never_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
        let mut host = Mux::new(Side::Host);
        let _ = host.open(b"one");
        for piece in pieces {
            if host.receive(&piece).is_err() { break; }
        }
    }

    /// Frames of sensible shape in a senseless order.
    #[test]
    fn frames_in_any_order_never_panic(frames in prop::collection::vec((0..6u8, 0..6u32, any::<bool>()), 0..200)) {
        let mut host = Mux::new(Side::Host);
        for number in 0..3 { if let Some(stream) = host.open(&[number]) { host.send(stream, b"x"); } }
        for (kind, stream, stop) in frames {
            let payload: &[u8] = match kind { 1 => b"data", 2 => &[1, 0, 0, 0], _ => b"" };
            let mut bytes = vec![kind];
            bytes.extend(stream.to_le_bytes());
            bytes.extend((payload.len() as u16).to_le_bytes());
            bytes.extend(payload);
            match host.receive(&bytes) {
                Ok(events) => for event in events {
                    if let Event::Data { stream, bytes } = event { host.taken(stream, bytes.len()); }
                },
                Err(_) => break,
            }
            if stop { host.stop(StreamId(stream)); host.cut(StreamId(stream)); }
        }
    }
}

//! A connection of many streams as a guest may write it: nothing panics, and no stream keeps more waiting than was granted.
#![no_main]

use belljar_wire::mux::{Event, MAX_STREAMS, Mux, Side, WINDOW};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|bytes: &[u8]| {
    let mut host = Mux::new(Side::Host);
    let ours = host.open(b"ours").expect("the first one");
    let mut waiting: HashMap<_, usize> = HashMap::new();
    for piece in bytes.chunks(61) {
        let Ok(events) = host.receive(piece) else { return };
        for event in events {
            match event {
                Event::Opened { stream, .. } => {
                    waiting.insert(stream, 0);
                    assert!(waiting.len() <= MAX_STREAMS + 1);
                    host.send(stream, b"welcome");
                }
                Event::Data { stream, bytes } => {
                    let kept = waiting.entry(stream).or_default();
                    *kept += bytes.len();
                    assert!(*kept <= WINDOW as usize);
                    // Every other stream has a reader.
                    if bytes.first().is_some_and(|first| first % 2 == 0) {
                        host.taken(stream, std::mem::take(kept));
                    }
                }
                Event::Ended { stream } | Event::Cut { stream } => {
                    host.end(stream);
                    waiting.remove(&stream);
                }
                Event::Stopped { stream } => assert_eq!(host.send(stream, b"more"), 0),
            }
        }
        host.send(ours, piece);
        host.outgoing().clear();
    }
});

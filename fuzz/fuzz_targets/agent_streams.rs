//! What an agent writes: lines, events, and what they say. The first byte picks the agent, the second how it is cut.
#![no_main]

use belljar_agent::claims::Claims;
use belljar_agent::entry::Line;
use belljar_agent::event::AgentEvent;
use belljar_agent::parse::{self, Make};
use belljar_agent::stream::Stream;
use belljar_agent::transcript::Transcript;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [agent, cut, bytes @ ..] = bytes else { return };
    let (_, make) = parse::ALL[usize::from(*agent) % parse::ALL.len()];
    let (events, claims) = listen(make, bytes, bytes.len().max(1));
    assert_eq!(listen(make, bytes, usize::from(*cut) + 1), (events.clone(), claims.clone()));
    let mut transcript = Transcript::new();
    for events in &events {
        let line =
            Line { entry: transcript.entry(events), timestamp: String::new(), session_id: String::new() };
        let text = serde_json::to_string(&line).unwrap();
        assert!(!text.contains('\n'));
        serde_json::from_str::<Line>(&text).unwrap();
    }
    assert!(claims.cost_usd.is_none_or(f64::is_finite));
});

/// The same, however it is cut.
fn listen(make: Make, bytes: &[u8], cut: usize) -> (Vec<AgentEvent>, Claims) {
    let mut stream = Stream::new(make());
    let mut events: Vec<AgentEvent> = bytes.chunks(cut).flat_map(|piece| stream.feed(piece)).collect();
    let (last, claims) = stream.end();
    events.extend(last);
    (events, claims)
}

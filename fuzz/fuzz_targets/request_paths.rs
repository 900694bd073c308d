//! Targets of requests against rules: whatever is allowed stays below the rule's path, to any server.
#![no_main]

use belljar_spec::egress::{PathReadings, RequestFilter, RequestTarget};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (target, glob) = input;
    let inside = RequestFilter { methods: Vec::new(), paths: vec!["/in/**".parse().expect("a path")] };
    if inside.allows("GET", target) {
        let readings = PathReadings::of(target).expect("what is allowed has readings");
        for reading in readings.iter() {
            assert!(reading == b"/in" || reading.starts_with(b"/in/"), "{target}");
            // Nothing that a server could still make something of: its readings are among ours.
            if let Ok(Ok(again)) = std::str::from_utf8(reading).map(PathReadings::of) {
                assert!(again.iter().all(|other| readings.iter().any(|known| known == other)), "{target}");
            }
        }
    }
    if let Ok(glob) = glob.parse() {
        let _ =
            RequestFilter { methods: Vec::new(), paths: vec![glob] }.judge("GET", &RequestTarget::of(target));
    }
});

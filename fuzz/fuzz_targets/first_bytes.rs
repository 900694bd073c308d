//! Which protocol a client speaks: decided soon, and for good.
#![no_main]

use belljar_gateway::first_bytes::{Start, classify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decided = Start::Undecided;
    for end in 0..=bytes.len().min(32) {
        let now = classify(&bytes[..end]);
        assert!(decided == Start::Undecided || decided == now);
        assert!(now != Start::Undecided || end < 18);
        decided = now;
    }
});

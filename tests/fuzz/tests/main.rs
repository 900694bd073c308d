//! Every fuzz target, compiled with the rest of the workspace and run on a few hundred inputs. A fuzzer that looks further is started by
//! hand (`fuzz/Cargo.toml`).

#![allow(clippy::unwrap_used, reason = "a target reports what it finds by a panic")]
#![allow(unused_attributes, reason = "a target says `no_main`, which means nothing in a module")]

#[path = "../../../fuzz/fuzz_targets/agent_streams.rs"]
mod agent_streams;
#[path = "../../../fuzz/fuzz_targets/decision.rs"]
mod decision;
#[path = "../../../fuzz/fuzz_targets/dns.rs"]
mod dns;
#[path = "../../../fuzz/fuzz_targets/e2b.rs"]
mod e2b;
#[path = "../../../fuzz/fuzz_targets/first_bytes.rs"]
mod first_bytes;
#[path = "../../../fuzz/fuzz_targets/guest_frames.rs"]
mod guest_frames;
#[path = "../../../fuzz/fuzz_targets/hello.rs"]
mod hello;
#[path = "../../../fuzz/fuzz_targets/host_patterns.rs"]
mod host_patterns;
#[path = "../../../fuzz/fuzz_targets/index.rs"]
mod index;
#[path = "../../../fuzz/fuzz_targets/ip_spellings.rs"]
mod ip_spellings;
#[path = "../../../fuzz/fuzz_targets/layer.rs"]
mod layer;
#[path = "../../../fuzz/fuzz_targets/llm_usage.rs"]
mod llm_usage;
#[path = "../../../fuzz/fuzz_targets/mux.rs"]
mod mux;
#[path = "../../../fuzz/fuzz_targets/push.rs"]
mod push;
#[path = "../../../fuzz/fuzz_targets/redact.rs"]
mod redact;
#[path = "../../../fuzz/fuzz_targets/request_paths.rs"]
mod request_paths;
#[path = "../../../fuzz/fuzz_targets/supervised.rs"]
mod supervised;
#[path = "../../../fuzz/fuzz_targets/vault.rs"]
mod vault;

macro_rules! targets {
    ($($target:ident),* $(,)?) => {
        mod random_bytes {
            $(
                #[test]
                fn $target() {
                    super::feed(super::$target::run);
                }
            )*
        }
    };
}

targets!(
    agent_streams,
    decision,
    dns,
    e2b,
    first_bytes,
    guest_frames,
    hello,
    host_patterns,
    index,
    ip_spellings,
    layer,
    llm_usage,
    mux,
    push,
    redact,
    request_paths,
    supervised,
    vault,
);

/// Inputs of all lengths, most of them short: the same in every run, so that a failure can be repeated.
fn feed(target: fn(&[u8])) {
    target(&[]);
    let mut random = Random(SEED);
    for round in 0..INPUTS {
        let longest = 1 << (round % 14);
        let length = random.next() as usize % longest + 1;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        // Parsers of text reject what is not UTF-8 at once.
        if round % 2 == 0 {
            bytes.iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
        }
        target(&bytes);
    }
}

/// xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const INPUTS: usize = 600;

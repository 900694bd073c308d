//! What agents wrote, read again: recordings of real ones, and what no honest one would write.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

mod claims;
mod hostile;
mod reading;
mod replay;

use belljar_agent::claims::Claims;
use belljar_agent::event::AgentEvent;
use belljar_agent::log::Clock;
use belljar_agent::parse::{self, Make};
use belljar_agent::stream::Stream;
use belljar_audit::Stamp;
use belljar_spec::SandboxId;
use std::fs;
use std::path::{Path, PathBuf};

/// What was recorded: folders, and by which parser they are read.
const AGENTS: [(&str, &str); 6] = [
    ("claude", "claude"),
    ("codex", "codex"),
    ("opencode", "opencode"),
    ("pi", "pi"),
    ("pi.old", "pi"),
    ("gemini", "gemini"),
];

const SCENARIOS: [&str; 8] =
    ["hello", "three", "thinking", "toolfail", "length", "refusal", "retry429", "error400"];

/// Every recording: its folder, its scenario, its parser and its bytes.
fn recordings() -> impl Iterator<Item = (&'static str, &'static str, Make, Vec<u8>)> {
    AGENTS.into_iter().flat_map(|(folder, agent)| {
        SCENARIOS.map(|scenario| (folder, scenario, parser(agent), recording(folder, scenario)))
    })
}

fn recording(folder: &str, scenario: &str) -> Vec<u8> {
    fs::read(tests().join(format!("recordings/{folder}/{scenario}.jsonl"))).unwrap()
}

fn parser(agent: &str) -> Make {
    parse::ALL.into_iter().find(|(name, _)| *name == agent).unwrap().1
}

/// What is said in bytes that come in pieces of a length.
fn listen(make: Make, bytes: &[u8], by: usize) -> (Vec<AgentEvent>, Claims) {
    let mut stream = Stream::new(make());
    let mut event: Vec<AgentEvent> = bytes.chunks(by).flat_map(|piece| stream.feed(piece)).collect();
    let (last, claims) = stream.end();
    event.extend(last);
    (event, claims)
}

/// One second later with each line.
fn ticking() -> Clock {
    let mut second = 1_735_689_600;
    Box::new(move || {
        second += 1;
        Stamp::at(second)
    })
}

fn id() -> SandboxId {
    SandboxId::from_random(*b"belljar!")
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

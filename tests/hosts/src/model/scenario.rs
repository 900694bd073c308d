//! What the model can play, by name.

use super::step::{Delivery, Step, Stop};
use std::time::Duration;

/// Every scenario.
pub const SCENARIOS: [&str; 21] = [
    "hello", "text", "three", "thinking", "toolfail", "env", "length", "refusal", "retry429", "retry500",
    "error400", "error401", "error429", "error500", "loop", "sleep", "slow", "cut", "hang", "garbage",
    "drip",
];

/// The steps of one. The last is played again for as long as a client asks.
pub(super) fn steps(name: &str) -> Option<Vec<Step>> {
    Some(match name {
        // The standard task: a file, and a word about it.
        "hello" => vec![
            Step::run("printf 'hello from the mock\\n' > hello.txt && cat hello.txt")
                .saying("I will write the file."),
            Step::say("Done. hello.txt says: hello from the mock"),
        ],
        "text" => vec![Step::say("Hello from the mock model.")],
        "three" => vec![
            Step::run("echo one > one.txt"),
            Step::run("echo two > two.txt"),
            Step::say("Both files are written."),
        ],
        "thinking" => vec![
            Step::run("echo thought > thought.txt").thinking("The user wants a file."),
            Step::say("Thought and done."),
        ],
        "toolfail" => {
            vec![Step::run("echo broken >&2; exit 3"), Step::say("The command failed with status 3.")]
        }
        // Its result comes back to the model: what a process inside can see.
        "env" => vec![Step::run("env | sort"), Step::say("That was the environment.")],
        "length" => vec![Step::say("This answer is cut off by the token limi").stop(Stop::Length)],
        "refusal" => vec![Step::say("I can't help with that.").stop(Stop::Refusal)],
        "retry429" => retried(429, "mock rate limit"),
        "retry500" => retried(500, "mock server error"),
        "error400" => vec![Step::fail(400, "mock bad request")],
        "error401" => vec![Step::fail(401, "mock invalid key")],
        "error429" => vec![Step::fail(429, "mock rate limit")],
        "error500" => vec![Step::fail(500, "mock server error")],
        // Never done, for limits on turns and time.
        "loop" => vec![Step::run("date +%s >/dev/null; echo again")],
        // Ten minutes, in a loop because some agents refuse a plain `sleep 600`.
        "sleep" => vec![Step::run("for i in $(seq 600); do sleep 1; done"), Step::say("Slept.")],
        "slow" => vec![Step::say("A slow answer.").delay(Duration::from_secs(3))],
        "cut" => vec![Step::say("This stream is cut in the middle of it.").delivery(Delivery::Cut)],
        "hang" => vec![Step::say("never sent").delivery(Delivery::Hang)],
        "garbage" => vec![Step::say("never sent").delivery(Delivery::Garbage)],
        "drip" => {
            vec![Step::say("One byte, then another.").delivery(Delivery::Drip(Duration::from_millis(5)))]
        }
        _ => return None,
    })
}

fn retried(status: u16, message: &str) -> Vec<Step> {
    vec![
        Step::run("echo retried > retried.txt").at_second_try(status, message),
        Step::say("Done after a retry."),
    ]
}

//! One turn of a model.

use super::Usage;
use serde_json::Value;
use std::time::Duration;

/// What a model does when it is asked.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub(super) text: String,
    pub(super) thinking: Option<String>,
    pub(super) call: Option<Call>,
    pub(super) stop: Stop,
    pub(super) usage: Option<Usage>,
    pub(super) failure: Option<Failure>,
    pub(super) delay: Duration,
    pub(super) delivery: Delivery,
}

/// Which tool it calls.
#[derive(Debug, Clone)]
pub(super) enum Call {
    /// This command, by whatever shell tool there is.
    Shell(String),
    /// This tool, by its name or by its name behind that of its server.
    Named { name: String, input: Value },
}

/// Why it stopped, where it calls no tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stop {
    #[default]
    End,
    /// At the longest answer that it may give.
    Length,
    Refusal,
}

/// How an answer arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    #[default]
    Plain,
    /// The connection ends halfway through the stream.
    Cut,
    /// The head of the answer, and then nothing.
    Hang,
    /// Status 200, and bytes that mean nothing.
    Garbage,
    /// A byte at a time, with this much time between two.
    Drip(Duration),
}

/// An error instead of an answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    /// How often; nothing is for ever.
    pub(super) times: Option<usize>,
}

impl Step {
    /// Runs a command.
    pub fn run(command: impl Into<String>) -> Step {
        Step { call: Some(Call::Shell(command.into())), ..Step::default() }
    }

    /// Calls a tool by its name, or by what a server of tools calls it.
    pub fn call(name: impl Into<String>, input: Value) -> Step {
        Step { call: Some(Call::Named { name: name.into(), input }), ..Step::default() }
    }

    /// Says something; with a call, before it.
    pub fn say(text: impl Into<String>) -> Step {
        Step { text: text.into(), ..Step::default() }
    }

    /// Fails, every time.
    pub fn fail(status: u16, message: impl Into<String>) -> Step {
        let failure = Failure { status, message: message.into(), times: None };
        Step { failure: Some(failure), ..Step::default() }
    }

    /// Fails once, and then does it.
    #[must_use]
    pub fn at_second_try(mut self, status: u16, message: impl Into<String>) -> Step {
        self.failure = Some(Failure { status, message: message.into(), times: Some(1) });
        self
    }

    /// Says this too, before it calls.
    #[must_use]
    pub fn saying(self, text: impl Into<String>) -> Step {
        Step { text: text.into(), ..self }
    }

    /// Thinks this before all else.
    #[must_use]
    pub fn thinking(self, thought: impl Into<String>) -> Step {
        Step { thinking: Some(thought.into()), ..self }
    }

    /// Stops for this reason.
    #[must_use]
    pub fn stop(self, stop: Stop) -> Step {
        Step { stop, ..self }
    }

    /// Says that it used this much.
    #[must_use]
    pub fn usage(self, usage: Usage) -> Step {
        Step { usage: Some(usage), ..self }
    }

    /// Answers after this long.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Step {
        Step { delay, ..self }
    }

    /// Answers in this way.
    #[must_use]
    pub fn delivery(self, delivery: Delivery) -> Step {
        Step { delivery, ..self }
    }
}

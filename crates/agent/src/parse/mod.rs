//! From what an agent writes to what it says. One file an agent.
//!
//! Every line is the agent's word, or that of whatever it ran: a parser takes what it knows, passes on what it does not, and
//! never fails. What it keeps has a limit (`tally`). It decides nothing: how the run ended is judged elsewhere, from what the
//! kernel and the gateway saw.

pub mod claude;
pub mod codex;
pub mod gemini;
pub mod opencode;
pub mod pi;
mod pick;
pub mod program;
mod tally;

use crate::claims::Claims;
use crate::event::AgentEvent;
use crate::lines::Ends;
use serde_json::Value;

/// Reads the output of one run of one agent. Bytes are cut into lines before they come here.
pub trait Parser: Send {
    /// A line that is a JSON object.
    fn event(&mut self, event: &Value) -> Vec<AgentEvent>;

    /// A line that is none. Agents warn on standard output too.
    fn text(&mut self, line: &str) -> Vec<AgentEvent> {
        vec![AgentEvent::Other(line.to_string())]
    }

    /// The output is over: what was still open, and what was claimed. Called once.
    fn end(&mut self) -> (Vec<AgentEvent>, Claims);

    /// How its output is cut.
    fn ends(&self) -> Ends {
        Ends::Newline
    }
}

/// Makes a parser for one run.
pub type Make = fn() -> Box<dyn Parser>;

/// All of them, by the agent's name.
pub const ALL: [(&str, Make); 6] = [
    ("claude", claude::parser),
    ("codex", codex::parser),
    ("opencode", opencode::parser),
    ("pi", pi::parser),
    ("gemini", gemini::parser),
    ("program", program::parser),
];

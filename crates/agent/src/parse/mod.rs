//! From what an agent writes to what it says. One file an agent.

use crate::claims::Claims;
use crate::heard::Heard;
use serde_json::Value;

/// Reads the output of one run of one agent. Bytes are cut into lines before they come here.
pub trait Parser: Send {
    /// A line that is a JSON value.
    fn event(&mut self, event: &Value) -> Vec<Heard>;

    /// A line that is none. Agents warn on standard output too.
    fn text(&mut self, line: &str) -> Vec<Heard> {
        vec![Heard::Other(line.to_string())]
    }

    /// The output is over: what was still open, and what was claimed. Called once.
    fn end(&mut self) -> (Vec<Heard>, Claims);
}

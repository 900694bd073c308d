//! What every parser keeps while it reads: what was said since it was last asked, and what that makes of the claims.
//!
//! The rules are the same for all agents. The answer is what the model said after its last call of a tool. Whatever the model
//! says takes back what was said of an end or an error before. An agent that says it ended well has answered only if there is
//! an answer: a refusal may look like that. All that is kept is bounded.

use crate::claims::{Claims, Ending};
use crate::clip::clip;
use crate::entry::Tokens;
use crate::event::{AgentEvent, MessageBlock};

#[derive(Default)]
pub(super) struct Tally {
    claims: Claims,
    events: Vec<AgentEvent>,
    end: End,
    /// The model's last word was a call.
    on_tool: bool,
}

/// What was said of the end.
#[derive(Default, Clone, Copy, PartialEq)]
enum End {
    #[default]
    Open,
    Well,
    Badly(Ending),
}

impl Tally {
    /// What it is called, from any event that tells; told once, and again when it is another.
    pub(super) fn session(&mut self, id: Option<&str>, model: Option<&str>) {
        let (id, model) = (id.map(name), model.map(name));
        let is_new = |message: &Option<String>, known: &Option<String>| message.is_some() && message != known;
        if !is_new(&id, &self.claims.session_id) && !is_new(&model, &self.claims.model) {
            return;
        }
        self.claims.session_id = id.or(self.claims.session_id.take());
        self.claims.model = model.or(self.claims.model.take());
        let (id, model) = (self.claims.session_id.clone(), self.claims.model.clone());
        self.events.push(AgentEvent::Session { id, model });
    }

    /// The model said something.
    pub(super) fn message(
        &mut self,
        model: Option<&str>,
        mut blocks: Vec<MessageBlock>,
        usage: Option<Tokens>,
    ) {
        blocks.retain(|block| !matches!(block, MessageBlock::Text(text) | MessageBlock::Thinking(text) if text.is_empty()));
        let mut answer = Vec::new();
        for block in &blocks {
            match block {
                MessageBlock::Text(text) if !text.trim().is_empty() => answer.push(text.as_str()),
                MessageBlock::Text(_) | MessageBlock::Thinking(_) => {}
                MessageBlock::ToolUse { .. } => {
                    answer.clear();
                    self.claims.output = None;
                    self.on_tool = true;
                }
            }
        }
        if !answer.is_empty() {
            self.answer(&answer.join("\n"));
        }
        if !blocks.is_empty() {
            (self.end, self.claims.error) = (End::Open, None);
        }
        if model.is_some() {
            self.claims.model = model.map(name);
        }
        self.aside(model, blocks, usage);
    }

    /// Another model said something, to this one.
    pub(super) fn aside(&mut self, model: Option<&str>, blocks: Vec<MessageBlock>, usage: Option<Tokens>) {
        if !blocks.is_empty() {
            self.events.push(AgentEvent::Message { model: model.map(name), blocks, usage });
        }
    }

    /// The answer, as it stands now.
    pub(super) fn answer(&mut self, text: &str) {
        self.claims.output = Some(clip(text, MAX_ANSWER).into_owned());
        (self.on_tool, self.claims.tool_failed) = (false, false);
    }

    pub(super) fn tool_result(&mut self, id: &str, content: String, is_error: bool) {
        self.claims.tool_failed = is_error;
        self.events.push(AgentEvent::ToolResult { id: id.into(), content, is_error });
    }

    pub(super) fn retry(&mut self, attempt: Option<u64>, why: &str) {
        self.events.push(AgentEvent::Retry { attempt, why: why.into() });
    }

    /// Something went wrong. Agents say so in several places; what was just said is not said again.
    pub(super) fn error(&mut self, what: &str) {
        if !matches!(self.end, End::Badly(_)) {
            self.end = End::Badly(Ending::Error);
        }
        let what = clip(what, MAX_ERROR);
        if self.claims.error.as_deref() != Some(&what) {
            self.claims.error = Some(what.clone().into_owned());
            self.events.push(AgentEvent::Error(what.into_owned()));
        }
    }

    pub(super) fn other(&mut self, text: impl Into<String>) {
        self.events.push(AgentEvent::Other(text.into()));
    }

    /// It says that it is done.
    pub(super) fn ended_well(&mut self) {
        self.end = End::Well;
    }

    /// It says how it went wrong.
    pub(super) fn ended(&mut self, how: Ending) {
        self.end = End::Badly(how);
    }

    /// One turn more.
    pub(super) fn turn(&mut self) {
        let turns = self.claims.turns.get_or_insert(0);
        *turns = turns.saturating_add(1);
    }

    /// It counts its turns itself.
    pub(super) fn turns(&mut self, turns: Option<u64>) {
        self.claims.turns = turns.or(self.claims.turns);
    }

    /// What a turn used.
    pub(super) fn spent(&mut self, more: Tokens, cost: Option<f64>) {
        let sum = self.claims.tokens.get_or_insert_default();
        sum.input = sum.input.saturating_add(more.input);
        sum.output = sum.output.saturating_add(more.output);
        sum.cache_read = sum.cache_read.saturating_add(more.cache_read);
        sum.cache_write = sum.cache_write.saturating_add(more.cache_write);
        if let Some(cost) = cost {
            *self.claims.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// What the whole run used.
    pub(super) fn spent_in_all(&mut self, tokens: Tokens, cost: Option<f64>) {
        self.claims.tokens = Some(tokens);
        self.claims.cost_usd = cost.or(self.claims.cost_usd);
    }

    /// What was said since.
    pub(super) fn take(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.events)
    }

    /// What is claimed, with what was said last.
    pub(super) fn finish(&mut self) -> (Vec<AgentEvent>, Claims) {
        let mut claims = std::mem::take(&mut self.claims);
        claims.ending = match self.end {
            End::Well => claims.output.is_some().then_some(Ending::Answered),
            End::Badly(how) => Some(how),
            End::Open => self.on_tool.then_some(Ending::OnTool),
        };
        (self.take(), claims)
    }
}

/// A name that an agent made up.
fn name(text: &str) -> String {
    clip(text, MAX_NAME).into_owned()
}

/// The longest answer that stands in a result; the log has longer ones.
pub(super) const MAX_ANSWER: usize = 1 << 20;
const MAX_ERROR: usize = 64 << 10;
const MAX_NAME: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn text(text: &str) -> Vec<MessageBlock> {
        vec![MessageBlock::Text(text.into())]
    }

    fn call() -> Vec<MessageBlock> {
        vec![MessageBlock::ToolUse { id: "1".into(), name: "sh".into(), input: Value::Null }]
    }

    type Act = fn(&mut Tally);

    /// What was claimed after all of it: how it ended, and the answer.
    fn after(steps: &[Act]) -> (Option<Ending>, Option<String>) {
        let mut tally = Tally::default();
        steps.iter().for_each(|step| step(&mut tally));
        let claims = tally.finish().1;
        (claims.ending, claims.output)
    }

    #[test]
    fn the_end_is_what_was_said_last() {
        let message: Act = |tally| tally.message(None, text("a"), None);
        let called: Act = |tally| tally.message(None, call(), None);
        let well: Act = Tally::ended_well;
        let error: Act = |tally| tally.error("no");
        let refused: Act = |tally| tally.ended(Ending::Refusal);
        let a = || Some("a".to_string());
        let cases: [(&[Act], _); 10] = [
            (&[], (None, None)),
            (&[message], (None, a())),
            (&[called], (Some(Ending::OnTool), None)),
            (&[message, well], (Some(Ending::Answered), a())),
            (&[well], (None, None)),
            (&[message, called, well], (None, None)),
            (&[error, message, well], (Some(Ending::Answered), a())),
            (&[message, well, called], (Some(Ending::OnTool), None)),
            (&[message, refused, error], (Some(Ending::Refusal), a())),
            (&[called, error], (Some(Ending::Error), None)),
        ];
        for (number, (steps, expected)) in cases.into_iter().enumerate() {
            assert_eq!(after(steps), expected, "case {number}");
        }
    }

    #[test]
    fn what_is_kept_has_a_limit_and_sums_do_not_overflow() {
        let mut tally = Tally::default();
        tally.session(Some(&"s".repeat(1 << 16)), None);
        tally.message(None, text(&"t".repeat(3 << 20)), None);
        tally.error(&"e".repeat(1 << 20));
        let most = Tokens { input: u64::MAX, output: 1, cache_read: 0, cache_write: 0 };
        (0..2).for_each(|_| tally.spent(most, Some(1e9)));
        let (_, claims) = tally.finish();
        assert!(claims.session_id.unwrap().len() < 2 * MAX_NAME);
        assert!(claims.output.unwrap().len() < 2 * MAX_ANSWER);
        assert!(claims.error.unwrap().len() < 2 * MAX_ERROR);
        assert_eq!(claims.tokens, Some(Tokens { output: 2, ..most }));
    }
}

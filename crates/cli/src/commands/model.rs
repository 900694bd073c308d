//! One line at the end of a run: what it used of its model.

use belljar_engine::Sandbox;
use belljar_spec::llm::LlmTotals;

/// Says it, if anything was asked.
pub(super) fn say(sandbox: &Sandbox) {
    if let Some(line) = sandbox.llm().as_ref().and_then(line) {
        eprintln!("{line}");
    }
}

/// What was used, if anything was asked.
pub(super) fn line(totals: &LlmTotals) -> Option<String> {
    if totals.calls == 0 && totals.refused == 0 {
        return None;
    }
    let mut parts = vec![counted(totals.calls, "call"), counted(totals.tokens(), "token")];
    let estimated = if totals.calls_estimated > 0 { ", some estimated" } else { "" };
    if totals.cost_usd.as_micros() > 0 || totals.calls_without_cost == 0 {
        parts.push(format!("{} USD", totals.cost_usd));
    }
    if totals.calls_without_cost > 0 {
        let why = totals.cost_unknown.map(|why| format!(" ({})", why.sentence())).unwrap_or_default();
        let calls = counted(totals.calls_without_cost, "call");
        parts.push(format!("the cost of {calls} is not known{why}"));
    }
    if totals.refused > 0 {
        parts.push(format!("{} refused", grouped(totals.refused)));
    }
    Some(format!("belljar: model: {}{estimated}", parts.join(", ")))
}

pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `34,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_spec::llm::{CostUnknown, Usd};

    #[test]
    fn what_was_used_is_said_in_a_line() {
        let mut totals = LlmTotals::default();
        assert_eq!(line(&totals), None);
        totals = LlmTotals { calls: 12, input_tokens: 34_000, output_tokens: 567, ..totals };
        totals.cost_usd = Usd::micros(420_000);
        assert_eq!(line(&totals).as_deref(), Some("belljar: model: 12 calls, 34,567 tokens, 0.42 USD"));
        totals = LlmTotals { calls: 1, calls_without_cost: 1, refused: 3, calls_estimated: 1, ..totals };
        totals.cost_unknown = Some(CostUnknown::NoPrice);
        totals.cost_usd = Usd::default();
        assert_eq!(
            line(&totals).as_deref(),
            Some(
                "belljar: model: 1 call, 34,567 tokens, the cost of 1 call is not known (the model has no price), 3 refused, some estimated"
            )
        );
    }
}

//! What became of calls to the model: the facts from which other crates tell why a run ended.
//!
//! Only calls count here, and not lists of models, counts of tokens or paths that are none of ours: programs ask for those
//! on the side, and continue whatever the answer is.

use crate::egress::Reason;
use serde::Serialize;

/// What became of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LlmOutcome {
    /// The model answered, to the end.
    Answered,
    /// The upstream said that it answers, and what came is no answer, or not to its end.
    Garbage { status: u16 },
    /// The upstream said no.
    Status { status: u16 },
    /// The upstream hung up, before its answer or in it.
    BrokenOff,
    /// The upstream could not be reached: nothing left.
    Unreachable,
    /// The upstream said nothing for too long.
    TooSlow,
    /// There is nothing left of what the run may use: nothing left.
    BudgetSpent,
    /// It was refused for another reason.
    Refused { reason: Reason },
    /// The program hung up before the end of the answer, or was ended.
    HungUp,
}

/// How the model ended an answer, in its provider's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerEnd {
    /// It had said all, or calls a tool.
    Finished,
    /// It reached the longest answer.
    Length,
    /// The model or its provider declined.
    Refusal,
}

/// What became of all calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LlmOutcomes {
    /// Of the one that ended last.
    pub last: Option<LlmOutcome>,
    /// How the last answer ended to a question that offered tools: what agents ask on the side, for a title or a route, offers none.
    pub last_answer: Option<AnswerEnd>,
    pub answered: u64,
    pub garbage: u64,
    /// The upstream said no, in words that mean that it was our fault.
    pub status_4xx: u64,
    /// In words that mean that it was its own.
    pub status_5xx: u64,
    /// In other words: it wanted us to go elsewhere.
    pub status_other: u64,
    pub broken_off: u64,
    pub unreachable: u64,
    pub too_slow: u64,
    pub refused_budget: u64,
    /// For other reasons.
    pub refused: u64,
    pub hung_up: u64,
}

impl LlmOutcome {
    /// Of a call that was refused.
    pub fn refused(reason: Reason) -> LlmOutcome {
        match reason {
            Reason::BudgetSpent => LlmOutcome::BudgetSpent,
            reason => LlmOutcome::Refused { reason },
        }
    }
}

impl LlmOutcomes {
    /// Counts one more.
    pub fn note(&mut self, outcome: LlmOutcome) {
        self.last = Some(outcome);
        let count = match outcome {
            LlmOutcome::Answered => &mut self.answered,
            LlmOutcome::Garbage { .. } => &mut self.garbage,
            LlmOutcome::Status { status: 400..=499 } => &mut self.status_4xx,
            LlmOutcome::Status { status: 500..=599 } => &mut self.status_5xx,
            LlmOutcome::Status { .. } => &mut self.status_other,
            LlmOutcome::BrokenOff => &mut self.broken_off,
            LlmOutcome::Unreachable => &mut self.unreachable,
            LlmOutcome::TooSlow => &mut self.too_slow,
            LlmOutcome::BudgetSpent => &mut self.refused_budget,
            LlmOutcome::Refused { .. } => &mut self.refused,
            LlmOutcome::HungUp => &mut self.hung_up,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_told_and_each_is_counted() {
        let mut all = LlmOutcomes::default();
        let ends = [
            LlmOutcome::Answered,
            LlmOutcome::Status { status: 429 },
            LlmOutcome::Status { status: 401 },
            LlmOutcome::Status { status: 529 },
            LlmOutcome::Status { status: 302 },
            LlmOutcome::Garbage { status: 200 },
            LlmOutcome::refused(Reason::BudgetSpent),
            LlmOutcome::refused(Reason::ModelNotAllowed),
        ];
        ends.into_iter().for_each(|outcome| all.note(outcome));
        let LlmOutcomes { last, answered, garbage, status_4xx, status_5xx, status_other, .. } = all;
        assert_eq!((answered, garbage, status_4xx, status_5xx, status_other), (1, 1, 2, 1, 1));
        assert_eq!((all.refused_budget, all.refused, all.hung_up), (1, 1, 0));
        assert_eq!(last, Some(LlmOutcome::Refused { reason: Reason::ModelNotAllowed }));
    }

    #[test]
    fn a_program_reads_which_it_was() {
        for (outcome, expected) in [
            (LlmOutcome::Answered, r#"{"kind":"answered"}"#),
            (LlmOutcome::Status { status: 429 }, r#"{"kind":"status","status":429}"#),
            (LlmOutcome::refused(Reason::TooLarge), r#"{"kind":"refused","reason":"too_large"}"#),
            (LlmOutcome::HungUp, r#"{"kind":"hung_up"}"#),
        ] {
            assert_eq!(serde_json::to_string(&outcome).unwrap(), expected);
        }
    }
}

//! Why a run is over. Exit codes lie, and so do agents: what the kernel and the gateway saw goes first, and what the agent
//! says only fills in what they cannot know.
//!
//! ```text
//! stopped by us > never started > killed > what the gateway saw last > answered > what the agent says > its exit code
//! ```

use crate::claims::{Claims, Ending};
use crate::stop::StopReason;
use belljar_spec::egress::Reason;
use belljar_spec::llm::{AnswerEnd, LlmOutcome, LlmOutcomes};
use belljar_spec::{Ended, LimitHit};

/// What is known of an agent's end.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) ended: Ended,
    /// Its output broke off within a line.
    pub(super) torn: bool,
    pub(super) calls: LlmOutcomes,
    /// It is an agent that does nothing without its model.
    pub(super) needs_model: bool,
}

/// Why it is over, and what went wrong in a sentence.
pub(super) fn judge(facts: &Facts, claims: &Claims) -> (StopReason, Option<String>) {
    let reason = reason(facts, claims);
    (reason, (reason != StopReason::Success).then(|| sentence(reason, facts, claims)))
}

fn reason(facts: &Facts, claims: &Claims) -> StopReason {
    if facts.ended.aborted {
        return StopReason::ErrorCancelled;
    }
    if facts.ended.timed_out {
        return StopReason::ErrorTimeout;
    }
    if facts.ended.not_started.is_some() {
        return StopReason::ErrorStart;
    }
    let has_answer = claims.output.as_deref().is_some_and(|output| !output.trim().is_empty());
    let answered = claims.ending == Some(Ending::Answered);
    let at_gateway = facts.calls.last.and_then(from_gateway).or_else(|| facts.cut_short());
    // Whatever writes to the agent's output can say that it answered. The gateway saw its last call.
    let fine = facts.ended.exit_code == Some(0) && !facts.torn && at_gateway.is_none();
    if answered
        && has_answer
        && fine
        && facts.has_called_model()
        && facts.ended.limit != Some(LimitHit::OutputTruncated)
    {
        return StopReason::Success;
    }
    match facts.ended.limit {
        Some(LimitHit::OomKilled) => return StopReason::ErrorMemory,
        Some(LimitHit::DiskFull) => return StopReason::ErrorDisk,
        Some(LimitHit::Timeout) => return StopReason::ErrorTimeout,
        Some(LimitHit::PidsExhausted | LimitHit::OutputTruncated) | None => {}
    }
    if facts.ended.signal.is_some() {
        return StopReason::ErrorKilled;
    }
    if let Some(reason) = at_gateway {
        return reason;
    }
    match claims.ending {
        Some(Ending::Length) => StopReason::ErrorLength,
        Some(Ending::Refusal) => StopReason::ErrorRefusal,
        Some(Ending::OwnLimit) => StopReason::ErrorBudget,
        Some(Ending::Aborted) => StopReason::ErrorKilled,
        Some(Ending::Error) => StopReason::ErrorAgent,
        Some(Ending::OnTool) => StopReason::ErrorTruncated,
        _ if facts.ended.limit == Some(LimitHit::OutputTruncated) => StopReason::ErrorTruncated,
        None if facts.torn => StopReason::ErrorTruncated,
        _ if facts.ended.exit_code != Some(0) => StopReason::ErrorExit,
        _ if claims.error.is_some() && !has_answer => StopReason::ErrorAgent,
        _ if claims.tool_failed && !has_answer => StopReason::ErrorTool,
        Some(Ending::Answered) | None => StopReason::Unknown,
    }
}

impl Facts {
    /// What the model's own last word to the task says, where the agent took it for an answer.
    fn cut_short(&self) -> Option<StopReason> {
        match self.calls.last_answer? {
            AnswerEnd::Finished => None,
            AnswerEnd::Length => Some(StopReason::ErrorLength),
            AnswerEnd::Refusal => Some(StopReason::ErrorRefusal),
        }
    }

    /// Whether its answer can have come from its model: from another one, that something inside played, it is none. A program
    /// of one's own may do without.
    fn has_called_model(&self) -> bool {
        self.calls.answered > 0 || !self.needs_model
    }
}

/// What the last call to the model says of the end; nothing if it went well, or if the agent itself hung up.
fn from_gateway(last: LlmOutcome) -> Option<StopReason> {
    match last {
        LlmOutcome::Answered | LlmOutcome::HungUp => None,
        LlmOutcome::Garbage { .. } | LlmOutcome::BrokenOff | LlmOutcome::TooSlow => {
            Some(StopReason::ErrorModel)
        }
        LlmOutcome::Unreachable => Some(StopReason::ErrorNetwork),
        LlmOutcome::BudgetSpent => Some(StopReason::ErrorBudget),
        LlmOutcome::Refused { reason: Reason::PriceUnknown } => Some(StopReason::ErrorPrice),
        LlmOutcome::Refused { reason: Reason::SecretUnavailable } => Some(StopReason::ErrorAuth),
        LlmOutcome::Refused { reason: Reason::DialFailed } => Some(StopReason::ErrorNetwork),
        LlmOutcome::Refused { .. } => None,
        LlmOutcome::Status { status: 401 | 403 } => Some(StopReason::ErrorAuth),
        LlmOutcome::Status { status: 402 | 429 } => Some(StopReason::ErrorQuota),
        LlmOutcome::Status { .. } => Some(StopReason::ErrorModel),
    }
}

fn sentence(reason: StopReason, facts: &Facts, claims: &Claims) -> String {
    let what = match reason {
        StopReason::Success => return String::new(),
        StopReason::Unknown if !facts.has_called_model() => {
            "the agent's answer is not its model's, which was never asked".into()
        }
        StopReason::Unknown => "the agent ended without an answer".to_string(),
        StopReason::ErrorAgent => "the agent says that something went wrong".into(),
        StopReason::ErrorTool => "a tool failed, and the agent said nothing more".into(),
        StopReason::ErrorTruncated => "the agent's output breaks off".into(),
        StopReason::ErrorLength => "the model was cut off at its longest answer".into(),
        StopReason::ErrorRefusal => "the model declined".into(),
        StopReason::ErrorAuth => "the model's server does not take the key".into(),
        StopReason::ErrorQuota => "the model's server has no more for us now".into(),
        StopReason::ErrorModel => format!("the model's server failed ({})", last(&facts.calls)),
        StopReason::ErrorNetwork => "the model's server cannot be reached".into(),
        StopReason::ErrorBudget => "the run's budget is used up".into(),
        StopReason::ErrorPrice => "the budget is in dollars, and the price of the model is not known".into(),
        StopReason::ErrorTimeout => "the agent ran longer than it may, and was ended".into(),
        StopReason::ErrorMemory => "a process was killed because memory ran out".into(),
        StopReason::ErrorDisk => "the private files (home, /tmp) are full".into(),
        StopReason::ErrorCancelled => "the run was stopped".into(),
        StopReason::ErrorKilled => match &facts.ended.signal {
            Some(signal) => format!("the agent was killed ({signal})"),
            None => "the agent was stopped from inside".into(),
        },
        StopReason::ErrorExit => match facts.ended.exit_code {
            Some(code) => format!("the agent ended with exit code {code}"),
            None => "the agent ended without an exit code".into(),
        },
        StopReason::ErrorStart => {
            format!(
                "the agent cannot be started: {}",
                facts.ended.not_started.as_deref().unwrap_or("no reason is known")
            )
        }
        StopReason::ErrorSandbox => "the sandbox broke".into(),
    };
    // What the gateway answered comes back as the agent's error. It is our word, and says more.
    if let Some((_, ours)) = claims.error.as_deref().and_then(|error| error.split_once("belljar: ")) {
        return format!("{what}: {}", short(ours));
    }
    match &claims.error {
        Some(words) if !matches!(reason, StopReason::ErrorCancelled | StopReason::ErrorTimeout) => {
            format!("{what}; the agent's words: {}", short(words))
        }
        _ => what,
    }
}

fn last(calls: &LlmOutcomes) -> String {
    match calls.last {
        Some(LlmOutcome::Status { status }) => format!("status {status}"),
        Some(LlmOutcome::Garbage { .. }) => "what it sent is no answer".into(),
        Some(LlmOutcome::BrokenOff) => "it hung up".into(),
        Some(LlmOutcome::TooSlow) => "it said nothing for too long".into(),
        _ => "its last answer was no good".into(),
    }
}

/// One line, of a length that people read, without anything that a terminal obeys.
fn short(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let plain = plain.trim();
    match plain.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((at, _)) => format!("{}…", &plain[..at]),
        None => plain.to_string(),
    }
}

const MAX_DETAIL_CHARS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(ended: Ended) -> Facts {
        Facts { ended, ..Facts::default() }
    }

    fn exited(exit_code: i32) -> Ended {
        Ended { exit_code: Some(exit_code), ..Ended::default() }
    }

    fn ended(exit_code: i32) -> Facts {
        facts(exited(exit_code))
    }

    fn last(facts: Facts, last: LlmOutcome) -> Facts {
        Facts { calls: LlmOutcomes { last: Some(last), ..LlmOutcomes::default() }, ..facts }
    }

    fn says(ending: Ending, output: &str) -> Claims {
        Claims { ending: Some(ending), output: Some(output.into()), ..Claims::default() }
    }

    #[test]
    fn an_answer_is_a_success_only_with_a_clean_end() {
        let answer = says(Ending::Answered, "done");
        assert_eq!(judge(&ended(0), &answer), (StopReason::Success, None));
        // What a tool wrote to the agent's output is no answer while the last call failed.
        let forged = last(ended(0), LlmOutcome::BudgetSpent);
        assert_eq!(judge(&forged, &answer).0, StopReason::ErrorBudget);
        let unasked = Facts { needs_model: true, ..ended(0) };
        assert_eq!(judge(&unasked, &answer).0, StopReason::Unknown);
        let cut = facts(Ended { limit: Some(LimitHit::OutputTruncated), ..exited(0) });
        assert_eq!(judge(&cut, &answer).0, StopReason::ErrorTruncated);
        assert_eq!(judge(&ended(1), &answer).0, StopReason::ErrorExit);
        assert_eq!(judge(&ended(0), &says(Ending::Answered, " \n")).0, StopReason::Unknown);
        let torn = Facts { torn: true, ..ended(0) };
        assert_ne!(judge(&torn, &answer).0, StopReason::Success);
    }

    #[test]
    fn what_we_did_goes_before_what_anybody_says() {
        let answer = says(Ending::Answered, "done");
        let judged = |ended: Ended| judge(&facts(ended), &answer).0;
        assert_eq!(judged(Ended { aborted: true, ..exited(0) }), StopReason::ErrorCancelled);
        assert_eq!(judged(Ended { timed_out: true, ..exited(0) }), StopReason::ErrorTimeout);
        let missing = facts(Ended { not_started: Some("no such program".into()), ..exited(127) });
        let (reason, error) = judge(&missing, &Claims::default());
        assert_eq!(reason, StopReason::ErrorStart);
        assert!(error.unwrap().contains("no such program"));
    }

    #[test]
    fn the_last_call_tells_why_there_is_no_answer() {
        let error = says(Ending::Error, "");
        for (outcome, expected) in [
            (LlmOutcome::Status { status: 401 }, StopReason::ErrorAuth),
            (LlmOutcome::Refused { reason: Reason::SecretUnavailable }, StopReason::ErrorAuth),
            (LlmOutcome::Status { status: 429 }, StopReason::ErrorQuota),
            (LlmOutcome::Status { status: 402 }, StopReason::ErrorQuota),
            (LlmOutcome::Status { status: 500 }, StopReason::ErrorModel),
            (LlmOutcome::Garbage { status: 200 }, StopReason::ErrorModel),
            (LlmOutcome::BrokenOff, StopReason::ErrorModel),
            (LlmOutcome::TooSlow, StopReason::ErrorModel),
            (LlmOutcome::Unreachable, StopReason::ErrorNetwork),
            (LlmOutcome::BudgetSpent, StopReason::ErrorBudget),
            (LlmOutcome::Refused { reason: Reason::PriceUnknown }, StopReason::ErrorPrice),
            (LlmOutcome::Answered, StopReason::ErrorAgent),
            (LlmOutcome::HungUp, StopReason::ErrorAgent),
        ] {
            // Whatever the exit code: pi has 0 for every failure.
            for code in [0, 1] {
                assert_eq!(judge(&last(ended(code), outcome), &error).0, expected, "{outcome:?} {code}");
            }
        }
    }

    #[test]
    fn the_kernel_tells_who_was_killed() {
        assert_eq!(judge(&facts(Ended::killed()), &Claims::default()).0, StopReason::ErrorKilled);
        let memory = facts(Ended { limit: Some(LimitHit::OomKilled), ..Ended::killed() });
        assert_eq!(judge(&memory, &Claims::default()).0, StopReason::ErrorMemory);
        let disk = facts(Ended { limit: Some(LimitHit::DiskFull), ..exited(1) });
        assert_eq!(judge(&disk, &Claims::default()).0, StopReason::ErrorDisk);
        // A tool that ran out of memory, and an agent that found another way.
        let other_way = facts(Ended { limit: Some(LimitHit::OomKilled), ..exited(0) });
        assert_eq!(judge(&other_way, &says(Ending::Answered, "done")).0, StopReason::Success);
    }

    #[test]
    fn what_the_agent_says_fills_in_the_rest() {
        for (ending, expected) in [
            (Ending::Length, StopReason::ErrorLength),
            (Ending::Refusal, StopReason::ErrorRefusal),
            (Ending::OwnLimit, StopReason::ErrorBudget),
            (Ending::OnTool, StopReason::ErrorTruncated),
            (Ending::Error, StopReason::ErrorAgent),
        ] {
            let fine = last(ended(0), LlmOutcome::Answered);
            assert_eq!(judge(&fine, &says(ending, "")).0, expected, "{ending:?}");
        }
        let tool = Claims { tool_failed: true, ..Claims::default() };
        assert_eq!(judge(&ended(0), &tool).0, StopReason::ErrorTool);
        assert_eq!(judge(&ended(3), &Claims::default()).0, StopReason::ErrorExit);
        assert_eq!(judge(&ended(0), &Claims::default()).0, StopReason::Unknown);
    }

    #[test]
    fn an_agents_words_are_quoted_without_what_a_terminal_obeys() {
        let claims =
            Claims { error: Some(format!("\u{1b}[2Jgone {}", "x".repeat(999))), ..Claims::default() };
        let error = judge(&ended(1), &claims).1.unwrap();
        assert!(!error.contains('\u{1b}') && error.ends_with('…') && error.len() < 400, "{error}");
    }
}

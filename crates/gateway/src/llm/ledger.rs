//! What a run has used of its model, and whether there is more for it. One number is taken before a call leaves, so
//! that calls at the same time cannot be more than were allowed; tokens and money are known when answers come.

use super::paths::{Api, ApiCall, Purpose};
use belljar_spec::egress::Reason;
use belljar_spec::llm::{AnswerEnd, Budget, Cost, CostUnknown, LlmOutcome, LlmOutcomes, LlmTotals, Usd};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One run's account.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Budget,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    totals: LlmTotals,
    outcomes: LlmOutcomes,
    /// What all calls together cost at most.
    cost_at_most: Usd,
    /// Why there is no such amount.
    without_bound: Option<CostUnknown>,
    /// Turns on their way.
    under_way: u64,
    /// Turns that the program did not hear to their end. The model said them, or would have.
    unheard: u64,
    /// Whatever went upstream, free or not.
    requests: u64,
    /// The tokens of answers that came whole.
    answers: HashMap<String, u64>,
    /// The models that answered.
    models: Vec<String>,
}

impl Used {
    fn arrived(&mut self, takes: Takes) {
        self.under_way = self.under_way.saturating_sub(u64::from(takes == Takes::Turn));
    }

    fn add(&mut self, spent: Spent) {
        let totals = &mut self.totals;
        totals.input_tokens = totals.input_tokens.saturating_add(spent.input);
        totals.output_tokens = totals.output_tokens.saturating_add(spent.output);
        totals.cache_read = totals.cache_read.saturating_add(spent.cache_read);
        totals.cache_write = totals.cache_write.saturating_add(spent.cache_write);
        totals.calls_estimated += u64::from(spent.estimated);
        let mut unknown = |why| {
            totals.calls_without_cost += 1;
            totals.cost_unknown.get_or_insert(why);
        };
        match spent.cost {
            Charge::Exactly(cost) => {
                totals.cost_usd = totals.cost_usd.plus(cost);
                self.cost_at_most = self.cost_at_most.plus(cost);
            }
            Charge::AtMost(cost) => {
                unknown(CostUnknown::NoRate);
                self.cost_at_most = self.cost_at_most.plus(cost);
            }
            Charge::Unknown(why) => {
                unknown(why);
                self.without_bound.get_or_insert(why);
            }
        }
    }

    fn give_back(&mut self, takes: Takes) {
        self.totals.calls = self.totals.calls.saturating_sub(u64::from(takes != Takes::Nothing));
        self.arrived(takes);
    }
}

/// What a request takes of a budget before it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// It is free.
    Nothing,
    /// The model works, and has nothing to say.
    Call,
    /// The model answers.
    Turn,
}

impl From<&ApiCall> for Takes {
    fn from(api_call: &ApiCall) -> Takes {
        match (api_call.purpose, api_call.api) {
            (Purpose::Count | Purpose::List, _) => Takes::Nothing,
            (Purpose::Call, Api::Embeddings) => Takes::Call,
            (Purpose::Call, Api::Anthropic | Api::Chat | Api::Responses | Api::Gemini) => Takes::Turn,
        }
    }
}

/// What one call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spent {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) estimated: bool,
    pub(super) cost: Charge,
}

/// What one call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charge {
    Exactly(Usd),
    /// A rate of its price is unknown, but the call cannot cost more than this.
    AtMost(Usd),
    Unknown(CostUnknown),
}

impl Charge {
    pub(super) fn exact(self) -> Option<Usd> {
        match self {
            Charge::Exactly(cost) => Some(cost),
            Charge::AtMost(_) | Charge::Unknown(_) => None,
        }
    }
}

impl Default for Charge {
    fn default() -> Charge {
        Charge::Exactly(Usd::default())
    }
}

impl From<Cost> for Charge {
    fn from(cost: Cost) -> Charge {
        match cost {
            Cost { exact: Some(cost), .. } => Charge::Exactly(cost),
            Cost { exact: None, at_most: Some(cost) } => Charge::AtMost(cost),
            Cost { exact: None, at_most: None } => Charge::Unknown(CostUnknown::NoRate),
        }
    }
}

impl Ledger {
    pub(super) fn new(budget: Budget) -> Ledger {
        Ledger { budget, used: Mutex::default() }
    }

    /// Takes the next number, or says why not. A model that is free needs no money.
    pub(super) fn take(&self, takes: Takes, is_free: bool) -> Result<u64, (Reason, String)> {
        let spent = |what| Err((Reason::BudgetSpent, what));
        let mut used = self.lock();
        let LlmTotals { calls, turns, .. } = used.totals;
        if let Some(limit) = self.budget.calls.filter(|limit| calls >= *limit) {
            return spent(format!("{calls} of {limit} calls are used"));
        }
        let (under_way, unheard) = (used.under_way, used.unheard);
        if let Some(limit) = self.budget.turns.filter(|limit| turns + unheard + under_way >= *limit) {
            let mut detail = format!("{} of {limit} turns are used", turns + unheard);
            if unheard > 0 {
                detail += &format!(", {unheard} of them hung up on");
            }
            if under_way > 0 {
                detail += &format!(", {under_way} more are on their way");
            }
            return spent(detail);
        }
        let tokens = used.totals.tokens();
        if let Some(limit) = self.budget.tokens.filter(|limit| tokens >= *limit) {
            return spent(format!("{tokens} of {limit} tokens are used"));
        }
        if let Some(limit) = self.budget.cost.filter(|_| !is_free) {
            if let Some(why) = used.without_bound {
                let what = format!("the cost of an earlier call is not known: {}", why.sentence());
                return Err((Reason::PriceUnknown, what));
            }
            let cost = used.cost_at_most;
            if cost >= limit {
                return spent(format!("{cost} of {limit} USD are used"));
            }
        }
        if used.requests >= MAX_REQUESTS {
            return spent(format!("a run has no more than {MAX_REQUESTS} requests"));
        }
        used.requests += 1;
        used.totals.calls += u64::from(takes != Takes::Nothing);
        used.under_way += u64::from(takes == Takes::Turn);
        Ok(used.requests)
    }

    /// Whether something is limited that is known only when an answer is over.
    pub(super) fn counts_answers(&self) -> bool {
        let Budget { turns, tokens, cost, calls: _ } = self.budget;
        turns.is_some() || tokens.is_some() || cost.is_some()
    }

    /// Whether tokens or money are limited.
    pub(super) fn limits_tokens(&self) -> bool {
        self.budget.tokens.is_some() || self.budget.cost.is_some()
    }

    /// How many tokens an earlier call of this run had, in and out, by the name of its answer. All of them go in again.
    pub(super) fn tokens_of(&self, answer: &str) -> Option<u64> {
        self.lock().answers.get(answer).copied()
    }

    /// An answer came whole, and later calls may refer to it.
    pub(super) fn answered(&self, answer: &str, spent: Spent) {
        let answers = &mut self.lock().answers;
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        let Spent { input, output, cache_read, cache_write, .. } = spent;
        let tokens = [input, output, cache_read, cache_write].into_iter().fold(0, u64::saturating_add);
        answers.insert(answer.to_string(), tokens);
    }

    /// A call is over; without `spent` it never left, and is none.
    pub(super) fn over(&self, takes: Takes, spent: Option<Spent>, outcome: LlmOutcome, took: Duration) {
        if takes == Takes::Nothing {
            return;
        }
        let mut used = self.lock();
        match spent {
            Some(spent) => {
                used.add(spent);
                used.arrived(takes);
            }
            None => used.give_back(takes),
        }
        // One that failed is no turn, and the next one may have its place.
        match outcome {
            LlmOutcome::Answered => used.totals.turns += u64::from(takes == Takes::Turn),
            LlmOutcome::HungUp => used.unheard += u64::from(takes == Takes::Turn),
            _ => {}
        }
        used.totals.millis = used.totals.millis.saturating_add(took.as_millis() as u64);
        used.outcomes.note(outcome);
    }

    /// A model answered, and ended like this where that counts.
    pub(super) fn note_answer(&self, model: Option<&str>, end: Option<AnswerEnd>) {
        let mut used = self.lock();
        if end.is_some() {
            used.outcomes.last_answer = end;
        }
        if let Some(model) = model
            && used.models.len() < MAX_MODELS
            && !used.models.iter().any(|known| known == model)
        {
            used.models.push(model.to_string());
        }
    }

    /// It was refused at the last moment.
    pub(super) fn give_back(&self, takes: Takes) {
        self.lock().give_back(takes);
    }

    /// A request was refused.
    pub(super) fn refused(&self) {
        self.lock().totals.refused += 1;
    }

    /// It was one for the model, and it was refused before it left.
    pub(super) fn turned_away(&self, reason: Reason) {
        self.lock().outcomes.note(LlmOutcome::refused(reason));
    }

    pub(super) fn totals(&self) -> LlmTotals {
        self.lock().totals
    }

    pub(super) fn models(&self) -> Vec<String> {
        self.lock().models.clone()
    }

    pub(super) fn outcomes(&self) -> LlmOutcomes {
        self.lock().outcomes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than an agent asks; an upstream can call a model anything.
const MAX_MODELS: usize = 16;
/// Whose tokens are remembered; of one that was forgotten the most is assumed.
const MAX_ANSWERS: usize = 1000;
/// Each has two lines in the record, and a program that asks for nothing but lists must not fill the host's disk.
const MAX_REQUESTS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(budget: &str) -> Ledger {
        Ledger::new(budget.parse().unwrap())
    }

    fn spent<T>(what: &str) -> Result<T, (Reason, String)> {
        Err((Reason::BudgetSpent, what.into()))
    }

    fn tokens(input: u64, cost: Option<u64>) -> Spent {
        let unknown = Charge::Unknown(CostUnknown::NoPrice);
        let cost = cost.map_or(unknown, |cost| Charge::Exactly(Usd::micros(cost)));
        Spent { input, cost, ..Spent::default() }
    }

    fn over(ledger: &Ledger, outcome: LlmOutcome) {
        ledger.over(Takes::Turn, Some(tokens(1, None)), outcome, Duration::from_millis(7));
    }

    fn add(ledger: &Ledger, spent: Spent) {
        ledger.over(Takes::Call, Some(spent), LlmOutcome::Answered, Duration::ZERO);
    }

    #[test]
    fn call_n_plus_one_is_refused_before_any_answer_came() {
        let ledger = ledger("calls=2");
        let taken = [Takes::Turn, Takes::Nothing, Takes::Call].map(|takes| ledger.take(takes, false));
        assert_eq!(taken, [Ok(1), Ok(2), Ok(3)]);
        assert_eq!(ledger.take(Takes::Turn, false), spent("2 of 2 calls are used"));
        assert_eq!(ledger.take(Takes::Nothing, false), spent("2 of 2 calls are used"));
        ledger.give_back(Takes::Call);
        assert_eq!(ledger.take(Takes::Turn, false), Ok(4));
    }

    #[test]
    fn answer_n_plus_one_is_not_begun_and_a_call_that_failed_is_no_turn() {
        let ledger = ledger("turns=2");
        assert_eq!((ledger.take(Takes::Turn, false), ledger.take(Takes::Turn, false)), (Ok(1), Ok(2)));
        let (_, detail) = ledger.take(Takes::Turn, false).unwrap_err();
        assert_eq!(detail, "0 of 2 turns are used, 2 more are on their way");
        over(&ledger, LlmOutcome::Status { status: 500 });
        assert_eq!(ledger.take(Takes::Turn, false), Ok(3));
        over(&ledger, LlmOutcome::Answered);
        over(&ledger, LlmOutcome::Answered);
        assert_eq!(ledger.take(Takes::Turn, false), spent("2 of 2 turns are used"));
        let totals = ledger.totals();
        assert_eq!((totals.calls, totals.turns, totals.millis), (3, 2, 21));
    }

    #[test]
    fn hanging_up_early_takes_a_turn() {
        let ledger = ledger("turns=2");
        ledger.take(Takes::Turn, false).unwrap();
        over(&ledger, LlmOutcome::HungUp);
        ledger.take(Takes::Turn, false).unwrap();
        over(&ledger, LlmOutcome::Answered);
        let (_, detail) = ledger.take(Takes::Turn, false).unwrap_err();
        assert_eq!(detail, "2 of 2 turns are used, 1 of them hung up on");
        assert_eq!(ledger.totals().turns, 1, "only one was heard");
    }

    #[test]
    fn some_limits_are_known_only_when_an_answer_is_over() {
        for (budget, expected) in [("calls=9", false), ("turns=9", true), ("tokens=9", true), ("usd=9", true)]
        {
            assert_eq!(ledger(budget).counts_answers(), expected, "{budget}");
        }
    }

    #[test]
    fn what_never_left_is_neither_a_call_nor_a_turn() {
        let ledger = ledger("calls=9,turns=1");
        ledger.take(Takes::Turn, false).unwrap();
        ledger.over(Takes::Turn, None, LlmOutcome::Unreachable, Duration::ZERO);
        ledger.take(Takes::Turn, false).unwrap();
        ledger.give_back(Takes::Turn);
        assert_eq!((ledger.totals().calls, ledger.totals().turns), (0, 0));
        // Embeddings are calls, but not turns.
        ledger.take(Takes::Call, false).unwrap();
        ledger.over(Takes::Call, Some(tokens(1, None)), LlmOutcome::Answered, Duration::ZERO);
        assert_eq!((ledger.totals().calls, ledger.totals().turns), (1, 0));
        assert!(ledger.take(Takes::Turn, false).is_ok());
        assert_eq!(ledger.outcomes().unreachable, 1);
    }

    #[test]
    fn tokens_of_every_kind_count() {
        let ledger = ledger("tokens=100");
        add(&ledger, Spent { input: 1, output: 2, cache_read: 3, cache_write: 93, ..tokens(0, Some(0)) });
        assert_eq!(ledger.take(Takes::Turn, false), Ok(1));
        add(&ledger, tokens(1, Some(0)));
        assert_eq!(ledger.take(Takes::Turn, false), spent("100 of 100 tokens are used"));
        add(&ledger, tokens(u64::MAX, None));
        assert_eq!(ledger.totals().tokens(), u64::MAX);
    }

    #[test]
    fn money_that_was_not_counted_closes_the_purse() {
        let purse = ledger("usd=1");
        add(&purse, tokens(1, Some(999_999)));
        assert!(purse.take(Takes::Turn, false).is_ok());
        add(&purse, tokens(1, Some(1)));
        assert_eq!(purse.take(Takes::Turn, false), spent("1.00 of 1.00 USD are used"));
        let unknown = ledger("usd=1");
        add(&unknown, tokens(1, None));
        let (reason, detail) = unknown.take(Takes::Turn, false).unwrap_err();
        assert_eq!(reason, Reason::PriceUnknown);
        assert!(detail.ends_with("is not known: the model has no price"), "{detail}");
        assert_eq!(unknown.totals().cost_unknown, Some(CostUnknown::NoPrice));
        let careless = ledger("tokens=9");
        add(&careless, tokens(1, None));
        assert!(careless.take(Takes::Turn, false).is_ok());
    }

    #[test]
    fn a_free_model_needs_no_money() {
        let purse = ledger("usd=1,calls=3");
        add(&purse, tokens(1, Some(1_000_000)));
        assert_eq!(purse.take(Takes::Turn, false), spent("1.00 of 1.00 USD are used"));
        assert_eq!(purse.take(Takes::Turn, true), Ok(1));
        add(&purse, tokens(1, None));
        assert!(purse.take(Takes::Turn, false).is_err());
        assert_eq!((purse.take(Takes::Turn, true), purse.take(Takes::Turn, true)), (Ok(2), Ok(3)));
        assert_eq!(purse.take(Takes::Turn, true), spent("3 of 3 calls are used"));
    }

    #[test]
    fn a_cost_that_has_only_a_bound_counts_as_the_bound_and_is_not_told() {
        let purse = ledger("usd=1");
        let at_most = |micros| Spent { cost: Charge::AtMost(Usd::micros(micros)), ..Spent::default() };
        add(&purse, at_most(400_000));
        assert!(purse.take(Takes::Turn, false).is_ok());
        add(&purse, at_most(600_000));
        assert_eq!(purse.take(Takes::Turn, false), spent("1.00 of 1.00 USD are used"));
        let totals = purse.totals();
        assert_eq!((totals.calls_without_cost, totals.cost_usd), (2, Usd::default()));
        assert_eq!(totals.cost_unknown, Some(CostUnknown::NoRate));
    }
}

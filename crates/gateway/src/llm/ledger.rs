//! What a run has used of its model, and whether there is more for it. One number is taken before a call leaves, so
//! that calls at the same time cannot be more than were allowed; tokens and money are known when answers come.

use belljar_spec::llm::{Budget, Usd};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// One run's account.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Budget,
    used: Mutex<Used>,
}

/// What was used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Calls that left, those on their way included.
    pub calls: u64,
    /// What was neither read from a cache nor written to one.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// In millionths of a dollar, of the calls whose cost is known.
    pub cost_usd: Usd,
    /// Calls that cost something that nobody told us.
    pub calls_without_cost: u64,
    /// Calls whose tokens are estimated.
    pub calls_estimated: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl Totals {
    /// All of them.
    pub fn tokens(&self) -> u64 {
        [self.input_tokens, self.output_tokens, self.cache_read, self.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

#[derive(Debug, Default)]
struct Used {
    totals: Totals,
    /// Whatever went upstream, free or not.
    requests: u64,
}

/// What one call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spent {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) estimated: bool,
    pub(super) cost: Option<Usd>,
}

impl Ledger {
    pub(super) fn new(budget: Budget) -> Ledger {
        Ledger { budget, used: Mutex::default() }
    }

    /// Takes the next number, or says what is spent. A request that is free takes no call.
    pub(super) fn take(&self, is_call: bool) -> Result<u64, String> {
        let mut used = self.lock();
        let Totals { calls, cost_usd, calls_without_cost, .. } = used.totals;
        if let Some(limit) = self.budget.calls.filter(|limit| calls >= *limit) {
            return Err(format!("{calls} of {limit} calls are used"));
        }
        let tokens = used.totals.tokens();
        if let Some(limit) = self.budget.tokens.filter(|limit| tokens >= *limit) {
            return Err(format!("{tokens} of {limit} tokens are used"));
        }
        if let Some(limit) = self.budget.cost {
            if calls_without_cost > 0 {
                return Err("the cost of an earlier call is not known, and there is a limit on cost: \
                    set the model's price in `[llm.price]`"
                    .into());
            }
            if cost_usd >= limit {
                return Err(format!("{cost_usd} of {limit} USD are used"));
            }
        }
        if used.requests >= MOST_REQUESTS {
            return Err(format!("a run has no more than {MOST_REQUESTS} requests"));
        }
        used.requests += 1;
        if is_call {
            used.totals.calls += 1;
        }
        Ok(used.requests)
    }

    /// Whether money is counted.
    pub(super) fn counts_cost(&self) -> bool {
        self.budget.cost.is_some()
    }

    /// Adds what a call came to.
    pub(super) fn add(&self, spent: Spent) {
        let mut used = self.lock();
        let totals = &mut used.totals;
        totals.input_tokens = totals.input_tokens.saturating_add(spent.input);
        totals.output_tokens = totals.output_tokens.saturating_add(spent.output);
        totals.cache_read = totals.cache_read.saturating_add(spent.cache_read);
        totals.cache_write = totals.cache_write.saturating_add(spent.cache_write);
        totals.calls_estimated += u64::from(spent.estimated);
        match spent.cost {
            Some(cost) => totals.cost_usd = totals.cost_usd.plus(cost),
            None => totals.calls_without_cost += 1,
        }
    }

    /// A call that never left is none.
    pub(super) fn give_back(&self) {
        let mut used = self.lock();
        used.totals.calls = used.totals.calls.saturating_sub(1);
    }

    pub(super) fn refused(&self) {
        self.lock().totals.refused += 1;
    }

    pub(super) fn totals(&self) -> Totals {
        self.lock().totals
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each has two lines in the record, and a program that asks for nothing but lists must not fill the host's disk.
const MOST_REQUESTS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(budget: &str) -> Ledger {
        Ledger::new(budget.parse().unwrap())
    }

    fn tokens(input: u64, cost: Option<u64>) -> Spent {
        Spent { input, cost: cost.map(Usd::micros), ..Spent::default() }
    }

    #[test]
    fn call_n_plus_one_is_refused_before_any_answer_came() {
        let ledger = ledger("calls=2");
        assert_eq!((ledger.take(true), ledger.take(false), ledger.take(true)), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(ledger.take(true), Err("2 of 2 calls are used".into()));
        assert_eq!(ledger.take(false), Err("2 of 2 calls are used".into()));
    }

    #[test]
    fn tokens_of_every_kind_count() {
        let ledger = ledger("tokens=100");
        ledger.add(Spent { input: 1, output: 2, cache_read: 3, cache_write: 93, ..tokens(0, Some(0)) });
        assert_eq!(ledger.take(true), Ok(1));
        ledger.add(tokens(1, Some(0)));
        assert_eq!(ledger.take(true), Err("100 of 100 tokens are used".into()));
        ledger.add(tokens(u64::MAX, None));
        assert_eq!(ledger.totals().tokens(), u64::MAX);
    }

    #[test]
    fn money_that_nobody_counted_closes_the_purse() {
        let purse = ledger("usd=1");
        purse.add(tokens(1, Some(999_999)));
        assert!(purse.take(true).is_ok());
        purse.add(tokens(1, Some(1)));
        assert_eq!(purse.take(true), Err("1.00 of 1.00 USD are used".into()));
        let unknown = ledger("usd=1");
        unknown.add(tokens(1, None));
        assert!(unknown.take(true).unwrap_err().contains("not known"));
        let careless = ledger("tokens=9");
        careless.add(tokens(1, None));
        assert!(careless.take(true).is_ok());
    }
}

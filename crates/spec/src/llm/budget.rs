//! How much of a model a run may use.

use super::{Usd, UsdError};
use crate::egress::Printable;
use std::fmt;
use std::str::FromStr;

/// What may be used; nothing said, no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Requests to the model.
    pub calls: Option<u64>,
    /// Answers of the model.
    pub turns: Option<u64>,
    /// Tokens, in and out, cached ones counted.
    pub tokens: Option<u64>,
    pub cost: Option<Usd>,
}

/// Not a budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "`{0}` is not a budget: write what may be used, as in `calls=100`, `turns=30`, `tokens=2m` or `calls=100,tokens=2m,usd=5`"
    )]
    Part(Printable),
    #[error("`{0}` is not a number: write one above 0, as in `100`, `50k` or `2m`")]
    Number(Printable),
    #[error("`{0}` is more than can be counted: write less, or omit it for no limit")]
    TooLarge(Printable),
    #[error(transparent)]
    Usd(#[from] UsdError),
    #[error("`{0}` is given twice")]
    Twice(&'static str),
}

impl Budget {
    /// A number of calls, turns or tokens, with `k` and `m` for thousands and millions.
    pub fn number(text: &str) -> Result<u64, BudgetError> {
        let wrong = || BudgetError::Number(text.into());
        let (digits, factor) = match text.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1_000),
            None => match text.strip_suffix(['m', 'M']) {
                Some(digits) => (digits, 1_000_000),
                None => (text, 1),
            },
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        match digits.parse::<u64>().map(|number| number.checked_mul(factor)) {
            Ok(Some(number)) if number > 0 => Ok(number),
            Ok(Some(_)) => Err(wrong()),
            Err(_) if digits.is_empty() => Err(wrong()),
            // Nothing but digits.
            Ok(None) | Err(_) => Err(BudgetError::TooLarge(text.into())),
        }
    }

    /// Within both.
    #[must_use]
    pub fn strictest(self, other: Budget) -> Budget {
        Budget {
            calls: least(self.calls, other.calls),
            turns: least(self.turns, other.turns),
            tokens: least(self.tokens, other.tokens),
            cost: least(self.cost, other.cost),
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    [one, other].into_iter().flatten().min()
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Budget, BudgetError> {
        let mut budget = Budget::default();
        for part in text.split(',') {
            let twice = match part.split_once('=') {
                Some(("calls", number)) => budget.calls.replace(Budget::number(number)?).map(|_| "calls"),
                Some(("turns", number)) => budget.turns.replace(Budget::number(number)?).map(|_| "turns"),
                Some(("tokens", number)) => budget.tokens.replace(Budget::number(number)?).map(|_| "tokens"),
                Some(("usd", amount)) => budget.cost.replace(amount.parse()?).map(|_| "usd"),
                _ => return Err(BudgetError::Part(part.into())),
            };
            if let Some(key) = twice {
                return Err(BudgetError::Twice(key));
            }
        }
        Ok(budget)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.map(|calls| format!("calls={calls}"));
        let turns = self.turns.map(|turns| format!("turns={turns}"));
        let tokens = self.tokens.map(|tokens| format!("tokens={tokens}"));
        let cost = self.cost.map(|cost| format!("usd={cost}"));
        let parts: Vec<String> = [calls, turns, tokens, cost].into_iter().flatten().collect();
        if parts.is_empty() { f.write_str("no limit") } else { f.write_str(&parts.join(",")) }
    }
}

crate::text::serde_as_text!(Budget);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_budgets_the_strictest_holds() {
        let one: Budget = "calls=5,tokens=2m".parse().unwrap();
        let other: Budget = "calls=9,tokens=1m,usd=3".parse().unwrap();
        assert_eq!(one.strictest(other).to_string(), "calls=5,tokens=1000000,usd=3.00");
        assert_eq!(one.strictest(Budget::default()), one);
    }

    #[test]
    fn a_budget_is_what_may_be_used() {
        let all: Budget = "calls=100,tokens=2m,usd=5".parse().unwrap();
        assert_eq!((all.calls, all.tokens), (Some(100), Some(2_000_000)));
        assert_eq!(all.cost, Some(Usd::micros(5_000_000)));
        assert_eq!(all.to_string(), "calls=100,tokens=2000000,usd=5.00");
        let turns: Budget = "tokens=9,turns=30".parse().unwrap();
        assert_eq!((turns.turns, turns.to_string().as_str()), (Some(30), "turns=30,tokens=9"));
        assert_eq!("tokens=50k".parse::<Budget>().unwrap().tokens, Some(50_000));
        for text in [
            "",
            "calls",
            "calls=",
            "calls=0",
            "calls=-1",
            "calls=1.5",
            "tokens=2g",
            "usd=free",
            "calls=1,calls=2",
            "turns=1,turns=1",
            "turns=0",
            "calls=1,",
            "calls=99999999999999999999",
            "+1",
            "calls=+1",
        ] {
            assert!(text.parse::<Budget>().is_err(), "{text:?}");
        }
    }
}

//! What a run may use: of its model, and of time.

use belljar_spec::llm::{Budget, BudgetError};
use belljar_spec::{ParseQuantityError, parse_time};
use std::str::FromStr;
use std::time::Duration;

/// `usd=5,tokens=2m,calls=100,turns=30,time=10m`, or some of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunBudget {
    /// Counted and held by the gateway.
    pub model: Budget,
    /// How long the agent may run.
    pub time: Option<Duration>,
}

/// Not a budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunBudgetError {
    #[error(
        "`{0}` is not a budget: write what may be used, as in `usd=5`, `turns=30,time=10m` or `tokens=2m,calls=100`"
    )]
    Part(belljar_spec::Printable),
    #[error(transparent)]
    Model(BudgetError),
    #[error(transparent)]
    Time(#[from] ParseQuantityError),
    #[error("`time` is given twice")]
    TimeTwice,
}

impl RunBudget {
    /// Within both.
    #[must_use]
    pub fn strictest(self, other: RunBudget) -> RunBudget {
        RunBudget {
            model: self.model.strictest(other.model),
            time: [self.time, other.time].into_iter().flatten().min(),
        }
    }
}

impl FromStr for RunBudget {
    type Err = RunBudgetError;

    fn from_str(text: &str) -> Result<RunBudget, RunBudgetError> {
        let mut time = None;
        let mut model = Vec::new();
        for part in text.split(',') {
            match part.strip_prefix("time=") {
                Some(long) if time.is_none() => time = Some(parse_time(long)?),
                Some(_) => return Err(RunBudgetError::TimeTwice),
                None => model.push(part),
            }
        }
        let model = match model.as_slice() {
            [] => Budget::default(),
            parts => parts.join(",").parse().map_err(|error| match error {
                BudgetError::Part(part) => RunBudgetError::Part(part),
                other => RunBudgetError::Model(other),
            })?,
        };
        Ok(RunBudget { model, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_time_beside_what_the_model_may_cost() {
        let all: RunBudget = "usd=5,tokens=2m,time=10m,calls=100,turns=30".parse().unwrap();
        assert_eq!(all.model.to_string(), "calls=100,turns=30,tokens=2000000,usd=5.00");
        assert_eq!(all.time, Some(Duration::from_secs(600)));
        assert_eq!("time=90s".parse::<RunBudget>().unwrap().model, Budget::default());
        for (text, reason) in [
            ("", "`` is not a budget"),
            ("much", "`much` is not a budget"),
            ("time=soon", "`soon` is not a time"),
            ("time=1m,time=2m", "`time` is given twice"),
            ("usd=1,usd=2", "`usd` is given twice"),
            ("turns=0", "`0` is not a number"),
            ("usd=1,", "`` is not a budget"),
        ] {
            let error = text.parse::<RunBudget>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn of_two_budgets_the_strictest_holds() {
        let one: RunBudget = "usd=5,time=1m".parse().unwrap();
        let other: RunBudget = "usd=1,turns=3,time=2m".parse().unwrap();
        assert_eq!(one.strictest(other), "usd=1,turns=3,time=1m".parse().unwrap());
    }
}

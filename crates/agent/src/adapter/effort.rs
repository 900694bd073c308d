//! How much thought a model is asked for. What a model makes of it is its own affair.

use belljar_spec::Printable;
use std::fmt;
use std::str::FromStr;

/// How much thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

impl Effort {
    /// Every one, least first.
    pub const ALL: [Effort; 6] =
        [Effort::Off, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh];

    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Effort::Off => "off",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::Xhigh => "xhigh",
        }
    }

    /// The same, where none at all is called so.
    pub(super) fn or_none(self) -> &'static str {
        match self {
            Effort::Off => "none",
            other => other.as_str(),
        }
    }
}

/// Not an effort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an effort: write off, minimal, low, medium, high or xhigh")]
pub struct EffortError(Printable);

impl FromStr for Effort {
    type Err = EffortError;

    fn from_str(text: &str) -> Result<Effort, EffortError> {
        let known = Effort::ALL.into_iter().find(|effort| effort.as_str() == text);
        known.ok_or_else(|| EffortError(text.into()))
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_one_of_six_words() {
        for effort in Effort::ALL {
            assert_eq!(effort.to_string().parse(), Ok(effort));
        }
        for text in ["", "High", "max", "none", "\u{1b}[2J"] {
            let error = text.parse::<Effort>().expect_err(text);
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }
}

//! What a model says that it used. Every figure is another, so that a test knows which one it has before it.

use std::iter::Sum;

/// Tokens of one answer, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Neither read from a cache nor written to one.
    pub input: u64,
    pub cache_write: u64,
    pub cache_read: u64,
    pub output: u64,
    /// A part of the output for OpenAI, beside it for Google, and not told by Anthropic.
    pub reasoning: u64,
}

impl Usage {
    /// Of a step, counted from 0: what was said before is read from the cache.
    pub(super) fn of_step(step: usize) -> Usage {
        let step = step as u64;
        Usage {
            input: 100 + step,
            cache_write: if step == 0 { 2000 } else { 50 },
            cache_read: step.checked_sub(1).map_or(0, |before| 2000 + 50 * before),
            output: 30 + step,
            reasoning: 5,
        }
    }

    /// Of an answer beside the task.
    pub(super) fn of_side() -> Usage {
        Usage { input: 7, output: 3, ..Usage::default() }
    }

    /// All that went in, as OpenAI and Google count it.
    pub fn whole_input(&self) -> u64 {
        self.input + self.cache_write + self.cache_read
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, one| Usage {
            input: sum.input + one.input,
            cache_write: sum.cache_write + one.cache_write,
            cache_read: sum.cache_read + one.cache_read,
            output: sum.output + one.output,
            reasoning: sum.reasoning + one.reasoning,
        })
    }
}

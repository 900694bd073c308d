//! Which models are meant.

use crate::egress::Printable;
use crate::glob;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The name of a model, where `*` stands for any letters: `claude-*`, `gpt-5`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ModelGlob(String);

impl ModelGlob {
    /// Whether a model is meant; letter by letter, case included.
    pub fn matches(&self, model: &str) -> bool {
        glob::matches(&self.0, model)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Not the name of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a model: write visible letters without spaces, and `*` for any of them, as in `claude-*`"
)]
pub struct ModelGlobError(Printable);

impl FromStr for ModelGlob {
    type Err = ModelGlobError;

    fn from_str(text: &str) -> Result<ModelGlob, ModelGlobError> {
        let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if text.is_empty() || text.len() > MAX || !fits {
            return Err(ModelGlobError(text.into()));
        }
        Ok(ModelGlob(text.to_string()))
    }
}

impl fmt::Display for ModelGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const MAX: usize = 200;

crate::text::read_as_text!(ModelGlob);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (glob, model, expected) in [
            ("claude-*", "claude-sonnet-4-5", true),
            ("claude-*", "claude-", true),
            ("claude-*", "gpt-5", false),
            ("claude-*", "xclaude-a", false),
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-5", "GPT-5", false),
            ("*", "", true),
            ("*-mini", "gpt-mini-mini", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("openrouter/*/claude*", "openrouter/anthropic/claude-3", true),
        ] {
            let glob: ModelGlob = glob.parse().unwrap();
            assert_eq!(glob.matches(model), expected, "{glob} {model}");
        }
        for text in ["", "a b", "a,b", "ä", "a\n"] {
            assert!(text.parse::<ModelGlob>().is_err(), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_name_matches_itself_and_any_cut_of_it(name in "[a-z0-9-]{1,20}", at in 0usize..20) {
            let at = at.min(name.len());
            let cut: ModelGlob = format!("{}*", &name[..at]).parse().unwrap();
            proptest::prop_assert!(name.parse::<ModelGlob>().unwrap().matches(&name));
            proptest::prop_assert!(cut.matches(&name));
        }
    }
}

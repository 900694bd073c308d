//! The name of a model, as people write it.

use belljar_spec::Printable;
use std::fmt;
use std::str::FromStr;

/// `provider/model`. The server is asked for what comes behind the first slash; the provider says whose model it is, and so
/// how it is asked. One that is not known by name is a server that speaks as OpenAI does, `litellm/NAME` for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    pub provider: String,
    /// What comes behind the first slash; may have slashes: `openrouter/anthropic/claude-3`.
    pub model: String,
}

/// Not the name of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelNameError {
    #[error(
        "`{0}` does not say whose model it is: write `provider/model`, as in `anthropic/{0}` or `openai/{0}`"
    )]
    NoProvider(Printable),
    #[error(
        "`{0}` is not the name of a model: write `provider/model` with letters, digits and `-._:@+`, as in \
         `anthropic/claude-sonnet-4-5` or `openrouter/openai/gpt-5`"
    )]
    Odd(Printable),
}

impl FromStr for ModelName {
    type Err = ModelNameError;

    fn from_str(text: &str) -> Result<ModelName, ModelNameError> {
        // It becomes part of arguments and of settings in several languages: no quotes, nothing that could be an option.
        let letter = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'@' | b'+')
        };
        let fits = |part: &str| {
            part.bytes().all(letter)
                && part.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '@')
        };
        if text.len() > MAX || !text.split('/').all(fits) {
            return Err(ModelNameError::Odd(text.into()));
        }
        let (provider, model) =
            text.split_once('/').ok_or_else(|| ModelNameError::NoProvider(text.into()))?;
        Ok(ModelName { provider: provider.to_string(), model: model.to_string() })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

const MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_a_provider() {
        for (text, provider, model) in [
            ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
            ("openrouter/anthropic/claude-3.5:beta", "openrouter", "anthropic/claude-3.5:beta"),
            ("litellm/@team/a+b", "litellm", "@team/a+b"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!((name.provider.as_str(), name.model.as_str()), (provider, model));
            assert_eq!(name.to_string(), text);
        }
        let error = "gpt-5".parse::<ModelName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`gpt-5` does not say whose model it is: write `provider/model`, as in `anthropic/gpt-5` or `openai/gpt-5`"
        );
        let long = format!("a/{}", "b".repeat(200));
        for text in
            ["", "/", "a/", "/b", "a//b", "a/../b", "-a/b", "a/-b", "a/b c", "a/b\"", "a/b\n", "ä/b", &long]
        {
            assert!(matches!(text.parse::<ModelName>(), Err(ModelNameError::Odd(_))), "{text:?}");
        }
    }
}

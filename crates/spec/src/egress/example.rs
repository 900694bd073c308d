//! Examples that a rule must and must not match: a rule that means something else than its writer thought is found when
//! it is loaded, not when something got through.

use super::{HostName, HostNameError, PortRange, Printable, Rule};

impl Rule {
    /// Checks examples, each a name or `name:port`.
    pub fn check_examples<T: AsRef<str>, U: AsRef<str>>(
        &self,
        matches: &[T],
        does_not_match: &[U],
    ) -> Result<(), ExampleError> {
        for example in matches {
            if !self.matches_example(example.as_ref())? {
                return Err(ExampleError::Missed {
                    rule: self.to_string(),
                    example: example.as_ref().into(),
                });
            }
        }
        for example in does_not_match {
            if self.matches_example(example.as_ref())? {
                return Err(ExampleError::Matched {
                    rule: self.to_string(),
                    example: example.as_ref().into(),
                });
            }
        }
        Ok(())
    }

    /// Does it match an example, which is a name or `name:port`?
    pub fn matches_example(&self, example: &str) -> Result<bool, ExampleError> {
        let (name, port) = match example.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (example, None),
        };
        let port = match port.map(|port| port.parse::<PortRange>()) {
            None => None,
            Some(Ok(range)) if range.first() == range.last() => Some(range.first()),
            Some(_) => return Err(ExampleError::Port(example.into())),
        };
        let name = name
            .parse::<HostName>()
            .map_err(|error| ExampleError::Name { example: example.into(), error })?;
        Ok(self.matches(&name, port))
    }
}

/// An example that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExampleError {
    /// It should match.
    #[error("rule `{rule}` does not match its example `{example}`: change the rule, or take the example out")]
    Missed { rule: String, example: Printable },
    /// It should not match.
    #[error(
        "rule `{rule}` matches `{example}`, which it must not: narrow the rule, as with `=` for one name only"
    )]
    Matched { rule: String, example: Printable },
    /// It is no name.
    #[error("example `{example}` cannot be checked: {error}")]
    Name { example: Printable, error: HostNameError },
    /// Its port is none.
    #[error("example `{0}` cannot be checked: write a name, or a name and one port, as in `example.com:443`")]
    Port(Printable),
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn examples_hold_or_are_refused() {
        let rule: Rule = "=api.x.com:8443/tls".parse().expect("a rule");
        assert_eq!(
            rule.check_examples(
                &["api.x.com", "API.x.com.:8443"],
                &["x.com", "a.api.x.com", "api.x.com:443"]
            ),
            Ok(())
        );
        for (matches, does_not_match, says) in [
            (&["x.com"][..], &[][..], "does not match its example `x.com`"),
            (&["api.x.com:443"], &[], "does not match its example"),
            (&[], &["api.x.com"], "which it must not"),
            (&["1.2.3.4"], &[], "is an address"),
            (&[], &["https://x.com"], "one port"),
            (&["api.x.com:1-2"], &[], "one port"),
        ] {
            let error = rule.check_examples(matches, does_not_match).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(rule.check_examples(&NONE, &NONE), Ok(()));
    }
}

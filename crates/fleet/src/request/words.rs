//! One word of a request, and what is wrong with it.

use belljar_spec::SandboxError;
use std::fmt;
use std::str::FromStr;

/// What a word means.
pub(super) fn word<T: FromStr<Err: fmt::Display>>(field: &str, text: &str) -> Result<T, SandboxError> {
    text.parse().map_err(|error| refused(field, error))
}

/// The same, if it was said.
pub(super) fn optional<T: FromStr<Err: fmt::Display>>(
    field: &str,
    text: &Option<String>,
) -> Result<Option<T>, SandboxError> {
    text.as_deref().map(|text| word(field, text)).transpose()
}

/// The same, of each.
pub(super) fn each<T: FromStr<Err: fmt::Display>>(
    field: &str,
    texts: &[String],
) -> Result<Vec<T>, SandboxError> {
    texts.iter().map(|text| word(field, text)).collect()
}

/// A word that makes no sense.
pub(super) fn refused(field: &str, why: impl fmt::Display) -> SandboxError {
    let field = field.escape_debug();
    SandboxError::policy("request_value", format!("`{field}`: {why}"))
        .hint(format!("correct `sandbox.{field}`"))
}

/// Words that make no sense together.
pub(super) fn conflict(field: &str, why: &str) -> SandboxError {
    let field = field.escape_debug();
    SandboxError::policy("request_conflict", format!("`{field}`: {why}"))
        .hint(format!("correct `sandbox.{field}`"))
}

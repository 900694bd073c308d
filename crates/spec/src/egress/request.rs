//! Which requests of HTTP a rule or a credential means: by method and by path.

use super::Printable;
use std::fmt;
use std::str::FromStr;

/// Methods and paths; an empty list means any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestFilter {
    pub methods: Vec<RequestMethod>,
    pub paths: Vec<PathGlob>,
}

/// `GET` and the like, in capitals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestMethod(String);

/// `/repos/acme/**`: `*` is anything within a segment, `**` any number of segments. A path, never a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathGlob(String);

impl RequestFilter {
    /// Any request.
    pub const ANY: RequestFilter = RequestFilter { methods: Vec::new(), paths: Vec::new() };

    /// Does it mean every request?
    pub fn is_any(&self) -> bool {
        *self == RequestFilter::ANY
    }
}

impl RequestMethod {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PathGlob {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFilterError {
    #[error("`{0}` is not a method: write one like `GET`")]
    Method(Printable),
    #[error("`{0}` is not a path: begin with `/`, and write no `?`, `#`, `%` or `..`")]
    Path(Printable),
}

impl FromStr for RequestMethod {
    type Err = RequestFilterError;

    fn from_str(text: &str) -> Result<RequestMethod, RequestFilterError> {
        let upper = text.to_ascii_uppercase();
        if upper.is_empty()
            || upper == "CONNECT"
            || !upper.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        {
            return Err(RequestFilterError::Method(text.into()));
        }
        Ok(RequestMethod(upper))
    }
}

impl FromStr for PathGlob {
    type Err = RequestFilterError;

    fn from_str(text: &str) -> Result<PathGlob, RequestFilterError> {
        let dots = text.split('/').any(|segment| segment == "." || segment == "..");
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\\".contains(&byte));
        if !text.starts_with('/') || dots || !plain {
            return Err(RequestFilterError::Path(text.into()));
        }
        Ok(PathGlob(text.to_string()))
    }
}

impl fmt::Display for RequestMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

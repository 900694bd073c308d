//! Which wall.

use crate::Assurance;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What builds the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// Namespaces of our own making.
    Native,
    /// The same, made by bubblewrap.
    Bwrap,
    /// The container that we are in already.
    Container,
    /// Nothing.
    Host,
}

impl BackendName {
    /// Strongest first; the order that `auto` tries, as far as it goes.
    pub const ALL: [BackendName; 4] =
        [BackendName::Native, BackendName::Bwrap, BackendName::Container, BackendName::Host];

    /// What `auto` may choose: never no wall.
    pub const AUTO: [BackendName; 3] = [BackendName::Native, BackendName::Bwrap, BackendName::Container];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendName::Native => "native",
            BackendName::Bwrap => "bwrap",
            BackendName::Container => "container",
            BackendName::Host => "host",
        }
    }

    /// How strong its wall is.
    pub fn assurance(self) -> Assurance {
        match self {
            BackendName::Native | BackendName::Bwrap => Assurance::Namespace,
            BackendName::Container => Assurance::Container,
            BackendName::Host => Assurance::Host,
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The strongest that works here.
    #[default]
    Auto,
    /// This one or none.
    Named(BackendName),
}

/// Not a backend.
#[derive(Debug, thiserror::Error)]
#[error("there is no backend `{0}`: use one of auto, native, bwrap, container, host")]
pub struct UnknownBackend(String);

impl FromStr for BackendChoice {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<BackendChoice, UnknownBackend> {
        if text == "auto" {
            return Ok(BackendChoice::Auto);
        }
        let named = BackendName::ALL.into_iter().find(|name| name.as_str() == text);
        named.map(BackendChoice::Named).ok_or_else(|| UnknownBackend(text.to_string()))
    }
}

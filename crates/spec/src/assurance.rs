//! The strength of isolation.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// How strong the isolation of a backend is; later is stronger. `--at-least` compares with this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Assurance {
    /// No isolation.
    Host,
    /// The container around us, shared with everything else in it.
    Container,
    /// The host's own processes and paths, with the kernel's rules for what they may reach.
    Landlock,
    /// Own namespaces on the host's kernel.
    Namespace,
    /// A kernel in user space.
    Gvisor,
    /// A kernel of its own.
    Microvm,
}

impl Assurance {
    /// Weakest first.
    pub const ALL: [Assurance; 6] = [
        Assurance::Host,
        Assurance::Container,
        Assurance::Landlock,
        Assurance::Namespace,
        Assurance::Gvisor,
        Assurance::Microvm,
    ];

    /// Whether belljar isolates at all at this level: what is weaker cannot enforce a policy.
    pub fn isolates(self) -> bool {
        self >= Assurance::Landlock
    }

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Assurance::Host => "host",
            Assurance::Container => "container",
            Assurance::Landlock => "landlock",
            Assurance::Namespace => "namespace",
            Assurance::Gvisor => "gvisor",
            Assurance::Microvm => "microvm",
        }
    }
}

impl fmt::Display for Assurance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

crate::text::read_as_text!(Assurance);

/// Not a level.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a level of assurance: use one of host, container, landlock, namespace, gvisor, microvm"
)]
pub struct UnknownAssurance(String);

impl FromStr for Assurance {
    type Err = UnknownAssurance;

    fn from_str(text: &str) -> Result<Assurance, UnknownAssurance> {
        Assurance::ALL
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| UnknownAssurance(text.to_string()))
    }
}

//! The strength of isolation.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// How strong the isolation of a backend is. Those of this machine have an order; what a service elsewhere does compares with none of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
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
    /// Whatever a service elsewhere does. It is not seen from here, so it is no weaker and no stronger.
    Remote,
}

impl Assurance {
    /// Weakest first, and the one beside them.
    pub const ALL: [Assurance; 7] = [
        Assurance::Host,
        Assurance::Container,
        Assurance::Landlock,
        Assurance::Namespace,
        Assurance::Gvisor,
        Assurance::Microvm,
        Assurance::Remote,
    ];

    /// Whether it will do where this is the least that will. What a service elsewhere does is enough only for a caller who asks for that,
    /// and nothing else is then.
    pub fn is_at_least(self, least: Assurance) -> bool {
        match (self, least) {
            (Assurance::Remote, Assurance::Remote) => true,
            (Assurance::Remote, _) | (_, Assurance::Remote) => false,
            (ours, least) => ours.strength() >= least.strength(),
        }
    }

    /// The stricter of two that have to do both. Where one is remote and the other is not, nothing will do, which the first says.
    pub fn stricter(self, other: Assurance) -> Assurance {
        if other.is_at_least(self) { other } else { self }
    }

    /// Whether sandboxes of this level are isolated at all: what is weaker cannot enforce a policy.
    pub fn isolates(self) -> bool {
        self == Assurance::Remote || self.is_at_least(Assurance::Landlock)
    }

    /// By this those of this machine are compared.
    fn strength(self) -> u8 {
        match self {
            Assurance::Host | Assurance::Remote => 0,
            Assurance::Container => 1,
            Assurance::Landlock => 2,
            Assurance::Namespace => 3,
            Assurance::Gvisor => 4,
            Assurance::Microvm => 5,
        }
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
            Assurance::Remote => "remote",
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
    "`{0}` is not a level of assurance: use one of host, container, landlock, namespace, gvisor, microvm, remote"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remote_compares_with_nothing_here() {
        for level in Assurance::ALL {
            assert_eq!(level.is_at_least(Assurance::Remote), level == Assurance::Remote, "{level}");
            assert_eq!(Assurance::Remote.is_at_least(level), level == Assurance::Remote, "{level}");
        }
        assert!(
            Assurance::Microvm.is_at_least(Assurance::Host)
                && !Assurance::Host.is_at_least(Assurance::Container)
        );
        assert_eq!(Assurance::Namespace.stricter(Assurance::Gvisor), Assurance::Gvisor);
        assert_eq!(Assurance::Namespace.stricter(Assurance::Host), Assurance::Namespace);
        assert_eq!(Assurance::Namespace.stricter(Assurance::Remote), Assurance::Namespace);
    }
}

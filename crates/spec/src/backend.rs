//! The backends.

use crate::Assurance;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What isolates a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendName {
    /// Namespaces of our own making.
    Native,
    /// The same, made by bubblewrap.
    Bwrap,
    /// A container of Docker's, run by this runtime.
    Docker(Runtime),
    /// No namespaces: Landlock for files, and a supervisor that makes every socket.
    Landlock,
    /// A service elsewhere that speaks E2B's protocol.
    E2b,
    /// The container that we are in already.
    Container,
    /// Nothing.
    Host,
}

impl BackendName {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [BackendName; 9] = [
        BackendName::Native,
        BackendName::Bwrap,
        BackendName::Landlock,
        BackendName::Docker(Runtime::Runc),
        BackendName::Docker(Runtime::Runsc),
        BackendName::Docker(Runtime::Kata),
        BackendName::E2b,
        BackendName::Container,
        BackendName::Host,
    ];

    /// What `auto` may choose, in this order: what isolates and needs nothing but the kernel. Never `container` and `host`, which
    /// isolate nothing and are only for callers who name them.
    pub const AUTO: [BackendName; 3] = [BackendName::Native, BackendName::Bwrap, BackendName::Landlock];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendName::Native => "native",
            BackendName::Bwrap => "bwrap",
            BackendName::Landlock => "landlock",
            BackendName::Docker(Runtime::Runc) => "docker",
            BackendName::Docker(Runtime::Runsc) => "docker+runsc",
            BackendName::Docker(Runtime::Kata) => "docker+kata",
            BackendName::E2b => "e2b",
            BackendName::Container => "container",
            BackendName::Host => "host",
        }
    }

    /// How strong its isolation is.
    pub fn assurance(self) -> Assurance {
        match self {
            BackendName::Native | BackendName::Bwrap | BackendName::Docker(Runtime::Runc) => {
                Assurance::Namespace
            }
            BackendName::Docker(Runtime::Runsc) => Assurance::Gvisor,
            BackendName::Docker(Runtime::Kata) => Assurance::Microvm,
            BackendName::Landlock => Assurance::Landlock,
            BackendName::E2b => Assurance::Remote,
            BackendName::Container => Assurance::Container,
            BackendName::Host => Assurance::Host,
        }
    }
}

impl Serialize for BackendName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What runs Docker's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Runtime {
    /// Namespaces on the host's kernel.
    #[default]
    Runc,
    /// gVisor: a kernel in user space.
    Runsc,
    /// Kata: a virtual machine.
    Kata,
}

impl Runtime {
    /// As Docker knows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Runc => "runc",
            Runtime::Runsc => "runsc",
            Runtime::Kata => "kata",
        }
    }
}

/// Not a runtime.
#[derive(Debug, thiserror::Error)]
#[error("there is no runtime `{0}`: use runc or runsc")]
pub struct UnknownRuntime(String);

impl FromStr for Runtime {
    type Err = UnknownRuntime;

    fn from_str(text: &str) -> Result<Runtime, UnknownRuntime> {
        let all = [Runtime::Runc, Runtime::Runsc, Runtime::Kata];
        all.into_iter()
            .find(|runtime| runtime.as_str() == text)
            .ok_or_else(|| UnknownRuntime(text.to_string()))
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

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendChoice::Auto => f.write_str("auto"),
            BackendChoice::Named(name) => name.fmt(f),
        }
    }
}

crate::text::serde_as_text!(BackendChoice);

/// Not a backend.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no backend `{0}`: use one of auto, native, bwrap, landlock, docker, docker+runsc, e2b, container, host"
)]
pub struct UnknownBackend(String);

impl FromStr for BackendName {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<BackendName, UnknownBackend> {
        let found = BackendName::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| UnknownBackend(text.to_string()))
    }
}

impl FromStr for BackendChoice {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<BackendChoice, UnknownBackend> {
        if text == "auto" { Ok(BackendChoice::Auto) } else { text.parse().map(BackendChoice::Named) }
    }
}

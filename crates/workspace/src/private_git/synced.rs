//! What a sandbox's git directory and the host's repository agreed on last, and what an import did.

use crate::foreign::Head;
use belljar_git::ObjectId;
use belljar_spec::egress::Printable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Refs, by their whole names.
pub type Refs = BTreeMap<String, ObjectId>;

/// The refs and the HEAD that both sides had when they were compared last. A ref that differs from this inside was moved by
/// the agent; one that differs from this on the host was moved by the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// The text of HEAD, as its file has it: `ref: refs/heads/NAME`, or a commit.
    pub head: String,
    /// Branches and tags, by their whole names.
    #[serde(with = "as_text")]
    pub refs: Refs,
    /// Where a branch of the host stood before this sandbox moved it for the first time since the user did: history from
    /// there on is the sandbox's own, and it may rewrite it. Zeros: the branch was not there.
    #[serde(default, with = "as_text")]
    pub before: Refs,
    /// Where this sandbox put a branch of the host last. One that is elsewhere was moved by the user since.
    #[serde(default, with = "as_text")]
    pub put: Refs,
    /// Refs inside whose commits were kept beside the host's branches: not imported again while they stay there.
    #[serde(default, with = "as_text")]
    pub set_aside: Refs,
}

impl Synced {
    /// The commit of HEAD, if it has one.
    pub fn commit(&self) -> Option<ObjectId> {
        match self.head.strip_prefix("ref: ") {
            Some(name) => self.refs.get(name).cloned(),
            None => self.head.parse().ok(),
        }
    }
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Refs of the host that moved with the sandbox's.
    pub followed: Vec<Followed>,
    /// Commits that the host has, under names of belljar's.
    pub set_aside: Vec<SetAside>,
    /// Names of belljar's that are gone: a branch of the host has their commits by now.
    pub released: Vec<String>,
    /// Refs that are inside at the end: one that was told as deleted is not any more.
    pub present: BTreeSet<String>,
    /// The branch or commit that the host's HEAD went to, if it went along.
    pub head: Option<Head>,
    /// What git inside is in the middle of; looked for at the sandbox's end.
    pub unfinished: Option<&'static str>,
    /// What else a person should know.
    pub notes: Vec<String>,
    /// Not everything could be looked at: what the host does not have yet is in the sandbox's git directory alone.
    pub is_partial: bool,
}

impl ImportReport {
    /// Whether something is in the sandbox's git directory alone.
    pub fn leaves_some_inside(&self) -> bool {
        self.is_partial || self.set_aside.iter().any(|one| one.kept_as.is_none() && !one.is_on_host)
    }
}

/// A ref of the host that moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its whole name; `HEAD` for a detached one.
    pub reference: String,
    /// None: it is new.
    pub old: Option<ObjectId>,
    /// None: it is gone.
    pub new: Option<ObjectId>,
}

/// Commits that no branch of the host took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The ref inside.
    pub reference: Printable,
    /// The ref of the host that has them, `refs/belljar/ID/...`; none if they were refused and stay inside.
    pub kept_as: Option<String>,
    pub commit: ObjectId,
    /// The host has the commit all the same: of a branch that was deleted inside.
    pub is_on_host: bool,
    /// Why the branch did not follow, for a person.
    pub reason: String,
    /// They make a path a submodule that was none on the host: git there would run what the config in that folder says.
    pub makes_submodule: bool,
}

/// Object names as text: the crate of git's formats knows nothing of serde.
mod as_text {
    use super::{BTreeMap, Refs};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(refs: &Refs, serializer: S) -> Result<S::Ok, S::Error> {
        let text: BTreeMap<&str, &str> = refs.iter().map(|(name, id)| (name.as_str(), id.as_str())).collect();
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Refs, D::Error> {
        let text = BTreeMap::<String, String>::deserialize(deserializer)?;
        let ids = text.into_iter().map(|(name, id)| Ok((name, id.parse()?)));
        ids.collect::<Result<_, belljar_git::NotAnObjectId>>().map_err(D::Error::custom)
    }
}
